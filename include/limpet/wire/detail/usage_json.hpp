// SPDX-License-Identifier: Apache-2.0
//
// Finds the token counts in JSON that comes in pieces, without keeping any of it.
//
// A lexer with a path: it follows the few objects that lead to counts (usage; response.usage and
// message.usage, where streams nest it) and counts brackets through everything else, so a tool
// schema, a metadata field or a generated text that looks like usage changes nothing. Memory is
// constant, whatever the length and depth. Takes any bytes: what is no JSON yields no counts. One
// document after another; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace limpet::detail {

// The counts as engines name them; what no engine said is absent.
struct UsageCounts {
  std::optional<std::uint64_t> prompt_tokens;
  std::optional<std::uint64_t> completion_tokens;
  std::optional<std::uint64_t> cached_tokens;
  std::optional<std::uint64_t> input_tokens;
  std::optional<std::uint64_t> output_tokens;
  std::optional<std::uint64_t> cache_read_input_tokens;
  std::optional<std::uint64_t> cache_creation_input_tokens;
};

class UsageJson {
 public:
  void feed(std::string_view text) noexcept {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
      switch (lexing_) {
        case Lexing::between:
          at = skipped_ == 0 ? between(at, end) : skip(at, end);
          break;
        case Lexing::key:
          at = key(at, end);
          break;
        case Lexing::text:
          at = string(at, end);
          break;
        case Lexing::number:
          at = number(at, end);
          break;
      }
    }
  }

  // The document is over, whatever it was in the middle of. Counts stay.
  void end_document() noexcept {
    lexing_ = Lexing::between;
    depth_ = 0;
    skipped_ = 0;
    in_value_ = false;
    escaped_ = false;
    key_size_ = unknown_key;
  }

  [[nodiscard]] const UsageCounts& counts() const noexcept { return counts_; }
  // An error object or text stood where engines put it.
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  enum class Lexing : std::uint8_t { between, key, text, number };
  enum class Node : std::uint8_t { none, root, nested, usage, details };

  using Count = std::optional<std::uint64_t> UsageCounts::*;

  // Inside one of the objects that are followed, or outside of all.
  const char* between(const char* at, const char* end) noexcept {
    for (; at != end; ++at) {
      const char c = *at;
      switch (c) {
        case '"':
          if (in_value_ || depth_ == 0) {
            if (is_error()) failed_ = true;
            lexing_ = Lexing::text;
          } else {
            lexing_ = Lexing::key;
            key_size_ = 0;
          }
          return at + 1;
        case ':':
          in_value_ = true;
          break;
        case ',':
          in_value_ = false;
          key_size_ = unknown_key;
          break;
        case '{':
          if (is_error()) failed_ = true;
          if (open_object()) break;
          [[fallthrough]];
        case '[':
          skipped_ = 1;
          return at + 1;
        case '}':
          if (depth_ > 0) --depth_;
          in_value_ = true;  // of the object around it, until its next comma
          break;
        default:
          if (in_value_ && ((c >= '0' && c <= '9') || c == '-')) {
            count_ = count_of_key();
            if (count_ == nullptr) break;
            value_ = 0;
            valid_ = true;
            lexing_ = Lexing::number;
            return at;
          }
      }
    }
    return at;
  }

  // Inside objects and lists that are not followed: only brackets and texts matter.
  const char* skip(const char* at, const char* end) noexcept {
    static constexpr auto matters = [] {
      std::array<bool, 256> table{};
      for (const char c : {'"', '{', '}', '[', ']'}) table[static_cast<unsigned char>(c)] = true;
      return table;
    }();
    while (true) {
      while (at != end && !matters[static_cast<unsigned char>(*at)]) ++at;
      if (at == end) return at;
      const char c = *at++;
      if (c == '"') {
        lexing_ = Lexing::text;
        return at;
      }
      if (c == '{' || c == '[') {
        ++skipped_;
      } else if (--skipped_ == 0) {
        return at;
      }
    }
  }

  const char* key(const char* at, const char* end) noexcept {
    for (; at != end; ++at) {
      if (escaped_) {
        escaped_ = false;
      } else if (*at == '"') {
        lexing_ = Lexing::between;
        return at + 1;
      } else if (*at == '\\') {  // no key of ours
        escaped_ = true;
        key_size_ = unknown_key;
      }
      if (key_size_ < sizeof key_) {
        key_[key_size_++] = *at;
      } else {
        key_size_ = unknown_key;
      }
    }
    return at;
  }

  // To the closing quote: the first that an even number of backslashes precedes.
  const char* string(const char* at, const char* end) noexcept {
    if (escaped_) {
      escaped_ = false;
      return at + 1;
    }
    const auto rest = static_cast<std::size_t>(end - at);
    const auto* const quote = static_cast<const char*>(std::memchr(at, '"', rest));
    const char* const stop = quote == nullptr ? end : quote;
    const char* first = stop;
    while (first != at && first[-1] == '\\') --first;
    const bool odd = ((stop - first) & 1) != 0;
    if (quote == nullptr) {
      escaped_ = odd;
      return end;
    }
    if (!odd) lexing_ = Lexing::between;
    return quote + 1;
  }

  // A count is a whole number; anything else that begins like a number says nothing.
  const char* number(const char* at, const char* end) noexcept {
    constexpr std::uint64_t largest = std::uint64_t{1} << 53;
    for (; at != end; ++at) {
      const char c = *at;
      if (c >= '0' && c <= '9') {
        value_ = value_ * 10 + static_cast<std::uint64_t>(c - '0');
        if (value_ > largest) {
          value_ = 0;
          valid_ = false;
        }
      } else if (c == ',' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        if (valid_) counts_.*count_ = value_;
        lexing_ = Lexing::between;
        return at;
      } else {
        valid_ = false;
      }
    }
    return at;
  }

  [[nodiscard]] Node node() const noexcept { return depth_ == 0 ? Node::none : path_[depth_ - 1]; }
  [[nodiscard]] std::string_view current_key() const noexcept {
    return key_size_ == unknown_key ? std::string_view{} : std::string_view(key_, key_size_);
  }

  // Whether the object that opens is one to follow.
  [[nodiscard]] bool open_object() noexcept {
    Node child = Node::none;
    const std::string_view name = current_key();
    switch (node()) {
      case Node::none:
        child = Node::root;
        break;
      case Node::root:
        if (name == "response" || name == "message") child = Node::nested;
        [[fallthrough]];
      case Node::nested:
        if (name == "usage") child = Node::usage;
        break;
      case Node::usage:
        if (name == "prompt_tokens_details" || name == "input_tokens_details")
          child = Node::details;
        break;
      case Node::details:
        break;
    }
    if (child == Node::none) return false;
    path_[depth_++] = child;
    in_value_ = false;
    key_size_ = unknown_key;
    return true;
  }

  [[nodiscard]] bool is_error() const noexcept {
    return in_value_ && (node() == Node::root || node() == Node::nested) &&
           current_key() == "error";
  }

  [[nodiscard]] Count count_of_key() const noexcept {
    const std::string_view name = current_key();
    if (node() == Node::details)
      return name == "cached_tokens" ? &UsageCounts::cached_tokens : nullptr;
    if (node() != Node::usage) return nullptr;
    if (name == "prompt_tokens") return &UsageCounts::prompt_tokens;
    if (name == "completion_tokens") return &UsageCounts::completion_tokens;
    if (name == "input_tokens") return &UsageCounts::input_tokens;
    if (name == "output_tokens") return &UsageCounts::output_tokens;
    if (name == "cache_read_input_tokens") return &UsageCounts::cache_read_input_tokens;
    if (name == "cache_creation_input_tokens") return &UsageCounts::cache_creation_input_tokens;
    return nullptr;
  }

  static constexpr std::uint8_t unknown_key = 0xFF;

  UsageCounts counts_;
  Count count_ = nullptr;      // where the number being read goes
  std::uint64_t value_ = 0;    // of the number being read
  std::uint64_t skipped_ = 0;  // brackets open below the last object that is followed
  Node path_[4] = {};          // the objects that are followed, outermost first
  char key_[32] = {};          // of this member; the longest that matters has 27 characters
  std::uint8_t key_size_ = unknown_key;
  std::uint8_t depth_ = 0;
  Lexing lexing_ = Lexing::between;
  bool in_value_ = false;  // after a colon of the object that is followed
  bool escaped_ = false;   // after a backslash
  bool valid_ = false;     // the number being read is whole so far
  bool failed_ = false;
};

}  // namespace limpet::detail
