// SPDX-License-Identifier: Apache-2.0
#include <limpet/pins/rendezvous.hpp>

#include "catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

using namespace limpet;

namespace {

std::vector<Member> members(std::uint16_t count) {
  std::vector<Member> all;
  for (std::uint16_t i = 0; i < count; ++i) all.push_back({{{i, 0}, 0}, 0x1000ULL * i + 17});
  return all;
}

KeyHash key(std::uint64_t i) {
  return {.hi = i * 0x9e3779b97f4a7c15ULL, .lo = i * 0xbf58476d1ce4e5b9ULL};
}

}  // namespace

TEST_CASE("rendezvous pins: an empty pool is nobody's home") {
  RendezvousPins pins;
  CHECK(pins.find(key(1), Instant{}) == std::nullopt);
  CHECK(pins.pin(key(1), Home{{3, 0}, 0}, Instant{}) == Home{{3, 0}, 0});
}

TEST_CASE("rendezvous pins: home is the member with the highest weight, whatever a write wants") {
  RendezvousPins pins;
  const auto pool = members(5);
  pins.set_members(pool.data(), pool.size());
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const auto best = std::max_element(pool.begin(), pool.end(), [&](auto& a, auto& b) {
      return rendezvous_weight(key(i), a.name_hash) < rendezvous_weight(key(i), b.name_hash);
    });
    REQUIRE(pins.find(key(i), Instant{}) == best->home);
    REQUIRE(pins.pin(key(i), pool[0].home, Instant{}) == best->home);
    REQUIRE(pins.repin(key(i), best->home, pool[0].home, Instant{}) == best->home);
    REQUIRE_FALSE(pins.unpin(key(i), best->home));
  }
}

TEST_CASE("rendezvous pins: when a member leaves only its own conversations change home") {
  RendezvousPins pins;
  const auto five = members(5);
  pins.set_members(five.data(), five.size());
  std::vector<Home> before;
  for (std::uint64_t i = 0; i < 1000; ++i) before.push_back(*pins.find(key(i), Instant{}));

  std::vector<Member> four = five;
  four.erase(four.begin() + 2);
  pins.set_members(four.data(), four.size());
  std::array<int, 5> had{};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Home now = *pins.find(key(i), Instant{});
    ++had[before[i].replica.slot];
    if (before[i] == five[2].home) {
      REQUIRE(now != five[2].home);
    } else {
      REQUIRE(now == before[i]);
    }
  }
  // 200 each on average; a standard deviation is 13.
  for (const int count : had) {
    CHECK(count > 140);
    CHECK(count < 260);
  }
}

TEST_CASE("rendezvous pins: a restart keeps the home and takes on its new generation") {
  RendezvousPins pins;
  auto pool = members(3);
  pins.set_members(pool.data(), pool.size());
  const Home before = *pins.find(key(1), Instant{});
  for (Member& member : pool) ++member.home.generation;
  pins.set_members(pool.data(), pool.size());
  CHECK(*pins.find(key(1), Instant{}) == Home{before.replica, before.generation + 1});
}
