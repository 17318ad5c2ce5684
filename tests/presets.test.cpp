// SPDX-License-Identifier: Apache-2.0
#include <limpet/presets.hpp>

#include "catch.hpp"

TEST_CASE(
    "the published rule is 1 x in flight + 8 x the gauge as it was read + 1 x live, spill at 8 of "
    "32") {
  limpet::ReplicaLoad load;
  load.in_flight = 1;
  load.in_flight_at_reading = 4;  // three have left since: the published rule does not care
  load.kv_usage = 0.5;
  load.live_conversations = 3;
  load.max_num_seqs = 32;
  CHECK(limpet::presets::published().score(load, {.gauges_fresh = true}) ==
        Approx(1 + 8 * 0.5 + 3));
  CHECK(!limpet::presets::published_overflow().overloaded(load));
  load.in_flight = 8;
  CHECK(limpet::presets::published_overflow().overloaded(load));
}
