// SPDX-License-Identifier: Apache-2.0
#include <limpet/types.hpp>

#include "catch.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

using namespace limpet;

TEST_CASE("an id names one replica, never the one that took its place") {
  CHECK_FALSE(ReplicaId{}.has_value());
  CHECK_FALSE(ReplicaId{});
  CHECK(ReplicaId{0, 0});
  CHECK(ReplicaId{3, 1} == ReplicaId{3, 1});
  CHECK(ReplicaId{3, 1} != ReplicaId{3, 2});
  CHECK(ReplicaId{3, 1} != ReplicaId{4, 1});
}

TEST_CASE("a home before a restart is not the home after it") {
  CHECK(Home{{1, 0}, 0} != Home{{1, 0}, 1});
  CHECK(Home{{1, 0}, 1} == Home{{1, 0}, 1});
}

TEST_CASE("a key is nothing, a text of any bytes, or a hash") {
  CHECK_FALSE(Key{}.has_value());
  CHECK_FALSE(Key{std::nullopt}.has_value());

  CHECK(Key{""}.has_value());
  CHECK(Key{""}.text().empty());
  CHECK_FALSE(Key{""}.is_hash());

  const std::string binary("\0\xff\n", 3);
  CHECK(Key{binary}.text() == binary);
  CHECK(Key{std::string_view("abc")}.text() == "abc");

  const Key hash{KeyHash{1, 2}};
  CHECK(hash.has_value());
  CHECK(hash.is_hash());
  CHECK(hash.hash() == KeyHash{1, 2});
}

TEST_CASE("every value has a name for people") {
  CHECK(to_string(ReplicaState::up) == "up");
  CHECK(to_string(ReplicaState::draining) == "draining");
  CHECK(to_string(ReplicaState::down) == "down");
  CHECK(to_string(ReplicaState::removed) == "removed");

  CHECK(to_string(Outcome::placed) == "placed");
  CHECK(to_string(Outcome::sticky) == "sticky");
  CHECK(to_string(Outcome::spilled) == "spilled");
  CHECK(to_string(Outcome::moved) == "moved");
  CHECK(to_string(Outcome::balanced) == "balanced");
  CHECK(to_string(Outcome::client_pinned) == "client_pinned");
  CHECK(to_string(Outcome::refused) == "refused");
  CHECK(to_string(Outcome::unrouted) == "unrouted");

  CHECK(to_string(Reason::no_replica) == "no replica can take the turn");
  CHECK(to_string(Reason::parent_home) == "placed beside its parent");
  CHECK(to_string(Reason::home_overloaded_but_best) == "home is overloaded, nobody is better");
  CHECK(to_string(Reason::committed_elsewhere) == "pinned elsewhere since the plan");
}

TEST_CASE("a decision nobody made refuses") {
  const Decision none;
  CHECK(none.outcome == Outcome::refused);
  CHECK(none.reason == Reason::no_replica);
  CHECK_FALSE(none.replica);
  CHECK_FALSE(none.has_key);
}

TEST_CASE("what an engine did not say of cached tokens is absent, not 0") {
  Usage silent{.prompt_tokens = 5};
  CHECK_FALSE(silent.cached_tokens.has_value());
  Usage said = silent;
  said.cached_tokens = 0;
  CHECK_FALSE(silent == said);
}
