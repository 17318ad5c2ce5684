// SPDX-License-Identifier: Apache-2.0
#include <limpet/scorers/round_robin.hpp>

#include "catch.hpp"

#include <cstdint>
#include <vector>

using namespace limpet;

namespace {

// The position that wins a draw.
std::uint32_t winner(std::uint64_t draw, std::uint32_t candidates, std::uint32_t in_flight) {
  std::uint32_t best = 0;
  double lowest = 1e9;
  for (std::uint32_t position = 0; position < candidates; ++position) {
    const double score = RoundRobin{}.score(
        {.in_flight = in_flight}, {.candidates = candidates, .position = position, .draw = draw});
    if (score < lowest) {
      lowest = score;
      best = position;
    }
  }
  return best;
}

}  // namespace

TEST_CASE("round robin takes one replica after the other, whatever their load") {
  std::vector<std::uint32_t> winners;
  for (std::uint64_t draw = 0; draw < 7; ++draw) winners.push_back(winner(draw, 3, 5));
  CHECK(winners == std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 0});
}

TEST_CASE("round robin over one replica takes that one") {
  CHECK(winner(12345, 1, 9) == 0);
}
