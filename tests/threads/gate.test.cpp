// SPDX-License-Identifier: Apache-2.0
//
// Many threads at one gate: no wake-up is lost, no ticket is left without an end, nobody is let in
// beyond what fits. Meant for ThreadSanitizer; the amount of work is fixed and nobody sleeps.
#include <limpet/gate/working_set.hpp>

#include "catch.hpp"
#include "support/test_policies.hpp"
#include "threads/together.hpp"

#include <limpet/clock.hpp>
#include <limpet/pins/sharded.hpp>
#include <limpet/router.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace limpet;
using namespace limpet_test;
using namespace std::chrono_literals;

namespace {

using TestRouter = Router<ShardedPins<>, WeightedLoad, SpillAbove, NumberPage, ManualClock>;

}  // namespace

TEST_CASE("threads: aborts, lost replicas and restarts leave no ticket and no slot behind") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  // A conversation with several turns may outgrow its place while one of them runs, so what is let
  // in has an exact bound only where each has one at a time.
  const bool one_at_a_time = seed % 2 == 0;
  CAPTURE(seed);
  ManualClock clock;
  TestRouter router(ShardedPins<>{}, WeightedLoad{}, SpillAbove{}, NumberPage{}, clock);
  std::vector<ReplicaId> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(router.add_replica(
        {.name = "gpu" + std::to_string(i), .max_num_seqs = 64, .kv_capacity_tokens = 30'000}));
  }
  WorkingSetGate gate(router, {.theta = 1.0,
                               .max_wait = 5s,
                               .deadline = 0s,
                               .max_waiting = 100'000,
                               .shared_prefix_tokens = 0});
  std::atomic<std::uint64_t> over_admitted = 0;
  std::atomic<std::uint64_t> callbacks = 0;

  together(4, [&](std::size_t thread) {
    std::mt19937_64 random(seed * 100 + thread);
    const auto below = [&](std::uint64_t bound) { return random() % bound; };
    struct Own {
      std::uint64_t key;
      GateTicket ticket;
    };
    std::vector<Own> own;
    for (int step = 0; step < 2'500; ++step) {
      const std::uint64_t what = below(100);
      if (what < 50) {
        const std::uint64_t key = one_at_a_time ? thread * 100 + below(8) : below(30);
        const bool busy =
            std::any_of(own.begin(), own.end(), [&](const Own& turn) { return turn.key == key; });
        if (one_at_a_time && busy) continue;
        own.push_back({key, gate.enter(Turn{.key = "c" + std::to_string(key),
                                            .prompt_tokens = 4'000 + below(6'000)},
                                       [&callbacks] { ++callbacks; })});
      } else if (what < 90) {
        if (own.empty()) continue;
        const std::size_t at = below(own.size());
        GateTicket ticket = std::move(own[at].ticket);
        own.erase(own.begin() + static_cast<std::ptrdiff_t>(at));
        if (what < 80) {
          gate.leave(std::move(ticket), {4'000 + below(6'000), 0, 0});
        } else if (what < 85) {
          ticket.fail();
        }  // else its destructor: an abort, waiting or not
      } else if (what < 92) {
        router.set_down(ids[below(ids.size())]);
      } else if (what < 94) {
        router.restarted(ids[below(ids.size())]);
      } else if (what < 97) {
        for (const ReplicaId id : ids) router.set_up(id);
      } else {
        clock.advance(std::chrono::milliseconds(below(2'000)));
        gate.tick();
        for (const GateReplica& row : gate.snapshot().replicas) {
          if (one_at_a_time && row.residents > 1 && row.resident_tokens > 30'000) ++over_admitted;
        }
      }
    }
    // Those that wait may wait for other threads: all are kept until they have left.
    for (Own& turn : own) {
      if (turn.ticket.state() != TicketState::waiting)
        gate.leave(std::move(turn.ticket), {5'000, 0, 0});
    }
  });

  CHECK(over_admitted == 0);
  const GateSnapshot now = gate.snapshot();
  CHECK(now.waiting == 0);  // their tickets went with the threads
  for (const auto& row : router.snapshot().replicas) CHECK(row.in_flight == 0);
  CHECK(now.waited > 0);
  CHECK(now.cancelled > 0);
}

TEST_CASE("threads: everyone who waits is let in when the others leave, without a tick") {
  ManualClock clock;
  TestRouter router(ShardedPins<>{}, WeightedLoad{}, SpillAbove{}, NumberPage{}, clock);
  router.add_replica({.name = "gpu", .max_num_seqs = 64, .kv_capacity_tokens = 10'000});
  WorkingSetGate gate(router,
                      {.theta = 1.0, .grace = 0s, .deadline = 0s, .shared_prefix_tokens = 0});
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::atomic<int> served = 0;

  together(4, [&](std::size_t thread) {
    for (int i = 0; i < 200; ++i) {
      // Shared, since the callback may still be on its way out when its ticket is used.
      const auto settled = std::make_shared<std::atomic<bool>>(false);
      GateTicket ticket = gate.enter(
          Turn{.key = std::to_string(thread) + "-" + std::to_string(i), .prompt_tokens = 9'000},
          [settled] {
            settled->store(true);
            settled->notify_one();
          });
      if (ticket.state() == TicketState::waiting) settled->wait(false);
      const int now = ++inside;
      int seen = most.load();
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      ++served;
      --inside;
      gate.leave(std::move(ticket), {9'000, 0, 0});
    }
  });
  CHECK(served == 800);
  CHECK(most == 1);
  CHECK(gate.snapshot().waiting == 0);
}

TEST_CASE("threads: first turns of a hundred conversations spread over idle replicas") {
  ManualClock clock;
  TestRouter router(ShardedPins<>{}, WeightedLoad{}, SpillAbove{}, NumberPage{}, clock);
  std::vector<ReplicaId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(router.add_replica({.name = "gpu" + std::to_string(i),
                                      .max_num_seqs = 256,
                                      .kv_capacity_tokens = 10'000'000}));
  }
  WorkingSetGate gate(router, {});
  std::mutex mutex;
  std::vector<GateTicket> all;
  together(4, [&](std::size_t thread) {
    for (std::size_t i = 0; i < 25; ++i) {
      GateTicket ticket =
          gate.enter(Turn{.key = std::to_string(thread * 100 + i), .prompt_tokens = 100});
      const std::lock_guard lock(mutex);
      all.push_back(std::move(ticket));
    }
  });
  for (const auto& row : router.snapshot().replicas) {
    CHECK(row.in_flight >= 25 - 8);
    CHECK(row.in_flight <= 25 + 8);
  }
}
