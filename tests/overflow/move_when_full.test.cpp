// SPDX-License-Identifier: Apache-2.0
#include <limpet/overflow/move_when_full.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

using namespace limpet;
using limpet_test::pool_view;

namespace {

ReplicaLoad holding(std::uint16_t slot, std::uint64_t tokens, std::uint32_t in_flight = 0) {
  return {.replica = {slot, 0},
          .max_num_seqs = 32,
          .in_flight = in_flight,
          .live_tokens = tokens,
          .kv_capacity_tokens = 100'000};
}

}  // namespace

TEST_CASE("a home is full above 95 % of its capacity, not at it") {
  CHECK_FALSE(MoveWhenFull{}.overloaded(holding(0, 95'000)));
  CHECK(MoveWhenFull{}.overloaded(holding(0, 95'001)));
}

TEST_CASE("a full home is left for good, to the emptiest replica that has room") {
  const ReplicaLoad home = holding(0, 120'000);
  const std::vector<ReplicaLoad> others = {holding(1, 85'000), holding(2, 60'000),
                                           holding(3, 70'000)};
  auto view = pool_view(home, others);
  view.context_tokens = 20'000;
  CHECK(MoveWhenFull{}.decide(view) == Verdict::move.to({2, 0}));
}

TEST_CASE("room counts this conversation: its context, or its prompt where that is longer") {
  const ReplicaLoad home = holding(0, 120'000);
  const std::vector<ReplicaLoad> others = {holding(1, 60'000)};
  auto view = pool_view(home, others);
  view.context_tokens = 30'000;  // 90 %: just fits
  CHECK(MoveWhenFull{}.decide(view) == Verdict::move.to({1, 0}));
  view.context_tokens = 30'001;
  CHECK(MoveWhenFull{}.decide(view) == Verdict::stay);
  view.context_tokens = 0;
  view.prompt_tokens = 30'001;
  CHECK(MoveWhenFull{}.decide(view) == Verdict::stay);
}

TEST_CASE("between room and full nothing moves, neither to nor fro") {
  const ReplicaLoad at_93 = holding(0, 93'000);
  CHECK_FALSE(MoveWhenFull{}.overloaded(at_93));
  const ReplicaLoad full = holding(1, 99'000);
  CHECK(MoveWhenFull{}.decide(pool_view(full, {at_93})) == Verdict::stay);
}

TEST_CASE("a full home that nobody can relieve spills by the threshold") {
  const ReplicaLoad calm = holding(0, 120'000, 7);
  CHECK(MoveWhenFull{}.decide(pool_view(calm, {holding(1, 99'000)})) == Verdict::stay);
  const ReplicaLoad busy = holding(0, 120'000, 8);
  CHECK(MoveWhenFull{}.decide(pool_view(busy, {holding(1, 99'000)})) == Verdict::spill);
}

TEST_CASE("a home that is busy but not full spills") {
  const ReplicaLoad home = holding(0, 10'000, 8);
  CHECK(MoveWhenFull{}.overloaded(home));
  CHECK(MoveWhenFull{}.decide(pool_view(home, {holding(1, 0)})) == Verdict::spill);
  CHECK_FALSE(MoveWhenFull{.threshold = 9}.overloaded(home));
}

TEST_CASE("without a capacity it is the spill rule") {
  ReplicaLoad home = holding(0, 1'000'000, 3);
  home.kv_capacity_tokens = 0;
  CHECK_FALSE(MoveWhenFull{}.overloaded(home));
  home.in_flight = 8;
  CHECK(MoveWhenFull{}.decide(pool_view(home, {holding(1, 0)})) == Verdict::spill);
}

TEST_CASE("a replica of unknown capacity is nowhere to move to") {
  const ReplicaLoad home = holding(0, 120'000);
  ReplicaLoad unknown = holding(1, 0);
  unknown.kv_capacity_tokens = 0;
  CHECK(MoveWhenFull{}.decide(pool_view(home, {unknown})) == Verdict::stay);
}

TEST_CASE("shares that make no sense are refused by name and value") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_NOTHROW(MoveWhenFull{}.validate());
  CHECK_THROWS_MATCHES(MoveWhenFull{.full = nan}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("full = nan")));
  CHECK_THROWS_MATCHES(MoveWhenFull{.full = 0}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("full = 0")));
  CHECK_THROWS_MATCHES((MoveWhenFull{.full = 0.8, .room = 0.9}.validate()), std::invalid_argument,
                       MessageMatches(StartsWith("room = 0.9")));
  CHECK_THROWS_MATCHES(MoveWhenFull{.room = nan}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("room = nan")));
}
