// SPDX-License-Identifier: Apache-2.0
#include <limpet/scorers/weighted.hpp>

#include "catch.hpp"

#include <limpet/presets.hpp>

#include <limits>
#include <stdexcept>
#include <string>

using namespace limpet;

namespace {

// With a gauge, as the published rule, but scaled.
constexpr WeightedLoad with_gauge{.kv_usage_weight = 8, .live_weight = 1};

}  // namespace

TEST_CASE("the default score is 1 a turn in flight and a quarter a live conversation, no gauge") {
  const ReplicaLoad load{.in_flight = 3, .live_conversations = 5, .kv_usage = 0.25};
  CHECK(WeightedLoad{}.score(load, {.gauges_fresh = true}) == Approx(3 + 1.25));
}

TEST_CASE("with weights 1, 8 and 1 a full cache counts as eight turns") {
  const ReplicaLoad load{.in_flight = 3, .live_conversations = 5, .kv_usage = 0.25};
  CHECK(with_gauge.score(load, {.gauges_fresh = true}) == Approx(3 + 8 * 0.25 + 5));
}

TEST_CASE("the gauge is left out for all while one replica has no fresh reading") {
  const ReplicaLoad load{.in_flight = 3, .live_conversations = 5, .kv_usage = 0.25};
  CHECK(with_gauge.score(load, {.gauges_fresh = false}) == Approx(3 + 5));
}

TEST_CASE("a gauge counts less as the turns it was read with leave") {
  ReplicaLoad load{.in_flight = 1, .kv_usage = 0.5, .in_flight_at_reading = 4};
  CHECK(with_gauge.score(load, {.gauges_fresh = true}) == Approx(1 + 8 * 0.5 * 1 / 4));
  load.in_flight = 0;  // all of them have left
  CHECK(with_gauge.score(load, {.gauges_fresh = true}) == Approx(0));
}

TEST_CASE("a gauge never counts more than it was read") {
  const ReplicaLoad grown{.in_flight = 9, .kv_usage = 0.5, .in_flight_at_reading = 4};
  CHECK(with_gauge.score(grown, {.gauges_fresh = true}) == Approx(9 + 8 * 0.5));
}

TEST_CASE("a gauge read with no turn of ours counts whole: it is somebody else's load") {
  const ReplicaLoad load{.in_flight = 0, .kv_usage = 0.5, .in_flight_at_reading = 0};
  CHECK(with_gauge.score(load, {.gauges_fresh = true}) == Approx(8 * 0.5));
}

TEST_CASE("the published rule takes the gauge as it was read") {
  const ReplicaLoad load{.in_flight = 0, .kv_usage = 0.5, .in_flight_at_reading = 4};
  CHECK(presets::published().score(load, {.gauges_fresh = true}) == Approx(4));
}

TEST_CASE("each weight is an option") {
  const WeightedLoad scorer{
      .in_flight_weight = 2, .kv_usage_weight = 10, .live_weight = 0.5, .scale_gauge = false};
  const ReplicaLoad load{.in_flight = 3, .live_conversations = 4, .kv_usage = 0.1};
  CHECK(scorer.score(load, {.gauges_fresh = true}) == Approx(6 + 1 + 2));
}

TEST_CASE("the terms of a score carry their names") {
  const ReplicaLoad load{.in_flight = 3, .live_conversations = 5, .kv_usage = 0.25};
  const ScoreTerms terms = with_gauge.terms(load, {.gauges_fresh = true});
  CHECK(std::string(terms[0].name) == "in_flight");
  CHECK(terms[0].value == Approx(3));
  CHECK(std::string(terms[1].name) == "kv_usage");
  CHECK(terms[1].value == Approx(2));
  CHECK(std::string(terms[2].name) == "live_conversations");
  CHECK(terms[2].value == Approx(5));
  CHECK(terms[3].name == nullptr);
}

TEST_CASE("a weight that is not a number is refused by name and value") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_NOTHROW(WeightedLoad{}.validate());
  CHECK_NOTHROW((WeightedLoad{0, 0, 0}.validate()));
  CHECK_THROWS_MATCHES(WeightedLoad{.in_flight_weight = nan}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("in_flight_weight = nan")));
  CHECK_THROWS_MATCHES(WeightedLoad{.kv_usage_weight = -1}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("kv_usage_weight = -1")));
  CHECK_THROWS_MATCHES(
      WeightedLoad{.live_weight = std::numeric_limits<double>::infinity()}.validate(),
      std::invalid_argument, MessageMatches(StartsWith("live_weight = inf")));
}
