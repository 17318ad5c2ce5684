// SPDX-License-Identifier: Apache-2.0
#include <limpet/scorers/power_of_two.hpp>

#include "catch.hpp"

#include <cstdint>
#include <set>
#include <utility>

using namespace limpet;

namespace {

double score(std::uint32_t position, std::uint32_t candidates, std::uint64_t draw,
             std::uint32_t in_flight = 0) {
  return PowerOfTwo{}.score({.in_flight = in_flight},
                            {.candidates = candidates, .position = position, .draw = draw});
}

}  // namespace

TEST_CASE("each draw compares two replicas, and over many draws every pair comes up") {
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::uint64_t draw = 0; draw < 1000; ++draw) {
    std::set<std::uint32_t> drawn;
    for (std::uint32_t position = 0; position < 5; ++position) {
      if (score(position, 5, draw) < 1e6) drawn.insert(position);
    }
    CAPTURE(draw);
    REQUIRE(drawn.size() == 2);
    pairs.insert({*drawn.begin(), *drawn.rbegin()});
  }
  CHECK(pairs.size() == 10);
}

TEST_CASE("of the two drawn the one with fewer turns in flight scores lower") {
  for (std::uint64_t draw = 0; draw < 50; ++draw) {
    for (std::uint32_t position = 0; position < 5; ++position) {
      CHECK(score(position, 5, draw, 3) < score(position, 5, draw, 4));
    }
  }
}

TEST_CASE("of two replicas or one nobody is left out") {
  CHECK(score(0, 1, 7, 4) == 4.0);
  CHECK(score(0, 2, 7, 4) == 4.0);
  CHECK(score(1, 2, 7, 5) == 5.0);
}

TEST_CASE("equal draws give equal pairs") {
  for (std::uint32_t position = 0; position < 9; ++position) {
    CHECK(score(position, 9, 77) == score(position, 9, 77));
  }
}
