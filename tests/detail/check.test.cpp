// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/check.hpp>

#include "catch.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

using limpet::detail::require;

TEST_CASE("what is refused names field, value and reason") {
  CHECK_NOTHROW(require(true, "capacity", 0, "why"));
  CHECK_THROWS_MATCHES(
      require(false, "capacity", std::uint64_t{18'446'744'073'709'551'615U}, "why"),
      std::invalid_argument, MessageMatches(StartsWith("capacity = 18446744073709551615: why")));
  CHECK_THROWS_MATCHES(require(false, "ttl", -3, "why"), std::invalid_argument,
                       MessageMatches(StartsWith("ttl = -3: why")));
  CHECK_THROWS_MATCHES(require(false, "name", std::string("gpu 0"), "why"), std::invalid_argument,
                       MessageMatches(StartsWith("name = \"gpu 0\": why")));
}
