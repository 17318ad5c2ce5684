// SPDX-License-Identifier: Apache-2.0
//
// RouterFrontEnd: any Router before a simulated fleet, exactly as it stands before a real one.
//
// It is told what a gateway would tell it: keys and prompt sizes, the usage of answers, metrics
// pages. Give the router a copy of the clock that is given here, and no replicas: start() adds
// them.
#pragma once

#include <cassert>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <limpet/clock.hpp>
#include <limpet/lease.hpp>
#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/types.hpp>

namespace limpet::sim {

[[nodiscard]] inline Instant instant_at(double seconds) noexcept {
  return Instant{Duration{static_cast<Duration::rep>(std::llround(seconds * 1e9))}};
}

// The fleet as replicas of `router`, in its order, all behind one endpoint.
template <class RouterT>
[[nodiscard]] std::vector<ReplicaId> add_fleet(RouterT& router, std::string_view endpoint,
                                               std::span<const EngineProfile> fleet) {
  std::vector<ReplicaId> replicas;
  for (std::size_t i = 0; i < fleet.size(); ++i) {
    replicas.push_back(router.add_replica({.name = "replica-" + std::to_string(i),
                                           .endpoint = std::string(endpoint),
                                           .engine = std::to_string(i),
                                           .max_num_seqs = fleet[i].max_num_seqs}));
  }
  return replicas;
}

// What a router is asked; `turn` must outlive it.
[[nodiscard]] inline Turn turn_of(const Arrival& turn) {
  Turn asked;
  asked.key = turn.conversation;
  if (!turn.parent.empty()) asked.parent = turn.parent;
  asked.prompt_tokens = turn.prompt_tokens;
  return asked;
}

template <class RouterT>
class RouterFrontEnd : public FrontEndBase {
 public:
  static constexpr bool reads_pages = true;
  static constexpr std::string_view endpoint = "http://fleet";

  // Both must outlive the simulation.
  RouterFrontEnd(RouterT& router, ManualClock clock) : router_(router), clock_(std::move(clock)) {}

  void start(std::span<const EngineProfile> fleet) {
    replicas_ = add_fleet(router_, endpoint, fleet);
  }

  [[nodiscard]] Choice choose(const Arrival& turn, double now) {
    clock_.advance_to(instant_at(now));
    const Turn asked = turn_of(turn);
    Lease lease = router_.route(asked);
    assert(lease);  // nobody takes a simulated replica down
    const Choice choice{index_of(lease.replica()), lease.outcome()};
    leases_.emplace(turn.id, std::move(lease));
    return choice;
  }

  void first_byte(std::uint64_t id, std::size_t, double) { leases_.find(id)->second.first_byte(); }

  void finished(std::uint64_t id, std::size_t, const Usage& usage, double now) {
    clock_.advance_to(instant_at(now));
    const auto lease = leases_.find(id);
    lease->second.finish(usage);
    leases_.erase(lease);
  }

  void scraped(std::string_view page, double now) {
    clock_.advance_to(instant_at(now));
    (void)router_.observe(endpoint, page);
  }

 private:
  [[nodiscard]] std::size_t index_of(ReplicaId replica) const noexcept {
    std::size_t i = 0;
    while (replicas_[i] != replica) ++i;
    return i;
  }

  RouterT& router_;
  ManualClock clock_;
  std::vector<ReplicaId> replicas_;
  std::unordered_map<std::uint64_t, Lease> leases_;
};

}  // namespace limpet::sim
