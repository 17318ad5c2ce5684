// SPDX-License-Identifier: Apache-2.0
//
// The rules that count tokens against the default rule: where placement is good they must not harm,
// where conversations were piled on one replica they must spread them.
#include <limpet/sim/router_front_end.hpp>

#include "catch.hpp"

#include <limpet/limpet.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/presets.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/run.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

using namespace limpet;
using namespace limpet::sim;

// Places every conversation on the first replica: the worst that a placement can do.
struct FirstReplica {
  double score(const ReplicaLoad& load, const ScoreContext&) const noexcept {
    return load.replica.slot;
  }
};

struct Setup {
  EngineProfile profile = profiles::a4000_qwen3_4b();
  std::uint32_t replicas = 4;
  std::vector<std::uint32_t> steps{4, 8, 16, 24, 32};  // sessions at once
  double slow = 1.0;                                   // the last replica's steps take as long
  double think = 0;                                    // s, mean
};

// Means over seeds, a row a step.
struct Row {
  double output = 0;  // tokens/min
  double p50 = 0;     // of TTFB, s
  double p95 = 0;
  double hits = 0;   // %
  double moved = 0;  // conversations
};

template <class Scorer, class Overflow>
std::vector<Row> mean(const Setup& setup, Scorer scorer, Overflow overflow, std::uint64_t seeds) {
  std::vector<Row> rows(setup.steps.size());
  const double share = 1.0 / static_cast<double>(seeds);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    ManualClock clock;
    Router router{ShardedPins<>{}, scorer, overflow, VllmMetrics{}, clock};
    RouterFrontEnd front(router, clock);
    std::vector<EngineProfile> fleet(setup.replicas, setup.profile);
    fleet.back().slowdown *= setup.slow;
    Simulation simulation(fleet, front, {.wander = 0.1, .seed = seed});
    LadderSessions sessions(seed, {.think_mean = setup.think});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Report report = simulation.run(sessions, {.seats = setup.steps[i], .seconds = 180});
      rows[i].output += share * report.output_tokens_per_minute;
      rows[i].p50 += share * report.ttfb.p50;
      rows[i].p95 += share * report.ttfb.p95;
      rows[i].hits += share * 100 * report.from_cache;
      rows[i].moved += share * static_cast<double>(report.moved);
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("MoveIfCheaper keeps the default rule's output where placement is good") {
  for (const double slow : {1.0, 2.0}) {
    for (const double think : {0.0, 5.0}) {
      const Setup setup{.slow = slow, .think = think};
      const auto base = mean(setup, WeightedLoad{}, SpillAbove{}, 5);
      const auto ours = mean(setup, WeightedLoad{}, MoveIfCheaper{}, 5);
      for (std::size_t i = 0; i < setup.steps.size(); ++i) {
        INFO(setup.steps[i] << " sessions, one replica " << slow << " x as slow, pauses " << think
                            << " s: output " << base[i].output << " -> " << ours[i].output);
        CHECK(ours[i].output >= 0.965 * base[i].output);
        if (setup.steps[i] <= 8) CHECK(ours[i].output >= 0.97 * base[i].output);
      }
    }
  }
}

TEST_CASE("conversations that are all placed on one replica spread") {
  const Setup a4000{.steps = {4, 8}};
  const auto stay = mean(a4000, FirstReplica{}, SpillAbove{}, 5);
  const auto move = mean(a4000, FirstReplica{}, MoveIfCheaper{}, 5);
  INFO("four A4000: " << stay[0].output << " -> " << move[0].output << ", " << stay[1].output
                      << " -> " << move[1].output);
  CHECK(move[0].output >= 1.5 * stay[0].output);
  CHECK(move[1].output >= 3.0 * stay[1].output);
  CHECK(move[1].p50 <= 0.5);

  const Setup cpu{.profile = profiles::cpu_core_82m(), .replicas = 2, .steps = {4}};
  const auto piled = mean(cpu, FirstReplica{}, SpillAbove{}, 5);
  const auto spread = mean(cpu, FirstReplica{}, MoveIfCheaper{}, 5);
  INFO("two CPU ranks: " << piled[0].output << " -> " << spread[0].output);
  CHECK(spread[0].output >= 1.6 * piled[0].output);
}

TEST_CASE("MoveIfCheaper repairs part of what the published placement does") {
  const Setup setup{.steps = {4, 8, 12}};
  const auto stay = mean(setup, presets::published(), SpillAbove{}, 5);
  const auto move = mean(setup, presets::published(), MoveIfCheaper{}, 5);
  for (std::size_t i = 0; i < setup.steps.size(); ++i) {
    INFO(setup.steps[i] << " sessions: " << stay[i].output << " -> " << move[i].output);
    CHECK(move[i].output >= 0.99 * stay[i].output);
  }
  CHECK(move[2].output >= 1.1 * stay[2].output);
}

// Prints the tables of include/limpet/sim/README.md.
TEST_CASE("tables of the rules that count tokens", "[.][token-table]") {
  const auto print = [](const char* title, const Setup& setup, const char* rule,
                        const std::vector<Row>& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::printf("| %s | %u | %s | %.0f | %.2f | %.1f | %.1f | %.1f |\n", title, setup.steps[i],
                  rule, rows[i].output, rows[i].p50, rows[i].p95, rows[i].hits, rows[i].moved);
    }
  };
  const auto rules = [&](const char* title, const Setup& setup, auto scorer) {
    print(title, setup, "SpillAbove", mean(setup, scorer, SpillAbove{}, 20));
    print(title, setup, "MoveWhenFull", mean(setup, scorer, MoveWhenFull{}, 20));
    print(title, setup, "MoveIfCheaper", mean(setup, scorer, MoveIfCheaper{}, 20));
  };
  const auto scorers = [&](const char* title, const Setup& setup) {
    print(title, setup, "LeastPendingPrefill",
          mean(setup, LeastPendingPrefill{}, SpillAbove{}, 20));
    print(title, setup, "TokensTimesBatch", mean(setup, TokensTimesBatch{}, SpillAbove{}, 20));
  };
  rules("ladder", {}, WeightedLoad{});
  scorers("ladder", {});
  rules("one replica 2 x as slow", {.slow = 2.0}, WeightedLoad{});
  scorers("one replica 2 x as slow", {.slow = 2.0});
  rules("pauses of 5 s", {.think = 5.0}, WeightedLoad{});
  scorers("pauses of 5 s", {.think = 5.0});
  rules("published placement", {.steps = {4, 8, 12}}, presets::published());
  rules("all on one replica", {.steps = {4, 8, 12}}, FirstReplica{});
  rules("two CPU ranks, all on one",
        {.profile = profiles::cpu_core_82m(), .replicas = 2, .steps = {4}}, FirstReplica{});
}
