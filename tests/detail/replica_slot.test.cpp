// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/replica_slot.hpp>

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

using namespace limpet;
using limpet::detail::Counter;
using limpet::detail::counter_of;
using limpet::detail::ReplicaSlot;

TEST_CASE("what a turn that goes home writes of a replica is one cache line") {
  const auto slot = std::make_unique<ReplicaSlot>();
  const auto line = [&](const void* member) {
    return (static_cast<const char*>(member) - reinterpret_cast<const char*>(slot.get())) / 64;
  };
  CHECK(reinterpret_cast<std::uintptr_t>(slot.get()) % 64 == 0);
  CHECK(line(&slot->lock) == 1);
  CHECK(line(&slot->status) == 1);
  CHECK(line(&slot->in_flight_tokens) == 1);
  CHECK(line(&slot->sticky) == 1);
  // The other buckets are all of a window but its first 32 bytes.
  CHECK(reinterpret_cast<const char*>(&slot->live) + 32 -
            reinterpret_cast<const char*>(slot.get()) ==
        128);
  CHECK(sizeof(slot->live) == 32 + 64 * 16);
  for (const void* read_only :
       {static_cast<const void*>(&slot->name_hash), static_cast<const void*>(&slot->reading_at),
        static_cast<const void*>(&slot->kv_usage),
        static_cast<const void*>(&slot->pending_prefill_tokens)}) {
    CHECK(line(read_only) == 0);
  }
}

TEST_CASE("each counter counts by itself, and none not at all") {
  const auto slot = std::make_unique<ReplicaSlot>();
  constexpr auto counters = static_cast<int>(Counter::none);
  for (int i = 0; i < counters; ++i) slot->count(static_cast<Counter>(i), 10U + unsigned(i));
  slot->count(Counter::none);
  for (int i = 0; i < counters; ++i)
    CHECK(slot->counted(static_cast<Counter>(i)) == 10U + unsigned(i));
}

TEST_CASE("a status holds version and state, both whole") {
  for (const auto state :
       {ReplicaState::up, ReplicaState::draining, ReplicaState::down, ReplicaState::removed}) {
    for (const std::uint16_t version : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{65535}}) {
      const std::uint32_t status = ReplicaSlot::pack(version, state);
      CHECK(ReplicaSlot::version_of(status) == version);
      CHECK(ReplicaSlot::state_of(status) == state);
    }
  }
}

TEST_CASE("a row that nobody joined is removed") {
  CHECK(ReplicaSlot::state_of(std::make_unique<ReplicaSlot>()->status.load()) ==
        ReplicaState::removed);
}

TEST_CASE("each outcome that has a replica has a counter") {
  CHECK(counter_of(Outcome::placed) == Counter::placed);
  CHECK(counter_of(Outcome::sticky) == Counter::sticky);
  CHECK(counter_of(Outcome::spilled) == Counter::spilled_in);
  CHECK(counter_of(Outcome::moved) == Counter::moved);
  CHECK(counter_of(Outcome::client_pinned) == Counter::client_pinned);
  CHECK(counter_of(Outcome::balanced) == Counter::balanced);
}

TEST_CASE("turns and their tokens come and go together") {
  const auto slot = std::make_unique<ReplicaSlot>();
  slot->add_turn(100);
  slot->add_turn(UINT64_MAX);
  CHECK(slot->in_flight.load() == 2);
  slot->drop_turn(UINT64_MAX);
  CHECK(slot->in_flight_tokens.load() == 100);
  slot->drop_turn(100);
  CHECK(slot->in_flight.load() == 0);
  CHECK(slot->in_flight_tokens.load() == 0);
}
