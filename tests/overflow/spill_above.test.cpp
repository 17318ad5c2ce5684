// SPDX-License-Identifier: Apache-2.0
#include <limpet/overflow/spill_above.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"

using namespace limpet;

TEST_CASE("home is overloaded from its threshold of turns in flight on") {
  CHECK_FALSE(SpillAbove{8}.overloaded({.in_flight = 7}));
  CHECK(SpillAbove{8}.overloaded({.in_flight = 8}));
  CHECK(SpillAbove{8}.overloaded({.in_flight = 9}));
  CHECK(SpillAbove{1}.overloaded({.in_flight = 1}));
}

TEST_CASE("the automatic threshold is a quarter of max_num_seqs, 1 at least, of 256 if unknown") {
  CHECK(auto_threshold(32) == 8);
  CHECK(auto_threshold(35) == 8);
  CHECK(auto_threshold(3) == 1);
  CHECK(auto_threshold(1) == 1);
  CHECK(auto_threshold(0) == 64);
  CHECK_FALSE(SpillAbove{}.overloaded({.max_num_seqs = 32, .in_flight = 7}));
  CHECK(SpillAbove{}.overloaded({.max_num_seqs = 32, .in_flight = 8}));
  CHECK_FALSE(SpillAbove{}.overloaded({.in_flight = 63}));
  CHECK(SpillAbove{}.overloaded({.in_flight = 64}));
}

TEST_CASE("an overloaded home is left for one turn, to whom the router finds best") {
  const ReplicaLoad home{.in_flight = 8};
  CHECK(SpillAbove{8}.decide(limpet_test::pool_view(home, {})) == Verdict::spill);
  CHECK_FALSE(Verdict::spill.target);
}
