// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/prefill.hpp>

#include <limpet/overflow/spill_above.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/weighted.hpp>

#include "catch.hpp"

#include <chrono>
#include <memory>

using namespace limpet;
using namespace std::chrono_literals;
using limpet::detail::NeedsPrefill;
using limpet::detail::Uncached;

static_assert(NeedsPrefill<LeastPendingPrefill>);
static_assert(!NeedsPrefill<WeightedLoad> && !NeedsPrefill<SpillAbove>);
struct SaysNo {
  static constexpr bool needs_prefill = false;
};
static_assert(!NeedsPrefill<SaysNo>);

namespace {

struct Table {
  std::unique_ptr<Fleet> fleet = std::make_unique<Fleet>(640s, 15s);  // buckets of 10 s
  ReplicaId a = fleet->add({.name = "a", .kv_capacity_tokens = 1000});
  ReplicaId b = fleet->add({.name = "b", .kv_capacity_tokens = 1000});

  [[nodiscard]] Conversation idle_at(ReplicaId home, std::uint32_t tokens) const {
    return {.home = fleet->home_at(home), .turns = 1, .counted_tokens = tokens};
  }
};

}  // namespace

TEST_CASE("where a conversation is at home it reads what is new, elsewhere all of its prompt") {
  const Table table;
  const Conversation history = table.idle_at(table.a, 300);
  const Uncached uncached(*table.fleet, {.tokens = 420}, &history, Instant{});
  CHECK(uncached.at(table.a) == 120);
  CHECK(uncached.at(table.b) == 420);
  CHECK(uncached.elsewhere() == 420);
}

TEST_CASE("a prompt shorter than the history has nothing to read at home") {
  const Table table;
  const Conversation history = table.idle_at(table.a, 300);
  CHECK(Uncached(*table.fleet, {.tokens = 200}, &history, Instant{}).at(table.a) == 0);
}

TEST_CASE("a prompt of unknown length is taken for its history, or for the mean of the pool") {
  const Table table;
  const Conversation history = table.idle_at(table.a, 300);
  const Conversation untold = table.idle_at(table.a, 0);
  CHECK(Uncached(*table.fleet, {.mean = 70}, &history, Instant{}).at(table.b) == 300);
  CHECK(Uncached(*table.fleet, {.mean = 70}, &untold, Instant{}).at(table.b) == 70);
  CHECK(Uncached(*table.fleet, {.mean = 70}, nullptr, Instant{}).at(table.b) == 70);
}

TEST_CASE("a history of unknown length is all there") {
  const Table table;
  const Conversation untold = table.idle_at(table.a, 0);
  CHECK(Uncached(*table.fleet, {.tokens = 420}, &untold, Instant{}).at(table.a) == 0);
}

TEST_CASE("a history whose home has restarted is read again everywhere") {
  const Table table;
  const Conversation history = table.idle_at(table.a, 300);
  table.fleet->restarted(table.a);
  CHECK(Uncached(*table.fleet, {.tokens = 420}, &history, Instant{}).at(table.a) == 420);
}
