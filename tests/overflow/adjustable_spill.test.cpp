// SPDX-License-Identifier: Apache-2.0
#include <limpet/overflow/adjustable_spill.hpp>

#include <limpet/router.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"

using namespace limpet;

TEST_CASE("an adjustable threshold decides as SpillAbove of that threshold") {
  for (const std::uint32_t threshold : {0U, 1U, 8U}) {
    const AdjustableSpill rule{threshold};
    CHECK(rule.threshold() == threshold);
    for (std::uint32_t in_flight = 0; in_flight < 12; ++in_flight) {
      const ReplicaLoad home{.max_num_seqs = 32, .in_flight = in_flight};
      CHECK(rule.overloaded(home) == SpillAbove{threshold}.overloaded(home));
    }
    CHECK(rule.decide(limpet_test::pool_view({.in_flight = 20}, {})) == Verdict::spill);
  }
}

TEST_CASE("copies share one threshold, and a router's next turn obeys the new one") {
  AdjustableSpill rule{2};
  Router router{ShardedPins<>{}, WeightedLoad{}, rule};
  const auto a = router.add_replica({.name = "a"});
  router.add_replica({.name = "b"});
  router.set_down(*router.find("b"));
  const auto first = router.route("conversation");  // home is a
  REQUIRE(first.replica() == a);
  router.set_up(*router.find("b"));

  const auto second = router.route("conversation");
  CHECK(second.outcome() == Outcome::sticky);  // one in flight, below 2
  CHECK(router.route("conversation").outcome() == Outcome::spilled);
  rule.set_threshold(4);
  CHECK(router.route("conversation").outcome() == Outcome::sticky);
  rule.set_threshold(1);
  CHECK(router.route("conversation").outcome() == Outcome::spilled);
}
