// SPDX-License-Identifier: Apache-2.0
//
// Id: the name that a client gave a session or an agent, kept inline.
//
// Ids are opaque: compared whole, never parsed, shortened or folded. One is 1 to 256 visible ASCII
// characters; every other value is no id, so that nothing which cannot be told apart reliably
// (blank, truncated, binary) ever names a conversation. Owns its characters, so it outlives the
// request; never allocates; a copy costs its own length.
#pragma once

#include <limpet/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace limpet {

class Id {
 public:
  static constexpr std::size_t max_size = 256;

  [[nodiscard]] static bool is_valid(std::string_view text) noexcept {
    if (text.empty() || text.size() > max_size) return false;
    std::uint64_t strange = 0;
    if (text.size() < 8) {
      strange = not_visible(detail::load_tail(text) | every_byte * 0x40 << (8 * text.size()));
    } else {  // the last word overlaps the one before
      for (std::size_t i = 0; i + 8 < text.size(); i += 8) {
        strange |= not_visible(detail::load_le64(text.data() + i));
      }
      strange |= not_visible(detail::load_le64(text.data() + text.size() - 8));
    }
    return strange == 0;
  }

  Id() noexcept = default;
  // Empty where `text` is no id.
  explicit Id(std::string_view text) noexcept { assign(text); }
  Id(const Id& other) noexcept { copy(other.view()); }
  Id& operator=(const Id& other) noexcept {
    if (this != &other) copy(other.view());
    return *this;
  }
  ~Id() = default;

  // Empty where `text` is no id.
  void assign(std::string_view text) noexcept {
    if (is_valid(text)) {
      copy(text);
    } else {
      size_ = 0;
    }
  }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view view() const noexcept { return {text_, size_}; }
  [[nodiscard]] operator std::string_view() const noexcept { return view(); }

  [[nodiscard]] friend bool operator==(const Id& a, const Id& b) noexcept {
    return a.view() == b.view();
  }
  [[nodiscard]] friend bool operator==(const Id& a, std::string_view b) noexcept {
    return a.view() == b;
  }

 private:
  static constexpr std::uint64_t every_byte = 0x0101010101010101ULL;

  // The top bit of each of eight bytes that is not 0x21 to 0x7E, with noise only beside such a
  // byte: eight at a time, since ids are checked on every request.
  [[nodiscard]] static constexpr std::uint64_t not_visible(std::uint64_t bytes) noexcept {
    const std::uint64_t above = bytes + every_byte * (0x80 - 0x7F);
    const std::uint64_t below = ~((bytes | every_byte * 0x80) - every_byte * 0x21);
    return (bytes | above | below) & (every_byte * 0x80);
  }

  void copy(std::string_view text) noexcept {
    if (text.size() < 16) {
      std::memcpy(text_, text.data(), text.size());
    } else {  // in line, the last sixteen overlapping the ones before: most ids have 36
      for (std::size_t i = 0; i + 16 < text.size(); i += 16) {
        std::memcpy(text_ + i, text.data() + i, 16);
      }
      std::memcpy(text_ + text.size() - 16, text.data() + text.size() - 16, 16);
    }
    size_ = static_cast<std::uint16_t>(text.size());
  }

  std::uint16_t size_ = 0;
  char text_[max_size];  // only the first size_ are ever read
};

}  // namespace limpet
