// SPDX-License-Identifier: Apache-2.0
//
// All front ends of the simulator by name, for tools that let a user choose at run time.
//
// Names are those of the field; the classes beside them say what they do and where that comes from.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include <limpet/clock.hpp>
#include <limpet/gate/working_set.hpp>
#include <limpet/metrics/vllm.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/overflow/move_when_full.hpp>
#include <limpet/overflow/spill_above.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/pins/sharded.hpp>
#include <limpet/presets.hpp>
#include <limpet/router.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>
#include <limpet/scorers/weighted.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/gate_front_end.hpp>
#include <limpet/sim/router_front_end.hpp>
#include <limpet/sim/zoo.hpp>

namespace limpet::sim {

struct PolicyName {
  std::string_view name;
  std::string_view meaning;
};

inline constexpr std::array policy_names = {
    PolicyName{"limpet", "Router<> as it comes: pins, weighted load, spill"},
    PolicyName{"limpet-published",
               "the rule of the published measurements: gauge unscaled, weights 1 8 1"},
    PolicyName{"limpet-gate", "Router behind a WorkingSetGate, as both come"},
    PolicyName{"limpet-gate-auto", "the same, which finds out itself how much the caches hold"},
    PolicyName{"limpet-move-when-full", "Router with MoveWhenFull"},
    PolicyName{"limpet-move-if-cheaper", "Router with MoveIfCheaper"},
    PolicyName{"limpet-least-pending-prefill", "Router that places by LeastPendingPrefill"},
    PolicyName{"limpet-tokens-times-batch", "Router that places by TokensTimesBatch"},
    PolicyName{"limpet-rendezvous", "Router with no table: rendezvous hash of the key"},
    PolicyName{"vllm-lb", "vLLM's own balancer, mid 2026 on"},
    PolicyName{"vllm-lb-4w", "vLLM's own balancer until then: 4 waiting + running"},
    PolicyName{"vllm-lb-blind", "the same without counts, 0.14 to mid 2026: round robin in effect"},
    PolicyName{"random", "any replica"},
    PolicyName{"round-robin", "one after the other"},
    PolicyName{"least-in-flight", "least connections"},
    PolicyName{"power-of-two", "the less loaded of two at random"},
    PolicyName{"consistent-hash", "ring hash of the conversation"},
    PolicyName{"bounded-load-hash", "ring hash, no replica over 1.25 x the mean"},
    PolicyName{"first-message-hash", "hash of the first user message"},
    PolicyName{"sticky-fewest-sessions", "stick table, first turn where the fewest sessions are"},
    PolicyName{"prefix-affinity", "longest known prefix unless the load is uneven"},
    PolicyName{"tokens-times-batch", "new prefill tokens x batch size"},
    PolicyName{"least-pending-prefill", "tokens still to be read"}};

// Calls visit(front end) with a new one of that name. Returns false, without a call, if there is
// none.
template <class Visit>
bool with_policy(std::string_view name, Visit&& visit) {
  const auto with_router = [&](auto pins, auto scorer, auto overflow) {
    ManualClock clock;
    Router router{std::move(pins), scorer, overflow, VllmMetrics{}, clock};
    RouterFrontEnd front(router, clock);
    visit(front);
    return true;
  };
  const auto with = [&](auto front) {
    visit(front);
    return true;
  };
  if (name == "limpet") return with_router(ShardedPins<>{}, WeightedLoad{}, SpillAbove{});
  if (name == "limpet-gate" || name == "limpet-gate-auto") {
    ManualClock clock;
    Router router{ShardedPins<>{}, WeightedLoad{}, SpillAbove{}, VllmMetrics{}, clock};
    // A simulated user never gives up.
    GateOptions options{.deadline = Duration::zero(), .max_waiting = 1'000'000};
    if (name == "limpet-gate-auto") {
      options.automatic = true;
      options.theta = 1.5;  // wrong, to be found out
    }
    WorkingSetGate gate(router, options);
    GateFrontEnd front(router, gate, clock);
    visit(front);
    return true;
  }
  if (name == "limpet-published") {
    return with_router(ShardedPins<>{}, presets::published(), presets::published_overflow());
  }
  if (name == "limpet-move-when-full") {
    return with_router(ShardedPins<>{}, WeightedLoad{}, MoveWhenFull{});
  }
  if (name == "limpet-move-if-cheaper") {
    return with_router(ShardedPins<>{}, WeightedLoad{}, MoveIfCheaper{});
  }
  if (name == "limpet-least-pending-prefill") {
    return with_router(ShardedPins<>{}, LeastPendingPrefill{}, SpillAbove{});
  }
  if (name == "limpet-tokens-times-batch") {
    return with_router(ShardedPins<>{}, TokensTimesBatch{}, SpillAbove{});
  }
  if (name == "limpet-rendezvous") {
    return with_router(RendezvousPins{}, WeightedLoad{}, SpillAbove{});
  }
  if (name == "vllm-lb") return with(VllmBalancer{});
  if (name == "vllm-lb-4w") return with(VllmBalancer4w{});
  if (name == "vllm-lb-blind") return with(VllmBalancerBlind{});
  if (name == "random") return with(zoo::RandomChoice{});
  if (name == "round-robin") return with(zoo::RoundRobinChoice{});
  if (name == "least-in-flight") return with(zoo::LeastInFlightChoice{});
  if (name == "power-of-two") return with(zoo::PowerOfTwoChoices{});
  if (name == "consistent-hash") return with(zoo::ConsistentHash{});
  if (name == "bounded-load-hash") return with(zoo::BoundedLoadHash{});
  if (name == "first-message-hash") return with(zoo::FirstMessageHash{});
  if (name == "sticky-fewest-sessions") return with(zoo::StickyFewestSessions{});
  if (name == "prefix-affinity") return with(zoo::PrefixAffinity{});
  if (name == "tokens-times-batch") return with(zoo::TokensTimesBatchSize{});
  if (name == "least-pending-prefill") return with(zoo::LeastPendingPrefillChoice{});
  return false;
}

}  // namespace limpet::sim
