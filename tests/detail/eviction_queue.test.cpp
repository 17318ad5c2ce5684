// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/eviction_queue.hpp>

#include "catch.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

using limpet::KeyHash;
using limpet::detail::EvictionQueue;
using limpet::detail::PinTable;

namespace {

struct Plain {
  KeyHash key;
  std::uint64_t activity;
  bool in_flight;
};

}  // namespace

TEST_CASE("evictions go by activity, those in flight last, whatever happens in between") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t capacity = 100;
    PinTable table(capacity);
    EvictionQueue queue(capacity);
    std::vector<Plain> plain;
    std::uint64_t activity = 0;
    std::uint32_t stay = 0;
    for (int step = 0; step < 20'000; ++step) {
      if (plain.size() == capacity) {
        const auto first_to_go = [](const Plain& a, const Plain& b) {
          return a.in_flight != b.in_flight ? b.in_flight : a.activity < b.activity;
        };
        const auto expected = std::min_element(plain.begin(), plain.end(), first_to_go);
        const std::uint32_t at = queue.next(table);
        REQUIRE(table[at].key == expected->key);
        table.erase(at);
        plain.erase(expected);
      }
      if (plain.size() < capacity) {
        const KeyHash key{.hi = random(), .lo = random()};
        table[table.place_for(key)] = {.key = key, .activity = ++activity, .stay = ++stay};
        plain.push_back({key, activity, false});
      }
      // A turn begins or ends; in some stretches nearly all conversations are in flight.
      Plain& one = plain[random() % plain.size()];
      one.in_flight = step / 2000 % 2 == 0 ? random() % 4 == 0 : random() % 64 != 0;
      one.activity = ++activity;
      PinTable::Entry& entry = table[table.find(one.key)];
      entry.activity = activity;
      entry.conversation.in_flight = one.in_flight ? 1 : 0;
    }
  }
}
