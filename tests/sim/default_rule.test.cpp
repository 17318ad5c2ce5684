// SPDX-License-Identifier: Apache-2.0
//
// Why the default rule is what it is: placement by the router's own counts alone, judged against
// the engine's own balancer and the published rule, with gauges scraped every 2 and every 5 s,
// steps that follow each other, speeds that stray, answers of equal and of unequal length.
#include <limpet/sim/run.hpp>

#include "catch.hpp"

#include <limpet/limpet.hpp>
#include <limpet/presets.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/router_front_end.hpp>

#include <algorithm>
#include <set>

namespace {

using namespace limpet;
using namespace limpet::sim;

// The rule that was chosen: no gauge in the score, and a live conversation counts a quarter of a
// turn in flight, so that conversations which have ended cannot outweigh one that is being served.
constexpr WeightedLoad chosen{.in_flight_weight = 1.0, .kv_usage_weight = 0.0, .live_weight = 0.25};

struct Scenario {
  const char* name;
  EngineProfile profile;
  std::uint32_t replicas;
  std::vector<std::uint32_t> steps;  // sessions at once, up to what fits the caches
  double seconds;
  std::uint32_t output_min;
  double scrape;
};

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  for (const double scrape : {2.0, 5.0}) {
    for (const std::uint32_t output_min : {64u, 256u}) {
      all.push_back(
          {"four A4000", profiles::a4000_qwen3_4b(), 4, {4, 8, 12}, 180, output_min, scrape});
      all.push_back(
          {"two CPU ranks", profiles::cpu_core_82m(), 2, {2, 4}, 120, output_min, scrape});
    }
  }
  return all;
}

struct Step {
  Report report;
  std::set<std::uint32_t> first_homes;  // of the conversations that the step began with
};

template <class F>
std::vector<Step> run(const Scenario& scenario, F& front, std::uint64_t seed) {
  const std::vector<EngineProfile> fleet(scenario.replicas, scenario.profile);
  Simulation simulation(fleet, front,
                        {.scrape_interval = scenario.scrape, .wander = 0.1, .seed = seed});
  LadderSessions sessions(seed, {.output_min = scenario.output_min});
  simulation.warm(sessions.shared());
  std::vector<Step> steps;
  for (const std::uint32_t seats : scenario.steps) {
    steps.push_back({simulation.run(sessions, {.seats = seats, .seconds = scenario.seconds}), {}});
    for (std::size_t i = 0; i < seats; ++i) {
      steps.back().first_homes.insert(simulation.turns()[i].replica);
    }
  }
  return steps;
}

std::vector<Step> run_router(const Scenario& scenario, WeightedLoad scorer, std::uint64_t seed) {
  ManualClock clock;
  Router router{ShardedPins<>{}, scorer, SpillAbove{}, VllmMetrics{}, clock};
  RouterFrontEnd front(router, clock);
  return run(scenario, front, seed);
}

constexpr std::uint64_t seeds = 20;

}  // namespace

TEST_CASE(
    "the chosen rule: output never under the engine's own balancer's, at any step of any seed") {
  int published_behind = 0;
  for (const Scenario& scenario : scenarios()) {
    std::vector<double> hits(scenario.steps.size(), 0.0);
    std::vector<double> published_hits(scenario.steps.size(), 0.0);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      VllmBalancer balancer;
      const auto off = run(scenario, balancer, seed);
      const auto ours = run_router(scenario, chosen, seed);
      const auto published = run_router(scenario, presets::published(), seed);
      for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
        INFO(scenario.name << ", " << scenario.steps[i] << " sessions, answers from "
                           << scenario.output_min << " tokens, scrape " << scenario.scrape
                           << " s, seed " << seed);
        // 1 %: a run is cut off at some token, and a few of them are on either side of the cut.
        CHECK(ours[i].report.output_tokens_per_minute >=
              0.99 * off[i].report.output_tokens_per_minute);
        // As many sessions as replicas: each on its own.
        if (scenario.steps[i] == scenario.replicas) {
          CHECK(ours[i].first_homes.size() == scenario.replicas);
        }
        hits[i] += ours[i].report.from_cache / seeds;
        published_hits[i] += published[i].report.from_cache / seeds;
        published_behind += published[i].report.output_tokens_per_minute <
                            0.9 * off[i].report.output_tokens_per_minute;
      }
    }
    for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
      INFO(scenario.name << ", " << scenario.steps[i] << " sessions");
      // A rule that piles sessions up starts fewer of them, and first turns find least: a point at
      // most.
      CHECK(hits[i] >= published_hits[i] - 0.012);
    }
  }
  // What the published rule does: a tenth and more behind the balancer, again and again.
  CHECK(published_behind > 20);
}
