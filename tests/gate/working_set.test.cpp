// SPDX-License-Identifier: Apache-2.0
#include <limpet/gate/working_set.hpp>

#include "catch.hpp"
#include "support/test_policies.hpp"

#include <limpet/clock.hpp>
#include <limpet/ledger/turns.hpp>
#include <limpet/overflow/never.hpp>
#include <limpet/pins/local.hpp>
#include <limpet/router.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace limpet;
using namespace std::chrono_literals;

// Replicas whose cache holds `capacity` tokens, and a gate that lets them be filled to the brim.
struct Pool {
  using TestRouter =
      Router<LocalPins, WeightedLoad, NeverSpill, limpet_test::NumberPage, ManualClock>;

  explicit Pool(std::size_t replicas, std::uint64_t capacity = 30'000, GateOptions options = {})
      : router(LocalPins{}, WeightedLoad{}, NeverSpill{}, {}, clock), gate(router, brim(options)) {
    for (std::size_t i = 0; i < replicas; ++i) {
      id.push_back(
          router.add_replica({.name = "gpu" + std::to_string(i), .kv_capacity_tokens = capacity}));
    }
  }

  static GateOptions brim(GateOptions options) {
    options.theta = 1.0;
    if (!options.shared_prefix_tokens) options.shared_prefix_tokens = 0;
    return options;
  }

  GateTicket enter(const std::string& key, std::uint64_t prompt = 10'000) {
    return gate.enter(Turn{.key = key, .prompt_tokens = prompt},
                      [this, key] { told.push_back(key); });
  }

  std::uint32_t in_flight() const {
    std::uint32_t sum = 0;
    for (const auto& row : router.snapshot().replicas) sum += row.in_flight;
    return sum;
  }

  ManualClock clock;
  TestRouter router;
  WorkingSetGate<TestRouter> gate;
  std::vector<ReplicaId> id;
  std::vector<std::string> told;
};

Usage usage(std::uint64_t prompt, std::uint64_t cached = 0) {
  return {prompt, cached, 0};
}

}  // namespace

TEST_CASE("conversations come in while they fit, and the rest wait until one has gone") {
  Pool pool(1);
  std::vector<GateTicket> in;
  for (const char* key : {"a", "b", "c"}) in.push_back(pool.enter(key));
  for (const GateTicket& ticket : in) {
    CHECK(ticket.state() == TicketState::admitted);
    CHECK(ticket.reason() == GateReason::room);
    CHECK(ticket.lease().replica() == pool.id[0]);
  }
  GateTicket waits = pool.enter("d");
  CHECK(waits.state() == TicketState::waiting);
  CHECK(pool.in_flight() == 3);  // no slot is taken for one that waits
  CHECK(pool.gate.snapshot().waiting == 1);

  pool.clock.advance(5s);
  in[0].cancel();  // it read nothing, so it holds no cache
  CHECK(pool.told == std::vector<std::string>{"d"});
  CHECK(waits.state() == TicketState::admitted);
  CHECK(waits.reason() == GateReason::waited);
  CHECK(waits.waited() == 5s);
  CHECK(pool.in_flight() == 3);
}

TEST_CASE("a conversation that is inside passes at once, whoever waits") {
  Pool pool(1, 30'000, {.min_turns = 1});
  GateTicket a = pool.enter("a");
  GateTicket b = pool.enter("b");
  GateTicket c = pool.enter("c");
  GateTicket waits = pool.enter("d");
  pool.gate.leave(std::move(a), usage(10'000));
  pool.clock.advance(1s);
  a = pool.enter("a");
  CHECK(a.state() == TicketState::admitted);
  CHECK(a.reason() == GateReason::inside);
  CHECK(a.lease().outcome() == Outcome::sticky);
  CHECK(waits.state() == TicketState::waiting);
}

TEST_CASE("one that pauses for longer than its grace makes way, told by tick() at wake_at()") {
  Pool pool(1);
  GateTicket a = pool.enter("a");
  GateTicket b = pool.enter("b");
  GateTicket c = pool.enter("c");
  CHECK(pool.gate.wake_at() == Instant::max());
  GateTicket waits = pool.enter("d");
  pool.gate.leave(std::move(a), usage(10'000));
  CHECK(pool.gate.wake_at() == pool.clock.now() + pool.gate.options().grace);
  pool.clock.advance(pool.gate.options().grace - 1ns);
  pool.gate.tick();
  CHECK(waits.state() == TicketState::waiting);
  pool.clock.advance(1ns);
  CHECK(pool.gate.wake_at() <= pool.clock.now());
  pool.gate.tick();
  CHECK(waits.state() == TicketState::admitted);

  // And then it has to wait itself, with its pin where it was.
  GateTicket again = pool.enter("a");
  CHECK(again.state() == TicketState::waiting);
}

namespace {

// Three inside who fill the cache, each with its first turn in flight.
struct FullPool : Pool {
  explicit FullPool(GateOptions options) : Pool(1, 30'000, options) {
    for (const char* key : {"a", "b", "c"}) {
      in[key] = enter(key);
      clock.advance(1s);
    }
  }

  // The turn ends and the next one comes at once.
  TicketState turn(const char* key) {
    gate.leave(std::move(in[key]), usage(10'000));
    in[key] = enter(key);
    return in[key].state();
  }

  std::map<std::string, GateTicket> in;
};

}  // namespace

TEST_CASE("after max_wait whoever has had min_turns and ends a turn first makes way") {
  FullPool pool({.max_wait = 20s, .min_turns = 2});
  GateTicket waits = pool.enter("d");
  for (const char* key : {"a", "b"}) CHECK(pool.turn(key) == TicketState::admitted);
  pool.clock.advance(20s);
  pool.gate.tick();
  CHECK(waits.state() == TicketState::waiting);    // nobody's turn is cut short
  CHECK(pool.turn("c") == TicketState::admitted);  // its first turn
  CHECK(pool.turn("b") == TicketState::waiting);   // not the one that has stayed longest
  CHECK(waits.state() == TicketState::admitted);
  CHECK(pool.turn("a") == TicketState::admitted);  // one was enough
}

TEST_CASE("where one that leaves is not enough, those who have stayed longest make way") {
  FullPool pool({.max_wait = 20s, .min_turns = 1});
  GateTicket waits = pool.enter("d", 20'000);
  pool.clock.advance(20s);
  pool.gate.tick();
  CHECK(pool.turn("c") == TicketState::admitted);
  CHECK(pool.turn("a") == TicketState::waiting);
  CHECK(waits.state() == TicketState::waiting);
  CHECK(pool.turn("b") == TicketState::waiting);
  CHECK(waits.state() == TicketState::admitted);
}

TEST_CASE("nobody makes way twice as long as the last that came in took to be read") {
  FullPool pool({.max_wait = 60s, .min_turns = 1});
  // First turns of 13, 12 and 11 s, later ones of 8 s: a mean of 12.8 s against 8, so 9.6 s.
  pool.clock.advance(10s);
  for (const char* key : {"a", "b", "c"}) CHECK(pool.turn(key) == TicketState::admitted);
  GateTicket first = pool.enter("d");
  GateTicket second = pool.enter("e");
  for (int round = 0; round < 7; ++round) {
    pool.clock.advance(8s);
    for (const char* key : {"a", "b", "c"}) CHECK(pool.turn(key) == TicketState::admitted);
  }
  pool.clock.advance(8s);
  CHECK(pool.turn("a") == TicketState::waiting);
  CHECK(first.state() == TicketState::admitted);
  pool.clock.advance(5s);
  CHECK(pool.turn("b") == TicketState::admitted);  // d has hardly been read
  pool.clock.advance(5s);
  CHECK(pool.turn("c") == TicketState::waiting);
  CHECK(second.state() == TicketState::admitted);
}

TEST_CASE("a conversation larger than usual keeps its place through longer pauses, in proportion") {
  Pool pool(1, 50'000);
  GateTicket a = pool.enter("a");
  GateTicket b = pool.enter("b", 40'000);
  pool.gate.leave(std::move(a), usage(10'000));
  pool.gate.leave(std::move(b), usage(40'000));
  a = pool.enter("a");  // so that only b pauses
  GateTicket waits = pool.enter("c");
  CHECK(waits.state() == TicketState::waiting);
  // The usual size, a slow mean: 10,000 + (40,000 - 10,000) / 16 = 11,875 tokens. 2 s for it.
  CHECK(pool.gate.wake_at() == pool.clock.now() + 6'736'842'105ns);
}

TEST_CASE("who loses its place in a pause waits less next time, by what it had no use of") {
  Pool pool(1, 10'000);
  const Instant start = pool.clock.now();
  GateTicket a = pool.enter("a");
  GateTicket b = pool.enter("b");
  for (int turn = 2; turn <= 4; ++turn) {
    pool.gate.leave(std::move(a), usage(10'000));
    a = pool.enter("a");
  }
  pool.clock.advance(10s);
  pool.gate.leave(std::move(a), usage(10'000));
  pool.clock.advance(2s);
  pool.gate.tick();  // a goes after four turns
  REQUIRE(b.waited() == 12s);

  GateTicket c = pool.enter("c");
  pool.gate.leave(std::move(b), usage(10'000));
  pool.clock.advance(2s);
  pool.gate.tick();  // b goes after one; usual are 4 + (1 - 4) / 16 = 3.8125 turns
  REQUIRE(c.state() == TicketState::admitted);

  GateTicket d = pool.enter("d");
  pool.clock.advance(4s);
  b = pool.enter("b");  // 12 s x (1 - 1 / 3.8125) count as waited already
  CHECK(pool.gate.wake_at() == start + 18s - 8'852'459'016ns + 60s);
  CHECK(pool.gate.snapshot().longest_wait == 4s);
  c.cancel();
  CHECK(b.state() == TicketState::admitted);
  CHECK(b.waited() == 0s);
  CHECK(d.state() == TicketState::waiting);
}

TEST_CASE("a smaller one may pass the first of the queue until that has waited max_wait") {
  Pool pool(1, 30'000, {.max_wait = 10s});
  GateTicket a = pool.enter("a", 20'000);
  GateTicket big = pool.enter("big", 15'000);
  CHECK(big.state() == TicketState::waiting);
  GateTicket small = pool.enter("small", 4'000);
  CHECK(small.state() == TicketState::admitted);
  pool.clock.advance(10s);
  GateTicket late = pool.enter("late", 4'000);
  CHECK(late.state() == TicketState::waiting);
}

TEST_CASE("one that no cache could hold comes in alone") {
  Pool pool(1);
  GateTicket a = pool.enter("a");
  GateTicket huge = pool.enter("huge", 50'000);
  CHECK(huge.state() == TicketState::waiting);
  a.cancel();
  CHECK(huge.state() == TicketState::admitted);
  CHECK(pool.enter("b", 1'000).state() == TicketState::waiting);
}

TEST_CASE("room on another replica is taken, and the pin goes along") {
  Pool pool(2);
  std::vector<GateTicket> in;
  for (const char* key : {"a", "b", "c", "d"}) in.push_back(pool.enter(key));
  const ReplicaId home = in[0].lease().replica();
  const ReplicaId other = home == pool.id[0] ? pool.id[1] : pool.id[0];
  pool.gate.leave(std::move(in[0]), usage(10'000));
  pool.clock.advance(20min);
  // Its place at home goes to others while it sleeps.
  std::vector<GateTicket> fill;
  std::uint64_t names = 0;
  const auto at_home = [&] {
    for (const GateReplica& row : pool.gate.snapshot().replicas) {
      if (row.replica == home) return row.resident_tokens;
    }
    return std::uint64_t{0};
  };
  while (pool.gate.snapshot().waiting == 0)
    fill.push_back(pool.enter("x" + std::to_string(names++)));
  CHECK(at_home() == 30'000);
  fill.pop_back();
  for (GateTicket& ticket : fill) {
    if (ticket.lease().replica() == other) ticket.cancel();
  }
  GateTicket back = pool.enter("a");
  REQUIRE(back.state() == TicketState::admitted);
  CHECK(back.lease().replica() == other);
  CHECK(back.lease().outcome() == Outcome::moved);
  CHECK(pool.router.plan("a").home.replica == other);
}

TEST_CASE("turns without a conversation, side calls and named replicas pass by") {
  Pool pool(1);
  std::vector<GateTicket> in;
  for (const char* key : {"a", "b", "c"}) in.push_back(pool.enter(key));
  CHECK(pool.enter("d").state() == TicketState::waiting);
  for (const Turn& turn : {Turn{}, Turn{.key = "d", .side_call = true},
                           Turn{.key = "d", .client_pinned = pool.id[0]}}) {
    const GateTicket ticket = pool.gate.enter(turn);
    CHECK(ticket.state() == TicketState::admitted);
    CHECK(ticket.reason() == GateReason::not_governed);
  }
  pool.router.set_affinity(Affinity::off);
  const GateTicket unrouted = pool.gate.enter("d");
  CHECK(unrouted.state() == TicketState::admitted);
  CHECK(!unrouted.lease());
  CHECK(unrouted.lease().outcome() == Outcome::unrouted);
}

TEST_CASE("without a capacity the gate is open, says so, and an option closes it") {
  Pool open(2, 0);
  Pool told(2, 0, {.kv_capacity_tokens = 30'000});
  std::vector<GateTicket> in;  // after the pools: no ticket outlives its gate
  for (int i = 0; i < 100; ++i) in.push_back(open.enter("c" + std::to_string(i)));
  CHECK(open.gate.snapshot().waiting == 0);
  CHECK(open.gate.snapshot().open);

  in.clear();
  for (int i = 0; i < 7; ++i) in.push_back(told.enter("c" + std::to_string(i)));
  CHECK(!told.gate.snapshot().open);
  CHECK(told.gate.snapshot().waiting == 1);
}

TEST_CASE("refusals are clear: no replica, too many waiting, the deadline") {
  Pool pool(1, 10'000, {.deadline = 30s, .max_waiting = 1});
  GateTicket a = pool.enter("a");
  GateTicket waits = pool.enter("b");
  GateTicket third = pool.enter("c");
  CHECK(third.state() == TicketState::refused);
  CHECK(third.reason() == GateReason::too_many_waiting);
  pool.clock.advance(30s);
  pool.gate.tick();
  CHECK(waits.state() == TicketState::refused);
  CHECK(waits.reason() == GateReason::deadline);
  CHECK(waits.waited() == 30s);
  CHECK(pool.told == std::vector<std::string>{"b"});

  GateTicket last = pool.enter("d");
  pool.router.set_down(pool.id[0]);
  pool.gate.tick();
  CHECK(last.state() == TicketState::refused);
  CHECK(last.reason() == GateReason::no_replica);
  CHECK(pool.enter("e").reason() == GateReason::no_replica);
  CHECK(pool.gate.snapshot().refused == 4);
}

TEST_CASE("a replica that goes down lets its conversations go, and they come in elsewhere") {
  Pool pool(2);
  GateTicket a = pool.enter("a");
  const ReplicaId lost = a.lease().replica();
  pool.gate.leave(std::move(a), usage(10'000));
  pool.router.set_down(lost);
  a = pool.enter("a");
  REQUIRE(a.state() == TicketState::admitted);
  CHECK(a.lease().replica() != lost);
  CHECK(a.lease().outcome() == Outcome::moved);
  CHECK(pool.gate.snapshot().residents == 1);

  SECTION("one that restarted is a place like any other") {
    pool.gate.leave(std::move(a), usage(10'000));
    pool.router.set_up(lost);
    pool.router.restarted(pool.router.plan("a").home.replica);
    a = pool.enter("a");
    CHECK(a.state() == TicketState::admitted);
    CHECK(a.lease().outcome() == Outcome::placed);
    CHECK(pool.gate.snapshot().residents == 1);
  }
}

TEST_CASE("with nobody up, draining replicas take new conversations, as the router has it") {
  Pool pool(1);
  pool.router.drain(pool.id[0]);
  CHECK(pool.enter("a").state() == TicketState::admitted);
}

TEST_CASE("turns of one conversation that wait come in together") {
  Pool pool(1, 10'000);
  GateTicket a = pool.enter("a");
  GateTicket first = pool.enter("b");
  GateTicket second = pool.enter("b");
  a.cancel();
  CHECK(first.state() == TicketState::admitted);
  CHECK(second.state() == TicketState::admitted);
  CHECK(pool.gate.snapshot().residents == 1);
}

TEST_CASE("what all prompts share is learnt from first turns, and counts once a replica") {
  Pool pool(1, 30'000);
  GateOptions options;
  options.theta = 1.0;
  WorkingSetGate gate(pool.router, options);
  for (int i = 0; i < 4; ++i) {
    gate.leave(gate.enter(Turn{.key = "c" + std::to_string(i), .prompt_tokens = 10'000}),
               {10'000, 6'000, 0});
    pool.clock.advance(1h);
  }
  CHECK(gate.snapshot().shared_prefix_tokens == 6'000);
  // 6,000 + 6 x 4,000 tokens fill the cache.
  std::vector<GateTicket> in;
  while (gate.snapshot().waiting == 0)
    in.push_back(gate.enter(Turn{.key = "d" + std::to_string(in.size()), .prompt_tokens = 10'000}));
  CHECK(in.size() == 7);
}

TEST_CASE("what had to be read again is what the ledger calls lost") {
  Pool pool(1, 100'000);
  Ledger ledger;
  std::uint64_t reusable = 0;
  const auto turn = [&](std::uint64_t prompt, std::uint64_t cached) {
    GateTicket ticket = pool.enter("a", prompt);
    const Usage said{prompt, cached, 160};
    reusable += ledger.record(ticket.lease().decision(), said).reusable_tokens;
    pool.gate.leave(std::move(ticket), said);
  };
  turn(8'000, 0);
  turn(9'600, 8'160);
  turn(11'200, 0);  // evicted
  turn(12'800, 11'360);
  const auto lost = ledger.totals()[static_cast<std::size_t>(TurnClass::lost)];
  CHECK(lost.turns == 1);
  CHECK(pool.gate.snapshot().lost_tokens == lost.computed_tokens);
  CHECK(pool.gate.snapshot().reusable_tokens == reusable);
}

TEST_CASE("automatic: theta goes down while caches lose what they held, and up while they do not") {
  Pool pool(1, 100'000, {.automatic = true});
  const auto theta = [&] { return pool.gate.snapshot().replicas.at(0).theta; };
  const auto turns = [&](int count, bool lost) {
    for (int i = 0; i < count; ++i) pool.gate.leave(pool.enter("a"), {10'000, lost ? 0 : 9'984, 0});
  };
  turns(1, true);
  CHECK(theta() == 1.0);
  turns(8, true);
  CHECK(theta() == Approx(0.95));
  turns(8, false);
  CHECK(theta() == Approx(0.95));  // nobody waits for more room
  GateTicket waits = pool.enter("huge", 100'000);
  CHECK(waits.state() == TicketState::waiting);
  turns(8, false);
  CHECK(theta() == Approx(0.97));
  turns(8, false);
  CHECK(theta() == Approx(1.01));  // in longer steps while it goes one way
}

TEST_CASE("automatic: a capacity that nobody tells is found by what is lost") {
  Pool pool(1, 0, {.automatic = true});
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) names.push_back("c" + std::to_string(i));
  for (int round = 0; round < 5; ++round) {
    for (const std::string& name : names) pool.gate.leave(pool.enter(name), {10'000, 0, 0});
  }
  const GateSnapshot now = pool.gate.snapshot();
  CHECK(!now.open);
  CHECK(now.replicas.at(0).capacity_tokens == 40'000);
}

TEST_CASE("a bad option is refused when the gate is made") {
  Pool pool(1);
  CHECK_THROWS_AS(WorkingSetGate(pool.router, {.theta = -1.0}), std::invalid_argument);
}

TEST_CASE("random use: every ticket ends, no slot is lost, nobody is forgotten") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t bound) { return random() % bound; };
    Pool pool(3, 25'000,
              {.max_wait = 10s,
               .min_turns = static_cast<std::uint32_t>(1 + seed % 3),
               .deadline = 120s,
               .max_waiting = 12});
    std::vector<GateTicket> all;
    std::uint64_t callbacks = 0;
    std::uint64_t waiting_at_first = 0;
    std::uint64_t cancelled_waiting = 0;
    for (int step = 0; step < 2'000; ++step) {
      const std::uint64_t what = below(100);
      const std::size_t i = all.empty() ? 0 : below(all.size());
      if (what < 45) {
        all.push_back(pool.gate.enter(
            Turn{.key = "c" + std::to_string(below(20)), .prompt_tokens = below(14'000)},
            [&callbacks] { ++callbacks; }));
        if (all.back().state() == TicketState::waiting) ++waiting_at_first;
      } else if (what < 88 && !all.empty()) {
        GateTicket ticket = std::move(all[i]);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        if (ticket.state() == TicketState::waiting && what < 80) {
          all.push_back(std::move(ticket));
          continue;
        }
        if (ticket.state() == TicketState::waiting) ++cancelled_waiting;
        if (what < 78) {
          pool.gate.leave(std::move(ticket), usage(1 + below(14'000)));
        } else if (what < 82) {
          pool.gate.leave(std::move(ticket));
        } else if (what < 85) {
          ticket.fail();
        }  // else its destructor
      } else if (what < 90) {
        pool.router.set_down(pool.id[below(3)]);
      } else if (what < 92) {
        pool.router.restarted(pool.id[below(3)]);
      } else {
        for (const ReplicaId id : pool.id) pool.router.set_up(id);
        pool.clock.advance(std::chrono::milliseconds(below(3'000)));
        if (pool.gate.wake_at() <= pool.clock.now()) pool.gate.tick();
      }
    }
    for (const ReplicaId id : pool.id) pool.router.set_up(id);
    // Whoever waits is let in as the others leave, or by time.
    for (int round = 0; round < 10'000 && pool.gate.snapshot().waiting > 0; ++round) {
      pool.clock.advance(500ms);
      pool.gate.tick();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].state() == TicketState::waiting) continue;
        pool.gate.leave(std::move(all[i]), usage(5'000));
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i--));
      }
    }
    CHECK(pool.gate.snapshot().waiting == 0);
    CHECK(callbacks == waiting_at_first - cancelled_waiting);
    all.clear();
    CHECK(pool.in_flight() == 0);
    CHECK(waiting_at_first > 50);
  }
}
