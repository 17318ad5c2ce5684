// SPDX-License-Identifier: Apache-2.0
//
// Many threads on one router: nothing is lost, nothing is counted twice. Meant for ThreadSanitizer;
// the amount of work is fixed and nobody sleeps.
#include <limpet/router.hpp>

#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/overflow/move_when_full.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>

#include "catch.hpp"
#include "support/test_policies.hpp"
#include "threads/together.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace limpet;
using namespace limpet_test;
using namespace std::chrono_literals;

namespace {

template <class Pins, class Overflow = SpillAbove, class Scorer = WeightedLoad>
using TestRouter = Router<Pins, Scorer, Overflow, NumberPage, ManualClock>;

template <class R>
void add_replicas(R& router, int count, std::vector<ReplicaId>& ids) {
  for (int i = 0; i < count; ++i) {
    ids.push_back(router.add_replica(
        {.name = "gpu" + std::to_string(i), .max_num_seqs = 16, .kv_capacity_tokens = 50'000}));
  }
}

// Everything that may happen to a router, from every thread at once.
template <class Pins, class Overflow, class Scorer = WeightedLoad>
void storm(Pins pins, std::uint64_t seed) {
  CAPTURE(seed);
  ManualClock clock;
  TestRouter<Pins, Overflow, Scorer> router(std::move(pins), Scorer{}, Overflow{}, NumberPage{},
                                            clock);
  std::vector<ReplicaId> ids;
  add_replicas(router, 6, ids);

  // A hand-over: some leases end on another thread than they began on.
  std::mutex mutex;
  std::deque<Lease> handed_over;

  together(4, [&](std::size_t thread) {
    std::mt19937_64 random(seed * 100 + thread);
    const auto below = [&](std::uint64_t bound) { return random() % bound; };
    std::vector<Lease> own;
    for (int step = 0; step < 1500; ++step) {
      const std::uint64_t what = below(100);
      const ReplicaId some = ids[below(ids.size())];
      const std::string key = "c" + std::to_string(below(40));
      if (what < 45) {
        Turn turn{
            .key = key, .exclude = {}, .prompt_tokens = below(9000), .side_call = below(12) == 0};
        if (below(8) == 0) turn.key = Key{};
        if (below(12) == 0) turn.client_pinned = some;
        if (below(8) == 0) turn.exclude = std::span(&some, 1);
        own.push_back(below(4) == 0 ? router.commit(router.plan(turn)) : router.route(turn));
      } else if (what < 80) {
        if (own.empty()) continue;
        const std::size_t at = below(own.size());
        own[below(own.size())].first_byte();
        Lease lease = std::move(own[at]);
        own.erase(own.begin() + static_cast<std::ptrdiff_t>(at));
        if (what < 55) {
          lease.finish({.prompt_tokens = 1 + below(9000), .completion_tokens = below(100)});
        } else if (what < 62) {
          lease.fail();
        } else if (what < 68) {
          lease.cancel();
        } else if (what < 74) {
          const std::lock_guard lock(mutex);
          handed_over.push_back(std::move(lease));
        }  // else its destructor
      } else if (what < 86) {
        std::optional<Lease> taken;
        {
          const std::lock_guard lock(mutex);
          if (!handed_over.empty()) {
            taken.emplace(std::move(handed_over.front()));
            handed_over.pop_front();
          }
        }
        if (taken) taken->finish();
      } else if (what < 90) {
        clock.advance(std::chrono::milliseconds(static_cast<int>(below(9000))));
      } else if (what < 92) {
        static_cast<void>(router.observe("gpu" + std::to_string(below(6)), "0.5"));
      } else if (what < 94) {
        router.restarted(some);
      } else if (what < 95) {
        router.drain(some);
      } else if (what < 96) {
        router.set_down(some);
      } else if (what < 98) {
        for (const ReplicaId id : ids) router.set_up(id);
      } else if (what < 99) {
        static_cast<void>(router.snapshot());
        static_cast<void>(router.explain(key));
        if constexpr (TracksTurns<Pins>) static_cast<void>(router.rebalance(3, 1s));
      } else {
        // A replica of its own comes and goes, with leases of anybody on it.
        const std::string name = "guest" + std::to_string(thread) + "-" + std::to_string(step);
        const ReplicaId guest = router.add_replica({.name = name});
        own.push_back(router.route(Turn{.client_pinned = guest}));
        if (!router.remove(guest)) std::abort();
      }
    }
  });

  handed_over.clear();
  std::uint64_t in_flight = 0;
  for (const auto& row : router.snapshot().replicas) {
    in_flight += row.in_flight;
    CHECK(row.in_flight_tokens == 0);
    CHECK(row.pending_prefill_tokens.value_or(0) == 0);
  }
  CHECK(in_flight == 0);

  // What the rows say agrees with the store: every conversation once, at its own home.
  if constexpr (TracksTurns<Pins>) {
    std::array<std::uint32_t, 6> pins_at{};
    for (int i = 0; i < 40; ++i) {
      const Turn side{.key = router.hash("c" + std::to_string(i)), .side_call = true};
      const Home home = router.plan(side).home;
      if (home.replica) ++pins_at.at(home.replica.slot);
    }
    for (const auto& row : router.snapshot().replicas) {
      CAPTURE(row.name);
      CHECK(row.pins == pins_at.at(row.id.slot));
      CHECK(row.live_conversations <= row.pins);
    }
  }
  // With the live window over nothing may be left, not even a wrong sum.
  clock.advance(301s);
  for (const auto& row : router.snapshot().replicas) {
    CAPTURE(row.name);
    CHECK(row.live_conversations == 0);
    CHECK(row.live_tokens == 0);
  }
}

}  // namespace

TEST_CASE("threads that do everything at once lose no lease, no pin and no count") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    storm<ShardedPins<>, SpillAbove>(ShardedPins<>{}, seed);
    storm<ShardedPins<>, MoveWhenFull>(ShardedPins<>{}, seed);
  }
  storm<ShardedPins<>, MoveIfCheaper, LeastPendingPrefill>(ShardedPins<>{}, 7);
  storm<RendezvousPins, SpillAbove>(RendezvousPins{}, 5);
  storm<FourPrimitives, MoveWhenFull>(FourPrimitives{}, 6);
}

TEST_CASE("threads on a store too small for their conversations lose no count") {
  for (std::uint64_t seed = 11; seed <= 13; ++seed)
    storm<ShardedPins<>, SpillAbove>(ShardedPins<>{{.capacity = 8, .shards = 2}}, seed);
}

TEST_CASE("first turns from many threads on idle equal replicas differ by at most one") {
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    TestRouter<ShardedPins<>> router;
    std::vector<ReplicaId> ids;
    const int replicas = 2 + round % 4;
    add_replicas(router, replicas, ids);
    std::array<std::vector<Lease>, 8> leases;
    together(leases.size(), [&](std::size_t thread) {
      for (int i = 0; i < 9; ++i)
        leases[thread].push_back(router.route(std::to_string(thread) + "/" + std::to_string(i)));
    });
    std::uint32_t fewest = UINT32_MAX;
    std::uint32_t most = 0;
    for (const auto& row : router.snapshot().replicas) {
      fewest = std::min(fewest, row.in_flight);
      most = std::max(most, row.in_flight);
      CHECK(row.in_flight == row.live_conversations);
      CHECK(row.in_flight == row.pins);
    }
    CHECK(most - fewest <= 1);
  }
}

TEST_CASE("first turns of one conversation from many threads agree on its home") {
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    TestRouter<ShardedPins<>> router;
    std::vector<ReplicaId> ids;
    add_replicas(router, 4, ids);
    std::array<Lease, 4> leases;
    together(leases.size(), [&](std::size_t thread) { leases[thread] = router.route("c"); });
    std::size_t placed = 0;
    for (const Lease& lease : leases) {
      placed += lease.outcome() == Outcome::placed;
      CHECK(lease.decision().home == leases[0].decision().home);
    }
    CHECK(placed == 1);
    std::uint32_t in_flight = 0;
    std::uint32_t pins = 0;
    for (const auto& row : router.snapshot().replicas) {
      in_flight += row.in_flight;
      pins += row.pins;
    }
    CHECK(in_flight == 4);
    CHECK(pins == 1);
  }
}

TEST_CASE("turns of a conversation whose home went down agree on the next one") {
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    TestRouter<ShardedPins<>> router;
    std::vector<ReplicaId> ids;
    add_replicas(router, 4, ids);
    const ReplicaId home = router.route("c").replica();
    router.set_down(home);
    std::array<Lease, 4> leases;
    together(leases.size(), [&](std::size_t thread) { leases[thread] = router.route("c"); });
    std::size_t moved = 0;
    for (const Lease& lease : leases) {
      moved += lease.outcome() == Outcome::moved;
      CHECK(lease.decision().home == leases[0].decision().home);
      CHECK(lease.replica() != home);
    }
    CHECK(moved == 1);
  }
}

TEST_CASE("a lease that two threads end at once is returned once, and counted as one of the two") {
  TestRouter<ShardedPins<>> router;
  std::vector<ReplicaId> ids;
  add_replicas(router, 1, ids);
  const Lease standing = router.route("standing");
  for (int round = 0; round < 500; ++round) {
    Lease lease = router.route("c");
    together(2, [&](std::size_t thread) {
      if (thread == 0) {
        lease.finish();
      } else {
        lease.fail();
      }
    });
    CHECK_FALSE(lease.held());
  }
  CHECK(router.snapshot().replicas[0].in_flight == 1);
  CHECK(router.snapshot().replicas[0].failed <= 500);
}

TEST_CASE("a first byte beside the end takes a turn's prompt off once") {
  TestRouter<ShardedPins<>, SpillAbove, LeastPendingPrefill> router;
  std::vector<ReplicaId> ids;
  add_replicas(router, 1, ids);
  const Lease standing = router.route(Turn{.key = "standing", .prompt_tokens = 70});
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    Lease lease = router.route(Turn{.client_pinned = ids[0], .prompt_tokens = 1'000});
    together(3, [&](std::size_t thread) {
      if (thread == 0) {
        lease.finish();
      } else {
        lease.first_byte();
      }
    });
    REQUIRE(router.snapshot().replicas[0].pending_prefill_tokens == 70);
  }
}

TEST_CASE("replicas that join and leave meanwhile lose no lease of those that stay") {
  TestRouter<ShardedPins<>> router;
  std::vector<ReplicaId> ids;
  add_replicas(router, 2, ids);
  std::atomic<std::uint64_t> unserved = 0;
  together(4, [&](std::size_t thread) {
    std::mt19937_64 random(thread);
    for (int step = 0; step < 800; ++step) {
      if (thread == 0) {
        const ReplicaId guest = router.add_replica({.name = "guest"});
        if (step % 2 == 0) router.drain(guest);
        router.remove(guest);
      } else {
        Lease lease = router.route("c" + std::to_string(random() % 50));
        if (!lease) ++unserved;
        lease.finish({.prompt_tokens = 100});
      }
    }
  });
  CHECK(unserved == 0);
  const Snapshot snapshot = router.snapshot();
  REQUIRE(snapshot.replicas.size() == 2);
  std::uint64_t served = 0;
  for (const auto& row : snapshot.replicas) {
    CHECK(row.in_flight == 0);
    served += row.placed + row.sticky + row.moved + row.spilled_in;
  }
  CHECK(served <= 3 * 800);
}

namespace {

// A store that is as slow as a network: pinning a key that begins with "slow" waits until told.
class GatedPins : public ShardedPins<> {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::pair<std::uint64_t, std::uint64_t>> slow;
    int waiting = 0;
    bool open = false;
  };

  explicit GatedPins(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  TurnOpened pin_turn(KeyHash key, Home home, Instant now, std::uint32_t tokens) {
    std::unique_lock lock(gate_->mutex);
    if (gate_->slow.count({key.hi, key.lo}) == 1) {
      ++gate_->waiting;
      gate_->changed.notify_all();
      gate_->changed.wait(lock, [&] { return gate_->open; });
    }
    lock.unlock();
    return ShardedPins<>::pin_turn(key, home, now, tokens);
  }

 private:
  std::shared_ptr<Gate> gate_;
};

}  // namespace

TEST_CASE("first turns spread evenly while others still wait for a slow store") {
  const auto gate = std::make_shared<GatedPins::Gate>();
  Router<GatedPins, WeightedLoad, SpillAbove, NumberPage, ManualClock> router{GatedPins(gate)};
  std::vector<ReplicaId> ids;
  add_replicas(router, 2, ids);

  // One is placed; two more have their slots, but their pins are still under way.
  std::vector<Lease> leases;
  leases.push_back(router.route("first"));
  std::array<Lease, 2> slow;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < slow.size(); ++i) {
    const KeyHash key = router.hash("slow" + std::to_string(i));
    std::unique_lock lock(gate->mutex);
    gate->slow.insert({key.hi, key.lo});
    threads.emplace_back([&, i, key] { slow[i] = router.route(key); });
    gate->changed.wait(lock, [&] { return gate->waiting == static_cast<int>(i) + 1; });
  }
  for (int i = 0; i < 5; ++i) {
    leases.push_back(router.route("fast" + std::to_string(i)));
    const Snapshot snapshot = router.snapshot();
    const auto a = static_cast<int>(snapshot.replicas[0].in_flight);
    const auto b = static_cast<int>(snapshot.replicas[1].in_flight);
    CHECK(std::abs(a - b) <= 1);
  }
  {
    const std::lock_guard lock(gate->mutex);
    gate->open = true;
  }
  gate->changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  for (const auto& row : router.snapshot().replicas) {
    CHECK(row.in_flight == 4);
    CHECK(row.live_conversations == 4);
    CHECK(row.pins == 4);
  }
}
