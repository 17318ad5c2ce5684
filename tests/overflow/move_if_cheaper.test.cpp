// SPDX-License-Identifier: Apache-2.0
#include <limpet/overflow/move_if_cheaper.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"
#include "support/small_pool.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;
using limpet_test::pool_view;
using limpet_test::SmallPool;

namespace {

ReplicaLoad reading(std::uint16_t slot, std::uint64_t pending, std::uint64_t in_flight_tokens = 0) {
  return {.replica = {slot, 0},
          .in_flight_tokens = in_flight_tokens,
          .pending_prefill_tokens = pending,
          .kv_capacity_tokens = 32'000};
}

Verdict decide(const ReplicaLoad& home, const std::vector<ReplicaLoad>& others,
               std::uint64_t at_home, std::uint64_t elsewhere) {
  auto view = pool_view(home, others);
  view.uncached_at_home = at_home;
  view.uncached_elsewhere = elsewhere;
  return MoveIfCheaper{}.decide(view);
}

// A conversation that is pinned to gpu0 and has a context of 10,000 tokens.
template <class Pool>
void place(Pool& pool, const std::string& key) {
  const std::vector<ReplicaId> others(pool.id.begin() + 1, pool.id.end());
  Lease lease = pool.router.route(Turn{.key = key, .exclude = others, .prompt_tokens = 9'800});
  lease.finish({.prompt_tokens = 9'800, .completion_tokens = 200});
}

}  // namespace

TEST_CASE("a home is worth leaving only where more than the floor is pending") {
  CHECK_FALSE(MoveIfCheaper{}.overloaded(reading(0, 2'048)));
  CHECK(MoveIfCheaper{}.overloaded(reading(0, 2'049)));
  CHECK_FALSE(MoveIfCheaper{}.overloaded({.in_flight = 1'000, .live_tokens = 1'000'000}));
}

TEST_CASE("what is pending and uncached at home is weighed against reading all of it elsewhere") {
  // Elsewhere 1.25 x 10,000 + 2,048 = 14,548.
  CHECK(decide(reading(0, 14'148), {reading(1, 0)}, 400, 10'000) == Verdict::stay);
  CHECK(decide(reading(0, 14'149), {reading(1, 0)}, 400, 10'000) == Verdict::move.to({1, 0}));
}

TEST_CASE("where home has lost the history anyway, less of a wait is reason enough") {
  CHECK(decide(reading(0, 4'548), {reading(1, 0)}, 10'000, 10'000) == Verdict::stay);
  CHECK(decide(reading(0, 4'549), {reading(1, 0)}, 10'000, 10'000) == Verdict::move.to({1, 0}));
}

TEST_CASE("the replica with the least pending is taken, the first of equals") {
  CHECK(decide(reading(0, 50'000), {reading(1, 900), reading(2, 300), reading(3, 300)}, 0, 8'000) ==
        Verdict::move.to({2, 0}));
}

TEST_CASE("a replica whose turns in flight leave no room for the prompt is nowhere to go") {
  const ReplicaLoad home = reading(0, 50'000);
  CHECK(decide(home, {reading(1, 0, 22'001), reading(2, 5'000, 22'000)}, 0, 10'000) ==
        Verdict::move.to({2, 0}));
  CHECK(decide(home, {reading(1, 0, 22'001)}, 0, 10'000) == Verdict::stay);
  ReplicaLoad unknown = reading(1, 0, 1'000'000);
  unknown.kv_capacity_tokens = 0;
  CHECK(decide(home, {unknown}, 0, 10'000) == Verdict::move.to({1, 0}));
}

TEST_CASE("a margin that makes no sense is refused by name and value") {
  CHECK_NOTHROW(MoveIfCheaper{.margin = 1.0, .floor_tokens = 0}.validate());
  CHECK_THROWS_MATCHES(MoveIfCheaper{.margin = 0.9}.validate(), std::invalid_argument,
                       MessageMatches(StartsWith("margin = 0.9")));
  CHECK_THROWS_MATCHES(MoveIfCheaper{.margin = std::numeric_limits<double>::infinity()}.validate(),
                       std::invalid_argument, MessageMatches(StartsWith("margin = inf")));
}

TEST_CASE("a conversation behind two cold prompts moves for good, behind one it waits") {
  SmallPool<MoveIfCheaper> pool(2);
  place(pool, "c");
  const Turn turn{.key = "c", .prompt_tokens = 10'400};
  const Lease cold = pool.router.route(Turn{.client_pinned = pool.id[0], .prompt_tokens = 10'000});
  CHECK(pool.router.plan(turn).outcome == Outcome::sticky);  // 10,400 against 10,400
  Lease second = pool.router.route(Turn{.client_pinned = pool.id[0], .prompt_tokens = 10'000});
  CHECK(pool.router.plan(turn).replica == pool.id[1]);
  second.first_byte();  // has been read
  CHECK(pool.router.plan(turn).outcome == Outcome::sticky);
  const Lease third = pool.router.route(Turn{.client_pinned = pool.id[0], .prompt_tokens = 10'000});
  const Lease moved = pool.router.route(turn);
  CHECK(moved.outcome() == Outcome::moved);
  CHECK(moved.replica() == pool.id[1]);
  CHECK(pool.pinned("c") == pool.id[1]);
}

TEST_CASE("four conversations on one of two replicas that holds two of them spread") {
  SmallPool<MoveIfCheaper> pool(0);
  for (const char* name : {"gpu0", "gpu1"}) {
    pool.id.push_back(
        pool.router.add_replica({.name = name, .max_num_seqs = 32, .kv_capacity_tokens = 24'000}));
  }
  const std::vector<std::string> keys = {"a", "b", "c", "d"};
  for (const std::string& key : keys) {
    place(pool, key);
    pool.clock.advance(10s);
  }
  for (const std::string& key : keys) CHECK(pool.pinned(key) == pool.id[0]);
  // All come back at once, and each has lost its history by what is in flight then: "b" and "d" save
  // a wait for another's prompt.
  std::vector<Lease> leases;
  std::multiset<std::uint16_t> homes;
  for (const std::string& key : keys) {
    leases.push_back(pool.router.route(Turn{.key = key, .prompt_tokens = 10'400}));
    homes.insert(pool.pinned(key).slot);
  }
  CHECK(homes == std::multiset<std::uint16_t>{0, 0, 1, 1});
}
