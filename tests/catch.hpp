// SPDX-License-Identifier: Apache-2.0
//
// One include for Catch2 2.13 (what Debian 12 ships) and Catch2 3: tests include "catch.hpp".
//
// Alike in both: TEST_CASE, SECTION, CHECK, REQUIRE, CAPTURE, INFO, GENERATE, TEMPLATE_TEST_CASE,
// CHECK_THROWS_AS, CHECK_THROWS_MATCHES. Evened out here: Approx, ContainsSubstring, StartsWith,
// EndsWith, MessageMatches, and SKIP("why"), which Catch2 2 lacks. SKIP leaves the test case (call
// it there, not in a helper); ctest finds its "SKIPPED:" and reports the case as skipped.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)

#include <catch2/catch_all.hpp>

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

#else

#include <catch2/catch.hpp>
#include <exception>
#include <string>
#include <utility>

using Approx = Catch::Detail::Approx;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

[[nodiscard]] inline auto ContainsSubstring(const std::string& text) {
  return Catch::Matchers::Contains(text);
}

// What CHECK_THROWS_MATCHES of Catch2 2 lacks: apply a string matcher to what() of the exception.
template <class Matcher>
class WhatMatches : public Catch::MatcherBase<std::exception> {
 public:
  explicit WhatMatches(Matcher matcher) : matcher_(std::move(matcher)) {}
  [[nodiscard]] bool match(const std::exception& error) const override {
    return matcher_.match(error.what());
  }
  [[nodiscard]] std::string describe() const override {
    return "exception message " + matcher_.toString();
  }

 private:
  Matcher matcher_;
};

template <class Matcher>
[[nodiscard]] auto MessageMatches(Matcher matcher) {
  return WhatMatches<Matcher>(std::move(matcher));
}

#define SKIP(why)             \
  do {                        \
    WARN("SKIPPED: " << why); \
    return;                   \
  } while (false)

#endif
