// SPDX-License-Identifier: Apache-2.0
//
// The one way a constructor refuses bad configuration: std::invalid_argument that names field and
// value. Out of line, so that a check costs its caller a comparison. Thread-safe.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace limpet::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse(std::string_view field,
                                                          std::string_view value,
                                                          std::string_view why,
                                                          std::string_view quote = "") {
  const std::string_view parts[] = {field, " = ", quote, value, quote, ": ", why};
  std::string text;
  for (const std::string_view part : parts) text.append(part.data(), part.size());
  throw std::invalid_argument(text);
}

template <class T>
constexpr void require(bool holds, std::string_view field, const T& value, std::string_view why) {
  if (!holds) [[unlikely]] {
    if constexpr (std::is_arithmetic_v<T>) {
      char number[320];  // the longest double in full: 309 digits, sign, point, 6 digits
      if constexpr (std::is_floating_point_v<T>) {
        std::snprintf(number, sizeof number, "%f", value);
      } else if constexpr (std::is_unsigned_v<T>) {
        std::snprintf(number, sizeof number, "%llu", static_cast<unsigned long long>(value));
      } else {
        std::snprintf(number, sizeof number, "%lld", static_cast<long long>(value));
      }
      refuse(field, number, why);
    } else {
      refuse(field, value, why, "\"");
    }
  }
}

}  // namespace limpet::detail
