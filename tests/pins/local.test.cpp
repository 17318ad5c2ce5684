// SPDX-License-Identifier: Apache-2.0
#include <limpet/pins/local.hpp>

#include "catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;

namespace {

constexpr Home a{{0, 0}, 0};
constexpr Home b{{1, 0}, 0};
constexpr Home c{{2, 0}, 0};

// Keys with one place in the index, so that probing must go on.
KeyHash key(std::uint64_t i) {
  return {.hi = i, .lo = 7};
}

Instant at(Duration since_start) {
  return Instant{since_start};
}

}  // namespace

// PinStore ----------------------------------------------------------------------------------------

TEST_CASE("local pins: the first pin wins") {
  LocalPins pins;
  CHECK(pins.find(key(1), at(0s)) == std::nullopt);
  CHECK(pins.pin(key(1), a, at(0s)) == a);
  CHECK(pins.pin(key(1), b, at(1s)) == a);
  CHECK(pins.find(key(1), at(2s)) == a);
  CHECK(pins.size() == 1);
}

TEST_CASE("local pins: a swap needs the expected pin and returns the one that holds") {
  LocalPins pins;
  CHECK(pins.repin(key(1), a, b, at(0s)) == b);  // none yet: pinned
  CHECK(pins.repin(key(1), a, c, at(0s)) == b);
  CHECK(pins.repin(key(1), b, c, at(0s)) == c);
  CHECK(pins.find(key(1), at(0s)) == c);
  CHECK(pins.repin(key(1), Home{{2, 0}, 1}, a, at(0s)) == c);  // another generation
}

TEST_CASE("local pins: unpinning needs the expected pin and says whether it did") {
  LocalPins pins;
  CHECK_FALSE(pins.unpin(key(1), a));
  pins.pin(key(1), a, at(0s));
  CHECK_FALSE(pins.unpin(key(1), b));
  CHECK(pins.find(key(1), at(0s)) == a);
  CHECK(pins.unpin(key(1), a));
  CHECK(pins.find(key(1), at(0s)) == std::nullopt);
  CHECK(pins.size() == 0);
}

// Time to live ------------------------------------------------------------------------------------

TEST_CASE("local pins: a pin lives 30 minutes after its conversation's last turn began or ended") {
  LocalPins pins;
  const TurnOpened turn = pins.pin_turn(key(1), a, at(0min), 0);
  pins.close_turn(key(1), turn.ticket, at(5min), 0, TurnEnd::keep_pin);
  CHECK(pins.find(key(1), at(35min - 1ns)) == a);
  CHECK(pins.find(key(1), at(35min)) == std::nullopt);
}

TEST_CASE("local pins: looking at a pin does not prolong it, a turn does") {
  LocalPins pins;
  pins.pin(key(1), a, at(0min));
  CHECK(pins.find(key(1), at(29min)) == a);
  CHECK(pins.peek(key(1), at(29min)).has_value());
  CHECK(pins.find(key(1), at(30min)) == std::nullopt);

  pins.pin(key(2), a, at(0min));
  CHECK(pins.open_turn(key(2), at(29min), 0).has_value());
  CHECK(pins.find(key(2), at(58min)) == a);
}

TEST_CASE("local pins: a pin never expires while a turn of it is in flight") {
  LocalPins pins;
  const TurnOpened turn = pins.pin_turn(key(1), a, at(0min), 0);
  CHECK(pins.find(key(1), at(10h)) == a);
  pins.close_turn(key(1), turn.ticket, at(10h), 0, TurnEnd::keep_pin);
  CHECK(pins.find(key(1), at(10h + 29min)) == a);
  CHECK(pins.find(key(1), at(10h + 30min)) == std::nullopt);
}

TEST_CASE("local pins: an expired pin gives way to a new one and says so") {
  LocalPins pins;
  pins.pin(key(1), a, at(0min));
  const TurnOpened turn = pins.pin_turn(key(1), b, at(31min), 0);
  CHECK(turn.renewed);
  REQUIRE(turn.evicted.has_value());
  CHECK(turn.evicted->home == a);
  CHECK(turn.before.home == b);
  CHECK(turn.before.turns == 0);
  CHECK(pins.size() == 1);
}

TEST_CASE("local pins: expire lets go of what is past its time, oldest first") {
  LocalPins pins;
  pins.pin(key(1), a, at(0min));
  pins.pin(key(2), b, at(10min));
  pins.pin(key(3), c, at(20min));
  std::vector<Conversation> gone;
  pins.expire(at(40min), gone);
  REQUIRE(gone.size() == 2);
  CHECK(gone[0].home == a);
  CHECK(gone[1].home == b);
  CHECK(pins.size() == 1);
  CHECK(pins.find(key(3), at(40min)) == c);
}

// Eviction ----------------------------------------------------------------------------------------

TEST_CASE("local pins: a full store evicts the least recently active pin") {
  LocalPins pins{{.capacity = 3}};
  pins.pin(key(1), a, at(1s));
  pins.pin(key(2), b, at(2s));
  pins.pin(key(3), c, at(3s));
  const TurnOpened again = *pins.open_turn(key(1), at(4s), 0);
  pins.close_turn(key(1), again.ticket, at(5s), 0, TurnEnd::keep_pin);

  const TurnOpened fourth = pins.pin_turn(key(4), a, at(6s), 0);
  REQUIRE(fourth.evicted.has_value());
  CHECK_FALSE(fourth.renewed);
  CHECK(fourth.evicted->home == b);
  CHECK(pins.find(key(2), at(6s)) == std::nullopt);
  CHECK(pins.find(key(1), at(6s)) == a);
  CHECK(pins.find(key(3), at(6s)) == c);
  CHECK(pins.size() == 3);
}

TEST_CASE("local pins: conversations with a turn in flight are evicted last") {
  LocalPins pins{{.capacity = 2}};
  const TurnOpened running = pins.pin_turn(key(1), a, at(1s), 0);
  pins.pin(key(2), b, at(2s));
  pins.pin(key(3), c, at(3s));  // evicts 2, though 1 is older
  CHECK(pins.find(key(1), at(3s)) == a);
  CHECK(pins.find(key(2), at(3s)) == std::nullopt);

  static_cast<void>(pins.pin_turn(key(4), a, at(4s), 0));  // evicts 3
  static_cast<void>(pins.pin_turn(key(5), a, at(5s), 0));  // only turns in flight are left: 1 goes
  CHECK(pins.find(key(1), at(5s)) == std::nullopt);
  CHECK(pins.size() == 2);
  CHECK_FALSE(pins.close_turn(key(1), running.ticket, at(6s), 0, TurnEnd::keep_pin).has_value());
}

TEST_CASE("local pins: a turn of an evicted conversation does not end one of its next stay") {
  LocalPins pins{{.capacity = 1}};
  const TurnOpened first = pins.pin_turn(key(1), a, at(1s), 0);
  static_cast<void>(pins.pin_turn(key(2), b, at(2s), 0));
  static_cast<void>(pins.pin_turn(key(1), c, at(3s), 0));
  CHECK_FALSE(pins.close_turn(key(1), first.ticket, at(4s), 0, TurnEnd::keep_pin).has_value());
  CHECK(pins.peek(key(1), at(4s))->in_flight == 1);
  CHECK_FALSE(pins.close_turn(key(1), PinTicket{}, at(4s), 0, TurnEnd::keep_pin).has_value());
}

// Turns -------------------------------------------------------------------------------------------

TEST_CASE("local pins: turns are counted from the placement on, and in flight until they end") {
  LocalPins pins;
  CHECK_FALSE(pins.open_turn(key(1), at(0s), 0).has_value());
  const TurnOpened first = pins.pin_turn(key(1), a, at(1s), 0);
  CHECK(first.before.turns == 0);
  CHECK(first.before.in_flight == 0);
  const TurnOpened second = *pins.open_turn(key(1), at(2s), 0);
  CHECK(second.before.turns == 1);
  CHECK(second.before.in_flight == 1);

  const TurnClosed closed = *pins.close_turn(key(1), first.ticket, at(3s), 0, TurnEnd::keep_pin);
  CHECK(closed.before.in_flight == 2);
  CHECK(closed.remembered);
  CHECK_FALSE(closed.unpinned);
  const Conversation now = *pins.peek(key(1), at(3s));
  CHECK(now.turns == 2);
  CHECK(now.in_flight == 1);
  CHECK(now.last_active == at(3s));
}

TEST_CASE("local pins: a turn counts for what the engine told, else for what its caller guesses") {
  LocalPins pins;
  const TurnOpened first = pins.pin_turn(key(1), a, at(0s), 700);
  CHECK(first.counted_tokens == 700);
  CHECK(pins.peek(key(1), at(0s))->context_tokens == 0);
  const TurnClosed closed = *pins.close_turn(key(1), first.ticket, at(1s), 900, TurnEnd::keep_pin);
  CHECK(closed.before.counted_tokens == 700);
  CHECK(closed.counted_tokens == 900);

  const TurnOpened second = *pins.open_turn(key(1), at(2s), 50);
  CHECK(second.counted_tokens == 900);  // told beats guessed
  pins.close_turn(key(1), second.ticket, at(3s), 0, TurnEnd::keep_pin);
  CHECK(pins.peek(key(1), at(3s))->context_tokens == 900);
}

TEST_CASE("local pins: a first turn that fails takes its pin along, unless another turn used it") {
  LocalPins pins;
  const TurnOpened alone = pins.pin_turn(key(1), a, at(0s), 0);
  const auto gone = pins.close_turn(key(1), alone.ticket, at(1s), 0, TurnEnd::unpin_if_first);
  REQUIRE(gone.has_value());
  CHECK(gone->unpinned);
  CHECK_FALSE(gone->remembered);
  CHECK(pins.find(key(1), at(1s)) == std::nullopt);

  const TurnOpened first = pins.pin_turn(key(2), a, at(0s), 0);
  const TurnOpened second = *pins.open_turn(key(2), at(1s), 0);
  pins.close_turn(key(2), second.ticket, at(2s), 0, TurnEnd::keep_pin);
  const auto kept = pins.close_turn(key(2), first.ticket, at(3s), 0, TurnEnd::unpin_if_first);
  REQUIRE(kept.has_value());
  CHECK_FALSE(kept->unpinned);
  CHECK(pins.find(key(2), at(3s)) == a);
}

TEST_CASE("local pins: swapping a conversation hands over what it was and does not refresh it") {
  LocalPins pins;
  CHECK_FALSE(pins.repin_conversation(key(1), a, b, at(0s)).has_value());
  CHECK(pins.find(key(1), at(0s)) == std::nullopt);  // an absent pin stays absent

  const TurnOpened turn = pins.pin_turn(key(1), a, at(0s), 300);
  CHECK_FALSE(pins.repin_conversation(key(1), b, c, at(1s)).has_value());
  const auto before = pins.repin_conversation(key(1), a, b, at(2s));
  REQUIRE(before.has_value());
  CHECK(before->home == a);
  CHECK(before->in_flight == 1);
  CHECK(before->counted_tokens == 300);
  CHECK(pins.find(key(1), at(2s)) == b);
  CHECK(pins.peek(key(1), at(2s))->last_active == at(0s));
  CHECK(pins.close_turn(key(1), turn.ticket, at(3s), 0, TurnEnd::keep_pin)->before.home == b);
}

TEST_CASE("local pins: a swapped pin's turns are those in flight, so its first failure unpins it") {
  LocalPins pins;
  const TurnOpened old = pins.pin_turn(key(1), a, at(0s), 0);
  pins.close_turn(key(1), old.ticket, at(1s), 0, TurnEnd::keep_pin);
  const TurnOpened turn = *pins.open_turn(key(1), at(2s), 0);
  REQUIRE(pins.repin_conversation(key(1), a, b, at(2s)).has_value());
  CHECK(pins.close_turn(key(1), turn.ticket, at(3s), 0, TurnEnd::unpin_if_first)->unpinned);
}

TEST_CASE("local pins: only a conversation idle since the cutoff is swapped when idle is asked") {
  LocalPins pins;
  pins.pin(key(1), a, at(10s));
  CHECK_FALSE(pins.repin_idle(key(1), a, b, at(9s)).has_value());
  CHECK_FALSE(pins.repin_idle(key(1), c, b, at(10s)).has_value());
  CHECK(pins.repin_idle(key(1), a, b, at(10s)).has_value());
  static_cast<void>(pins.open_turn(key(1), at(11s), 0));
  CHECK_FALSE(pins.repin_idle(key(1), b, c, at(1h)).has_value());  // a turn is in flight
}

TEST_CASE("local pins: idle conversations come least recently active first, up to a limit") {
  LocalPins pins;
  for (std::uint64_t i = 1; i <= 4; ++i) pins.pin(key(i), a, at(i * 1s));
  static_cast<void>(pins.pin_turn(key(5), a, at(5s), 0));  // in flight, so not idle
  const TurnOpened again = *pins.open_turn(key(1), at(6s), 0);
  pins.close_turn(key(1), again.ticket, at(7s), 0, TurnEnd::keep_pin);

  std::vector<IdleConversation> idle;
  pins.idle_since(at(20s), 3, idle);
  REQUIRE(idle.size() == 3);
  CHECK(idle[0].key == key(2));
  CHECK(idle[1].key == key(3));
  CHECK(idle[2].key == key(4));
  pins.idle_since(at(3s), 100, idle);
  CHECK(idle.size() == 5);  // appended: 2 and 3, idle since 3 s or earlier
}

TEST_CASE("local pins: a turn that ends late does not make its conversation look older") {
  LocalPins pins;
  const TurnOpened first = pins.pin_turn(key(1), a, at(10s), 0);
  pins.close_turn(key(1), first.ticket, at(4s), 0, TurnEnd::keep_pin);  // another thread's clock
  CHECK(pins.peek(key(1), at(10s))->last_active == at(10s));
}

// Beside a plain map ------------------------------------------------------------------------------

TEST_CASE("local pins: evictions and turns agree with a plain list over long random histories") {
  struct Plain {
    Home home;
    std::int64_t used = 0;
    std::vector<PinTicket> running{};
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t capacity = 13;
    LocalPins pins{{.capacity = capacity}};
    std::map<std::uint64_t, Plain> plain;
    std::size_t mismatches = 0;
    for (std::int64_t now = 1; now < 20'000; ++now) {
      const std::uint64_t which = random() % 40;
      const Instant instant = at(Duration{now});
      const auto found = plain.find(which);
      if (random() % 2 == 0) {
        const Home home{{static_cast<std::uint16_t>(random() % 5), 0}, 0};
        if (found == plain.end() && plain.size() == capacity) {
          // The longest idle one; with none idle, the one with the oldest activity.
          auto victim = plain.end();
          for (auto it = plain.begin(); it != plain.end(); ++it) {
            const auto rank = [](const Plain& p) { return std::pair(!p.running.empty(), p.used); };
            if (victim == plain.end() || rank(it->second) < rank(victim->second)) victim = it;
          }
          plain.erase(victim);
        }
        Plain& entry = plain.try_emplace(which, Plain{home}).first->second;
        const TurnOpened opened = pins.pin_turn(key(which), home, instant, 0);
        mismatches += opened.before.home != entry.home;
        mismatches += opened.before.in_flight != entry.running.size();
        entry.running.push_back(opened.ticket);
        entry.used = now;
      } else if (found != plain.end() && !found->second.running.empty()) {
        Plain& entry = found->second;
        const auto closed =
            pins.close_turn(key(which), entry.running.back(), instant, 0, TurnEnd::keep_pin);
        mismatches += !closed || closed->before.home != entry.home;
        entry.running.pop_back();
        entry.used = now;
      }
      mismatches += pins.size() != plain.size();
      const std::uint64_t other = random() % 40;
      const auto it = plain.find(other);
      const auto home = pins.find(key(other), instant);
      mismatches += it == plain.end() ? home.has_value() : home != it->second.home;
      if (mismatches > 0) FAIL("step " << now);
    }
  }
}

// Configuration -----------------------------------------------------------------------------------

TEST_CASE("local pins: a capacity of nothing or beyond 2^30 is refused by name and value") {
  CHECK_THROWS_MATCHES(LocalPins(PinOptions{.capacity = 0}), std::invalid_argument,
                       MessageMatches(StartsWith("capacity = 0")));
  CHECK_THROWS_MATCHES(LocalPins(PinOptions{.capacity = (std::size_t{1} << 30) + 1}),
                       std::invalid_argument, MessageMatches(StartsWith("capacity = 1073741825")));
  CHECK_THROWS_MATCHES(LocalPins(PinOptions{.capacity = SIZE_MAX}), std::invalid_argument,
                       MessageMatches(StartsWith("capacity = 18446744073709551615")));
}

TEST_CASE("local pins: a pin must live for some time") {
  CHECK_THROWS_MATCHES(LocalPins(PinOptions{.idle_ttl = 0s}), std::invalid_argument,
                       MessageMatches(StartsWith("idle_ttl = 0")));
  CHECK_THROWS_MATCHES(LocalPins(PinOptions{.idle_ttl = -1ns}), std::invalid_argument,
                       MessageMatches(StartsWith("idle_ttl = -1")));
  LocalPins forever{{.idle_ttl = Duration::max()}};
  forever.pin(key(1), a, at(0s));
  CHECK(forever.find(key(1), at(100'000h)) == a);
}

TEST_CASE("local pins: one pin is a store, too") {
  LocalPins pins{{.capacity = 1}};
  CHECK(pins.capacity() == 1);
  CHECK(pins.pin(key(1), a, at(0s)) == a);
  CHECK(pins.pin(key(2), b, at(0s)) == b);
  CHECK(pins.size() == 1);
}
