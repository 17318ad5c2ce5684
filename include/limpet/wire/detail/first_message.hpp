// SPDX-License-Identifier: Apache-2.0
//
// What of a message's text is the user's own, and the fingerprint of it.
//
// Harnesses put context of their own in front of what the user wrote: often the same for every
// conversation, or with a date or a directory listing in it that changes between requests. Neither
// may enter a fingerprint. Preambles are known by how they begin, as seen from Claude Code, Codex,
// Gemini CLI and Qwen Code. Stateless, no allocation; cost: the hash of the text.
#pragma once

#include <limpet/hash.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace limpet::detail {

// Elements that harnesses put before the user's text, as <name>...</name>.
inline constexpr std::string_view preamble_elements[] = {
    "system-reminder",  // Claude Code
    "local-command-caveat",
    "environment_context",  // Codex
    "user_instructions",    "permissions instructions",
    "recommended_plugins",  "skills_instructions",
    "INSTRUCTIONS",
    "session_context",      // Gemini CLI
    "environment_details",  // Cline, Roo Code
};

[[nodiscard]] constexpr std::string_view without_leading_space(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

// What follows the first `end` in `text`; nothing where there is none.
[[nodiscard]] constexpr std::string_view after(std::string_view text,
                                               std::string_view end) noexcept {
  const std::size_t at = text.find(end);
  return at == std::string_view::npos ? std::string_view{} : text.substr(at + end.size());
}

// `text` without the preamble element that it begins with; `text` itself where it begins with none.
[[nodiscard]] constexpr std::string_view after_element(std::string_view text) noexcept {
  for (const std::string_view name : preamble_elements) {
    if (text.size() < name.size() + 2 || text.substr(1, name.size()) != name ||
        text[name.size() + 1] != '>')
      continue;
    std::string_view rest = text;
    while (!rest.empty()) {
      rest = after(rest, "</");
      if (rest.starts_with(name) && rest.substr(name.size()).starts_with('>'))
        return rest.substr(name.size() + 1);
    }
    return {};  // never closed
  }
  return text;
}

// The rest of `text` after the harness's preambles and leading space: what the user wrote, empty if
// nothing.
[[nodiscard]] constexpr std::string_view own_text(std::string_view text) noexcept {
  while (true) {
    text = without_leading_space(text);
    if (text.empty()) return text;
    std::string_view rest = text;
    switch (text.front()) {
      case '<':
        rest = after_element(text);
        break;
      case 'x':  // Claude Code's accounting line: its values change with every request
        if (text.starts_with("x-anthropic-billing-header:")) rest = after(text, "\n");
        break;
      case '#':  // Codex: the project's instructions, then the next preamble
        if (text.starts_with("# AGENTS.md instructions")) rest = after(text, "</INSTRUCTIONS>");
        break;
      case 'T': {  // Gemini CLI and Qwen Code: "This is the Qwen Code. We are ..."
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with("This is the ") &&
            line.find("setting up the context for our chat") != line.npos)
          rest = {};
        break;
      }
      default:
        break;
    }
    if (rest.size() == text.size()) return text;
    text = rest;
  }
}

// The user's own text, block by block: a text in one block equals the same text as a plain string.
// Not keyed: it names a conversation as a session id does, and is hashed with the secret when the
// key is made.
class Fingerprint {
 public:
  void add(std::string_view text) noexcept {
    const std::string_view own = own_text(text);
    if (own.empty()) return;
    const std::array<char, 32> before = hex();
    hash_ = KeyHasher()(
        "user", empty_ ? std::string_view{} : std::string_view(before.data(), before.size()), own);
    empty_ = false;
  }

  [[nodiscard]] bool empty() const noexcept { return empty_; }

  [[nodiscard]] std::array<char, 32> hex() const noexcept {
    constexpr std::string_view digits = "0123456789abcdef";
    std::array<char, 32> text{};
    for (std::size_t i = 0; i < 16; ++i) {
      text[i] = digits[(hash_.hi >> (60 - 4 * i)) & 0xF];
      text[16 + i] = digits[(hash_.lo >> (60 - 4 * i)) & 0xF];
    }
    return text;
  }

 private:
  KeyHash hash_;
  bool empty_ = true;
};

}  // namespace limpet::detail
