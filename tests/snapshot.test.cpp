// SPDX-License-Identifier: Apache-2.0
#include <limpet/snapshot.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

#include <chrono>
#include <string>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;
using limpet_test::SmallPool;

TEST_CASE("a snapshot of an empty pool is empty") {
  const Snapshot snapshot = SmallPool<>(0).router.snapshot();
  CHECK(snapshot.replicas.empty());
  CHECK(snapshot.refused == 0);
  CHECK(snapshot.affinity);
}

TEST_CASE("rows stand in the order in which replicas joined, a reused place notwithstanding") {
  SmallPool<> pool(3);
  pool.router.remove(pool.id[0]);
  static_cast<void>(pool.router.add_replica(
      {.name = "late", .endpoint = "http://late:8000/", .rank = 3, .engine = "7"}));
  const Snapshot snapshot = pool.router.snapshot();
  REQUIRE(snapshot.replicas.size() == 3);
  CHECK(snapshot.replicas[0].name == "gpu1");
  CHECK(snapshot.replicas[1].name == "gpu2");
  const ReplicaSnapshot& late = snapshot.replicas[2];
  CHECK(late.name == "late");
  CHECK(late.endpoint == "http://late:8000");
  CHECK(late.rank == 3U);
  CHECK(late.engine == "7");
  CHECK(late.id.slot == 0);
  CHECK(late.placed == 0);
  CHECK_FALSE(snapshot.replicas[0].rank.has_value());
  CHECK(snapshot.replicas[0].endpoint == "gpu1");  // the name, unless told otherwise
  CHECK(snapshot.replicas[0].max_num_seqs == 8);
}

TEST_CASE("each turn is counted under its outcome, at the replica that served it") {
  SmallPool<> pool(2);
  pool.settle("c", 0);
  {
    const Lease sticky[] = {pool.router.route("c"), pool.router.route("c")};
    const Lease spilled = pool.router.route("c");
    const Lease side = pool.router.route(Turn{.key = "x", .side_call = true});
    const Lease pinned = pool.router.route(Turn{.client_pinned = pool.id[1]});
    CHECK(pool.in_flight(0) == 2);
    CHECK(pool.in_flight(1) == 3);
  }
  pool.router.set_down(pool.id[0]);
  CHECK(pool.router.route("c").outcome() == Outcome::moved);
  const ReplicaSnapshot home = pool.row(0);
  CHECK(home.state == ReplicaState::down);
  CHECK(home.placed == 1);
  CHECK(home.sticky == 2);
  CHECK(home.spilled_out == 1);
  CHECK(home.spilled_in == 0);
  CHECK(home.moved == 0);
  const ReplicaSnapshot other = pool.row(1);
  CHECK(other.spilled_in == 1);
  CHECK(other.client_pinned == 1);
  CHECK(other.balanced == 1);
  CHECK(other.moved == 1);
  CHECK(other.pins == 1);
}

TEST_CASE("what the engine never said is absent, and a reading has an age") {
  SmallPool<> pool(2);
  CHECK(pool.router.observe("gpu0", "0.25") == ParseStatus::ok);
  pool.clock.advance(2500ms);
  const ReplicaSnapshot read = pool.row(0);
  CHECK(read.kv_usage == 0.25);
  CHECK(read.reading_age == Approx(2.5));
  CHECK_FALSE(read.running.has_value());
  CHECK_FALSE(read.kv_capacity_tokens.has_value());
  const ReplicaSnapshot unread = pool.row(1);
  CHECK_FALSE(unread.kv_usage.has_value());
  CHECK_FALSE(unread.reading_age.has_value());
}

TEST_CASE("a page that does not parse is counted and changes nothing") {
  SmallPool<> pool(1);
  CHECK(pool.router.observe("gpu0", "0.25") == ParseStatus::ok);
  CHECK(pool.router.observe("gpu0", "a quarter") == ParseStatus::malformed);
  CHECK(pool.router.observe("nobody", "0.75") == ParseStatus::ok);
  CHECK(pool.row(0).kv_usage == 0.25);
  CHECK(pool.router.snapshot().readings == 2);
  CHECK(pool.router.snapshot().bad_readings == 1);
}

TEST_CASE("pins that left are counted by why they left") {
  SmallPool<> pool(1, {}, {}, LocalPins{{.capacity = 2}});
  pool.settle("a", 0);
  pool.settle("b", 0);
  pool.settle("c", 0);  // evicts a
  CHECK(pool.router.snapshot().evicted == 1);
  CHECK(pool.row(0).pins == 2);
  pool.clock.advance(30min);
  pool.settle("b", 0);  // renews an expired pin
  CHECK(pool.router.snapshot().expired == 2);
  CHECK(pool.row(0).pins == 1);
  pool.router.route("d").fail();
  CHECK(pool.router.snapshot().unpinned == 1);
  CHECK(pool.row(0).pins == 1);
}
