// SPDX-License-Identifier: Apache-2.0
//
// The decision table row by row, and what routing promises around it.
#include <limpet/router.hpp>

#include <limpet/overflow/move_when_full.hpp>
#include <limpet/overflow/never.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/round_robin.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace limpet;
using namespace limpet_test;
using namespace std::chrono_literals;

// The rows of the table ---------------------------------------------------------------------------

TEST_CASE("row 1: a turn that no replica can take is refused") {
  SmallPool<> pool(0);
  CHECK(pool.router.route("c").outcome() == Outcome::refused);
  CHECK(pool.router.route(Turn{}).outcome() == Outcome::refused);
  pool.add();
  pool.router.set_down(pool.id[0]);
  const Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::refused);
  CHECK(lease.decision().reason == Reason::no_replica);
  CHECK_FALSE(lease);
  CHECK_FALSE(lease.held());
  pool.router.set_up(pool.id[0]);
  CHECK(pool.router.route(Turn{.key = "c", .exclude = pool.id}).outcome() == Outcome::refused);
  CHECK_FALSE(pool.pinned("c"));
  CHECK(pool.router.snapshot().refused == 4);
}

TEST_CASE("row 1: it is refused, not unrouted, with affinity off and nobody up") {
  SmallPool<> pool(1, {.affinity = Affinity::off});
  pool.router.set_down(pool.id[0]);
  CHECK(pool.router.plan("c").outcome == Outcome::refused);
  CHECK(pool.router.route("c").outcome() == Outcome::refused);
}

TEST_CASE("row 2: with affinity off no replica is chosen and no slot is taken") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  pool.router.set_affinity(Affinity::off);
  const Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::unrouted);
  CHECK(lease.decision().reason == Reason::affinity_off);
  CHECK_FALSE(lease);
  CHECK(pool.router.route(Turn{.client_pinned = pool.id[0]}).outcome() == Outcome::unrouted);
  CHECK(pool.in_flight(0) + pool.in_flight(1) == 0);
  CHECK(pool.router.snapshot().unrouted == 2);
  CHECK_FALSE(pool.router.snapshot().affinity);

  pool.router.set_affinity(Affinity::on);
  CHECK(pool.router.route("c").replica() == pool.id[1]);  // pins are kept
}

TEST_CASE("row 3: a replica that the client names gets the turn, and pins stay as they are") {
  SmallPool<> pool(3);
  pool.settle("c", 1);
  const Lease lease = pool.router.route(Turn{.key = "c", .client_pinned = pool.id[2]});
  CHECK(lease.outcome() == Outcome::client_pinned);
  CHECK(lease.replica() == pool.id[2]);
  CHECK(pool.in_flight(2) == 1);
  CHECK(pool.pinned("c") == pool.id[1]);
  const Lease fresh = pool.router.route(Turn{.key = "new", .client_pinned = pool.id[2]});
  CHECK_FALSE(pool.pinned("new"));
}

TEST_CASE("row 3: a client may name a draining replica, but none that is down, gone or excluded") {
  SmallPool<> pool(3);
  const auto outcome = [&](ReplicaId named) {
    return pool.router.route(Turn{.key = "c", .client_pinned = named}).outcome();
  };
  pool.router.drain(pool.id[2]);
  CHECK(outcome(pool.id[2]) == Outcome::client_pinned);
  pool.router.set_down(pool.id[2]);
  CHECK(outcome(pool.id[2]) == Outcome::placed);
  pool.router.remove(pool.id[2]);
  CHECK(outcome(pool.id[2]) == Outcome::sticky);
  CHECK(outcome(ReplicaId{77, 0}) == Outcome::sticky);
  const ReplicaId excluded[] = {pool.id[0]};
  CHECK(pool.router.route(Turn{.key = "d", .client_pinned = pool.id[0], .exclude = excluded})
            .replica() == pool.id[1]);
}

TEST_CASE("row 4: a turn without a key goes where the fewest are in flight, equals take turns") {
  SmallPool<> pool(3);
  std::vector<Lease> leases;
  std::set<std::uint16_t> first_three;
  for (int i = 0; i < 3; ++i) {
    leases.push_back(pool.router.route(Turn{}));
    CHECK(leases.back().outcome() == Outcome::balanced);
    CHECK(leases.back().decision().reason == Reason::no_key);
    first_three.insert(leases.back().replica().slot);
  }
  CHECK(first_three.size() == 3);
  leases[1].finish();
  CHECK(pool.router.route(Turn{}).replica() == leases[1].replica());

  // Ended at once, so all are idle each time: they rotate.
  leases.clear();
  std::map<std::uint16_t, int> served;
  for (int i = 0; i < 30; ++i) ++served[pool.router.route(Turn{}).replica().slot];
  for (const auto& [slot, times] : served) CHECK(times == 10);
}

TEST_CASE("row 4a: a side call follows home, and neither makes a pin nor keeps one") {
  SmallPool<> pool(2);
  const Lease fresh = pool.router.route(Turn{.key = "c", .side_call = true});
  CHECK(fresh.outcome() == Outcome::balanced);
  CHECK_FALSE(pool.pinned("c"));

  pool.settle("c", 1);
  pool.clock.advance(29min);
  {
    const Lease side = pool.router.route(Turn{.key = "c", .side_call = true});
    CHECK(side.outcome() == Outcome::sticky);
    CHECK(side.decision().reason == Reason::side_call);
    CHECK(side.replica() == pool.id[1]);
    CHECK(pool.in_flight(1) == 1);
    CHECK(pool.row(1).live_conversations == 0);  // the conversation itself is idle
    pool.clock.advance(1min);
    CHECK_FALSE(pool.pinned("c"));  // not even a side call in flight keeps it
  }
}

TEST_CASE("row 4a: a side call leaves a home that is overloaded, excluded or down") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  const auto route = [&](std::vector<ReplicaId> exclude = {}) {
    return pool.router.route(Turn{.key = "c", .exclude = exclude, .side_call = true});
  };
  CHECK(route({pool.id[1]}).outcome() == Outcome::balanced);
  {
    const Lease one = pool.router.route("c");
    const Lease two = pool.router.route("c");
    const Lease side = route();
    CHECK(side.outcome() == Outcome::balanced);
    CHECK(side.replica() == pool.id[0]);
  }
  pool.router.set_down(pool.id[1]);
  CHECK(route().outcome() == Outcome::balanced);
  CHECK(route().replica() == pool.id[0]);
}

TEST_CASE("row 5: a first turn goes to the lowest score and is pinned there") {
  SmallPool<> pool(3);
  const Lease busy[] = {pool.router.route(Turn{.client_pinned = pool.id[0]}),
                        pool.router.route(Turn{.client_pinned = pool.id[2]})};
  const Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::placed);
  CHECK(lease.decision().reason == Reason::no_pin);
  CHECK(lease.replica() == pool.id[1]);
  CHECK(lease.decision().home.replica == pool.id[1]);
  CHECK(pool.pinned("c") == pool.id[1]);
}

TEST_CASE("row 5: the gauge counts only while every replica that is up has a fresh one") {
  SmallPool<> pool(2, {}, {}, LocalPins{}, with_gauge);
  // Without it the two are equal but for a turn on gpu1; 8 * 0.5 on gpu0 outweighs that turn.
  const Lease turn = pool.router.route(Turn{.client_pinned = pool.id[1]});
  const auto choice = [&] { return pool.router.plan("c").replica; };
  CHECK(pool.router.observe("gpu0", "0.5") == ParseStatus::ok);
  CHECK(choice() == pool.id[0]);
  CHECK(pool.router.observe("gpu1", "0") == ParseStatus::ok);
  CHECK(choice() == pool.id[1]);
  pool.clock.advance(15s - 1ns);
  CHECK(choice() == pool.id[1]);
  pool.clock.advance(1ns);
  CHECK(choice() == pool.id[0]);
  CHECK(pool.router.observe("gpu0", "0.5") == ParseStatus::ok);
  pool.router.set_down(pool.id[1]);
  pool.router.set_up(pool.id[1]);
  CHECK(choice() == pool.id[0]);  // gpu1's is still old
}

TEST_CASE("row 5: among draining replicas alone a gauge counts only where all have a fresh one") {
  SmallPool<> pool(2, {}, {}, LocalPins{}, with_gauge);
  const Lease turn = pool.router.route(Turn{.client_pinned = pool.id[1]});
  pool.router.drain(pool.id[0]);
  pool.router.drain(pool.id[1]);
  CHECK(pool.router.observe("gpu0", "0.5") == ParseStatus::ok);
  CHECK(pool.router.plan("c").replica == pool.id[0]);
  CHECK(pool.router.observe("gpu1", "0") == ParseStatus::ok);
  CHECK(pool.router.plan("c").replica == pool.id[1]);
}

TEST_CASE("row 5: scores equal at three decimals are a tie, which fewer live conversations win") {
  SmallPool<> pool(2, {}, {}, LocalPins{}, with_gauge);
  pool.settle("old", 0);  // live on gpu0: score 1
  CHECK(pool.router.observe("gpu0", "0") == ParseStatus::ok);
  CHECK(pool.router.observe("gpu1", "0.12503") == ParseStatus::ok);  // 8 * 0.12503 = 1.00024
  CHECK(pool.router.plan("c").replica == pool.id[1]);
  CHECK(pool.router.observe("gpu1", "0.1252") == ParseStatus::ok);  // 1.0016
  CHECK(pool.router.plan("c").replica == pool.id[0]);
}

TEST_CASE(
    "row 5: further ties go by the hash of key and name, so routers that share nothing agree") {
  SmallPool<> one(4);
  // The same names in another order: other ids, the same choices.
  Router<LocalPins, WeightedLoad, SpillAbove, NumberPage, ManualClock> other;
  for (const char* name : {"gpu3", "gpu1", "gpu0", "gpu2"})
    static_cast<void>(other.add_replica({.name = name}));
  std::map<std::string, int> chosen;
  for (int i = 0; i < 200; ++i) {
    const std::string key = "conversation " + std::to_string(i);
    const std::string name = one.router.options(one.router.plan(key).replica)->name;
    REQUIRE(other.options(other.plan(key).replica)->name == name);
    ++chosen[name];
  }
  for (const auto& [name, times] : chosen) CHECK(times > 20);  // 50 each on average
  CHECK(chosen.size() == 4);
}

TEST_CASE("row 5: an expired pin, a removed and a restarted home place the conversation anew") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  pool.clock.advance(30min);
  CHECK(pool.router.plan("c").outcome == Outcome::placed);
  CHECK(pool.router.plan("c").reason == Reason::no_pin);

  pool.settle("d", 1);
  pool.router.restarted(pool.id[1]);
  const Decision restarted = pool.router.plan("d");
  CHECK(restarted.outcome == Outcome::placed);
  CHECK(restarted.reason == Reason::stale_pin);
  CHECK(restarted.previous.replica == pool.id[1]);

  pool.settle("e", 1);
  pool.router.remove(pool.id[1]);
  CHECK(pool.router.plan("e").reason == Reason::stale_pin);
  CHECK(pool.router.route("e").replica() == pool.id[0]);
  CHECK(pool.pinned("e") == pool.id[0]);
}

TEST_CASE("row 6: a home that is down for good is left for good") {
  SmallPool<> pool(3);
  pool.settle("c", 1);
  pool.settle("busy", 0);
  pool.router.set_down(pool.id[1]);
  const Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::moved);
  CHECK(lease.decision().reason == Reason::home_down);
  CHECK(lease.replica() == pool.id[2]);  // the lowest score of the others
  CHECK(lease.decision().previous.replica == pool.id[1]);
  pool.router.set_up(pool.id[1]);
  CHECK(pool.pinned("c") == pool.id[2]);
  CHECK(pool.row(1).pins == 0);
  CHECK(pool.row(2).pins == 1);
}

TEST_CASE("row 7: a home that just failed this turn is left for this turn alone") {
  SmallPool<> pool(3);
  pool.settle("c", 1);
  const Lease busy = pool.router.route(Turn{.client_pinned = pool.id[0]});
  const ReplicaId exclude[] = {pool.id[1]};
  const Lease lease = pool.router.route(Turn{.key = "c", .exclude = exclude});
  CHECK(lease.outcome() == Outcome::spilled);
  CHECK(lease.decision().reason == Reason::home_excluded);
  CHECK(lease.replica() == pool.id[2]);
  CHECK(pool.pinned("c") == pool.id[1]);
  CHECK(pool.router.route("c").replica() == pool.id[1]);
}

TEST_CASE("row 8: a turn goes home while home has room") {
  SmallPool<> pool(3);
  pool.settle("c", 1);
  const Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::sticky);
  CHECK(lease.decision().reason == Reason::home_has_room);
  CHECK(lease.replica() == pool.id[1]);
}

TEST_CASE(
    "row 9: from the threshold on a turn spills to the least loaded, and the next goes home") {
  SmallPool<> pool(3);  // max_num_seqs 8: a threshold of 2
  pool.settle("c", 1);
  Lease first = pool.router.route("c");
  Lease second = pool.router.route("c");
  CHECK(second.outcome() == Outcome::sticky);
  const Lease other = pool.router.route(Turn{.client_pinned = pool.id[0]});
  const Lease third = pool.router.route("c");
  CHECK(third.outcome() == Outcome::spilled);
  CHECK(third.decision().reason == Reason::home_overloaded);
  CHECK(third.replica() == pool.id[2]);
  CHECK(third.decision().home.replica == pool.id[1]);
  CHECK(pool.pinned("c") == pool.id[1]);
  CHECK(pool.row(1).spilled_out == 1);
  CHECK(pool.row(2).spilled_in == 1);
  first.finish();
  CHECK(pool.router.route("c").replica() == pool.id[1]);
}

TEST_CASE("row 10: nobody has fewer in flight than an overloaded home, so it is home") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  const Lease turns[] = {pool.router.route("c"), pool.router.route("c"),
                         pool.router.route(Turn{.client_pinned = pool.id[0]}),
                         pool.router.route(Turn{.client_pinned = pool.id[0]})};
  const Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::sticky);
  CHECK(lease.decision().reason == Reason::home_overloaded_but_best);
  CHECK(lease.replica() == pool.id[1]);
}

// Draining ----------------------------------------------------------------------------------------

TEST_CASE("a draining replica serves its own conversations and takes nothing new") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  pool.router.drain(pool.id[1]);
  CHECK(pool.router.route("c").replica() == pool.id[1]);
  std::vector<Lease> leases;
  for (int i = 0; i < 10; ++i) {
    leases.push_back(pool.router.route(Turn{}));
    CHECK(leases.back().replica() == pool.id[0]);
    leases.push_back(pool.router.route("new " + std::to_string(i)));
    CHECK(leases.back().replica() == pool.id[0]);
  }
}

TEST_CASE("a draining replica takes no spill while home is up, however full home is") {
  SmallPool<> pool(2);
  pool.settle("c", 0);
  pool.router.drain(pool.id[1]);
  const Lease turns[] = {pool.router.route("c"), pool.router.route("c"), pool.router.route("c")};
  for (const Lease& lease : turns) CHECK(lease.replica() == pool.id[0]);
}

TEST_CASE("where nothing else is up, draining replicas take everything") {
  SmallPool<> pool(3);
  pool.settle("c", 0);
  pool.router.drain(pool.id[0]);
  pool.router.drain(pool.id[1]);
  pool.router.set_down(pool.id[2]);
  CHECK(pool.router.route("new").outcome() == Outcome::placed);
  CHECK(pool.router.route(Turn{}).outcome() == Outcome::balanced);
  const Lease turns[] = {pool.router.route("c"), pool.router.route("c")};
  const Lease spilled = pool.router.route("c");
  CHECK(spilled.outcome() == Outcome::spilled);
  CHECK(spilled.replica() == pool.id[1]);
}

// Parents -----------------------------------------------------------------------------------------

TEST_CASE("a child is placed beside its parent while the parent's home has room") {
  SmallPool<> pool(3);
  pool.settle("parent", 1);  // live: the other two score lower
  const Lease child = pool.router.route(Turn{.key = "child", .parent = "parent"});
  CHECK(child.outcome() == Outcome::placed);
  CHECK(child.decision().reason == Reason::parent_home);
  CHECK(child.replica() == pool.id[1]);
  const Lease busy = pool.router.route("parent");
  const Lease next = pool.router.route(Turn{.key = "next", .parent = "parent"});
  CHECK(next.replica() != pool.id[1]);
  CHECK(next.decision().reason == Reason::no_pin);
  // Once pinned, a child has its own home.
  CHECK(pool.router.plan(Turn{.key = "next", .parent = "parent"}).replica == next.replica());
}

TEST_CASE("a child is not placed beside a parent that is gone, draining, excluded or unknown") {
  SmallPool<> pool(2);
  pool.settle("parent", 1);
  const auto reason = [&](std::vector<ReplicaId> exclude = {}) {
    return pool.router.plan(Turn{.key = "child", .parent = "parent", .exclude = exclude}).reason;
  };
  CHECK(reason() == Reason::parent_home);
  CHECK(reason({pool.id[1]}) == Reason::no_pin);
  pool.router.drain(pool.id[1]);
  CHECK(reason() == Reason::no_pin);
  pool.router.drain(pool.id[0]);
  CHECK(reason() == Reason::parent_home);  // nothing else is up
  pool.router.set_up(pool.id[0]);
  pool.router.set_up(pool.id[1]);
  pool.router.restarted(pool.id[1]);
  CHECK(reason() == Reason::no_pin);
  CHECK(pool.router.plan(Turn{.key = "child", .parent = "nobody"}).reason == Reason::no_pin);
}

TEST_CASE("an independent child does not look at its parent") {
  SmallPool<> pool(3, {.parent_hint = ParentHint::independent});
  pool.settle("parent", 1);
  CHECK(pool.router.route(Turn{.key = "child", .parent = "parent"}).replica() != pool.id[1]);
}

TEST_CASE("a child with its parent is a turn of the parent's conversation") {
  SmallPool<> pool(3, {.parent_hint = ParentHint::with_parent});
  const Lease first = pool.router.route(Turn{.key = "child", .parent = "parent"});
  CHECK(first.outcome() == Outcome::placed);
  CHECK(pool.pinned("parent") == first.replica());
  CHECK_FALSE(pool.pinned("child"));
  CHECK(pool.router.route("parent").outcome() == Outcome::sticky);
}

// Moves -------------------------------------------------------------------------------------------

TEST_CASE("a conversation leaves a home whose cache overflows for one with room, for good") {
  SmallPool<MoveWhenFull> pool(0);
  for (const char* name : {"a", "b"})
    pool.id.push_back(pool.router.add_replica({.name = name, .kv_capacity_tokens = 10'000}));
  for (const char* key : {"one", "two", "three"}) {
    const ReplicaId exclude[] = {pool.id[1]};
    pool.router.route(Turn{.key = key, .exclude = exclude}).finish({.prompt_tokens = 4'000});
  }
  CHECK(pool.row(0).live_tokens == 12'000);
  const Lease lease = pool.router.route("one");
  CHECK(lease.outcome() == Outcome::moved);
  CHECK(lease.decision().reason == Reason::home_overloaded);
  CHECK(lease.replica() == pool.id[1]);
  CHECK(pool.pinned("one") == pool.id[1]);
  CHECK(pool.row(0).live_tokens == 8'000);
  CHECK(pool.row(1).live_tokens == 4'000);
  CHECK(pool.router.route("two").outcome() == Outcome::sticky);  // it fits again
}

namespace {

// Sends a turn to a replica by name, whatever its load.
struct SendTo {
  Verdict verdict = Verdict::stay;
  bool overloaded(const ReplicaLoad&) const noexcept { return true; }
  Verdict decide(const OverflowView&) const noexcept { return verdict; }
};

}  // namespace

TEST_CASE("a rule may name where to spill or move to; a name outside the pool is as no name") {
  SmallPool<SendTo> spilling(4, {}, {Verdict::spill.to({2, 0})});
  spilling.settle("c", 0);
  CHECK(spilling.router.plan("c").replica == spilling.id[2]);
  spilling.router.drain(spilling.id[2]);
  CHECK(spilling.router.plan("c").replica == spilling.id[0]);  // none has fewer than home's 0

  SmallPool<SendTo> moving(4, {}, {Verdict::move.to({3, 0})});
  moving.settle("c", 0);
  CHECK(moving.router.plan("c").outcome == Outcome::moved);
  CHECK(moving.router.plan("c").replica == moving.id[3]);
  moving.router.set_down(moving.id[3]);
  CHECK(moving.router.plan("c").outcome == Outcome::moved);
  CHECK(moving.router.plan("c").replica != moving.id[3]);
}

namespace {

// Stands for another thread: changes a replica's state in the middle of a decision, once.
struct Meanwhile {
  std::function<void()>* change = nullptr;
  bool overloaded(const ReplicaLoad&) const noexcept {
    if (change != nullptr && *change) std::exchange(*change, nullptr)();
    return true;
  }
  Verdict decide(const OverflowView&) const noexcept { return Verdict::stay; }
};

// The same, when its conversation is looked up.
struct MeanwhilePins : LocalPins {
  std::function<void()>* change = nullptr;
  std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) {
    if (change != nullptr && *change) std::exchange(*change, nullptr)();
    return LocalPins::open_turn(key, now, tokens);
  }
};

}  // namespace

TEST_CASE("a first turn whose named replica comes up in mid-decision pins nothing") {
  std::function<void()> change;
  MeanwhilePins pins;
  pins.change = &change;
  SmallPool<SpillAbove, MeanwhilePins> pool(2, {}, {}, std::move(pins));
  pool.router.set_down(pool.id[1]);
  change = [&] { pool.router.set_up(pool.id[1]); };

  CHECK(pool.router.route(Turn{.key = "c", .client_pinned = pool.id[1]}).outcome() ==
        Outcome::client_pinned);
  CHECK_FALSE(pool.pinned("c"));
  CHECK(pool.router.plan("c").reason == Reason::no_pin);
}

TEST_CASE(
    "a replica that the client named and that comes up in mid-decision serves the turn alone") {
  std::function<void()> change;
  SmallPool<Meanwhile> pool(2, {}, {&change});
  pool.settle("c", 0);
  pool.router.set_down(pool.id[1]);
  change = [&] { pool.router.set_up(pool.id[1]); };

  Lease lease = pool.router.route(Turn{.key = "c", .client_pinned = pool.id[1]});
  CHECK(lease.outcome() == Outcome::client_pinned);
  CHECK(lease.replica() == pool.id[1]);
  CHECK(pool.pinned("c") == pool.id[0]);  // untouched
  CHECK(pool.row(0).pins == 1);
  CHECK(pool.row(1).pins == 0);
  CHECK(pool.in_flight(0) == 0);
  lease.finish();
  pool.clock.advance(301s);
  CHECK(pool.row(0).live_conversations == 0);  // no turn of it is left behind
  CHECK(pool.row(1).live_conversations == 0);
}

// A turn's end ------------------------------------------------------------------------------------

TEST_CASE("a first turn that fails takes its pin along, so that the second try is free to choose") {
  SmallPool<> pool(2);
  Lease lease = pool.router.route("c");
  lease.fail();
  CHECK_FALSE(pool.pinned("c"));
  CHECK(pool.router.snapshot().unpinned == 1);
  CHECK(pool.row(0).live_conversations + pool.row(1).live_conversations == 0);
  CHECK(pool.row(0).pins + pool.row(1).pins == 0);
  CHECK(pool.row(0).failed + pool.row(1).failed == 1);
}

TEST_CASE("a first turn after a restart that fails takes its pin along, too") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  pool.router.restarted(pool.id[1]);
  Lease lease = pool.router.route("c");
  CHECK(lease.outcome() == Outcome::placed);
  lease.fail();
  CHECK_FALSE(pool.pinned("c"));
}

TEST_CASE("a first turn that fails leaves a pin that another turn used meanwhile") {
  SmallPool<> pool(2);
  Lease first = pool.router.route("c");
  pool.router.route("c").finish();
  first.fail();
  CHECK(pool.pinned("c") == first.replica());
}

TEST_CASE("a failed sticky turn and a cancelled first one leave the pin") {
  SmallPool<> pool(2);
  Lease first = pool.router.route("c");
  first.cancel();
  CHECK(pool.pinned("c") == first.replica());
  pool.router.route("c").fail();
  CHECK(pool.pinned("c") == first.replica());
}

TEST_CASE("a store of the four primitives forgets the pin of a failed first turn, too") {
  SmallPool<SpillAbove, FourPrimitives> pool(2);
  Lease lease = pool.router.route("c");
  CHECK(pool.pinned("c") == lease.replica());
  lease.fail();
  CHECK_FALSE(pool.pinned("c"));
}

// Counts ------------------------------------------------------------------------------------------

TEST_CASE(
    "a conversation is live while a turn runs and for 300 s after the last one, within 1/64") {
  SmallPool<> pool(1);
  Lease lease = pool.router.route("c");
  pool.clock.advance(10h);
  CHECK(pool.row(0).live_conversations == 1);
  lease.finish();
  pool.clock.advance(295s);  // 300 - 300 / 64 = 295.3
  CHECK(pool.row(0).live_conversations == 1);
  pool.clock.advance(5s);
  CHECK(pool.row(0).live_conversations == 0);
}

TEST_CASE("live tokens are the contexts told, guessed by the prompt and then by the pool's mean") {
  SmallPool<> pool(1);
  pool.router.route("told").finish({.prompt_tokens = 1000, .completion_tokens = 24});
  CHECK(pool.row(0).live_tokens == 1024);
  const Lease prompt = pool.router.route(Turn{.key = "prompt", .prompt_tokens = 300});
  CHECK(pool.row(0).live_tokens == 1324);
  const Lease mean = pool.router.route("mean");  // the only context told so far
  CHECK(pool.row(0).live_tokens == 2348);
  CHECK(pool.row(0).in_flight_tokens == 1324);
  pool.clock.advance(300s);
  CHECK(pool.row(0).live_tokens == 1324);  // the told one has faded
}

TEST_CASE("a shared prefix is no part of a conversation's own tokens") {
  SmallPool<> pool(1, {.shared_prefix_tokens = 900});
  pool.router.route("c").finish({.prompt_tokens = 1000, .completion_tokens = 24});
  CHECK(pool.row(0).live_tokens == 124);
  pool.router.route("short").finish({.prompt_tokens = 10});
  CHECK(pool.row(0).live_tokens == 125);  // never nothing, which means unknown
}

TEST_CASE("a usage of nothing tells nothing") {
  SmallPool<> pool(1);
  pool.router.route(Turn{.key = "c", .prompt_tokens = 500}).finish(Usage{});
  CHECK(pool.row(0).live_tokens == 500);
}

TEST_CASE("tokens beyond any context are survived and returned") {
  SmallPool<> pool(1);
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  {
    Lease one = pool.router.route(Turn{.key = "c", .prompt_tokens = most});
    Lease two = pool.router.route(Turn{.key = "c", .prompt_tokens = most});
    one.finish({.prompt_tokens = most, .completion_tokens = most});
  }
  CHECK(pool.row(0).in_flight_tokens == 0);
  CHECK(pool.row(0).in_flight == 0);
  CHECK(pool.row(0).live_conversations == 1);
}

// Plan and commit ---------------------------------------------------------------------------------

TEST_CASE("a plan changes nothing, not even what it refuses") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  const auto counted = [&] {
    const Snapshot all = pool.router.snapshot();
    std::uint64_t sum = all.refused + all.unrouted;
    for (const auto& row : all.replicas) {
      sum += row.in_flight + row.placed + row.sticky + row.balanced + row.pins;
    }
    return sum;
  };
  const auto before = counted();
  pool.clock.advance(29min);
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(pool.router.plan("c"));
    static_cast<void>(pool.router.plan("new"));
    static_cast<void>(pool.router.plan(Turn{}));
    static_cast<void>(pool.router.plan(Turn{.exclude = pool.id}));
    static_cast<void>(pool.router.explain("new"));
  }
  CHECK(counted() == before);
  CHECK_FALSE(pool.pinned("new"));
  pool.clock.advance(1min);
  CHECK_FALSE(pool.pinned("c"));  // nor did it refresh the pin
}

TEST_CASE("a committed plan is a lease like that of a routed turn") {
  SmallPool<> pool(2);
  const Decision plan = pool.router.plan("c");
  Lease lease = pool.router.commit(plan);
  CHECK(lease.decision() == plan);
  CHECK(pool.row(lease.replica().slot).in_flight == 1);
  CHECK(pool.pinned("c") == plan.replica);
  lease.finish({.prompt_tokens = 1234});
  CHECK(pool.row(lease.replica().slot).live_tokens == 1234);
  // What the engine told is what the next turn counts, routed or committed.
  const Lease next = pool.router.commit(pool.router.plan("c"));
  CHECK(pool.row(lease.replica().slot).in_flight_tokens == 1234);
}

TEST_CASE("a plan to go home is committed there after a restart, as a placement") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  const Decision plan = pool.router.plan("c");
  REQUIRE(plan.outcome == Outcome::sticky);
  pool.router.restarted(pool.id[1]);

  const Lease lease = pool.router.commit(plan);
  CHECK(lease.outcome() == Outcome::placed);
  CHECK(lease.decision().reason == Reason::stale_pin);
  CHECK(lease.replica() == pool.id[1]);
  CHECK(pool.router.plan("c").outcome == Outcome::sticky);  // the pin is good again
  const auto row = pool.router.snapshot().replicas[1];
  CHECK(row.pins == 1);
  CHECK(row.live_conversations == 1);
  CHECK(row.placed == 2);  // and its first turn
}

TEST_CASE("two plans of one first turn: the first commit pins, the second one spills") {
  SmallPool<> pool(2);
  const Decision first = pool.router.plan("c");
  Decision second = first;  // as another process' plan: to the other replica
  second.replica = first.replica == pool.id[0] ? pool.id[1] : pool.id[0];
  second.home.replica = second.replica;
  const Lease one = pool.router.commit(first);
  const Lease two = pool.router.commit(second);
  CHECK(one.outcome() == Outcome::placed);
  CHECK(two.outcome() == Outcome::spilled);
  CHECK(two.decision().reason == Reason::committed_elsewhere);
  CHECK(two.replica() == second.replica);
  CHECK(two.decision().home.replica == first.replica);
  CHECK(pool.pinned("c") == first.replica);
}

TEST_CASE("a plan whose replica is down or gone by now is refused") {
  SmallPool<> pool(2);
  const Decision plan = pool.router.plan("c");
  pool.router.set_down(plan.replica);
  CHECK(pool.router.commit(plan).outcome() == Outcome::refused);
  pool.router.remove(plan.replica);
  CHECK(pool.router.commit(plan).outcome() == Outcome::refused);
  CHECK_FALSE(pool.pinned("c"));
  CHECK(pool.router.commit(Decision{}).outcome() == Outcome::refused);
  CHECK(pool.router.commit(Decision{.outcome = Outcome::unrouted}).outcome() == Outcome::unrouted);
}

TEST_CASE("a plan to go home is kept when the pin expired meanwhile: it is pinned there again") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  const Decision plan = pool.router.plan("c");
  pool.clock.advance(30min);
  const Lease lease = pool.router.commit(plan);
  CHECK(lease.replica() == pool.id[1]);
  CHECK(pool.pinned("c") == pool.id[1]);
}

TEST_CASE("a planned spill of a pin that is gone keeps its slot and pins nothing") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  const ReplicaId exclude[] = {pool.id[1]};
  const Decision plan = pool.router.plan(Turn{.key = "c", .exclude = exclude});
  pool.clock.advance(30min);
  {
    const Lease lease = pool.router.commit(plan);
    CHECK(lease.outcome() == Outcome::spilled);
    CHECK(pool.in_flight(0) == 1);
    CHECK_FALSE(pool.pinned("c"));
  }
  CHECK(pool.in_flight(0) == 0);
}

// Replica life ------------------------------------------------------------------------------------

TEST_CASE("a replica that took a removed one's place is another replica") {
  SmallPool<> pool(1);
  const ReplicaId old = pool.id[0];
  pool.settle("c", 0);
  CHECK(pool.router.remove(old));
  CHECK_FALSE(pool.router.remove(old));
  CHECK_FALSE(pool.router.drain(old));
  CHECK_FALSE(pool.router.restarted(old));
  CHECK(pool.router.state(old) == ReplicaState::removed);
  CHECK_FALSE(pool.router.find("gpu0").has_value());
  CHECK_FALSE(pool.router.options(old).has_value());

  const ReplicaId fresh = pool.router.add_replica({.name = "gpu0"});
  CHECK(fresh != old);
  CHECK(pool.router.find("gpu0") == fresh);
  CHECK(pool.router.plan("c").outcome == Outcome::placed);
  CHECK(pool.router.snapshot().replicas.size() == 1);
}

TEST_CASE("a lease outlives the membership of its replica and is still returned") {
  SmallPool<> pool(2);
  Lease lease = pool.router.route(Turn{.key = "c", .client_pinned = pool.id[0]});
  pool.router.remove(pool.id[0]);
  const ReplicaId fresh = pool.router.add_replica({.name = "gpu0"});
  CHECK(fresh.slot != lease.replica().slot);  // the place is not free yet
  lease.finish();
  CHECK_FALSE(lease.held());
  for (const auto& row : pool.router.snapshot().replicas) CHECK(row.in_flight == 0);
  CHECK(pool.router.add_replica({.name = "gpu9"}).slot == lease.replica().slot);
}

TEST_CASE("a restart forgets pins, live conversations and gauges, and no turn in flight") {
  SmallPool<> pool(2);
  pool.settle("c", 0);
  CHECK(pool.router.observe("gpu0", "0.5") == ParseStatus::ok);
  Lease lease = pool.router.route("c");
  CHECK(pool.router.restarted(pool.id[0]));
  const ReplicaSnapshot row = pool.row(0);
  CHECK(row.pins == 0);
  CHECK(row.live_conversations == 0);
  CHECK(row.live_tokens == 0);
  CHECK_FALSE(row.kv_usage.has_value());
  CHECK(row.in_flight == 1);
  CHECK(row.restarts == 1);
  lease.finish();
  CHECK(pool.in_flight(0) == 0);
  CHECK(pool.row(0).live_conversations == 0);
}

TEST_CASE("configuration that makes no sense is refused by name and value") {
  SmallPool<> pool(1);
  CHECK_THROWS_MATCHES(pool.router.add_replica({.name = "gpu0"}), std::invalid_argument,
                       MessageMatches(StartsWith("name = \"gpu0\"")));
  CHECK_THROWS_MATCHES(pool.router.add_replica({}), std::invalid_argument,
                       MessageMatches(StartsWith("name = \"\"")));
  CHECK(pool.router.snapshot().replicas.size() == 1);

  CHECK_THROWS_MATCHES(Router(RouterOptions{.live_window = 1ms}), std::invalid_argument,
                       MessageMatches(StartsWith("live_window = 1000000")));
  CHECK_THROWS_MATCHES(Router(RouterOptions{.reading_max_age = 0s}), std::invalid_argument,
                       MessageMatches(StartsWith("reading_max_age = 0")));
  const WeightedLoad no_number{.live_weight = std::numeric_limits<double>::quiet_NaN()};
  CHECK_THROWS_MATCHES((Router{LocalPins{}, no_number}), std::invalid_argument,
                       MessageMatches(StartsWith("live_weight = nan")));
  CHECK_THROWS_MATCHES((Router{LocalPins{}, WeightedLoad{}, MoveWhenFull{.room = 2.0}}),
                       std::invalid_argument, MessageMatches(StartsWith("room = 2")));
}

// Keys --------------------------------------------------------------------------------------------

TEST_CASE("a key may be empty, binary or megabytes long") {
  SmallPool<> pool(4);
  const std::string huge(4'000'000, 'x');
  const std::string keys[] = {
      "", std::string(1, '\0'), std::string(2, '\0'), "\xff\xfe", huge, huge + "y"};
  std::vector<Lease> leases;
  for (const std::string& key : keys) {
    leases.push_back(pool.router.route(key));
    CHECK(leases.back().outcome() == Outcome::placed);
  }
  for (std::size_t i = 0; i < std::size(keys); ++i) {
    CHECK(pool.router.plan(keys[i]).home == leases[i].decision().home);
  }
  CHECK(pool.row(0).pins + pool.row(1).pins + pool.row(2).pins + pool.row(3).pins == 6);
}

TEST_CASE("a key hashed beforehand names the same conversation as its text") {
  SmallPool<> pool(4);
  const Lease lease = pool.router.route("c");
  CHECK(pool.router.plan(pool.router.hash("c")).outcome == Outcome::sticky);
  CHECK(lease.decision().key == pool.router.hash("c"));
}

// Rebalance ---------------------------------------------------------------------------------------

TEST_CASE(
    "rebalance moves idle conversations to a new replica, oldest first, so many and no more") {
  SmallPool<> pool(1);
  for (int i = 0; i < 6; ++i) {
    pool.settle("c" + std::to_string(i), 0);
    pool.clock.advance(1s);
  }
  pool.add();
  CHECK(pool.router.rebalance(10) == 0);  // none is idle for 300 s
  pool.clock.advance(300s);
  Lease active = pool.router.route("c0");
  CHECK(pool.router.rebalance(2) == 2);
  CHECK(pool.pinned("c0") == pool.id[0]);  // a turn is in flight
  CHECK(pool.pinned("c1") == pool.id[1]);
  CHECK(pool.pinned("c2") == pool.id[1]);
  CHECK(pool.pinned("c3") == pool.id[0]);
  CHECK(pool.router.rebalance(100) == 1);  // three each: even
  CHECK(pool.row(0).pins == 3);
  CHECK(pool.row(1).pins == 3);
  CHECK(pool.router.rebalance(100) == 0);
}

TEST_CASE("rebalance spends its limit on pins that still live") {
  SmallPool<> pool(1);
  for (int i = 0; i < 4; ++i) pool.settle("dead" + std::to_string(i), 0);
  pool.clock.advance(25min);
  for (int i = 0; i < 4; ++i) pool.settle("idle" + std::to_string(i), 0);
  pool.clock.advance(6min);  // the first four are past their 30 minutes
  pool.add();
  CHECK(pool.router.rebalance(2) == 2);
  int moved = 0;
  for (int i = 0; i < 4; ++i) moved += pool.pinned("idle" + std::to_string(i)) == pool.id[1];
  CHECK(moved == 2);
}

TEST_CASE("rebalance gives nothing to a draining replica and takes nothing from it") {
  SmallPool<> pool(1);
  for (int i = 0; i < 6; ++i) pool.settle("c" + std::to_string(i), 0);
  pool.add();
  pool.clock.advance(10min);
  pool.router.drain(pool.id[1]);
  CHECK(pool.router.rebalance(10) == 0);
  pool.router.set_up(pool.id[1]);
  pool.router.drain(pool.id[0]);
  CHECK(pool.router.rebalance(10) == 0);
}

// Other stores and scorers ------------------------------------------------------------------------

TEST_CASE("without a table a conversation's home is its hash, and rows 6 to 10 hold all the same") {
  SmallPool<SpillAbove, RendezvousPins> pool(4);
  const Lease first = pool.router.route("c");
  CHECK(first.outcome() == Outcome::sticky);
  const ReplicaId home = first.replica();
  const ReplicaId exclude[] = {home};
  CHECK(pool.router.plan(Turn{.key = "c", .exclude = exclude}).outcome == Outcome::spilled);
  const Lease second = pool.router.route("c");
  CHECK(pool.router.plan("c").outcome == Outcome::spilled);
  pool.router.set_down(home);
  CHECK(pool.router.plan("c").replica != home);
  pool.router.set_up(home);
  CHECK(pool.router.plan("c").home.replica == home);
  pool.router.restarted(home);
  CHECK(pool.router.plan("c").home.replica == home);
}

TEST_CASE("round robin places conversations on one replica after the other") {
  SmallPool<SpillAbove, LocalPins, RoundRobin> pool(3);
  std::vector<std::uint16_t> slots;
  for (int i = 0; i < 6; ++i) {
    const std::string key = "c" + std::to_string(i);
    slots.push_back(pool.router.route(key).replica().slot);
    CHECK(pool.router.route(key).outcome() == Outcome::sticky);  // does not turn the wheel
  }
  CHECK(slots == std::vector<std::uint16_t>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("counts of a store of four primitives return to nothing") {
  SmallPool<SpillAbove, FourPrimitives> pool(3);
  {
    std::vector<Lease> leases;
    for (int i = 0; i < 40; ++i) {
      leases.push_back(pool.router.route("c" + std::to_string(i % 7)));
      if (i == 20) pool.router.set_down(pool.id[1]);
    }
    std::uint32_t in_flight = 0;
    for (std::size_t i = 0; i < 3; ++i) in_flight += pool.in_flight(i);
    CHECK(in_flight == 40);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(pool.in_flight(i) == 0);
    CHECK(pool.row(i).live_conversations == 0);
    CHECK(pool.row(i).live_tokens == 0);
    CHECK(pool.row(i).pins == 0);  // which such a store does not tell, moves or not
  }
}

namespace {

// Another thread is quicker: the first repin finds the pin at `elsewhere`.
struct LosesTheRace : FourPrimitives {
  inline static Home elsewhere{};

  Home repin(KeyHash key, Home expected, Home desired, Instant now) {
    if (elsewhere.replica)
      FourPrimitives::repin(key, expected, std::exchange(elsewhere, Home{}), now);
    return FourPrimitives::repin(key, expected, desired, now);
  }
};

}  // namespace

TEST_CASE("a turn that loses the race for its pin counts once, at the winner's replica") {
  SmallPool<SpillAbove, LosesTheRace> pool(3);
  const ReplicaId home = pool.router.route("c").replica();
  pool.router.set_down(home);
  const ReplicaId next = pool.router.plan("c").replica;
  for (const ReplicaId id : pool.id) {
    if (id != home && id != next) LosesTheRace::elsewhere = {id, 0};
  }
  const ReplicaId winner = LosesTheRace::elsewhere.replica;
  Lease lease = pool.router.route("c");
  CHECK(lease.replica() == winner);
  pool.router.set_up(home);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(pool.row(i).live_conversations == (pool.id[i] == winner ? 1 : 0));
  lease.finish();
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(pool.row(i).live_conversations == 0);
    CHECK(pool.row(i).live_tokens == 0);
  }
  CHECK(pool.router.route("c").replica() == winner);
}
