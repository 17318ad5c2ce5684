// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/turns_of.hpp>

#include <limpet/pins/local.hpp>

#include "catch.hpp"
#include "support/test_policies.hpp"

using namespace limpet;
using limpet_test::FourPrimitives;

namespace {

constexpr KeyHash key{1, 2};
constexpr Home a{{0, 0}, 0};
constexpr Home b{{1, 0}, 0};
constexpr Instant now{};

}  // namespace

TEST_CASE("of a store that only pins, a turn in flight is a live conversation of its own") {
  FourPrimitives pins;
  CHECK_FALSE(detail::peek(pins, key, now).has_value());
  CHECK_FALSE(detail::open_turn(pins, key, now, 10).has_value());
  const TurnOpened first = detail::pin_turn(pins, key, a, now, 10);
  CHECK(first.before.home == a);
  CHECK(first.counted_tokens == 10);
  const TurnOpened second = *detail::open_turn(pins, key, now, 20);
  CHECK(second.before.home == a);
  CHECK(second.before.in_flight == 0);
  CHECK(second.counted_tokens == 20);
  CHECK(detail::pin_turn(pins, key, b, now, 0).before.home == a);

  const auto closed =
      detail::close_turn(pins, detail::TurnTie{key, a, {}, 20}, now, 999, TurnEnd::keep_pin);
  REQUIRE(closed.has_value());
  CHECK(closed->before.home == a);
  CHECK(closed->before.in_flight == 1);
  CHECK(closed->before.counted_tokens == 20);
  CHECK_FALSE(closed->remembered);
  CHECK_FALSE(closed->unpinned);
}

TEST_CASE("of a store that only pins, a swap counts when its winner is the desired home") {
  FourPrimitives pins;
  pins.pin(key, a, now);
  CHECK_FALSE(detail::repin(pins, key, b, Home{{2, 0}, 0}, now, 10).has_value());
  const auto before = detail::repin(pins, key, a, b, now, 10);
  REQUIRE(before.has_value());
  CHECK(before->home == a);
  CHECK(before->in_flight == 1);
  CHECK(before->counted_tokens == 10);
  CHECK(pins.find(key, now) == b);
}

TEST_CASE("a failed first turn is unpinned by the expected home, whatever the store") {
  FourPrimitives bare;
  const TurnOpened opened = detail::pin_turn(bare, key, a, now, 0);
  const detail::TurnTie elsewhere{key, b, opened.ticket, 0};
  CHECK_FALSE(detail::close_turn(bare, elsewhere, now, 0, TurnEnd::unpin_if_first)->unpinned);
  const detail::TurnTie tie{key, a, opened.ticket, 0};
  CHECK(detail::close_turn(bare, tie, now, 0, TurnEnd::unpin_if_first)->unpinned);
  CHECK_FALSE(bare.find(key, now).has_value());

  LocalPins local;
  const TurnOpened tracked = detail::pin_turn(local, key, a, now, 0);
  CHECK(detail::close_turn(local, {key, a, tracked.ticket, 0}, now, 0, TurnEnd::unpin_if_first)
            ->unpinned);
}
