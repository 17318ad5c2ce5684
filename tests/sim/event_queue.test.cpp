// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/event_queue.hpp>

#include "catch.hpp"

#include <limpet/sim/random.hpp>

using limpet::sim::EventQueue;
using limpet::sim::Random;

TEST_CASE("events come in order of time, and in order of scheduling where times are equal") {
  EventQueue<int> queue;
  queue.schedule(2.0, 20);
  queue.schedule(1.0, 10);
  queue.schedule(2.0, 21);
  queue.schedule(1.0, 11);
  std::vector<int> order;
  while (!queue.empty()) order.push_back(queue.pop());
  CHECK(order == std::vector<int>{10, 11, 20, 21});
  CHECK(queue.now() == 2.0);
}

TEST_CASE("the clock never goes back, whatever is scheduled meanwhile") {
  const std::uint64_t seed = 5;
  INFO("seed " << seed);
  Random random(seed);
  EventQueue<int> queue;
  queue.schedule(0.0, 0);
  double last = 0.0;
  int left = 10'000;
  while (!queue.empty()) {
    (void)queue.pop();
    REQUIRE(queue.now() >= last);
    last = queue.now();
    for (int i = 0; i < 2 && left > 0; ++i, --left) {
      queue.schedule(queue.now() + random.uniform() * (random.below(3) == 0 ? 0.0 : 10.0), left);
    }
  }
  CHECK(left == 0);
}
