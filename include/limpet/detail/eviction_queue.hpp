// SPDX-License-Identifier: Apache-2.0
//
// EvictionQueue: which conversation of a full table leaves for a new one,
// exactly the least recently active, those with a turn in flight last.
//
// Keeping them in a linked list would cost every turn three lines of other
// conversations, for an order that only evictions ask for. So one look through
// the table notes the oldest sixteenth, and those are handed out one by one;
// who has been active since is passed over, and all others are younger. On
// average 16 entries an eviction. Allocates when it is made. Not thread-safe.
#pragma once

#include <limpet/detail/array.hpp>
#include <limpet/detail/pin_table.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace limpet::detail {

class EvictionQueue {
 public:
  explicit EvictionQueue(std::size_t capacity) : oldest_(capacity / 16 + 1) {}

  // Returns: the place of the one to leave, which the caller erases. Requires:
  // the table is not empty.
  [[nodiscard]] std::uint32_t next(const PinTable& table) noexcept {
    for (;;) {
      while (next_ < count_) {
        const Candidate& candidate = oldest_[next_++];
        const std::uint32_t at = table.find(candidate.key);
        if (at != PinTable::none && table[at].activity == candidate.activity) return at;
      }
      look_through(table);
      if (count_ == 0) return least_recent_in_flight(table);
    }
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return oldest_.size() * sizeof(Candidate); }

 private:
  struct Candidate {
    KeyHash key;
    std::uint64_t activity = 0;
  };

  // The youngest of the candidates is the first to make room for an older one, so it stays on top
  // of a heap; sorting that by the same order leaves the very oldest first.
  void look_through(const PinTable& table) noexcept {
    const auto older = [](const Candidate& a, const Candidate& b) {
      return a.activity < b.activity;
    };
    Candidate* const begin = oldest_.begin();
    next_ = count_ = 0;
    for (const PinTable::Entry& entry : table.entries()) {
      if (entry.stay == 0 || entry.conversation.in_flight > 0) continue;
      if (count_ == oldest_.size()) {
        if (entry.activity > begin->activity) continue;
        std::pop_heap(begin, begin + count_, older);
        --count_;
      }
      oldest_[count_++] = {entry.key, entry.activity};
      std::push_heap(begin, begin + count_, older);
    }
    std::sort_heap(begin, begin + count_, older);
  }

  [[nodiscard]] static std::uint32_t least_recent_in_flight(const PinTable& table) noexcept {
    std::uint32_t least = PinTable::none;
    for (std::uint32_t at = 0; at < table.entries().size(); ++at) {
      if (table[at].stay == 0) continue;
      if (least == PinTable::none || table[at].activity < table[least].activity) least = at;
    }
    return least;
  }

  Array<Candidate> oldest_;  // from `next_` to `count_` they wait to leave, the very oldest first
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

}  // namespace limpet::detail
