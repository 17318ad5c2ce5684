// SPDX-License-Identifier: Apache-2.0
#include <limpet/pins/sharded.hpp>

#include "catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;

namespace {

constexpr Home a{{0, 0}, 0};
constexpr Home b{{1, 0}, 0};

Instant at(Duration since_start) {
  return Instant{since_start};
}

// Spread over shards by their upper, over a shard's index by their lower half.
KeyHash key(std::uint64_t i) {
  return {.hi = i * 0x9e3779b97f4a7c15ULL, .lo = i * 0xbf58476d1ce4e5b9ULL};
}

}  // namespace

TEST_CASE("sharded pins: every operation reaches the key's own shard") {
  ShardedPins<> pins{{.capacity = 4096, .shards = 16}};
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    REQUIRE(pins.pin(key(i), a, at(0s)) == a);
    REQUIRE(pins.pin(key(i), b, at(0s)) == a);
  }
  CHECK(pins.size() == 1000);
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    REQUIRE(pins.find(key(i), at(0s)) == a);
    REQUIRE(pins.repin(key(i), a, b, at(0s)) == b);
    const TurnOpened turn = *pins.open_turn(key(i), at(1s), 10);
    REQUIRE(pins.peek(key(i), at(1s))->in_flight == 1);
    REQUIRE(pins.repin_conversation(key(i), b, a, at(1s))->home == b);
    REQUIRE(pins.close_turn(key(i), turn.ticket, at(2s), 0, TurnEnd::keep_pin)->before.home == a);
    REQUIRE(pins.repin_idle(key(i), a, b, at(2s)).has_value());
    if (i % 2 == 0) REQUIRE(pins.unpin(key(i), b));
  }
  CHECK(pins.size() == 500);
  CHECK(pins.pin_turn(key(2), a, at(3s), 0).before.home == a);
}

TEST_CASE("sharded pins: by default there is a shard for each 1,024 pins") {
  CHECK(ShardedPins<>{}.shards() == 8);
  CHECK(ShardedPins<>{}.capacity() == 8192);
  CHECK(ShardedPins<>{{.capacity = 1}}.shards() == 1);
  CHECK(ShardedPins<>{{.capacity = 1024}}.shards() == 1);
  CHECK(ShardedPins<>{{.capacity = 1025}}.shards() == 2);
  CHECK(ShardedPins<>{{.capacity = 100'000}}.shards() == 128);
}

TEST_CASE("sharded pins: at least the capacity asked for is there") {
  for (const std::size_t capacity : {1UL, 3UL, 1000UL, 1025UL, 5000UL, 8192UL, 100'001UL}) {
    CAPTURE(capacity);
    const ShardedPins<> pins{{.capacity = capacity}};
    CHECK(pins.capacity() >= capacity);
    CHECK(pins.capacity() < capacity + pins.shards());
  }
}

TEST_CASE("sharded pins: idle conversations of all shards come least recently active first") {
  ShardedPins<> pins{{.capacity = 1024, .shards = 8}};
  for (std::uint64_t i = 1; i <= 100; ++i) pins.pin(key(i), a, at(i * 1s));
  std::vector<IdleConversation> idle;
  pins.idle_since(at(50s), 20, idle);
  REQUIRE(idle.size() == 20);
  for (std::size_t i = 0; i < idle.size(); ++i) {
    CHECK(idle[i].conversation.last_active == at((i + 1) * 1s));
  }
  idle.clear();
  pins.idle_since(at(50s), 100, idle);
  CHECK(idle.size() == 50);
}

TEST_CASE("sharded pins: without a limit what was in the list stays in it") {
  ShardedPins<> pins{{.capacity = 64, .shards = 4}};
  for (std::uint64_t i = 1; i <= 10; ++i) pins.pin(key(i), a, at(1s));
  std::vector<IdleConversation> idle(3);
  pins.idle_since(at(5s), std::numeric_limits<std::size_t>::max(), idle);
  CHECK(idle.size() == 13);
}

TEST_CASE("sharded pins: expire reaches every shard") {
  ShardedPins<> pins{{.capacity = 1024, .shards = 8}};
  for (std::uint64_t i = 1; i <= 100; ++i) pins.pin(key(i), a, at(0s));
  std::vector<Conversation> gone;
  pins.expire(at(30min - 1ns), gone);
  CHECK(gone.empty());
  pins.expire(at(30min), gone);
  CHECK(gone.size() == 100);
  CHECK(pins.size() == 0);
}

TEST_CASE("sharded pins: bad configuration is refused by name and value") {
  CHECK_THROWS_MATCHES(ShardedPins<>({.capacity = 0}), std::invalid_argument,
                       MessageMatches(StartsWith("capacity = 0")));
  CHECK_THROWS_MATCHES(ShardedPins<>({.capacity = (std::size_t{1} << 30) + 1}),
                       std::invalid_argument, MessageMatches(StartsWith("capacity = 1073741825")));
  CHECK_THROWS_MATCHES(ShardedPins<>({.capacity = 64, .shards = 3}), std::invalid_argument,
                       MessageMatches(StartsWith("shards = 3")));
  CHECK_THROWS_MATCHES(ShardedPins<>({.capacity = 1 << 20, .shards = 131'072}),
                       std::invalid_argument, MessageMatches(StartsWith("shards = 131072")));
  CHECK_THROWS_MATCHES(ShardedPins<>({.capacity = 4, .shards = 8}), std::invalid_argument,
                       MessageMatches(StartsWith("shards = 8")));
  CHECK_THROWS_MATCHES(ShardedPins<>({.idle_ttl = 0s}), std::invalid_argument,
                       MessageMatches(StartsWith("idle_ttl = 0")));
}
