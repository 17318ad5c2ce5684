// SPDX-License-Identifier: Apache-2.0
//
// What counting the tokens that are to be read costs: a sticky turn, a first turn by either scorer,
// and a turn that asks MoveIfCheaper; and what a gate adds to a turn of a conversation that is
// inside.
//
// Rivals: the same turns of the default router, which counts none, in the same process. First bytes
// come before the ends, as they do before a server. Not measured: what the decisions are worth
// (include/limpet/sim/README.md); a gate where somebody waits.
#include "support.hpp"

#include <limpet/gate/working_set.hpp>
#include <limpet/limpet.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace limpet::bench {
namespace {

constexpr std::int64_t sessions = 4 * Ki;

template <class Scorer, class Overflow>
struct Pool {
  using TestRouter = Router<ShardedPins<>, Scorer, Overflow>;

  explicit Pool(std::int64_t replicas) : router(ShardedPins<>{{.capacity = 8 * Ki}}) {
    for (std::int64_t i = 0; i < replicas; ++i) {
      id.push_back(router.add_replica({.name = "gpu" + std::to_string(i),
                                       .max_num_seqs = 256,
                                       .kv_capacity_tokens = 1'000'000'000}));
    }
  }

  // A whole turn. Returns: what became of it.
  Outcome turn(const std::string& key) {
    Lease lease = router.route(Turn{.key = key, .prompt_tokens = 9'100});
    lease.first_byte();
    lease.finish({.prompt_tokens = 9'100, .completion_tokens = 200});
    return lease.outcome();
  }

  TestRouter router;
  std::vector<ReplicaId> id;
};

template <class Scorer, class Overflow>
void tokens_sticky_turn(benchmark::State& state) {
  const auto& keys = session_ids(sessions);
  Pool<Scorer, Overflow> pool(8);
  for (const std::string& key : keys) pool.turn(key);
  Visits visits(keys, state);
  measure(state, [&] { return pool.turn(visits.next()) == Outcome::sticky; });
}

template <class Scorer>
void tokens_first_turn(benchmark::State& state) {
  const auto& keys = session_ids(64 * Ki);
  Pool<Scorer, SpillAbove> pool(state.range(0));
  std::size_t at = 0;
  const auto turn = [&] { return pool.turn(keys[at++ % keys.size()]) == Outcome::placed; };
  for (std::int64_t i = 0; i < 16 * Ki; ++i) turn();
  measure(state, turn);
}

// Much is pending at home and as much everywhere else, so the rule looks at all and stays.
template <class Overflow>
void tokens_queued_turn(benchmark::State& state) {
  const auto& keys = session_ids(sessions);
  Pool<WeightedLoad, Overflow> pool(state.range(0));
  for (const std::string& key : keys) pool.turn(key);
  std::vector<Lease> queued;
  for (const ReplicaId replica : pool.id) {
    queued.push_back(pool.router.route(Turn{.client_pinned = replica, .prompt_tokens = 50'000}));
  }
  Visits visits(keys, state);
  measure(state, [&] { return pool.turn(visits.next()) == Outcome::sticky; });
}

void gate_resident_turn(benchmark::State& state) {
  const auto& keys = session_ids(sessions);
  Pool<WeightedLoad, SpillAbove> pool(8);
  WorkingSetGate gate(pool.router, {.grace = std::chrono::hours(24)});
  const auto turn = [&](const std::string& key) {
    GateTicket ticket = gate.enter(Turn{.key = key, .prompt_tokens = 9'100});
    const bool inside =
        ticket.state() == TicketState::admitted && ticket.reason() == GateReason::inside;
    gate.leave(std::move(ticket), {.prompt_tokens = 9'100, .completion_tokens = 200});
    return inside;
  };
  for (const std::string& key : keys) turn(key);
  Visits visits(keys, state);
  measure(state, [&] { return turn(visits.next()); });
}

BENCHMARK(tokens_sticky_turn<WeightedLoad, SpillAbove>)->Name("tokens_sticky_turn/none_counted");
BENCHMARK(tokens_sticky_turn<LeastPendingPrefill, SpillAbove>)
    ->Name("tokens_sticky_turn/least_pending_prefill");
BENCHMARK(tokens_sticky_turn<WeightedLoad, MoveIfCheaper>)
    ->Name("tokens_sticky_turn/move_if_cheaper");
BENCHMARK(tokens_first_turn<WeightedLoad>)
    ->Name("tokens_first_turn/weighted_load")
    ->Arg(8)
    ->Arg(64);
BENCHMARK(tokens_first_turn<LeastPendingPrefill>)
    ->Name("tokens_first_turn/least_pending_prefill")
    ->Arg(8)
    ->Arg(64);
BENCHMARK(tokens_first_turn<TokensTimesBatch>)
    ->Name("tokens_first_turn/tokens_times_batch")
    ->Arg(8)
    ->Arg(64);
BENCHMARK(tokens_queued_turn<SpillAbove>)->Name("tokens_queued_turn/spill_above")->Arg(8)->Arg(64);
BENCHMARK(tokens_queued_turn<MoveIfCheaper>)
    ->Name("tokens_queued_turn/move_if_cheaper")
    ->Arg(8)
    ->Arg(64);
BENCHMARK(gate_resident_turn);

}  // namespace
}  // namespace limpet::bench
