// SPDX-License-Identifier: Apache-2.0
//
// PinTable: conversations by key hash, one cache line each, open addressing
// with linear probing.
//
// The entries are the table, without an index before them: with a million pins
// each line and each page touched is a miss, and finding a conversation should
// cost one. At most three quarters full, so a hit looks at 2.5 neighbouring
// lines in a full table and a miss at 8.5 (Knuth). Erasing shifts back what
// probing had pushed on: no tombstones, and a table probes no worse after a
// year of evictions, but a place is good only until the next erase. Not
// thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/array.hpp>
#include <limpet/types.hpp>

#include <cstddef>
#include <cstdint>

namespace limpet::detail {

class PinTable {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  struct alignas(64) Entry {
    KeyHash key{};
    Conversation conversation{};
    std::uint64_t activity = 0;  // rises with each begin or end of a turn in the table
    std::uint32_t stay = 0;      // differs between two stays of a conversation; 0: a free entry
  };
  static_assert(sizeof(Entry) == 64, "an entry is one cache line");

  explicit PinTable(std::size_t capacity) : entries_(capacity + capacity / 3 + 1) {}

  // Where a key is looked for first in a table of `places`.
  [[nodiscard]] static std::uint32_t first_place(KeyHash key, std::size_t places) noexcept {
    return static_cast<std::uint32_t>((key.lo >> 32) * places >> 32);
  }

  // Returns: the place of the key's entry, or none.
  [[nodiscard]] std::uint32_t find(KeyHash key) const noexcept {
    for (std::uint32_t at = first_place(key, entries_.size());; at = after(at)) {
      const Entry& entry = entries_[at];
      if (entry.stay == 0) return none;
      if (entry.key == key) return at;
    }
  }

  // Returns: the place of a free entry to be filled in for this key. Requires:
  // the key has none, and fewer than `capacity` are in use.
  [[nodiscard]] std::uint32_t place_for(KeyHash key) const noexcept {
    std::uint32_t at = first_place(key, entries_.size());
    while (entries_[at].stay != 0) at = after(at);
    return at;
  }

  void erase(std::uint32_t at) noexcept {
    std::uint32_t hole = at;
    for (std::uint32_t i = after(hole); entries_[i].stay != 0; i = after(i)) {
      const std::uint32_t first = first_place(entries_[i].key, entries_.size());
      const bool reached_past_hole =
          hole < i ? first <= hole || first > i : first <= hole && first > i;
      if (!reached_past_hole) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole] = Entry{};
  }

  [[nodiscard]] Entry& operator[](std::uint32_t at) noexcept { return entries_[at]; }
  [[nodiscard]] const Entry& operator[](std::uint32_t at) const noexcept { return entries_[at]; }

  // All entries, the free ones too.
  [[nodiscard]] const Array<Entry>& entries() const noexcept { return entries_; }

  [[nodiscard]] std::size_t bytes() const noexcept { return entries_.size() * sizeof(Entry); }

 private:
  [[nodiscard]] std::uint32_t after(std::uint32_t at) const noexcept {
    return at + 1 == entries_.size() ? 0 : at + 1;
  }

  Array<Entry> entries_;
};

}  // namespace limpet::detail
