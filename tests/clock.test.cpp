// SPDX-License-Identifier: Apache-2.0
#include <limpet/clock.hpp>

#include "catch.hpp"

#include <chrono>

using namespace std::chrono_literals;
using limpet::Instant;
using limpet::ManualClock;

TEST_CASE("a manual clock stands still until it is moved") {
  ManualClock clock;
  CHECK(clock.now() == Instant{});
  clock.advance(1500ms);
  CHECK(clock.now() == Instant{1'500'000'000ns});
  clock.advance(0ns);
  CHECK(clock.now() == Instant{1'500'000'000ns});
}

TEST_CASE("a manual clock starts where it is told to") {
  CHECK(ManualClock(Instant{42s}).now() == Instant{42s});
}

TEST_CASE("copies of a manual clock share one time") {
  ManualClock clock;
  const ManualClock copy = clock;
  clock.advance(3s);
  CHECK(copy.now() == Instant{3s});
}

TEST_CASE("a manual clock goes to a later time and never back") {
  ManualClock clock;
  clock.advance_to(Instant{10s});
  CHECK(clock.now() == Instant{10s});
  clock.advance_to(Instant{4s});
  CHECK(clock.now() == Instant{10s});
}

TEST_CASE("the steady clock is the machine's") {
  const auto before = std::chrono::steady_clock::now();
  const Instant now = limpet::SteadyClock{}.now();
  const auto after = std::chrono::steady_clock::now();
  CHECK(before - 20ms <= now);  // as of the kernel's last tick
  CHECK(now <= after);
}
