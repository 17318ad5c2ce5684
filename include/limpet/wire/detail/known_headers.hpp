// SPDX-License-Identifier: Apache-2.0
//
// The request headers by which clients name their conversation, and one pass over a request that
// collects them.
//
// Names compare without case and with '-' equal to '_', as gateways and CGI-like servers rewrite
// them. A header costs a look at its length, and a comparison from its end only where a known name
// has that length. No allocation; everything found refers to the caller's headers. The table is
// that of README.md beside identity.hpp, in order of precedence.
#pragma once

#include <limpet/wire/id.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace limpet::detail {

// What a header says. Everything up to `session` is a single fact; headers of role `session`
// compete for the same one.
enum class HeaderRole : std::uint8_t {
  limpet_parent,
  claude_agent,
  claude_parent_agent,
  claude_request_class,
  claude_compaction,
  codex_parent,
  codex_subagent,
  codex_turn_metadata,
  opencode_parent,
  dynamo_parent,
  user_agent,
  session,
};

// Which group of clients a session header belongs to: decides where agent and parent are looked
// for.
enum class HeaderGroup : std::uint8_t {
  none,
  configured,
  limpet,
  claude_code,
  codex,
  session,
  gateway
};

struct KnownHeader {
  std::string_view name;
  HeaderRole role;
  HeaderGroup group = HeaderGroup::none;
};

// Session headers first, in order of precedence.
inline constexpr KnownHeader known_headers[] = {
    {"x-limpet-conversation-id", HeaderRole::session, HeaderGroup::limpet},
    {"x-claude-code-session-id", HeaderRole::session, HeaderGroup::claude_code},
    {"thread-id", HeaderRole::session, HeaderGroup::codex},
    {"session-id", HeaderRole::session, HeaderGroup::codex},
    {"conversation-id", HeaderRole::session, HeaderGroup::codex},
    {"x-session-id", HeaderRole::session, HeaderGroup::session},
    {"x-session-affinity", HeaderRole::session, HeaderGroup::session},
    {"x-opencode-session", HeaderRole::session, HeaderGroup::session},
    {"x-litellm-session-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-dynamo-session-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-smg-routing-key", HeaderRole::session, HeaderGroup::gateway},
    {"x-bf-session-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-grok-conv-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-amp-thread-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-openwebui-chat-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-task-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-roo-task-id", HeaderRole::session, HeaderGroup::gateway},
    {"x-aibrix-session-key", HeaderRole::session, HeaderGroup::gateway},
    {"x-limpet-parent-id", HeaderRole::limpet_parent},
    {"x-claude-code-agent-id", HeaderRole::claude_agent},
    {"x-claude-code-parent-agent-id", HeaderRole::claude_parent_agent},
    {"x-claude-code-request-class", HeaderRole::claude_request_class},
    {"x-claude-code-compaction", HeaderRole::claude_compaction},
    {"x-codex-parent-thread-id", HeaderRole::codex_parent},
    {"x-openai-subagent", HeaderRole::codex_subagent},
    {"x-codex-turn-metadata", HeaderRole::codex_turn_metadata},
    {"x-parent-session-id", HeaderRole::opencode_parent},
    {"x-dynamo-parent-session-id", HeaderRole::dynamo_parent},
    {"user-agent", HeaderRole::user_agent},
};

// The character that a header name's character compares as.
[[nodiscard]] constexpr char fold(char c) noexcept {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '_' ? '-' : c;
}

// From the end: known names begin alike and end differently.
[[nodiscard]] constexpr bool same_header_name(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (fold(a[i]) != fold(b[i])) return false;
  }
  return true;
}

// A known name as words of eight characters, the last of them ending where the name ends: a name
// spelled with '-' is found in four steps instead of thirty. Only for names of 8 to 32 lower-case
// letters and '-'.
class NamePattern {
 public:
  constexpr NamePattern() noexcept = default;
  constexpr explicit NamePattern(std::string_view name)
      : name_(name), count_((name.size() + 7) / 8) {
    if (name.size() < 8 || count_ > std::size(words_)) throw "a known name has 8 to 32 characters";
    for (std::size_t word = 0; word < count_; ++word) {
      for (std::size_t i = 0; i < 8; ++i) {
        const auto c = static_cast<unsigned char>(name[start(word) + i]);
        if (c != '-' && (c < 'a' || c > 'z')) throw "a known name is made of a-z and '-'";
        words_[word] |= std::uint64_t{c} << (8 * i);
      }
    }
  }

  // Requires a name as long as the pattern's.
  [[nodiscard]] bool matches(std::string_view name) const noexcept {
    constexpr std::uint64_t lower =
        0x2020202020202020ULL;  // turns A-Z into a-z and leaves '-' as it is
    std::uint64_t difference = 0;
    for (std::size_t word = 0; word < count_; ++word) {
      difference |= (load_le64(name.data() + start(word)) | lower) ^ words_[word];
    }
    return difference == 0 || same_header_name(name, name_);
  }

 private:
  [[nodiscard]] constexpr std::size_t start(std::size_t word) const noexcept {
    return word + 1 < count_ ? 8 * word : name_.size() - 8;
  }

  std::string_view name_;
  std::size_t count_ = 0;
  std::uint64_t words_[4] = {};
};

inline constexpr auto known_header_patterns = [] {
  std::array<NamePattern, std::size(known_headers)> patterns{};
  for (std::size_t i = 0; i < patterns.size(); ++i)
    patterns[i] = NamePattern(known_headers[i].name);
  return patterns;
}();

// The known headers by length: the letters that they end with (bit c & 31), and their places in
// known_headers.
struct HeadersByLength {
  static constexpr std::size_t longest = 31;
  static constexpr std::uint8_t none = 0xFF;

  std::array<std::uint32_t, longest + 1> ends{};
  std::array<std::array<std::uint8_t, 5>, longest + 1> places{};
};

inline constexpr auto headers_by_length = [] {
  HeadersByLength table;
  for (auto& list : table.places) list.fill(HeadersByLength::none);
  for (std::size_t i = 0; i < std::size(known_headers); ++i) {
    const std::string_view name = known_headers[i].name;
    table.ends[name.size()] |= std::uint32_t{1} << (name.back() & 31);
    auto& list = table.places[name.size()];
    std::size_t used = 0;
    while (list[used] != HeadersByLength::none) ++used;
    if (used + 1 == list.size()) throw "too many known headers of one length";
    list[used] = static_cast<std::uint8_t>(i);
  }
  return table;
}();

// The place in known_headers, or their number. Length and last letter send nearly every other
// header away.
[[nodiscard]] inline std::size_t find_known_header(std::string_view name) noexcept {
  if (name.empty() || name.size() > HeadersByLength::longest) return std::size(known_headers);
  if ((headers_by_length.ends[name.size()] >> (name.back() & 31) & 1) == 0)
    return std::size(known_headers);
  for (const std::uint8_t place : headers_by_length.places[name.size()]) {
    if (place == HeadersByLength::none) break;
    if (known_header_patterns[place].matches(name)) return place;
  }
  return std::size(known_headers);
}

// What the headers of one request say. For each role the first header that holds a usable value
// counts.
class HeaderFacts {
 public:
  // `extra` are the operator's own names, ahead of all others.
  template <class Names>
  void add(std::string_view name, std::string_view value, const Names& extra) noexcept {
    std::size_t rank = 0;
    for (const std::string_view own : extra) {
      if (same_header_name(name, own) && offer(rank, value)) {
        group_ = HeaderGroup::configured;
        field_ = own;
        return;
      }
      ++rank;
    }
    const std::size_t index = find_known_header(name);
    if (index == std::size(known_headers)) return;
    const KnownHeader& known = known_headers[index];
    if (known.role != HeaderRole::session) {
      const auto role = static_cast<std::size_t>(known.role);
      if (value.empty() || (present_ >> role & 1) != 0) return;
      present_ |= std::uint32_t{1} << role;
      facts_[role] = {value.data(), value.size()};
    } else if (offer(rank + index, value)) {
      group_ = known.group;
      field_ = known.name;
    }
  }

  [[nodiscard]] std::string_view session() const noexcept { return session_; }
  [[nodiscard]] std::string_view field() const noexcept { return field_; }
  [[nodiscard]] HeaderGroup group() const noexcept { return group_; }
  [[nodiscard]] std::string_view operator[](HeaderRole role) const noexcept {
    const auto index = static_cast<std::size_t>(role);
    if ((present_ >> index & 1) == 0) return {};
    return {facts_[index].data, facts_[index].size};
  }

 private:
  // Takes `value` as the session's name if it is an id and outranks what there is; a lower rank is
  // better.
  [[nodiscard]] bool offer(std::size_t rank, std::string_view value) noexcept {
    if (rank >= rank_ || !Id::is_valid(value)) return false;
    rank_ = rank;
    session_ = value;
    return true;
  }

  std::string_view session_;
  std::string_view field_;
  std::size_t rank_ = static_cast<std::size_t>(-1);
  HeaderGroup group_ = HeaderGroup::none;

  // Left as it comes but for the places that `present_` names: clearing it all would cost as much
  // as the search.
  struct Text {
    const char* data;
    std::size_t size;
  };
  std::uint32_t present_ = 0;
  Text facts_[static_cast<std::size_t>(HeaderRole::session)];
};

}  // namespace limpet::detail
