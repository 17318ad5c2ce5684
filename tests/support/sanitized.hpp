// SPDX-License-Identifier: Apache-2.0
//
// Whether AddressSanitizer watches this build: what is random and long may then be shorter.
#pragma once

namespace limpet_tests {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace limpet_tests
