// SPDX-License-Identifier: Apache-2.0
//
// What some seeds came to when it was last looked at, the same with GCC 12 and Clang 14: a change here
// is a change of the model, and belongs beside the reason for it.
#include <limpet/sim/run.hpp>

#include "catch.hpp"

#include <limpet/limpet.hpp>
#include <limpet/presets.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/router_front_end.hpp>
#include <limpet/sim/zoo.hpp>

#include <string>
#include <vector>

namespace {

using namespace limpet;
using namespace limpet::sim;

struct Golden {
  std::string policy;
  std::uint64_t seed;
  std::uint32_t seats;
  std::uint64_t turns;
  std::uint64_t cached_tokens;
  std::uint64_t preemptions;
  std::uint64_t spilled;
  double p50;
  double p95;
};

const std::vector<Golden> expected = {
    {"vllm-lb", 1, 8, 135, 1145392, 0, 0, 0.254, 4.939},
    {"vllm-lb", 1, 24, 121, 422048, 4, 0, 15.343, 21.831},
    {"tokens-times-batch", 1, 8, 168, 1732384, 0, 0, 0.248, 3.075},
    {"tokens-times-batch", 1, 24, 122, 425536, 2, 0, 15.789, 21.221},
    {"published", 1, 8, 163, 1678336, 0, 0, 0.247, 4.939},
    {"published", 1, 24, 126, 485728, 2, 0, 14.231, 24.842},
    {"vllm-lb", 2, 8, 139, 1232112, 0, 0, 0.255, 4.873},
    {"vllm-lb", 2, 24, 120, 418560, 0, 0, 15.023, 24.192},
    {"tokens-times-batch", 2, 8, 166, 1709872, 0, 0, 0.241, 3.106},
    {"tokens-times-batch", 2, 24, 120, 418560, 0, 0, 16.213, 21.442},
    {"published", 2, 8, 163, 1681840, 0, 0, 0.249, 4.396},
    {"published", 2, 24, 135, 669600, 2, 0, 14.024, 24.942}};

template <class F>
void check(const std::string& policy, F& front, std::uint64_t seed) {
  Simulation simulation(std::vector<EngineProfile>(4, profiles::a4000_qwen3_4b()), front,
                        {.wander = 0.1, .seed = seed});
  LadderSessions sessions(seed, {.output_min = 64});
  for (const Golden& golden : expected) {
    if (golden.policy != policy || golden.seed != seed) continue;
    INFO(policy << ", seed " << seed << ", " << golden.seats << " sessions");
    const Report report = simulation.run(sessions, {.seats = golden.seats, .seconds = 120});
    std::uint64_t cached = 0;
    for (const TurnRecord& turn : simulation.turns()) cached += turn.cached_tokens;
    CHECK(report.turns == golden.turns);
    CHECK(cached == golden.cached_tokens);
    CHECK(report.preemptions == golden.preemptions);
    CHECK(report.spilled == golden.spilled);
    CHECK(report.ttfb.p50 == Approx(golden.p50).margin(0.0006));
    CHECK(report.ttfb.p95 == Approx(golden.p95).margin(0.0006));
  }
}

}  // namespace

TEST_CASE("seeds come to what they came to") {
  for (const std::uint64_t seed : {1u, 2u}) {
    VllmBalancer balancer;
    check("vllm-lb", balancer, seed);
    zoo::TokensTimesBatchSize product;
    check("tokens-times-batch", product, seed);
    ManualClock clock;
    Router router{ShardedPins<>{}, presets::published(), presets::published_overflow(),
                  VllmMetrics{}, clock};
    RouterFrontEnd front(router, clock);
    check("published", front, seed);
  }
}
