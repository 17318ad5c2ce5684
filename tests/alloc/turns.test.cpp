// SPDX-License-Identifier: Apache-2.0
//
// What a turn allocates: nothing. What a store of a million pins takes: all of it at once, and no
// more than 96 bytes a pin.
#include "alloc/counting.hpp"

#include <limpet/limpet.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace limpet;
using limpet_test::Allocations;
using limpet_test::allocations_of;

namespace {

// With a Router of the defaults, as most users have it.
struct Pool {
  explicit Pool(std::size_t replicas) {
    for (std::size_t i = 0; i < replicas; ++i) {
      id.push_back(router.add_replica({.name = "gpu" + std::to_string(i), .max_num_seqs = 8}));
    }
    for (int i = 0; i < 64; ++i)
      keys.push_back("a conversation with a long key, number " + std::to_string(i));
  }

  Router<> router;
  std::vector<ReplicaId> id;
  std::vector<std::string> keys;
};

}  // namespace

TEST_CASE("the counter sees what is allocated") {
  // Not new-expressions: a compiler may leave those out in pairs.
  const Allocations seen = allocations_of([] { ::operator delete(::operator new(8)); });
  CHECK(seen.calls == 1);
  CHECK(seen.bytes == 8);
  constexpr std::align_val_t line{64};
  const auto aligned = allocations_of([] { ::operator delete(::operator new(128, line), line); });
  CHECK(aligned.calls == 1);
  CHECK(aligned.bytes == 128);
}

TEST_CASE("no turn allocates, whatever becomes of it and however it ends") {
  const std::size_t replicas = GENERATE(std::size_t{4}, std::size_t{1024});
  CAPTURE(replicas);
  Pool pool(replicas);
  Router<>& router = pool.router;
  const ReplicaId exclude[] = {pool.id[0], pool.id[1]};

  // As many of each as a test of counts needs; counted by outcome to see that it came to that.
  std::size_t outcomes[8] = {};
  const auto take = [&](const Turn& turn) {
    Lease lease = router.route(turn);
    ++outcomes[static_cast<std::size_t>(lease.outcome())];
    return lease;
  };
  const auto of = [&](Outcome outcome) { return outcomes[static_cast<std::size_t>(outcome)]; };

  const auto placed = allocations_of([&] {
    for (const std::string& key : pool.keys) take(Turn{.key = key}).finish({.prompt_tokens = 9000});
  });
  CHECK(placed.calls == 0);
  CHECK(of(Outcome::placed) == 64);

  const auto sticky = allocations_of([&] {
    for (const std::string& key : pool.keys) take(Turn{.key = key}).finish();
  });
  CHECK(sticky.calls == 0);
  CHECK(of(Outcome::sticky) == 64);

  const auto spilled = allocations_of([&] {
    const Lease first = take(Turn{.key = pool.keys[0]});
    const Lease second = take(Turn{.key = pool.keys[0]});
    take(Turn{.key = pool.keys[0]}).cancel();
  });
  CHECK(spilled.calls == 0);
  CHECK(of(Outcome::spilled) >= 1);

  const auto balanced = allocations_of([&] {
    take(Turn{}).fail();
    take(Turn{.key = "title", .side_call = true}).finish();
  });
  CHECK(balanced.calls == 0);
  CHECK(of(Outcome::balanced) == 2);

  const auto others = allocations_of([&] {
    take(Turn{.key = pool.keys[1], .client_pinned = pool.id[2]}).finish();
    take(Turn{.key = "child", .parent = pool.keys[1], .exclude = exclude}).fail();
    take(Turn{.key = pool.keys[2], .exclude = exclude}).fail();
    Lease moved_about = take(Turn{.key = pool.keys[3]});
    Lease there = std::move(moved_about);
    there.finish();
  });
  CHECK(others.calls == 0);
  CHECK(of(Outcome::client_pinned) == 1);

  const auto planned = allocations_of([&] {
    for (const std::string& key : pool.keys) router.commit(router.plan(key)).finish();
  });
  CHECK(planned.calls == 0);

  for (const ReplicaId id : pool.id) {
    if (id != pool.id[1]) router.set_down(id);
  }
  const auto moved = allocations_of([&] {
    for (const std::string& key : pool.keys) take(Turn{.key = key}).finish();
  });
  CHECK(moved.calls == 0);
  CHECK(of(Outcome::moved) > 30);
  router.set_down(pool.id[1]);
  const auto refused = allocations_of([&] { take(Turn{.key = "nobody"}).finish(); });
  CHECK(refused.calls == 0);
  CHECK(of(Outcome::refused) == 1);
}

TEST_CASE("a turn whose tokens are counted allocates nothing, not even one that moves") {
  Router router{ShardedPins<>{}, LeastPendingPrefill{}, MoveIfCheaper{}};
  const ReplicaId home = router.add_replica({.name = "gpu0", .kv_capacity_tokens = 30'000});
  router.route(Turn{.key = "c", .prompt_tokens = 9'000}).finish({.prompt_tokens = 9'000});
  router.add_replica({.name = "gpu1", .kv_capacity_tokens = 30'000});
  Outcome outcome{};
  const auto turns = allocations_of([&] {
    Lease queued = router.route(Turn{.client_pinned = home, .prompt_tokens = 20'000});
    Lease moved = router.route(Turn{.key = "c", .prompt_tokens = 9'100});
    outcome = moved.outcome();
    moved.first_byte();
    moved.finish({.prompt_tokens = 9'100});
  });
  CHECK(outcome == Outcome::moved);
  CHECK(turns.calls == 0);
}

TEST_CASE("a full store allocates no more than an empty one: evictions reuse what is there") {
  Router router{LocalPins{{.capacity = 100}}};
  static_cast<void>(router.add_replica({.name = "gpu0"}));
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(std::to_string(i));
  const auto allocations = allocations_of([&] {
    for (const std::string& key : keys) router.route(key).finish();
  });
  CHECK(allocations.calls == 0);
  CHECK(router.snapshot().evicted == 900);
}

TEST_CASE("a store of a million pins takes at most 96 bytes a pin, all of it at construction") {
  constexpr std::size_t pins = 1 << 20;
  std::optional<ShardedPins<>> store;
  const auto built = allocations_of([&] { store.emplace(ShardedPinOptions{.capacity = pins}); });
  CHECK(store->capacity() >= pins);
  CHECK(built.bytes <= 96 * pins);
  CHECK(built.bytes >= 64 * pins);
  // What it says of itself is what was allocated.
  CHECK(store->bytes() <= built.bytes);
  CHECK(static_cast<double>(store->bytes()) >= 0.99 * static_cast<double>(built.bytes));

  const auto filled = allocations_of([&] {
    for (std::uint64_t i = 0; i < pins + pins / 8; ++i) {
      const KeyHash key{i * 0x9e3779b97f4a7c15ULL, i * 0xbf58476d1ce4e5b9ULL};
      static_cast<void>(store->pin_turn(key, Home{{0, 0}, 0}, Instant{}, 0));
    }
  });
  CHECK(filled.calls == 0);
}

TEST_CASE("at any capacity a pin takes at most 96 bytes") {
  for (const std::size_t capacity : {1024UL, 1025UL, 5000UL, 8192UL, 100'000UL, 262'145UL}) {
    CAPTURE(capacity);
    std::optional<ShardedPins<>> store;
    const auto built =
        allocations_of([&] { store.emplace(ShardedPinOptions{.capacity = capacity}); });
    CHECK(built.bytes <= 96 * capacity);
  }
}
