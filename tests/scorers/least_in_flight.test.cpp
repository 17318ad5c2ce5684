// SPDX-License-Identifier: Apache-2.0
#include <limpet/scorers/least_in_flight.hpp>

#include "catch.hpp"

using namespace limpet;

TEST_CASE("least in flight scores turns in flight and nothing else") {
  CHECK(LeastInFlight{}.score({.in_flight = 7}, {}) == 7.0);
  CHECK(LeastInFlight{}.score({.in_flight = 0, .live_conversations = 100, .kv_usage = 1.0},
                              {.gauges_fresh = true}) == 0.0);
}
