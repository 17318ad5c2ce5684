// SPDX-License-Identifier: Apache-2.0
#include <limpet/overflow/bounded_load.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"

#include <limits>
#include <stdexcept>
#include <vector>

using namespace limpet;
using limpet_test::pool_view;

TEST_CASE("an idle home is never over the bound, any other one is looked at") {
  CHECK_FALSE(BoundedLoad{}.overloaded({.in_flight = 0}));
  CHECK(BoundedLoad{}.overloaded({.in_flight = 1}));
}

TEST_CASE("no replica gets more than (1 + epsilon) times the mean, this turn counted") {
  // Home 4, others 3 and 3, this turn: 11 turns on 3 replicas. ceil(1.25 * 11 / 3) = ceil(4.58) is
  // 5, so a fifth turn at home is within the bound.
  const std::vector<ReplicaLoad> others = {{.in_flight = 3}, {.in_flight = 3}};
  ReplicaLoad home{.in_flight = 4};
  CHECK(BoundedLoad{0.25}.decide(pool_view(home, others)) == Verdict::stay);
  // Home 5: 12 turns, ceil(1.25 * 4) = 5: a sixth is not.
  home.in_flight = 5;
  CHECK(BoundedLoad{0.25}.decide(pool_view(home, others)) == Verdict::spill);
  // With epsilon 1 the bound is 8.
  CHECK(BoundedLoad{1.0}.decide(pool_view(home, others)) == Verdict::stay);
}

TEST_CASE("alone in the pool home takes everything") {
  // The mean is home's own: ceil(1.25 * 101) = 127.
  const ReplicaLoad home{.in_flight = 100};
  CHECK(BoundedLoad{0.25}.decide(pool_view(home, {})) == Verdict::stay);
}

TEST_CASE("a slack that makes no sense is refused by name and value") {
  CHECK_NOTHROW(BoundedLoad{0.01}.validate());
  CHECK_THROWS_MATCHES(BoundedLoad{0.0}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("epsilon = 0")));
  CHECK_THROWS_MATCHES(BoundedLoad{std::numeric_limits<double>::quiet_NaN()}.validate(),
                       std::invalid_argument, MessageMatches(StartsWith("epsilon = nan")));
}
