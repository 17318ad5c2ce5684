// SPDX-License-Identifier: Apache-2.0
//
// What holds whatever the policies: random histories of one thread under each of them.
#include <limpet/router.hpp>

#include <limpet/overflow/bounded_load.hpp>
#include <limpet/overflow/move_when_full.hpp>
#include <limpet/overflow/never.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/power_of_two.hpp>
#include <limpet/scorers/round_robin.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace limpet;
using namespace limpet_test;
using namespace std::chrono_literals;

namespace {

// One thing that happened, so that a history can be played again.
struct Event {
  int what = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
};

std::vector<Event> random_history(std::uint64_t seed, std::size_t events) {
  std::mt19937_64 random(seed);
  std::vector<Event> history;
  for (std::size_t i = 0; i < events; ++i)
    history.push_back({static_cast<int>(random() % 100), random(), random()});
  return history;
}

// Plays a history, checks the invariants after each event, and returns all decisions.
template <class Overflow, class Pins, class Scorer>
std::vector<Decision> play(const std::vector<Event>& history) {
  SmallPool<Overflow, Pins, Scorer> pool(0);
  auto& router = pool.router;
  for (int i = 0; i < 5; ++i) {
    pool.id.push_back(router.add_replica(
        {.name = "gpu" + std::to_string(i), .max_num_seqs = 8, .kv_capacity_tokens = 30'000}));
  }
  std::vector<Decision> decisions;
  std::vector<Lease> leases;
  for (const auto& [what, a, b] : history) {
    const ReplicaId some = pool.id[a % pool.id.size()];
    if (what < 50) {
      const std::string key = "c" + std::to_string(a % 15);
      Turn turn{.key = key, .prompt_tokens = b % 9000, .side_call = b % 11 == 0};
      if (b % 7 == 0) turn.key = Key{};
      const Decision plan = router.plan(turn);
      const Explanation why = router.explain(turn);
      std::map<std::uint16_t, std::uint32_t> in_flight;
      for (const auto& row : why.replicas) in_flight[row.load.replica.slot] = row.load.in_flight;
      leases.push_back(b % 3 == 0 ? router.commit(plan) : router.route(turn));
      const Decision& made = leases.back().decision();
      decisions.push_back(made);
      REQUIRE(made == plan);
      REQUIRE(why.decision == plan);
      if (made.outcome == Outcome::spilled && made.reason == Reason::home_overloaded) {
        // Never to a replica with more in flight than home.
        REQUIRE(in_flight[made.replica.slot] < in_flight[made.home.replica.slot]);
      }
    } else if (what < 85) {
      if (leases.empty()) continue;
      const std::size_t at = b % leases.size();
      if (what < 70) leases[at].finish({.prompt_tokens = 1 + a % 9000});
      if (what < 75) leases[at].fail();
      leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (what < 92) {
      pool.clock.advance(std::chrono::milliseconds(static_cast<int>(a % 200'000)));
    } else if (what < 95) {
      CHECK(router.observe("gpu" + std::to_string(a % 5), "0.5") == ParseStatus::ok);
    } else if (what == 95) {
      router.drain(some);
    } else if (what == 96) {
      router.set_down(some);
    } else if (what == 97) {
      router.restarted(some);
    } else {
      for (const ReplicaId id : pool.id) router.set_up(id);
    }
    std::map<std::uint16_t, std::uint32_t> alive;
    for (const Lease& lease : leases) {
      if (lease.held()) ++alive[lease.replica().slot];
    }
    for (const auto& row : router.snapshot().replicas) {
      if (row.in_flight != alive[row.id.slot] || row.live_conversations > 1000 ||
          row.live_tokens > 10'000'000 || row.pins > 15) {
        FAIL(row.name << ": in flight " << row.in_flight << ", leases " << alive[row.id.slot]
                      << ", live " << row.live_conversations << ", pins " << row.pins);
      }
    }
  }
  leases.clear();
  pool.clock.advance(2h);
  for (const auto& row : router.snapshot().replicas) {
    REQUIRE(row.in_flight == 0);
    REQUIRE(row.in_flight_tokens == 0);
    REQUIRE(row.live_conversations == 0);
    REQUIRE(row.live_tokens == 0);
  }
  return decisions;
}

template <class Overflow, class Pins, class Scorer>
void check(const char* policies) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(policies, seed);
    const auto history = random_history(seed, 1500);
    const auto decisions = play<Overflow, Pins, Scorer>(history);
    CHECK(decisions.size() > 600);
    // The same recording replays to the same decisions, bit for bit.
    CHECK(decisions == play<Overflow, Pins, Scorer>(history));
  }
}

}  // namespace

TEST_CASE(
    "counts equal the leases alive, plans come true and histories replay, under any policies") {
  check<SpillAbove, LocalPins, WeightedLoad>("the defaults");
  check<NeverSpill, LocalPins, RoundRobin>("never spill, round robin");
  check<BoundedLoad, ShardedPins<>, PowerOfTwo>("bounded load, power of two");
  check<MoveWhenFull, ShardedPins<NullMutex>, WeightedLoad>("move when full");
  check<SpillAbove, RendezvousPins, LeastInFlight>("rendezvous");
  check<MoveWhenFull, FourPrimitives, LeastInFlight>("a store of four primitives");
}

TEST_CASE("in a quiet pool every turn of a conversation goes to the same replica") {
  SmallPool<> pool(7);
  for (int i = 0; i < 50; ++i) {
    const std::string key = "c" + std::to_string(i);
    const ReplicaId home = pool.router.route(key).replica();
    for (int turn = 0; turn < 20; ++turn) {
      pool.clock.advance(20min);
      REQUIRE(pool.router.route(key).replica() == home);
    }
  }
}

TEST_CASE("distinct first turns on idle equal replicas differ by at most one, whatever the keys") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t replicas = 1 + random() % 9;
    const std::size_t turns = random() % 100;
    CAPTURE(seed, replicas, turns);
    SmallPool<> pool(replicas);
    std::vector<Lease> leases;
    for (std::size_t i = 0; i < turns; ++i)
      leases.push_back(pool.router.route(std::to_string(random())));
    std::uint32_t fewest = UINT32_MAX;
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < replicas; ++i) {
      fewest = std::min(fewest, pool.in_flight(i));
      most = std::max(most, pool.in_flight(i));
    }
    CHECK(most - fewest <= 1);
  }
}

TEST_CASE("a hundred first turns between two scrapes spread evenly, whatever the gauges say") {
  SmallPool<> pool(4);
  for (int i = 0; i < 4; ++i) {
    // A cold engine says 0 for a long time.
    CHECK(pool.router.observe("gpu" + std::to_string(i), "0") == ParseStatus::ok);
  }
  std::vector<Lease> leases;
  for (int i = 0; i < 100; ++i) leases.push_back(pool.router.route(std::to_string(i)));
  for (std::size_t i = 0; i < 4; ++i) CHECK(pool.in_flight(i) == 25);
}
