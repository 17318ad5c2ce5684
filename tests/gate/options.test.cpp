// SPDX-License-Identifier: Apache-2.0
#include <limpet/gate/options.hpp>

#include "catch.hpp"

#include <chrono>
#include <limits>
#include <stdexcept>

using namespace limpet;
using namespace std::chrono_literals;

TEST_CASE("the options as they come are valid, and a bad one names itself and its value") {
  CHECK_NOTHROW(GateOptions{}.validate());
  const auto says = [](const GateOptions& options, const char* text) {
    CHECK_THROWS_MATCHES(options.validate(), std::invalid_argument,
                         MessageMatches(ContainsSubstring(text)));
  };
  says({.theta = 0.0}, "theta = 0");
  says({.theta = std::numeric_limits<double>::quiet_NaN()}, "theta = nan");
  says({.max_wait = -1ns}, "max_wait = -1");
  says({.min_turns = 0}, "min_turns = 0");
  says({.grace = -5ns}, "grace = -5");
  says({.deadline = -1ns}, "deadline = -1");
}
