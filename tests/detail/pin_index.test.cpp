// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/pin_index.hpp>

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

using limpet::KeyHash;
using limpet::detail::PinIndex;

TEST_CASE("an index agrees with a map while probing, wrapping round and closing gaps") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::uint32_t capacity = 48;
    PinIndex index(capacity);  // 128 places
    std::vector<KeyHash> keys(capacity);
    std::vector<std::uint32_t> free;
    for (std::uint32_t i = 0; i < capacity; ++i) free.push_back(i);
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> plain;
    for (int step = 0; step < 5000; ++step) {
      // Few places to begin at, at the end of the table; few tags, so that some are equal.
      const KeyHash key{.hi = random() % 3 << 32 | random() % 3, .lo = 120 + random() % 10};
      const auto is_key = [&](std::uint32_t at) { return keys[at] == key; };
      const auto found = plain.find({key.hi, key.lo});
      REQUIRE(index.find(key, is_key) == (found == plain.end() ? PinIndex::none : found->second));
      if (found != plain.end()) {
        const std::uint32_t entry = found->second;
        index.erase(key, entry, [&](std::uint32_t at) { return keys[at]; });
        plain.erase(found);
        free.push_back(entry);
      } else if (!free.empty()) {
        const std::uint32_t entry = free.back();
        free.pop_back();
        keys[entry] = key;
        index.insert(key, entry);
        plain[{key.hi, key.lo}] = entry;
      }
    }
    for (const auto& [key, entry] : plain) {
      const KeyHash hash{key.first, key.second};
      REQUIRE(index.find(hash, [&](std::uint32_t at) { return keys[at] == hash; }) == entry);
    }
  }
}

TEST_CASE("an index is at most three quarters full and costs 8 bytes a place") {
  for (const std::uint32_t capacity : {1U, 3U, 48U, 96U, 97U, 1024U, 100'000U, 1U << 20}) {
    CAPTURE(capacity);
    const std::size_t places = PinIndex(capacity).bytes() / 8;
    CHECK(capacity * 4ULL <= places * 3ULL + 3);
    CHECK(places <= capacity * 8ULL / 3 + 2);
  }
}
