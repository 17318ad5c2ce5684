// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/run.hpp>

#include "catch.hpp"

#include <limpet/limpet.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/router_front_end.hpp>

#include <chrono>

namespace {

using namespace limpet::sim;

const std::vector<EngineProfile> four(4, profiles::a4000_qwen3_4b());

// One session of two turns: prompts of 100 and 200 tokens, 10 tokens each, 5 s apart.
struct OneSession {
  int left = 1;
  std::optional<Session> next() {
    if (left-- == 0) return std::nullopt;
    return Session{"one", {{7, 32}}, {{-1, 0, 100, 10, 0.0, 0}, {0, 110, 200, 10, 5.0, 0}}};
  }
};

template <class F>
std::string golden(F front, std::uint64_t seed) {
  Simulation simulation(four, front, {.wander = 0.1, .seed = seed});
  LadderSessions sessions(seed);
  std::string text;
  for (const std::uint32_t seats : {4u, 16u}) {
    const Report report = simulation.run(sessions, {.seats = seats, .seconds = 60});
    text += to_json(report);
    for (const TurnRecord& turn : simulation.turns()) {
      text += std::to_string(turn.replica) + " " + std::to_string(turn.first) + "\n";
    }
  }
  return text;
}

std::string golden_router(std::uint64_t seed) {
  limpet::ManualClock clock;
  limpet::Router router{limpet::ShardedPins<>{}, limpet::WeightedLoad{}, limpet::SpillAbove{},
                        limpet::VllmMetrics{}, clock};
  return golden(RouterFrontEnd(router, clock), seed);
}

// Lets one turn run at a time, with a pause of a second between two.
struct Gate : FrontEndBase {
  std::vector<std::uint64_t> held;
  bool free = true;
  double until = 0;
  Choice choose(const Arrival& turn, double) {
    if (!std::exchange(free, false)) {
      held.push_back(turn.id);
      return {};
    }
    return {0};
  }
  void finished(std::uint64_t, std::size_t, const limpet::Usage&, double now) {
    free = true;
    until = now + 1.0;  // a pause between two turns
  }
  template <class Go>
  void released(double now, Go go) {
    if (!free || held.empty() || now < until) return;
    free = false;
    go(std::exchange(held, {}).front(), Choice{0});
  }
  double wake_at() const {
    return held.empty() || !free ? std::numeric_limits<double>::infinity() : until;
  }
};

static_assert(HoldingFrontEnd<Gate>);

}  // namespace

TEST_CASE("two turns of one session take the times that can be computed by hand") {
  EngineProfile profile;
  profile.step = {.per_token = 0.01, .fixed = 0.1};
  profile.front_end = 0.5;
  VllmBalancerBlind front;
  Simulation simulation({profile}, front);
  OneSession sessions;
  const Report report = simulation.run(sessions, {});
  REQUIRE(simulation.turns().size() == 2);
  const TurnRecord& first = simulation.turns()[0];
  CHECK(first.sent == 0.0);
  CHECK(first.first == Approx(0.5 + 0.1 + 1.00));  // 100 tokens
  CHECK(first.end == Approx(1.6 + 9 * 0.11));      // nine more steps of one token
  const TurnRecord& second = simulation.turns()[1];
  CHECK(second.sent == Approx(2.59 + 5.0));
  CHECK(second.cached_tokens == 96);  // of 109 computed tokens, six full blocks
  CHECK(second.first == Approx(7.59 + 0.5 + 0.1 + 1.04));
  CHECK(second.end == Approx(9.23 + 9 * 0.11));
  CHECK(report.sessions == 1);
  CHECK(report.seconds == Approx(10.22));
  CHECK(report.replicas_busy == Approx((2.09 + 2.13) / 10.22));
  CHECK(report.output_tokens_per_minute == Approx(20 * 60 / 10.22));
  CHECK(report.prefix_hits == Approx(96.0 / 300.0));
}

TEST_CASE("the same seed gives the same report to the byte, another seed another") {
  CHECK(golden(VllmBalancer{}, 1) == golden(VllmBalancer{}, 1));
  CHECK(golden(VllmBalancer{}, 1) != golden(VllmBalancer{}, 2));
  CHECK(golden_router(1) == golden_router(1));
  CHECK(golden_router(1) != golden_router(2));
}

TEST_CASE("nothing is lost: every turn ends once, tokens and blocks come out as they went in") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  VllmBalancer front;
  Simulation simulation(four, front, {.wander = 0.1, .seed = seed});
  LadderSessions sessions(seed, {.output_min = 1});
  for (const std::uint32_t seats : {3u, 24u, 8u}) {
    std::uint64_t generated = 0;
    std::uint64_t finished = 0;
    for (const Engine& engine : simulation.engines()) {
      generated += engine.counters().generation_tokens;
      finished += engine.counters().finished;
    }
    (void)simulation.run(sessions, {.seats = seats, .seconds = 60});
    std::uint64_t asked = 0;
    for (const TurnRecord& turn : simulation.turns()) {
      CHECK(turn.sent <= turn.first);
      CHECK(turn.first <= turn.end);
      CHECK(turn.cached_tokens < turn.prompt_tokens);
      asked += turn.output_tokens;
    }
    for (const Engine& engine : simulation.engines()) {
      generated -= engine.counters().generation_tokens;
      finished -= engine.counters().finished;
      CHECK(!engine.has_work());
      CHECK(engine.cache().free() == engine.cache().size());
    }
    CHECK(generated + asked == 0);  // modulo 2^64
    CHECK(finished + simulation.turns().size() == 0);
  }
}

TEST_CASE("Little's law: turns present on average are their rate times their stay") {
  // Seats without pauses are always present, from their first turn to the end of their last.
  VllmBalancer front;
  Simulation simulation(four, front);
  LadderSessions sessions(1);
  (void)simulation.run(sessions, {.seats = 12, .seconds = 300, .stagger = 0});
  double stay = 0;
  double end = 0;
  std::vector<double> last(12, 0.0);
  for (const TurnRecord& turn : simulation.turns()) {
    stay += turn.end - turn.sent;
    end = std::max(end, turn.end);
    last[turn.seat] = std::max(last[turn.seat], turn.end);
  }
  double present = 0;
  for (const double leaving : last) present += leaving;
  CHECK(stay == Approx(present).epsilon(1e-9));
}

TEST_CASE("a sub-agent is a conversation of its own, with its parent named") {
  struct Listener : FrontEndBase {
    std::vector<std::pair<std::string, std::string>> seen;
    Choice choose(const Arrival& turn, double) {
      seen.emplace_back(turn.conversation, turn.parent);
      return {0};
    }
  };
  struct Source {
    int left = 1;
    std::optional<Session> next() {
      if (left-- == 0) return std::nullopt;
      return Session{
          "s", {{7, 32}}, {{-1, 0, 100, 1, 0, 0}, {-1, 0, 100, 1, 0, 2}, {0, 64, 200, 1, 0, 0}}};
    }
  };
  Listener front;
  Simulation simulation({four[0]}, front);
  Source source;
  (void)simulation.run(source, {});
  CHECK(front.seen ==
        std::vector<std::pair<std::string, std::string>>{{"s", ""}, {"s#2", "s"}, {"s", ""}});
  CHECK(simulation.turns()[1].cached_tokens == 32);  // the shared text
  CHECK(simulation.turns()[2].cached_tokens == 64);  // what it keeps of its first turn
}

TEST_CASE("a front end may hold a turn and let it go later") {
  EngineProfile profile;
  profile.step = {.fixed = 1.0};
  Gate front;
  Simulation simulation({profile}, front);
  LadderSessions sessions(1, {.shared = 16,
                              .first_min = 16,
                              .first_max = 16,
                              .turns = 1,
                              .output_min = 1,
                              .output_max = 1});
  (void)simulation.run(sessions, {.seats = 2, .seconds = 0.5, .stagger = 0});
  REQUIRE(simulation.turns().size() == 2);
  CHECK(simulation.turns()[0].first == Approx(1.0));
  CHECK(simulation.turns()[1].first == Approx(3.0));  // held until 1 + 1
}

TEST_CASE("the ten runs of the ladder take less than two seconds") {
#ifndef NDEBUG
  SKIP("only a build without assertions says how fast it is");
#endif
  const auto begin = std::chrono::steady_clock::now();
  for (const auto policy : {0, 1}) {
    limpet::ManualClock clock;
    limpet::Router router{limpet::ShardedPins<>{}, limpet::WeightedLoad{}, limpet::SpillAbove{},
                          limpet::VllmMetrics{}, clock};
    VllmBalancerBlind off;
    RouterFrontEnd on(router, clock);
    LadderSessions sessions(1);
    const auto ladder = [&](auto& front) {
      Simulation simulation(four, front);
      for (const std::uint32_t seats : {4u, 8u, 16u, 24u, 32u}) {
        CHECK(simulation.run(sessions, {.seats = seats, .seconds = 180}).turns > 50);
      }
    };
    policy == 0 ? ladder(off) : ladder(on);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}
