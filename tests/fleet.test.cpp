// SPDX-License-Identifier: Apache-2.0
#include <limpet/fleet.hpp>

#include "catch.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;

namespace {

Instant at(Duration since_start) {
  return Instant{since_start};
}

struct Table {
  Fleet fleet{300s, 15s};

  [[nodiscard]] ReplicaSnapshot row(ReplicaId id, Instant now) const {
    std::vector<ReplicaSnapshot> rows;
    fleet.snapshot(now, rows, true);
    for (const auto& row : rows) {
      if (row.id == id) return row;
    }
    return {};
  }
};

Fleet::Observed observe(Fleet& fleet, std::string_view endpoint,
                        const std::vector<Reading>& readings, Instant now) {
  return fleet.observe(endpoint, readings.data(), readings.size(), now);
}

Reading reading(double kv_usage, double queries = 0) {
  return {.running = 2.0, .waiting = 1.0, .kv_usage = kv_usage, .prefix_queries = queries};
}

}  // namespace

// Membership --------------------------------------------------------------------------------------

TEST_CASE("ids are handed out place by place, and a freed place under a new version") {
  Fleet fleet(300s, 15s);
  const ReplicaId a = fleet.add({.name = "a"});
  const ReplicaId b = fleet.add({.name = "b"});
  CHECK(a == ReplicaId{0, 0});
  CHECK(b == ReplicaId{1, 0});
  CHECK(fleet.remove(a));
  CHECK(fleet.state(a) == ReplicaState::removed);
  CHECK(fleet.add({.name = "c"}) == ReplicaId{0, 1});
  CHECK(fleet.state(a) == ReplicaState::removed);
  CHECK(fleet.state(ReplicaId{}) == ReplicaState::removed);
  CHECK(fleet.state(ReplicaId{500, 0}) == ReplicaState::removed);
  CHECK(fleet.find("c") == ReplicaId{0, 1});
  CHECK_FALSE(fleet.find("a").has_value());
}

TEST_CASE("serving counts the replicas that are up or draining") {
  Fleet fleet(300s, 15s);
  const ReplicaId a = fleet.add({.name = "a"});
  const ReplicaId b = fleet.add({.name = "b"});
  CHECK(fleet.serving() == 2);
  fleet.set_state(a, ReplicaState::draining);
  CHECK(fleet.serving() == 2);
  fleet.set_state(a, ReplicaState::down);
  fleet.set_state(a, ReplicaState::down);
  CHECK(fleet.serving() == 1);
  fleet.remove(a);
  CHECK(fleet.serving() == 1);
  fleet.remove(b);
  CHECK(fleet.serving() == 0);
}

TEST_CASE("members are the replicas that are up, or the draining ones where none is") {
  Fleet fleet(300s, 15s);
  const ReplicaId a = fleet.add({.name = "a"});
  const ReplicaId b = fleet.add({.name = "b"});
  fleet.set_state(a, ReplicaState::draining);
  REQUIRE(fleet.members().size() == 1);
  CHECK(fleet.members()[0].home.replica == b);
  fleet.set_state(b, ReplicaState::down);
  REQUIRE(fleet.members().size() == 1);
  CHECK(fleet.members()[0].home.replica == a);
  fleet.set_state(a, ReplicaState::down);
  CHECK(fleet.members().empty());
}

TEST_CASE("a restart and a removal make every home there stale") {
  Fleet fleet(300s, 15s);
  const ReplicaId a = fleet.add({.name = "a"});
  const Home before = fleet.home_at(a);
  CHECK(fleet.is_current(before));
  fleet.restarted(a);
  CHECK_FALSE(fleet.is_current(before));
  CHECK(fleet.is_current(fleet.home_at(a)));
  const Home after = fleet.home_at(a);
  fleet.remove(a);
  CHECK_FALSE(fleet.is_current(after));
  CHECK_FALSE(fleet.is_current(Home{}));
}

TEST_CASE("a pool grows past a chunk of rows, and no row moves") {
  Fleet fleet(300s, 15s);
  std::vector<ReplicaId> ids;
  std::vector<const Fleet::Slot*> rows;
  for (int i = 0; i < 1000; ++i) {
    ids.push_back(fleet.add({.name = std::to_string(i)}));
    rows.push_back(&fleet.slot(ids.back().slot));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) REQUIRE(&fleet.slot(ids[i].slot) == rows[i]);
  CHECK(fleet.size() == 1000);
  CHECK(fleet.find("777") == ids[777]);
}

TEST_CASE("windows that make no sense are refused by name and value") {
  CHECK_THROWS_MATCHES(Fleet(63ms, 15s), std::invalid_argument,
                       MessageMatches(StartsWith("live_window = 63000000")));
  CHECK_THROWS_MATCHES(Fleet(300s, -1s), std::invalid_argument,
                       MessageMatches(StartsWith("reading_max_age = -1000000000")));
}

// Readings ----------------------------------------------------------------------------------------

TEST_CASE("a reading goes to every replica behind its endpoint, by engine where it is labelled") {
  Table table;
  const ReplicaId zero =
      table.fleet.add({.name = "r0", .endpoint = "http://host:8000/", .engine = "0"});
  const ReplicaId one =
      table.fleet.add({.name = "r1", .endpoint = "http://host:8000", .engine = "1"});
  const ReplicaId elsewhere = table.fleet.add({.name = "r2", .endpoint = "http://other:8000"});
  Reading first = reading(0.25);
  first.engine = "0";
  Reading second = reading(0.75);
  second.engine = "1";
  const auto observed = observe(table.fleet, "http://host:8000/", {first, second}, at(1s));
  CHECK(observed.replicas == 2);
  CHECK(observed.restarts == 0);
  CHECK(table.fleet.load(zero.slot, at(1s)).kv_usage == 0.25);
  CHECK(table.fleet.load(one.slot, at(1s)).kv_usage == 0.75);
  CHECK_FALSE(table.fleet.load(elsewhere.slot, at(1s)).reading_fresh);
}

TEST_CASE("of several engines behind one replica counts add up and the fullest cache counts") {
  Table table;
  const ReplicaId all = table.fleet.add({.name = "r", .endpoint = "e"});
  static_cast<void>(observe(table.fleet, "e", {reading(0.2, 100), reading(0.6, 50)}, at(0s)));
  const ReplicaLoad load = table.fleet.load(all.slot, at(0s));
  CHECK(load.kv_usage == 0.6);
  CHECK(load.running == 4);
  CHECK(load.waiting == 2);
  CHECK(table.row(all, at(0s)).prefix_queries == 150.0);
}

TEST_CASE("a gauge is fresh until it is as old as the limit") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  CHECK_FALSE(table.fleet.reading_fresh(a.slot, at(0s)));
  CHECK_FALSE(table.fleet.reading_age(a.slot, at(0s)).has_value());
  static_cast<void>(observe(table.fleet, "a", {reading(0.5)}, at(10s)));
  CHECK(table.fleet.reading_fresh(a.slot, at(25s - 1ns)));
  CHECK_FALSE(table.fleet.reading_fresh(a.slot, at(25s)));
  CHECK(table.fleet.reading_age(a.slot, at(12s)) == 2.0);
}

TEST_CASE("gauges out of range are clamped, and one that is absent keeps the last") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  static_cast<void>(observe(table.fleet, "a", {reading(1.7)}, at(0s)));
  CHECK(table.fleet.load(a.slot, at(0s)).kv_usage == 1.0);
  static_cast<void>(observe(table.fleet, "a", {reading(-3)}, at(0s)));
  CHECK(table.fleet.load(a.slot, at(0s)).kv_usage == 0.0);
  static_cast<void>(observe(table.fleet, "a", {reading(0.5)}, at(0s)));
  static_cast<void>(observe(table.fleet, "a", {Reading{.running = 1e300}}, at(20s)));
  const ReplicaLoad load = table.fleet.load(a.slot, at(20s));
  CHECK(load.kv_usage == 0.5);
  CHECK_FALSE(load.reading_fresh);  // its age is that of the gauge
  CHECK(load.running == 4'000'000'000U);
}

TEST_CASE("counters that fell and another start time are a restart, a page without them is none") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  const auto restarts = [&](Reading next) {
    return observe(table.fleet, "a", {next}, at(0s)).restarts;
  };
  CHECK(restarts({.prefix_queries = 100.0, .prompt_tokens = 10.0, .start_time = 1.0}) == 0);
  CHECK(restarts({.prefix_queries = 100.0, .prompt_tokens = 10.0, .start_time = 1.0}) == 0);
  CHECK(restarts({.prefix_queries = 99.0, .prompt_tokens = 10.0, .start_time = 1.0}) == 1);
  CHECK(restarts({.prefix_queries = 99.0, .prompt_tokens = 9.0, .start_time = 1.0}) == 1);
  CHECK(restarts({.prefix_queries = 99.0, .prompt_tokens = 9.0, .start_time = 2.0}) == 1);
  CHECK(restarts({.running = 1.0}) == 0);
  CHECK(restarts({.prefix_queries = 5.0}) == 0);  // nothing to compare with
  CHECK(table.row(a, at(0s)).restarts == 3);
}

TEST_CASE("a told capacity is not overwritten by a page, an unknown one is") {
  Table table;
  const ReplicaId told =
      table.fleet.add({.name = "told", .endpoint = "e", .kv_capacity_tokens = 7});
  const ReplicaId open = table.fleet.add({.name = "open", .endpoint = "e"});
  CHECK(table.fleet.load(open.slot, at(0s)).kv_capacity_tokens == 0);
  static_cast<void>(observe(table.fleet, "e", {Reading{.kv_capacity_tokens = 5000.0}}, at(0s)));
  CHECK(table.fleet.load(told.slot, at(0s)).kv_capacity_tokens == 7);
  CHECK(table.fleet.load(open.slot, at(0s)).kv_capacity_tokens == 5000);
  CHECK(table.row(open, at(0s)).kv_capacity_tokens == 5000.0);
}

TEST_CASE("gauges overwrite nothing that was counted here") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  REQUIRE(table.fleet.take(a, 0, Outcome::balanced, 50, at(0s)));
  static_cast<void>(observe(table.fleet, "a", {Reading{.running = 0.0, .kv_usage = 0.1}}, at(0s)));
  const ReplicaLoad load = table.fleet.load(a.slot, at(0s));
  CHECK(load.in_flight == 1);
  CHECK(load.in_flight_tokens == 50);
  CHECK(load.in_flight_at_reading == 1);
}

// What is cached ----------------------------------------------------------------------------------

namespace {

// A conversation's turn at `home` begins and ends.
Conversation used(Table& table, ReplicaId home, std::uint32_t tokens, Instant now) {
  const Home at_home = table.fleet.home_at(home);
  table.fleet.open(at_home, {.before = {.home = at_home}, .counted_tokens = tokens}, now);
  table.fleet.close({.before = {.home = at_home,
                                .last_active = now,
                                .turns = 1,
                                .in_flight = 1,
                                .counted_tokens = tokens},
                     .counted_tokens = tokens},
                    now);
  return {.home = at_home, .last_active = now, .turns = 1, .counted_tokens = tokens};
}

}  // namespace

TEST_CASE("a history is cached until what was used since its last turn leaves no room for it") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a", .kv_capacity_tokens = 1000});
  const Conversation first = used(table, a, 400, at(0s));
  used(table, a, 300, at(20s));
  const Conversation third = used(table, a, 300, at(40s));
  CHECK(table.fleet.still_caches(first, 0, at(60s)));        // 600 since, and its own 400
  CHECK_FALSE(table.fleet.still_caches(first, 1, at(60s)));  // a token more is shared
  used(table, a, 1, at(60s));
  CHECK_FALSE(table.fleet.still_caches(first, 0, at(60s)));
  CHECK(table.fleet.still_caches(third, 600, at(60s)));  // what ended before it does not count
}

TEST_CASE("a history is cached while a turn of it is in flight, and where no capacity is known") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a", .kv_capacity_tokens = 1000});
  const ReplicaId unknown = table.fleet.add({.name = "b"});
  Conversation first = used(table, a, 400, at(0s));
  used(table, a, 5000, at(20s));
  CHECK_FALSE(table.fleet.still_caches(first, 0, at(20s)));
  first.in_flight = 1;
  CHECK(table.fleet.still_caches(first, 0, at(20s)));
  const Conversation other = used(table, unknown, 400, at(0s));
  used(table, unknown, 5'000'000, at(20s));
  CHECK(table.fleet.still_caches(other, 0, at(20s)));
  table.fleet.restarted(unknown);
  CHECK_FALSE(table.fleet.still_caches(other, 0, at(20s)));
}

// Booking -----------------------------------------------------------------------------------------

TEST_CASE("a slot is taken only while what it was chosen for still holds") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  CHECK(table.fleet.take(a, 0, Outcome::placed, 1, at(0s)));
  CHECK_FALSE(table.fleet.take(a, 0, Outcome::placed, 1, at(0s)));  // somebody was faster
  CHECK(table.fleet.take(a, 1, Outcome::placed, 1, at(0s)));
  table.fleet.set_state(a, ReplicaState::draining);
  CHECK(table.fleet.take(a, 2, Outcome::sticky, 1, at(0s)));
  table.fleet.set_state(a, ReplicaState::down);
  CHECK_FALSE(table.fleet.take(a, 9, Outcome::sticky, 1, at(0s)));
  table.fleet.remove(a);
  CHECK_FALSE(table.fleet.take(a, 9, Outcome::sticky, 1, at(0s)));
}

TEST_CASE("a turn that goes elsewhere after all leaves no trace") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  REQUIRE(table.fleet.take(a, 0, Outcome::placed, 70, at(0s)));
  table.fleet.untake(a, Outcome::placed, 70);
  const ReplicaSnapshot row = table.row(a, at(0s));
  CHECK(row.in_flight == 0);
  CHECK(row.in_flight_tokens == 0);
  CHECK(row.placed == 0);
  REQUIRE(table.fleet.take(a, 0, Outcome::placed, 70, at(0s)));
  table.fleet.recount(a, Outcome::placed, Outcome::spilled);
  CHECK(table.row(a, at(0s)).placed == 0);
  CHECK(table.row(a, at(0s)).spilled_in == 1);
}

TEST_CASE(
    "a pin that another thread evicts before its begin is booked counts for nothing after it") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  const Home home = table.fleet.home_at(a);
  table.fleet.leave(home, {.home = home, .last_active = at(1s), .turns = 1, .in_flight = 1},
                    at(1s));
  CHECK(table.row(a, at(1s)).pins == 0);
  CHECK(table.fleet.pins(a) == 0);
  table.fleet.open(home, {.before = {.home = home}}, at(1s));
  CHECK(table.row(a, at(1s)).pins == 0);
  table.fleet.open(home, {.before = {.home = home}}, at(1s));
  CHECK(table.row(a, at(1s)).pins == 1);
}

TEST_CASE("a pin booked before a restart counts for nothing after it") {
  Table table;
  const ReplicaId a = table.fleet.add({.name = "a"});
  const Home home = table.fleet.home_at(a);
  const TurnOpened opened{.before = {.home = home}, .counted_tokens = 100};
  table.fleet.open(home, opened, at(0s));
  CHECK(table.row(a, at(0s)).pins == 1);
  CHECK(table.row(a, at(0s)).live_tokens == 100);
  table.fleet.restarted(a);
  table.fleet.close({.before = {.home = home, .turns = 1, .in_flight = 1, .counted_tokens = 100},
                     .counted_tokens = 100},
                    at(1s));
  table.fleet.open(home, opened, at(1s));
  const ReplicaSnapshot row = table.row(a, at(1s));
  CHECK(row.pins == 0);
  CHECK(row.live_conversations == 0);
  CHECK(row.live_tokens == 0);
}
