// SPDX-License-Identifier: Apache-2.0
#include <limpet/scorers/tokens_times_batch.hpp>

#include "catch.hpp"

using namespace limpet;

TEST_CASE("tokens times batch multiplies what is new with the batch that the turn would join") {
  CHECK(TokensTimesBatch{}.score({.in_flight = 0}, {.uncached_tokens = 400}) == 400.0);
  CHECK(TokensTimesBatch{}.score({.in_flight = 4}, {.uncached_tokens = 400}) == 2'000.0);
  CHECK(TokensTimesBatch{}.score({.in_flight = 4, .pending_prefill_tokens = 1'000'000},
                                 {.uncached_tokens = 400}) == 2'000.0);
}

TEST_CASE("a replica that caches most of the prompt may be busier by that factor") {
  const double cached = TokensTimesBatch{}.score({.in_flight = 3}, {.uncached_tokens = 1'000});
  CHECK(cached < TokensTimesBatch{}.score({.in_flight = 0}, {.uncached_tokens = 4'001}));
  CHECK(cached > TokensTimesBatch{}.score({.in_flight = 0}, {.uncached_tokens = 3'999}));
}

TEST_CASE("of a turn with nothing to read, or of unknown length, the batch decides") {
  CHECK(TokensTimesBatch{}.score({.in_flight = 2}, {}) == 3.0);
}
