// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/workload.hpp>

#include "catch.hpp"

#include <algorithm>
#include <vector>

using namespace limpet::sim;

TEST_CASE("the ladder's sessions are the published ones") {
  LadderSessions sessions(1);
  for (int i = 0; i < 100; ++i) {
    const auto session = sessions.next();
    REQUIRE(session);
    REQUIRE(session->turns.size() == 6);
    CHECK(session->shared.front().tokens == 3'500);
    CHECK(session->turns[0].prompt_tokens >= 10'650);
    CHECK(session->turns[0].prompt_tokens <= 10'950);
    for (std::size_t t = 1; t < 6; ++t) {
      const TurnPlan& before = session->turns[t - 1];
      CHECK(session->turns[t].kept == before.prompt_tokens + 256);
      CHECK(session->turns[t].prompt_tokens == before.prompt_tokens + 256 + 400);
      CHECK(session->turns[t].from == static_cast<int>(t) - 1);
    }
  }
}

TEST_CASE("equal seeds give equal sessions, other seeds others") {
  const auto prompts = [](std::uint64_t seed) {
    AgentSessions sessions(seed);
    std::vector<std::uint64_t> drawn;
    for (int i = 0; i < 20; ++i) {
      const auto session = sessions.next();
      for (const TurnPlan& turn : session->turns) drawn.push_back(turn.prompt_tokens);
    }
    return drawn;
  };
  CHECK(prompts(3) == prompts(3));
  CHECK(prompts(3) != prompts(4));
}

TEST_CASE("synthetic agents have the quantiles of the recorded ones") {
  // Of 710 real sessions: turns P25/50/75 = 18/45/94, output P50/90 216/899, pause after a tool
  // result P50 9 s and after a human 100 s, 85 % of turns after a tool: so 9-13 s over all.
  AgentSessions sessions(1, {.context_limit = ~std::uint64_t{0}});
  std::vector<double> turns;
  std::vector<double> outputs;
  std::vector<double> pauses;
  for (int i = 0; i < 2'000; ++i) {
    const auto session = sessions.next();
    turns.push_back(static_cast<double>(session->turns.size()));
    for (const TurnPlan& turn : session->turns) {
      outputs.push_back(static_cast<double>(turn.output_tokens));
      if (turn.from >= 0) pauses.push_back(turn.think);
    }
  }
  const auto quantile = [](std::vector<double>& values, double p) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(p * static_cast<double>(values.size()))];
  };
  CHECK(quantile(turns, 0.25) == Approx(18).epsilon(0.15));
  CHECK(quantile(turns, 0.50) == Approx(45).epsilon(0.10));
  CHECK(quantile(turns, 0.75) == Approx(94).epsilon(0.10));
  CHECK(quantile(outputs, 0.50) == Approx(216).epsilon(0.05));
  CHECK(quantile(outputs, 0.90) == Approx(899).epsilon(0.05));
  CHECK(quantile(pauses, 0.50) == Approx(11).epsilon(0.20));
}

TEST_CASE("an agent's session ends before its prompt outgrows the model") {
  AgentSessions sessions(2, {.context_limit = 30'000});
  for (int i = 0; i < 200; ++i) {
    const auto session = sessions.next();
    REQUIRE(!session->turns.empty());
    const TurnPlan& last = session->turns.back();
    if (session->turns.size() > 1) CHECK(last.prompt_tokens + last.output_tokens <= 30'000);
  }
}
