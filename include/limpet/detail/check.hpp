// SPDX-License-Identifier: Apache-2.0
//
// The one way a constructor refuses bad configuration: std::invalid_argument that names field and
// value. Out of line, so that a check costs its caller a comparison. Thread-safe.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace limpet::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse(std::string_view field,
                                                          const std::string& value,
                                                          std::string_view why) {
  std::string text;
  text.append(field).append(" = ").append(value).append(": ").append(why);
  throw std::invalid_argument(text);
}

template <class T>
constexpr void require(bool holds, std::string_view field, const T& value, std::string_view why) {
  if (!holds) [[unlikely]] {
    if constexpr (requires { std::to_string(value); }) {
      refuse(field, std::to_string(value), why);
    } else {
      std::string quoted = "\"";
      quoted.append(value).push_back('"');
      refuse(field, quoted, why);
    }
  }
}

}  // namespace limpet::detail
