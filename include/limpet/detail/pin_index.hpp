// SPDX-License-Identifier: Apache-2.0
//
// Key hash -> entry number, open addressing with linear probing in eight bytes a slot.
//
// A slot holds 32 bits of the hash beside the entry number, so that a probe touches the entries
// only where those match: with a million pins each entry touched is a cache miss. Deleting shifts
// back what probing had pushed on, so there are no tombstones and a full store probes no worse
// after a year of evictions. At most three quarters full. Not thread-safe.
#pragma once

#include <limpet/types.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace limpet::detail {

class PinIndex {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  explicit PinIndex(std::uint32_t capacity)
      : slots_(std::bit_ceil(std::size_t{capacity} + capacity / 3 + 1), Slot{}),
        mask_(slots_.size() - 1) {}

  // Returns: the entry for which `is_key(entry)` holds among those filed under this hash, or none.
  template <class IsKey>
  [[nodiscard]] std::uint32_t find(KeyHash key, IsKey is_key) const noexcept {
    const std::uint32_t tag = tag_of(key);
    for (std::size_t at = key.lo & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.entry == none) return none;
      if (slot.tag == tag && is_key(slot.entry)) return slot.entry;
    }
  }

  // Requires: the key is not filed yet and fewer than `capacity` are.
  void insert(KeyHash key, std::uint32_t entry) noexcept {
    std::size_t at = key.lo & mask_;
    while (slots_[at].entry != none) at = (at + 1) & mask_;
    slots_[at] = {tag_of(key), entry};
  }

  // Requires: the key is filed with this entry. `key_of(entry)` gives the key of any filed entry.
  template <class KeyOf>
  void erase(KeyHash key, std::uint32_t entry, KeyOf key_of) noexcept {
    std::size_t hole = key.lo & mask_;
    while (slots_[hole].entry != entry) hole = (hole + 1) & mask_;
    for (std::size_t at = (hole + 1) & mask_; slots_[at].entry != none; at = (at + 1) & mask_) {
      const std::size_t wanted = key_of(slots_[at].entry).lo & mask_;
      if (((at - wanted) & mask_) >= ((at - hole) & mask_)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = Slot{};
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t entry = none;
  };

  // `lo` chooses the slot, so the tag comes from `hi`.
  [[nodiscard]] static std::uint32_t tag_of(KeyHash key) noexcept {
    return static_cast<std::uint32_t>(key.hi);
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace limpet::detail
