// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/balancers.hpp>

#include "catch.hpp"

using namespace limpet::sim;

namespace {

template <class Balancer>
std::vector<std::size_t> choices(Balancer& balancer, int count) {
  std::vector<std::size_t> chosen;
  for (int i = 0; i < count; ++i) chosen.push_back(balancer.choose({}, 0.0).replica);
  return chosen;
}

const std::vector<EngineProfile> three(3);
const std::vector<EngineProfile> two(2);

}  // namespace

TEST_CASE("vLLM's balancer spreads a burst evenly, each scan starting one rank later") {
  VllmBalancer balancer;
  balancer.start(three);
  // Scan starts 0, 1, 2, 0: the loads 0 0 0, 1 0 0, 1 1 0, 1 1 1 leave no other choice.
  CHECK(choices(balancer, 4) == std::vector<std::size_t>{0, 1, 2, 0});
}

TEST_CASE("vLLM's balancer turns a lone conversation round the ranks when counts tie") {
  VllmBalancer balancer;
  balancer.start(two);
  std::vector<std::size_t> chosen;
  for (int turn = 0; turn < 4; ++turn) {
    chosen.push_back(balancer.choose({}, 0.0).replica);
    balancer.finished(0, chosen.back(), {}, 0.0);
    balancer.counted(std::vector<EngineCounts>(2), 0.0);
  }
  CHECK(chosen == std::vector<std::size_t>{0, 1, 0, 1});
}

TEST_CASE("vLLM's balancer counts a queue more the fuller its cache is above half") {
  VllmBalancer balancer;
  balancer.start(two);
  // 2 waiting + 1 running = 3, and 6 x 2 x (0.75 - 0.5) = 3 more: 6 against 5.
  balancer.counted(std::vector<EngineCounts>{{2, 1, 0.75}, {0, 5, 0.9}}, 0.0);
  CHECK(balancer.score(0) == 6.0);
  CHECK(balancer.score(1) == 5.0);
  CHECK(balancer.choose({}, 0.0).replica == 1);
  // At half full the queue counts as any other requests.
  balancer.counted(std::vector<EngineCounts>{{2, 1, 0.5}, {0, 5, 0.9}}, 0.0);
  CHECK(balancer.choose({}, 0.0).replica == 0);
}

TEST_CASE("the older balancer takes the first rank on a tie and counts four for each that waits") {
  VllmBalancer4w balancer;
  balancer.start(two);
  balancer.counted(std::vector<EngineCounts>{{1, 0, 0}, {0, 4, 0}}, 0.0);
  CHECK(balancer.choose({}, 0.0).replica == 0);  // 4 against 4
  CHECK(balancer.choose({}, 0.0).replica == 1);  // 8 against 4
}

TEST_CASE("the blind balancer goes round the ranks, whatever has finished") {
  VllmBalancerBlind balancer;
  balancer.start(three);
  CHECK(choices(balancer, 7) == std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0});
}
