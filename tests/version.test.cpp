// SPDX-License-Identifier: Apache-2.0
//
// The number for the preprocessor and the text for people name the same version.
#include <limpet/version.hpp>

#include <string>

#include "catch.hpp"

TEST_CASE("the version number and the version text agree") {
  const std::string text = std::to_string(LIMPET_VERSION / 10'000) + "." +
                           std::to_string(LIMPET_VERSION / 100 % 100) + "." +
                           std::to_string(LIMPET_VERSION % 100);
  CHECK(text == limpet::version_string);
}
