// SPDX-License-Identifier: Apache-2.0
#include <limpet/scorers/least_pending_prefill.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

using namespace limpet;
using limpet_test::SmallPool;

TEST_CASE("least pending prefill scores what is to be read there, this turn's prompt included") {
  CHECK(LeastPendingPrefill{}.score({.in_flight = 9, .pending_prefill_tokens = 7'000},
                                    {.prompt_tokens = 500, .uncached_tokens = 400}) == 7'400.0);
  const ScoreTerms terms =
      LeastPendingPrefill{}.terms({.pending_prefill_tokens = 7'000}, {.uncached_tokens = 400});
  CHECK(terms[0].value == 7'000.0);
  CHECK(terms[1].value == 400.0);
}

TEST_CASE("one long prompt outweighs three short ones until it has been read") {
  SmallPool<SpillAbove, LocalPins, LeastPendingPrefill> pool(2);
  Lease longer = pool.router.route(Turn{.key = "long", .prompt_tokens = 9'000});
  std::vector<Lease> shorter;
  for (const char* key : {"a", "b", "c"}) {
    shorter.push_back(pool.router.route(Turn{.key = key, .prompt_tokens = 1'000}));
    CHECK(shorter.back().replica() != longer.replica());
  }
  longer.first_byte();
  CHECK(pool.router.route(Turn{.key = "d", .prompt_tokens = 1'000}).replica() == longer.replica());
}

TEST_CASE("a fork is placed by what its parent's home has cached, unless that has more to read") {
  SmallPool<SpillAbove, LocalPins, LeastPendingPrefill> pool(2, {}, SpillAbove{1});
  pool.settle("parent", 1);
  Lease lease = pool.router.route(Turn{.key = "parent", .prompt_tokens = 5'000});
  lease.first_byte();  // over its threshold of one turn, but with nothing left to read
  const auto forked = [&] {
    return pool.router.plan(Turn{.key = "fork", .parent = "parent", .prompt_tokens = 6'000});
  };
  CHECK(forked().replica == pool.id[1]);
  const Lease other =
      pool.router.route(Turn{.key = "x", .client_pinned = pool.id[1], .prompt_tokens = 5'001});
  CHECK(forked().replica == pool.id[0]);
}
