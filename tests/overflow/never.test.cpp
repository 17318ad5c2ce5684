// SPDX-License-Identifier: Apache-2.0
#include <limpet/overflow/never.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"

using namespace limpet;

TEST_CASE("never spill stays at home whatever the load") {
  const ReplicaLoad home{.max_num_seqs = 1, .in_flight = 1'000'000, .kv_usage = 1.0};
  CHECK_FALSE(NeverSpill{}.overloaded(home));
  CHECK(NeverSpill{}.decide(limpet_test::pool_view(home, {})) == Verdict::stay);
}
