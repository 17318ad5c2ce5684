// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/pin_table.hpp>

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

using limpet::KeyHash;
using limpet::detail::PinTable;

TEST_CASE("a pin table agrees with a map while probing, wrapping round and closing gaps") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::uint32_t capacity = 48;
    PinTable table(capacity);
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> stays;
    std::uint32_t stay = 0;
    for (int step = 0; step < 5000; ++step) {
      // Most begin at the last few places of the table, so that they crowd there and wrap round.
      const std::uint64_t begin = random() % 4 == 0 ? random() : ~std::uint64_t{0} - random() % 5;
      const KeyHash key{.hi = random() % 9, .lo = begin << 32 | 0xFFFFFF00U};
      const auto known = stays.find({key.hi, key.lo});
      const std::uint32_t at = table.find(key);
      REQUIRE((at != PinTable::none) == (known != stays.end()));
      if (known != stays.end()) {
        REQUIRE(table[at].stay == known->second);
        table.erase(at);
        stays.erase(known);
      } else if (stays.size() < capacity) {
        table[table.place_for(key)] = {.key = key, .stay = ++stay};
        stays[{key.hi, key.lo}] = stay;
      }
    }
    for (const auto& [key, expected] : stays) {
      const std::uint32_t at = table.find({key.first, key.second});
      REQUIRE(at != PinTable::none);
      REQUIRE(table[at].stay == expected);
    }
  }
}

TEST_CASE("a pin table is at most three quarters full and costs 64 bytes a place") {
  for (const std::size_t capacity : {1UL, 3UL, 48UL, 96UL, 97UL, 1024UL, 100'000UL, 1UL << 20}) {
    CAPTURE(capacity);
    const std::size_t places = PinTable(capacity).bytes() / 64;
    CHECK(places > capacity);
    CHECK(capacity * 4 <= places * 3);
    CHECK(places * 3 <= capacity * 4 + 3);
  }
}

TEST_CASE("a key's first place is a place of the table, whatever its hash") {
  for (const std::size_t places : {2UL, 1366UL, 1'431'655'766UL}) {
    CHECK(PinTable::first_place({.hi = 0, .lo = 0}, places) == 0);
    CHECK(PinTable::first_place({.hi = 0, .lo = ~std::uint64_t{0}}, places) == places - 1);
  }
}
