// SPDX-License-Identifier: Apache-2.0
//
// The session in the user id that Claude Code used to send: user_<64 hex>_account_<uuid or
// nothing>_session_<uuid>.
//
// Read strictly: other clients put a user's name or address in the same field, and that names no
// session. Stateless.
#pragma once

#include <cstddef>
#include <string_view>

namespace limpet::detail {

// The session, or nothing.
[[nodiscard]] constexpr std::string_view session_of_user_id(std::string_view id) noexcept {
  const auto hex = [](std::string_view text) {
    return text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
  };
  const auto uuid = [&](std::string_view text) {
    if (text.size() != 36) return false;
    for (const std::size_t dash : {8u, 13u, 18u, 23u}) {
      if (text[dash] != '-') return false;
    }
    return hex(text.substr(0, 8)) && hex(text.substr(9, 4)) && hex(text.substr(14, 4)) &&
           hex(text.substr(19, 4)) && hex(text.substr(24));
  };
  constexpr std::string_view user = "user_", account = "_account_", session = "_session_";
  if (!id.starts_with(user) || id.size() < user.size() + 64) return {};
  if (!hex(id.substr(user.size(), 64))) return {};
  id.remove_prefix(user.size() + 64);
  if (!id.starts_with(account)) return {};
  id.remove_prefix(account.size());
  if (!id.starts_with(session)) {
    if (!uuid(id.substr(0, 36))) return {};
    id.remove_prefix(36);
  }
  if (!id.starts_with(session)) return {};
  id.remove_prefix(session.size());
  return uuid(id) ? id : std::string_view{};
}

}  // namespace limpet::detail
