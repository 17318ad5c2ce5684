// SPDX-License-Identifier: Apache-2.0
//
// The erased policies against the plain ones: one random history through Router<...> and through
// AnyRouter must give the same decisions, counts and loads, field for field.
#include <limpet/any.hpp>

#include <limpet/metrics/sglang.hpp>
#include <limpet/overflow/bounded_load.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/overflow/move_when_full.hpp>
#include <limpet/overflow/never.hpp>
#include <limpet/pins/local.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/power_of_two.hpp>
#include <limpet/scorers/round_robin.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>

#include "catch.hpp"
#include "support/test_policies.hpp"

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace limpet;
using namespace limpet_test;
using namespace std::chrono_literals;

// Small numbers, so that everything happens: pins expire and are evicted, homes overflow and fill.
const ShardedPinOptions small_store{.capacity = 24, .idle_ttl = 400s, .shards = 2};
const RouterOptions options{.shared_prefix_tokens = 50, .secret = {1, 2}};

bool same(const ReplicaSnapshot& a, const ReplicaSnapshot& b) {
  return a.id == b.id && a.name == b.name && a.state == b.state && a.in_flight == b.in_flight &&
         a.in_flight_tokens == b.in_flight_tokens && a.live_conversations == b.live_conversations &&
         a.live_tokens == b.live_tokens && a.pins == b.pins && a.placed == b.placed &&
         a.sticky == b.sticky && a.spilled_in == b.spilled_in && a.spilled_out == b.spilled_out &&
         a.moved == b.moved && a.balanced == b.balanced && a.client_pinned == b.client_pinned &&
         a.failed == b.failed &&
         (!a.pending_prefill_tokens || a.pending_prefill_tokens == b.pending_prefill_tokens) &&
         a.restarts == b.restarts && a.kv_usage == b.kv_usage;
}

// Plays `steps` of one history on both and checks after each that nothing tells them apart.
template <class Plain>
void play(Plain& plain, AnyRouter& any, ManualClock clock, std::uint32_t seed, int steps) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  std::vector<std::pair<Lease, Lease>> leases;
  std::vector<ReplicaId> replicas;
  const auto add = [&] {
    const ReplicaOptions replica{.name = "replica" + std::to_string(replicas.size()),
                                 .max_num_seqs = 12,
                                 .kv_capacity_tokens = 4000};
    replicas.push_back(plain.add_replica(replica));
    REQUIRE(any.add_replica(replica) == replicas.back());
  };
  for (int i = 0; i < 4; ++i) add();

  for (int step = 0; step < steps; ++step) {
    const std::uint32_t what = below(100);
    CAPTURE(step, what);
    const ReplicaId replica = replicas[below(static_cast<std::uint32_t>(replicas.size()))];
    if (what < 55) {
      const std::string key = "conversation" + std::to_string(below(40));
      const std::string parent = "conversation" + std::to_string(below(40));
      const std::vector<ReplicaId> excluded{replica};
      Turn turn{.key = key, .prompt_tokens = below(3) * 400};
      if (below(4) == 0) turn.parent = parent;
      if (below(10) == 0) turn.exclude = excluded;
      if (below(12) == 0) turn.client_pinned = replica;
      if (below(12) == 0) turn.key = Key{};
      turn.side_call = below(12) == 0;
      const Decision planned = plain.plan(turn);
      REQUIRE(any.plan(turn) == planned);
      if (below(4) == 0) {
        leases.emplace_back(plain.commit(planned), any.commit(planned));
      } else {
        leases.emplace_back(plain.route(turn), any.route(turn));
      }
      REQUIRE(leases.back().first.decision() == leases.back().second.decision());
    } else if (what < 80) {
      if (leases.empty()) continue;
      const std::size_t at = below(static_cast<std::uint32_t>(leases.size()));
      const Usage usage{.prompt_tokens = below(900), .completion_tokens = 20};
      const std::uint32_t how = below(5);
      for (Lease* lease : {&leases[at].first, &leases[at].second}) {
        if (how == 0) lease->fail();
        if (how == 1) lease->cancel();
        if (how == 2) lease->first_byte();
        if (how >= 3) lease->finish(usage);
      }
      if (how != 2) leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (what < 90) {
      clock.advance(std::chrono::seconds(below(3) == 0 ? below(200) : below(10)));
    } else if (what < 94) {
      const std::string page = "0." + std::to_string(below(100));
      const std::string endpoint = "replica" + std::to_string(below(4));
      REQUIRE(plain.observe(endpoint, page) == any.observe(endpoint, page));
    } else if (what < 99) {
      switch (below(6)) {
        case 0:
          REQUIRE(plain.drain(replica) == any.drain(replica));
          break;
        case 1:
          REQUIRE(plain.set_down(replica) == any.set_down(replica));
          break;
        case 2:
          REQUIRE(plain.restarted(replica) == any.restarted(replica));
          break;
        case 3:
          if (replicas.size() < 8) add();
          break;
        default:
          REQUIRE(plain.set_up(replica) == any.set_up(replica));
      }
    } else if constexpr (requires { plain.rebalance(1, 60s); }) {
      REQUIRE(plain.rebalance(3, 60s) == any.rebalance(3, 60s));
    } else {
      REQUIRE(any.rebalance(3, 60s) == 0);
    }
    const Snapshot a = plain.snapshot();
    const Snapshot b = any.snapshot();
    REQUIRE(a.replicas.size() == b.replicas.size());
    for (std::size_t i = 0; i < a.replicas.size(); ++i) REQUIRE(same(a.replicas[i], b.replicas[i]));
    REQUIRE(std::pair(a.refused, a.evicted) == std::pair(b.refused, b.evicted));
    REQUIRE(std::pair(a.expired, a.unpinned) == std::pair(b.expired, b.unpinned));
  }
}

template <class MakePins, class Scorer, class Overflow>
void compare(MakePins make_pins, Scorer scorer, Overflow overflow) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    const ManualClock clock;
    Router plain{make_pins(), scorer, overflow, NumberPage{}, clock, options};
    AnyRouter any{AnyPins{make_pins()},           AnyScorer{scorer}, AnyOverflow{overflow},
                  AnyMetricsParser{NumberPage{}}, AnyClock{clock},   options};
    play(plain, any, clock, seed, 1500);
  }
}

const auto sharded = [] { return ShardedPins<>{small_store}; };
const auto local = [] { return LocalPins{{.capacity = 24, .idle_ttl = 400s}}; };
const auto rendezvous = [] { return RendezvousPins{}; };
const auto four_primitives = [] { return FourPrimitives{}; };

TEST_CASE("AnyRouter decides as the Router of the same policies does") {
  SECTION("the defaults") {
    compare(sharded, WeightedLoad{}, SpillAbove{});
  }
  SECTION("one thread's store") {
    compare(local, WeightedLoad{}, SpillAbove{2});
  }
  SECTION("a store without a table") {
    compare(rendezvous, WeightedLoad{}, SpillAbove{});
  }
  SECTION("a store of the four primitives") {
    compare(four_primitives, WeightedLoad{}, MoveWhenFull{.threshold = 2});
  }
  SECTION("fewest in flight, bounded load") {
    compare(sharded, LeastInFlight{}, BoundedLoad{.epsilon = 0.5});
  }
  SECTION("least pending prefill") {
    compare(sharded, LeastPendingPrefill{}, SpillAbove{2});
  }
  SECTION("move if cheaper") {
    compare(sharded, WeightedLoad{}, MoveIfCheaper{.margin = 1.0, .floor_tokens = 100});
  }
  SECTION("tokens times batch, one thread's store") {
    compare(local, TokensTimesBatch{}, MoveWhenFull{.threshold = 2});
  }
  SECTION("round robin, never spill") {
    compare(sharded, RoundRobin{}, NeverSpill{});
  }
  SECTION("two choices, move when full") {
    compare(sharded, PowerOfTwo{}, MoveWhenFull{.full = 0.5, .room = 0.4, .threshold = 2});
  }
}

TEST_CASE("a default AnyRouter has the default policies") {
  const ManualClock clock;
  Router plain{ShardedPins<>{}, WeightedLoad{}, SpillAbove{}, NumberPage{}, clock};
  AnyRouter any{AnyPins{}, AnyScorer{}, AnyOverflow{}, AnyMetricsParser{NumberPage{}},
                AnyClock{clock}};
  play(plain, any, clock, 5, 1500);
}

TEST_CASE("an erased policy is validated by the router that gets it") {
  CHECK_THROWS_MATCHES(AnyRouter(AnyPins{}, AnyScorer{WeightedLoad{.live_weight = -1.0}}),
                       std::invalid_argument,
                       MessageMatches(ContainsSubstring("live_weight = -1")));
  CHECK_THROWS_MATCHES(AnyRouter(AnyPins{}, AnyScorer{}, AnyOverflow{BoundedLoad{.epsilon = 0.0}}),
                       std::invalid_argument, MessageMatches(ContainsSubstring("epsilon = 0")));
}

TEST_CASE("a scorer that does not explain itself has no terms behind AnyScorer either") {
  const ReplicaLoad load{.in_flight = 3};
  CHECK(AnyScorer{LeastInFlight{}}.terms(load, {})[0].name == nullptr);
  CHECK(AnyScorer{WeightedLoad{}}.terms(load, {})[0].value == 3.0);
}

TEST_CASE("AnyMetricsParser parses as the parser inside") {
  int readings = 0;
  auto count = [&](const Reading& reading) { readings += reading.running == 2.0 ? 1 : 100; };
  const std::string_view page = "sglang:num_running_reqs{model_name=\"m\"} 2\n";
  CHECK(AnyMetricsParser{SglangMetrics{}}.parse(page, ReadingSink(count)) == ParseStatus::ok);
  CHECK(AnyMetricsParser{}.parse(page, ReadingSink(count)) == ParseStatus::no_engine);
  CHECK(readings == 1);
}

}  // namespace
