// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/candidates.hpp>

#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/weighted.hpp>

#include "catch.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;
using limpet::detail::Candidates;
using limpet::detail::Draining;

namespace {

struct Table {
  explicit Table(int replicas) {
    for (int i = 0; i < replicas; ++i) id.push_back(fleet.add({.name = std::to_string(i)}));
  }

  void take(std::size_t replica, int turns) {
    for (int i = 0; i < turns; ++i)
      REQUIRE(fleet.take(id[replica], UINT32_MAX, Outcome::balanced, 0, Instant{}));
  }

  [[nodiscard]] Candidates all(std::span<const ReplicaId> exclude = {}, ReplicaId skip = {},
                               Draining draining = Draining::if_none_is_up) const {
    return {fleet, Instant{}, exclude, skip, draining};
  }

  Fleet fleet{300s, 15s};
  std::vector<ReplicaId> id;
};

}  // namespace

TEST_CASE("who is up and left out by nobody is a candidate") {
  Table table(4);
  table.fleet.set_state(table.id[1], ReplicaState::draining);
  const ReplicaId exclude[] = {table.id[2]};
  const Candidates some = table.all(exclude, table.id[3]);
  CHECK(some.count() == 1);
  CHECK(some.contains(table.id[0]));
  CHECK_FALSE(some.contains(table.id[1]));
  CHECK_FALSE(some.contains(table.id[2]));
  CHECK_FALSE(some.contains(table.id[3]));
  CHECK_FALSE(some.contains(ReplicaId{}));
}

TEST_CASE("draining replicas stand in where none is up, unless they must not") {
  Table table(2);
  table.fleet.set_state(table.id[0], ReplicaState::draining);
  table.fleet.set_state(table.id[1], ReplicaState::down);
  CHECK(table.all().count() == 1);
  CHECK(table.all().contains(table.id[0]));
  CHECK(table.all({}, {}, Draining::never).count() == 0);
}

TEST_CASE("of nobody there is no least and no best") {
  const Table table(0);
  CHECK_FALSE(table.all().least_in_flight(7));
  CHECK_FALSE(table.all().best(LeastInFlight{}, {}, KeyHash{1, 2}));
}

TEST_CASE("among equals the rotation goes round in fleet order") {
  Table table(4);
  table.take(1, 1);
  std::vector<std::uint16_t> chosen;
  for (std::uint64_t rotation = 0; rotation < 6; ++rotation)
    chosen.push_back(table.all().least_in_flight(rotation).replica.slot);
  CHECK(chosen == std::vector<std::uint16_t>{0, 2, 3, 0, 2, 3});
}

TEST_CASE("the best has the lowest score, then fewer live conversations, then the higher hash") {
  Table table(3);
  table.take(0, 1);
  std::set<std::uint16_t> chosen;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const KeyHash key{i * 0x9e3779b97f4a7c15ULL, i};
    const auto best = table.all().best(LeastInFlight{}, {}, key);
    const bool first = rendezvous_weight(key, table.fleet.slot(1).name_hash.load()) >
                       rendezvous_weight(key, table.fleet.slot(2).name_hash.load());
    REQUIRE(best.replica == table.id[first ? 1 : 2]);
    chosen.insert(best.replica.slot);
  }
  CHECK(chosen.size() == 2);

  table.fleet.enter(table.fleet.home_at(table.id[1]), {.in_flight = 1}, Instant{});
  for (std::uint64_t i = 0; i < 20; ++i)
    CHECK(table.all().best(LeastInFlight{}, {}, KeyHash{i, i}).replica == table.id[2]);
}

TEST_CASE("a scorer is told how many candidates there are and which one it looks at") {
  Table table(4);
  table.fleet.set_state(table.id[1], ReplicaState::down);
  struct Recording {
    mutable std::vector<std::uint32_t>* positions = nullptr;
    double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
      CHECK(context.candidates == 3);
      CHECK(context.draw == 42);
      positions->push_back(context.position);
      return load.in_flight;
    }
  };
  std::vector<std::uint32_t> positions;
  static_cast<void>(table.all().best(Recording{&positions}, {.draw = 42}, KeyHash{1, 2}));
  CHECK(positions == std::vector<std::uint32_t>{0, 1, 2});
}

TEST_CASE("scores are compared at three decimals") {
  CHECK(Candidates::rounded(1.0004) == Candidates::rounded(1.0));
  CHECK(Candidates::rounded(1.0006) != Candidates::rounded(1.0));
  CHECK(Candidates::rounded(1e12) < Candidates::rounded(1e12 + 1));
}
