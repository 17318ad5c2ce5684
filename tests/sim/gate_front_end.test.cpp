// SPDX-License-Identifier: Apache-2.0
//
// What the gate is for, in the simulator: the figures of include/limpet/gate/README.md, which
// `limpet_tests "[gate-table]"` prints. Four equal replicas and one 15 % slower; five seeds each,
// twenty of ten minutes where throughput is set against p95.
#include <limpet/sim/gate_front_end.hpp>

#include "catch.hpp"
#include "support/shared_data.hpp"

#include <limpet/limpet.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/replay.hpp>
#include <limpet/sim/run.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace limpet;
using namespace limpet::sim;
using namespace std::chrono_literals;

// The rule to compare with, whatever the default: in flight + live / 4, no gauge.
constexpr WeightedLoad scorer{.in_flight_weight = 1.0, .kv_usage_weight = 0.0, .live_weight = 0.25};

GateOptions in_simulation(GateOptions options = {}) {
  options.deadline = 0s;  // a simulated user never gives up
  options.max_waiting = 1'000'000;
  return options;
}

struct Ladder {
  double slow = 1.0;
  std::vector<std::uint32_t> steps;
  double seconds = 180;
  LadderOptions sessions{};
  std::uint64_t seeds = 5;
  std::uint64_t cache = 1;  // times as large
};

template <class F>
std::vector<Report> climb(const Ladder& ladder, F& front, std::uint64_t seed) {
  std::vector<EngineProfile> fleet(4, profiles::a4000_qwen3_4b());
  fleet.back().slowdown *= ladder.slow;
  for (EngineProfile& engine : fleet) engine.kv_tokens *= ladder.cache;
  Simulation simulation(fleet, front, {.wander = 0.1, .seed = seed});
  LadderSessions sessions(seed, ladder.sessions);
  simulation.warm(sessions.shared());
  std::vector<Report> reports;
  for (const std::uint32_t seats : ladder.steps)
    reports.push_back(simulation.run(sessions, {.seats = seats, .seconds = ladder.seconds}));
  return reports;
}

std::vector<Report> by_rule(const Ladder& ladder, std::uint64_t seed) {
  ManualClock clock;
  Router router{ShardedPins<>{}, scorer, SpillAbove{}, VllmMetrics{}, clock};
  RouterFrontEnd front(router, clock);
  return climb(ladder, front, seed);
}

std::vector<Report> by_gate(const Ladder& ladder, std::uint64_t seed, GateOptions options = {}) {
  ManualClock clock;
  Router router{ShardedPins<>{}, scorer, SpillAbove{}, VllmMetrics{}, clock};
  WorkingSetGate gate(router, in_simulation(options));
  GateFrontEnd front(router, gate, clock);
  return climb(ladder, front, seed);
}

std::vector<Report> by_balancer(const Ladder& ladder, std::uint64_t seed) {
  VllmBalancer balancer;
  return climb(ladder, balancer, seed);
}

// Of one step over all seeds.
struct Row {
  double output = 0, p50 = 0, p95 = 0, mean = 0, hits = 0, cache = 0;
  double output_low = 1e9, output_high = 0, p95_low = 1e9, p95_high = 0;

  void add(const Report& r, double seeds) {
    output += r.output_tokens_per_minute / seeds;
    p50 += r.ttfb.p50 / seeds;
    p95 += r.ttfb.p95 / seeds;
    mean += r.ttfb.mean / seeds;
    hits += 100 * r.prefix_hits / seeds;
    cache += 100 * r.from_cache / seeds;
    output_low = std::min(output_low, r.output_tokens_per_minute);
    output_high = std::max(output_high, r.output_tokens_per_minute);
    p95_low = std::min(p95_low, r.ttfb.p95);
    p95_high = std::max(p95_high, r.ttfb.p95);
  }
};

using Climb = std::function<std::vector<Report>(const Ladder&, std::uint64_t)>;

std::vector<Row> over_seeds(const Ladder& ladder, const Climb& run) {
  std::vector<Row> rows(ladder.steps.size());
  for (std::uint64_t seed = 1; seed <= ladder.seeds; ++seed) {
    const auto reports = run(ladder, seed);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i].add(reports[i], static_cast<double>(ladder.seeds));
  }
  return rows;
}

}  // namespace

TEST_CASE("the gate: more output, most waits gone, at 24 and 32 sessions where all fit 12") {
  for (const double slow : {1.0, 1.15}) {
    const Ladder ladder{.slow = slow, .steps = {4, 8, 16, 24, 32}};
    const auto rule = over_seeds(ladder, by_rule);
    const auto gate =
        over_seeds(ladder, [](const Ladder& l, std::uint64_t seed) { return by_gate(l, seed); });
    INFO("slow " << slow);
    const auto ratio = [&](std::size_t i) { return gate[i].output / rule[i].output; };
    // Invisible while there is room: within 5 %, the times of 8 sessions within 0.1 s.
    for (const std::size_t i : {0u, 1u}) {
      CHECK(ratio(i) == Approx(1.0).margin(0.05));
      CHECK(gate[i].p50 == Approx(rule[i].p50).epsilon(0.05));
      CHECK(gate[i].p95 == Approx(rule[i].p95).epsilon(0.05));
      CHECK(gate[i].mean == Approx(rule[i].mean).epsilon(0.05));
      CHECK(gate[i].hits == Approx(rule[i].hits).epsilon(0.05));
    }
    // At 16 the rule still keeps most, so that 1.3 times is missed: README.md.
    CHECK(ratio(2) >= 1.15);
    CHECK(ratio(3) >= 1.4);
    CHECK(ratio(4) >= 1.35);
    const std::array<double, 3> hits{75, 75, 70};
    const std::array<double, 3> p95{35, 75, 85};
    for (std::size_t i = 2; i < 5; ++i) {
      INFO(ladder.steps[i] << " sessions");
      CHECK(gate[i].hits >= hits[i - 2]);
      CHECK(gate[i].p50 <= 1.0);
      CHECK(gate[i].p95 <= p95[i - 2]);
    }
  }
}

TEST_CASE("the gate with sessions of thirty turns: p50 and p95 under a tenth of the rule's") {
  const Ladder ladder{.steps = {24}, .seconds = 3'600, .sessions = {.turns = 30}};
  const auto rule = over_seeds(ladder, by_rule);
  const auto gate = over_seeds(ladder, [](const Ladder& l, std::uint64_t seed) {
    return by_gate(l, seed, {.max_wait = 1h, .min_turns = 20});
  });
  CHECK(gate[0].p50 < rule[0].p50 / 10);
  CHECK(gate[0].p95 < rule[0].p95 / 10);
}

namespace {

// Ten minutes from cold, as the aims were set; one replica slower by so much.
Ladder front_ladder(double slow) {
  return {.slow = slow, .steps = {24}, .seconds = 600, .seeds = 20};
}

Row on_the_front(double slow, double theta, std::chrono::seconds max_wait) {
  return over_seeds(front_ladder(slow), [&](const Ladder& l, std::uint64_t seed) {
    return by_gate(l, seed, {.theta = theta, .max_wait = max_wait, .min_turns = 1});
  })[0];
}

}  // namespace

TEST_CASE("for a p95 that the user names: 1.3 x the output at 1.2 x, 1.5 x at 1.7 x, and between") {
  for (const double slow : {1.0, 1.15}) {
    CAPTURE(slow);
    const Row balancer = over_seeds(front_ladder(slow), by_balancer)[0];
    const Row short_waits = on_the_front(slow, 1.03, slow > 1 ? 24s : 23s);
    CHECK(short_waits.output >= 1.3 * balancer.output);
    CHECK(short_waits.p95 <= 1.2 * balancer.p95);
    const Row between = on_the_front(slow, 1.0, 28s);
    const Row long_waits = on_the_front(slow, 1.0, 45s);
    CHECK(between.output > short_waits.output);
    CHECK(long_waits.output > between.output);
    CHECK(long_waits.output >= 1.5 * balancer.output);
    CHECK(long_waits.p95 <= 1.7 * balancer.p95);
  }
}

TEST_CASE(
    "automatic: with a wrong capacity or none, the gate follows a load that rises and falls") {
  const Ladder ladder{.steps = {4, 24, 4, 24, 4}, .seconds = 300};
  ManualClock clock;
  Router router{ShardedPins<>{}, scorer, SpillAbove{}, VllmMetrics{}, clock};
  // Half as much again as there is.
  WorkingSetGate gate(router, in_simulation({.theta = 1.5, .automatic = true}));
  GateFrontEnd front(router, gate, clock);
  const auto automatic = climb(ladder, front, 1);
  const auto fixed = by_gate(ladder, 1, {.theta = 1.5});
  const auto right = by_gate(ladder, 1);
  for (const GateReplica& row : gate.snapshot().replicas) CHECK(row.theta < 1.2);
  // It recovers at least half of what the wrong setting costs, at the second rise.
  const auto output = [](const Report& r) { return r.output_tokens_per_minute; };
  CHECK(output(automatic[3]) >= (output(fixed[3]) + output(right[3])) / 2);
  CHECK(output(automatic[4]) >= 0.95 * output(right[4]));
}

namespace {

// Real Claude Code sessions, 24 at once, on two replicas whose caches hold half of them.
struct Recorded {
  Report report;
  std::map<std::string, double> ended;  // s, of each session
  double overload = 0;                  // contexts of those at once over what the caches hold
};

constexpr const char* recording = "claude_code_sessions.jsonl";

// The first of the 80 recorded sessions that are played.
constexpr std::array<std::size_t, 8> recorded_from = {0, 100, 200, 300, 400, 500, 600, 630};

template <class F>
Recorded play_recorded(F& front, std::size_t from) {
  EngineProfile profile = profiles::rtxpro6000_llama31_8b();
  profile.block_tokens = 64;
  profile.kv_tokens = 240'000;
  std::vector<Session> sessions =
      read_agent_sessions((limpet_tests::shared_data_folder() / recording).string(),
                          {.context_limit = 65'536, .think_scale = 0.1, .think_limit = 30});
  sessions.erase(sessions.begin(), sessions.begin() + static_cast<std::ptrdiff_t>(from));
  sessions.resize(80);
  Simulation simulation(std::vector<EngineProfile>(2, profile), front, {.wander = 0.1});
  ReplaySessions source(std::move(sessions));
  Recorded played;
  played.report = simulation.run(source, {.seats = 24, .stagger = 1.0});
  double context = 0;
  for (const TurnRecord& turn : simulation.turns()) {
    played.ended[turn.session] = turn.end;
    context += static_cast<double>(turn.prompt_tokens + turn.output_tokens);
  }
  played.overload = 24 * context / static_cast<double>(simulation.turns().size()) /
                    static_cast<double>(2 * profile.kv_tokens);
  return played;
}

std::pair<Recorded, Recorded> recorded_by_rule_and_gate(std::size_t from) {
  ManualClock clock;
  Router router{ShardedPins<>{}, scorer, SpillAbove{}, VllmMetrics{}, clock};
  RouterFrontEnd front(router, clock);
  ManualClock gate_clock;
  Router gate_router{ShardedPins<>{}, scorer, SpillAbove{}, VllmMetrics{}, gate_clock};
  WorkingSetGate gate(gate_router, in_simulation());
  GateFrontEnd gate_front(gate_router, gate, gate_clock);
  return {play_recorded(front, from), play_recorded(gate_front, from)};
}

double latest(const Recorded& rule, const Recorded& gate) {
  double most = 0;
  for (const auto& [session, end] : rule.ended) most = std::max(most, gate.ended.at(session) / end);
  return most;
}

}  // namespace

TEST_CASE("recorded sessions at twice what the caches hold: more output, and nobody much later") {
  if (!limpet_tests::shared_data(recording)) SKIP(limpet_tests::missing_data(recording));
  for (const std::size_t from : recorded_from) {
    CAPTURE(from);
    const auto [rule, gate] = recorded_by_rule_and_gate(from);
    CHECK(rule.overload > 1.6);
    CHECK(gate.report.output_tokens_per_minute >= 1.3 * rule.report.output_tokens_per_minute);
    CHECK(latest(rule, gate) <= 1.5);
  }
}

TEST_CASE("the table of include/limpet/gate/README.md", "[.][gate-table]") {
  for (const double slow : {1.0, 1.15}) {
    const Ladder ladder{.slow = slow, .steps = {4, 8, 16, 24, 32}};
    const auto print = [&](const char* who, const std::vector<Row>& rows) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& r = rows[i];
        std::printf(
            "%-9s slow %.2f sessions %2u  out/min %6.0f (%.0f..%.0f)  p50 %5.2f  p95 %5.1f "
            "(%.0f..%.0f)  mean %5.2f  hits %4.1f %%\n",
            who, slow, ladder.steps[i], r.output, r.output_low, r.output_high, r.p50, r.p95,
            r.p95_low, r.p95_high, r.mean, r.hits);
      }
    };
    print("balancer", over_seeds(ladder, by_balancer));
    print("rule", over_seeds(ladder, by_rule));
    print("gate",
          over_seeds(ladder, [](const Ladder& l, std::uint64_t seed) { return by_gate(l, seed); }));
  }
  // At 16 sessions: what a cache that is filled fuller gives, and what places without waits would.
  for (const GateOptions& options : {GateOptions{.theta = 1.03, .min_turns = 2},
                                     {.theta = 1.03, .min_turns = 3},
                                     {.theta = 1.1}}) {
    const Row r = over_seeds({.steps = {4, 8, 16}}, [&](const Ladder& l, std::uint64_t seed) {
      return by_gate(l, seed, options);
    })[2];
    std::printf("16 sessions  theta %.2f min_turns %u  out/min %6.0f  p50 %5.2f  p95 %5.1f\n",
                options.theta, options.min_turns, r.output, r.p50, r.p95);
  }
  for (const std::uint32_t sessions : {12u, 13u, 14u}) {
    const Row r = over_seeds({.steps = {sessions}, .cache = 10}, by_rule)[0];
    std::printf("ten times the cache, rule, %u sessions  out/min %6.0f\n", sessions, r.output);
  }
  for (const double slow : {1.0, 1.15}) {
    const Row balancer = over_seeds(front_ladder(slow), by_balancer)[0];
    std::printf("slow %.2f balancer  out/min %6.0f  p50 %5.2f  p95 %5.1f\n", slow, balancer.output,
                balancer.p50, balancer.p95);
    for (const auto& [theta, waits] : {std::pair{1.03, std::vector{10s, 17s, 20s, 23s, 24s, 28s}},
                                       {1.0, std::vector{17s, 28s, 35s, 45s, 60s}}}) {
      for (const auto max_wait : waits) {
        const Row r = on_the_front(slow, theta, max_wait);
        std::printf(
            "theta %.2f max_wait %2ld min_turns 1  out/min %6.0f (%.2f x)  p50 %5.2f  p95 %5.1f "
            "(%.2f x)  mean %5.2f\n",
            theta, static_cast<long>(max_wait.count()), r.output, r.output / balancer.output, r.p50,
            r.p95, r.p95 / balancer.p95, r.mean);
      }
    }
  }
  const Row long_rule =
      over_seeds({.steps = {24}, .seconds = 3'600, .sessions = {.turns = 30}}, by_rule)[0];
  const Row long_gate = over_seeds({.steps = {24}, .seconds = 3'600, .sessions = {.turns = 30}},
                                   [](const Ladder& l, std::uint64_t seed) {
                                     return by_gate(l, seed, {.max_wait = 1h, .min_turns = 20});
                                   })[0];
  for (const Row& r : {long_rule, long_gate}) {
    std::printf("thirty turns  out/min %6.0f  p50 %5.2f  p95 %5.1f  mean %5.2f\n", r.output, r.p50,
                r.p95, r.mean);
  }
  if (!limpet_tests::shared_data(recording)) SKIP(limpet_tests::missing_data(recording));
  for (const std::size_t from : recorded_from) {
    const auto [rule, gate] = recorded_by_rule_and_gate(from);
    for (const Recorded* one : {&rule, &gate}) {
      std::printf("recorded from %zu, %.2f x the caches  %s", from, one->overload,
                  table_row(one->report).c_str());
    }
    std::printf("latest session, against the rule: %.2f x\n", latest(rule, gate));
  }
}
