// SPDX-License-Identifier: Apache-2.0
//
// The simulator against what was measured: requests of two real GPUs, the published ladder, and a
// real closed loop. The tables of include/limpet/sim/README.md are printed by
//     limpet_tests "[accuracy-table]"
#include <limpet/sim/profiles.hpp>

#include "catch.hpp"

#include <limpet/limpet.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/recording.hpp>
#include <limpet/sim/router_front_end.hpp>
#include <limpet/sim/run.hpp>

#include "support/shared_data.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace {

using namespace limpet;
using namespace limpet::sim;

// ------------------------------------------------------------------- requests of real GPUs, open
// loop

// The clock of arrivals is another than that of the engine: the shortest way between them counts as
// none. Times are s since the first arrival.
std::vector<Measured> read_timestamps(const std::string& path) {
  struct Row {
    double arrival, queued, first, last;
    std::uint64_t input, output;
  };
  std::vector<Row> rows;
  read_json_lines(path, [&](const Json& line) {
    rows.push_back({line.at("arrival_time").number(), line.at("queued_ts").number(),
                    line.at("first_token_ts").number(), line.at("last_token_ts").number(),
                    line.at("input_toks").count(), line.at("output_toks").count()});
  });
  double between = rows.front().queued - rows.front().arrival;
  double begin = rows.front().arrival;
  for (const Row& row : rows) {
    between = std::min(between, row.queued - row.arrival);
    begin = std::min(begin, row.arrival);
  }
  std::vector<Measured> measured;
  for (const Row& row : rows) {
    measured.push_back({row.arrival - begin,
                        row.first - between - begin,
                        row.last - between - begin,
                        row.input,
                        0,
                        row.output,
                        {}});
  }
  std::stable_sort(measured.begin(), measured.end(),
                   [](const Measured& a, const Measured& b) { return a.sent < b.sent; });
  return measured;
}

struct OpenLoop {
  double mean, p95, makespan;
};

// Of every second request, those that the profile was not fitted to.
OpenLoop summary(const std::vector<Measured>& measured, const std::vector<Timing>& timings) {
  std::vector<double> waits;
  double makespan = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (i % 2 == 1) waits.push_back(timings[i].first - measured[i].sent);
    makespan = std::max(makespan, timings[i].end);
  }
  const Quantity ttft = Quantity::of(waits);
  return {ttft.mean, ttft.p95, makespan};
}

std::pair<OpenLoop, OpenLoop> open_loop(const EngineProfile& profile, const std::string& path) {
  const std::vector<Measured> measured = read_timestamps(path);
  std::vector<Timing> real;
  for (const Measured& m : measured) real.push_back({m.first, m.end});
  return {summary(measured, replay(profile, measured)), summary(measured, real)};
}

constexpr std::array gpu_files = {"vllm_timestamps/rtx4090_llama31_8b.requests.jsonl",
                                  "vllm_timestamps/rtxpro6000_llama31_8b.requests.jsonl"};

// --------------------------------------------------------------------------------------- closed
// loops

struct Row {
  double output = 0;  // tokens/min
  double p50 = 0;
  double p95 = 0;
  double hits = 0;  // %
  double busy = 0;
};

struct ClosedLoop {
  std::vector<EngineProfile> fleet;
  LadderOptions sessions;
  std::vector<std::uint32_t> steps;
  double seconds;
  double wander;
};

enum class Rule { vllm, vllm_blind, published, move_when_full };

// Runs the steps, one after the other; `see` is called after each.
template <class See>
void run_ladder(const ClosedLoop& ladder, Rule rule, std::uint64_t seed, See see) {
  const auto run = [&](auto& front) {
    Simulation simulation(ladder.fleet, front, {.wander = ladder.wander, .seed = seed});
    LadderSessions sessions(seed, ladder.sessions);
    simulation.warm(sessions.shared());
    for (std::size_t i = 0; i < ladder.steps.size(); ++i) {
      const Report report =
          simulation.run(sessions, {.seats = ladder.steps[i], .seconds = ladder.seconds});
      see(i, report, simulation.turns());
    }
  };
  ManualClock clock;
  if (rule == Rule::vllm) {
    VllmBalancer front;
    run(front);
  } else if (rule == Rule::vllm_blind) {
    VllmBalancerBlind front;
    run(front);
  } else if (rule == Rule::published) {
    Router router{ShardedPins<>{},
                  WeightedLoad{.kv_usage_weight = 8, .live_weight = 1, .scale_gauge = false},
                  SpillAbove{8}, VllmMetrics{}, clock};
    RouterFrontEnd front(router, clock);
    run(front);
  } else {
    Router router{ShardedPins<>{}, WeightedLoad{.kv_usage_weight = 8, .live_weight = 1},
                  MoveWhenFull{},  VllmMetrics{},
                  clock,           RouterOptions{.shared_prefix_tokens = ladder.sessions.shared}};
    RouterFrontEnd front(router, clock);
    run(front);
  }
}

std::vector<Row> mean_of(const ClosedLoop& ladder, Rule rule, std::uint64_t seeds) {
  std::vector<Row> rows(ladder.steps.size());
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    run_ladder(ladder, rule, seed, [&](std::size_t i, const Report& report, const auto&) {
      const double share = 1.0 / static_cast<double>(seeds);
      rows[i].output += share * report.output_tokens_per_minute;
      rows[i].p50 += share * report.ttfb.p50;
      rows[i].p95 += share * report.ttfb.p95;
      rows[i].hits += share * 100 * report.prefix_hits;
      rows[i].busy += share * report.replicas_busy;
    });
  }
  return rows;
}

// The published ladder. Its clients had gaps between turns that are not published: at 4 sessions
// with affinity only 2.83 of 4 replicas were busy. 2 s (exponential) give 2.8; fitted, with the
// profile.
ClosedLoop published_ladder(double last_slowdown = 1.0) {
  std::vector<EngineProfile> fleet(4, profiles::a4000_qwen3_4b());
  fleet.back().slowdown = last_slowdown;
  return {fleet, {.think_mean = 2.0}, {4, 8, 16, 24, 32}, 180, 0.0};
}

constexpr std::array<Row, 5> published_off = {{{5886, 2.05, 3.5, 56.2, 2.71},
                                               {8364, 2.33, 6.32, 44.3, 3.74},
                                               {9558, 3.25, 26.24, 33.2, 3.91},
                                               {9048, 5.06, 58.82, 32.8, 3.91},
                                               {14760, 12.32, 82.84, 31.6, 4}}};
constexpr std::array<Row, 5> published_on = {{{6744, 0.38, 2.84, 86.4, 2.83},
                                              {10752, 0.48, 5.03, 86.1, 3.74},
                                              {12204, 0.85, 24.88, 48.6, 3.69},
                                              {11178, 13.14, 38.34, 37.9, 4},
                                              {16638, 27.66, 38.92, 31.6, 4}}};

// Our own ladder on two CPU cores, vLLM 0.32.0. `slowdown`: that run's machine against that of the
// run without a rule, by the medians of its own cold prompts.
ClosedLoop cpu_ladder(double slowdown = 1.0) {
  std::vector<EngineProfile> fleet(2, profiles::cpu_core_82m());
  for (EngineProfile& profile : fleet) profile.slowdown = slowdown;
  return {fleet, {}, {2, 4, 8}, 120, 0.1};
}

struct CpuRun {
  const char* name;
  Rule rule;
  double slowdown;
  std::array<Row, 3> measured;
};

const std::array<CpuRun, 3> cpu_runs = {{{"engine's balancer",
                                          Rule::vllm,
                                          1.0,
                                          {{{3342, 0.44, 6.7, 76.2, 1.71},
                                            {4418, 0.56, 9.3, 74.4, 1.90},
                                            {3688, 9.88, 30.5, 45.0, 1.96}}}},
                                         {"published rule",
                                          Rule::published,
                                          1.2,
                                          {{{2820, 0.60, 11.8, 87.4, 1.29},
                                            {1893, 9.73, 33.4, 49.0, 0.99},
                                            {3795, 9.42, 34.8, 61.2, 1.93}}}},
                                         {"move_when_full",
                                          Rule::move_when_full,
                                          1.06,
                                          {{{3163, 0.52, 6.6, 83.7, 1.85},
                                            {4174, 0.46, 8.4, 83.9, 1.92},
                                            {3040, 12.66, 56.7, 63.4, 1.83}}}}}};

bool within(double value, double expected, double share) {
  return std::abs(value - expected) <= share * expected;
}

constexpr std::uint64_t seeds = 20;

}  // namespace

TEST_CASE("requests of real GPUs: TTFT within 10 %, makespan within 5 %, on the half not fitted") {
  const std::array machines = {profiles::rtx4090_llama31_8b(), profiles::rtxpro6000_llama31_8b()};
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const auto path = limpet_tests::shared_data_folder() / gpu_files[i];
    if (!std::filesystem::exists(path)) SKIP(limpet_tests::missing_data(gpu_files[i]));
    const auto [ours, real] = open_loop(machines[i], path.string());
    INFO(machines[i].name << ": mean " << ours.mean << " for " << real.mean << ", p95 " << ours.p95
                          << " for " << real.p95 << ", makespan " << ours.makespan << " for "
                          << real.makespan);
    CHECK(within(ours.mean, real.mean, 0.10));
    CHECK(within(ours.p95, real.p95, 0.10));
    CHECK(within(ours.makespan, real.makespan, 0.05));
  }
}

TEST_CASE("the published ladder: output within 15 %, hits within 6 points, affinity always ahead") {
  const auto off = mean_of(published_ladder(), Rule::vllm_blind, seeds);
  const auto on = mean_of(published_ladder(), Rule::published, seeds);
  for (std::size_t i = 0; i < 5; ++i) {
    INFO(published_ladder().steps[i] << " sessions: output " << off[i].output << " -> "
                                     << on[i].output << ", hits " << off[i].hits << " -> "
                                     << on[i].hits);
    // Not reproduced: at 32 sessions the published output is half as high again as at 24, with the
    // same hits; nothing here makes more work of the same kind go faster.
    if (i < 4) {
      CHECK(within(off[i].output, published_off[i].output, 0.15));
      CHECK(within(on[i].output, published_on[i].output, 0.15));
    }
    CHECK(std::abs(off[i].hits - published_off[i].hits) <= 6.0);
    // At 24 sessions with affinity the published hits are 9 points higher than ours.
    if (i != 3) CHECK(std::abs(on[i].hits - published_on[i].hits) <= 6.0);
    CHECK(on[i].output >= 0.99 * off[i].output);
    CHECK(on[i].hits >= off[i].hits - 0.5);
  }
  CHECK(on[0].p50 < 0.5 * off[0].p50);
  CHECK(on[1].p50 < 0.5 * off[1].p50);
}

TEST_CASE("with one slow replica the median at 24 and 32 sessions is worse with affinity") {
  const auto off = mean_of(published_ladder(1.15), Rule::vllm_blind, seeds);
  const auto on = mean_of(published_ladder(1.15), Rule::published, seeds);
  for (const std::size_t i : {3u, 4u}) {
    CHECK(on[i].p50 > off[i].p50);
    CHECK(on[i].p95 < off[i].p95);  // and the tail better, as published
  }
}

TEST_CASE(
    "a real closed loop: hits within 5 points, output within 12 %, TTFB within 25 % or 0.3 s") {
  // Where a figure misses, README.md says by how much and why.
  const auto misses = [](const CpuRun& run, std::size_t step, std::string_view figure) {
    if (run.rule == Rule::vllm) return step == 1 && figure == "p50";
    if (run.rule == Rule::move_when_full) {
      return (step == 1 && figure == "p95") || (step == 2 && figure != "p50");
    }
    return (step == 0 && figure == "p95") || step == 1 || (step == 2 && figure == "p50");
  };
  for (const CpuRun& run : cpu_runs) {
    const auto rows = mean_of(cpu_ladder(run.slowdown), run.rule, seeds);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& ours = rows[i];
      const Row& real = run.measured[i];
      INFO(run.name << " at " << cpu_ladder().steps[i] << ": output " << ours.output << ", p50 "
                    << ours.p50 << ", p95 " << ours.p95 << ", hits " << ours.hits);
      const auto close = [](double value, double expected) {
        return within(value, expected, 0.25) || std::abs(value - expected) <= 0.3;
      };
      if (!misses(run, i, "output")) CHECK(within(ours.output, real.output, 0.12));
      if (!misses(run, i, "hits")) CHECK(std::abs(ours.hits - real.hits) <= 5.0);
      if (!misses(run, i, "p50")) CHECK(close(ours.p50, real.p50));
      if (!misses(run, i, "p95")) CHECK(close(ours.p95, real.p95));
    }
  }
}

TEST_CASE("the published rule piles four conversations on one of two ranks, as it did") {
  int piled = 0;
  double output = 0;
  double p50 = 0;
  double hits = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    run_ladder(cpu_ladder(1.2), Rule::published, seed,
               [&](std::size_t step, const Report& report, const std::vector<TurnRecord>& turns) {
                 if (step != 1) return;
                 const bool one_rank = std::all_of(
                     turns.begin(), turns.begin() + 4,
                     [&](const auto& turn) { return turn.replica == turns[0].replica; });
                 if (!one_rank) return;
                 ++piled;
                 output += report.output_tokens_per_minute;
                 p50 += report.ttfb.p50;
                 hits += 100 * report.prefix_hits;
               });
  }
  INFO(piled << " of " << seeds << " seeds: output " << output / piled << ", p50 " << p50 / piled
             << ", hits " << hits / piled);
  // Whether it comes to that depends on two conversations having been placed on one rank before,
  // and that on where a scrape falls: it happened in the one run there is.
  CHECK(piled >= 5);
  CHECK(within(output / piled, 1893, 0.20));
  CHECK(std::abs(hits / piled - 49.0) <= 5.0);
}

TEST_CASE("tables for the README", "[.][accuracy-table]") {
  const std::array machines = {profiles::rtx4090_llama31_8b(), profiles::rtxpro6000_llama31_8b()};
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const auto path = limpet_tests::shared_data_folder() / gpu_files[i];
    if (!std::filesystem::exists(path)) SKIP(limpet_tests::missing_data(gpu_files[i]));
    const auto [ours, real] = open_loop(machines[i], path.string());
    std::printf("| %s | %.2f / %.2f | %.2f / %.2f | %.1f / %.1f |\n", machines[i].name.c_str(),
                ours.mean, real.mean, ours.p95, real.p95, ours.makespan, real.makespan);
  }
  const auto print = [](const char* name, std::uint32_t step, const Row& ours, const Row& real) {
    std::printf(
        "| %s | %u | %.0f / %.0f | %.2f / %.2f | %.1f / %.1f | %.1f / %.1f | %.2f / %.2f |\n", name,
        step, ours.output, real.output, ours.p50, real.p50, ours.p95, real.p95, ours.hits,
        real.hits, ours.busy, real.busy);
  };
  for (const double slow : {1.0, 1.15}) {
    const auto off = mean_of(published_ladder(slow), Rule::vllm_blind, seeds);
    const auto on = mean_of(published_ladder(slow), Rule::published, seeds);
    std::printf("last replica's steps x %.2f\n", slow);
    for (std::size_t i = 0; i < 5; ++i)
      print("off", published_ladder().steps[i], off[i], published_off[i]);
    for (std::size_t i = 0; i < 5; ++i)
      print("on", published_ladder().steps[i], on[i], published_on[i]);
  }
  for (const CpuRun& run : cpu_runs) {
    const auto rows = mean_of(cpu_ladder(run.slowdown), run.rule, seeds);
    for (std::size_t i = 0; i < 3; ++i)
      print(run.name, cpu_ladder().steps[i], rows[i], run.measured[i]);
  }
}
