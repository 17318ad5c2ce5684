// SPDX-License-Identifier: Apache-2.0
//
// GateFrontEnd: a WorkingSetGate and its router before a simulated fleet.
//
// Told what a gateway would tell it, as RouterFrontEnd; turns that the gate holds are held, and
// leave when it says so. Give router and gate one clock, and the router no replicas: start() adds
// them.
#pragma once

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <limpet/clock.hpp>
#include <limpet/gate/working_set.hpp>
#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/sim/router_front_end.hpp>
#include <limpet/types.hpp>

namespace limpet::sim {

template <class RouterT>
class GateFrontEnd : public FrontEndBase {
 public:
  static constexpr bool reads_pages = true;
  static constexpr std::string_view endpoint = "http://fleet";

  // All must outlive the simulation.
  GateFrontEnd(RouterT& router, WorkingSetGate<RouterT>& gate, ManualClock clock)
      : router_(router), gate_(gate), clock_(std::move(clock)) {}

  void start(std::span<const EngineProfile> fleet) {
    replicas_ = add_fleet(router_, endpoint, fleet);
  }

  [[nodiscard]] Choice choose(const Arrival& turn, double now) {
    clock_.advance_to(instant_at(now));
    const Turn asked = turn_of(turn);
    const std::uint64_t id = turn.id;
    GateTicket& ticket = tickets_[id] = gate_.enter(asked, [this, id] { admitted_.push_back(id); });
    assert(ticket.state() != TicketState::refused);  // nobody takes a simulated replica down
    return ticket.state() == TicketState::admitted ? choice_of(ticket) : Choice{};
  }

  void first_byte(std::uint64_t id, std::size_t, double) { tickets_.find(id)->second.first_byte(); }

  void finished(std::uint64_t id, std::size_t, const Usage& usage, double now) {
    clock_.advance_to(instant_at(now));
    const auto ticket = tickets_.find(id);
    gate_.leave(std::move(ticket->second), usage);
    tickets_.erase(ticket);
  }

  void scraped(std::string_view page, double now) {
    clock_.advance_to(instant_at(now));
    (void)router_.observe(endpoint, page);
  }

  template <class Go>
  void released(double now, Go go) {
    clock_.advance_to(instant_at(now));
    if (gate_.wake_at() <= clock_.now()) gate_.tick();
    for (const std::uint64_t id : std::exchange(admitted_, {})) go(id, choice_of(tickets_.at(id)));
  }

  [[nodiscard]] double wake_at() const {
    const Instant at = gate_.wake_at();
    return at == Instant::max() ? std::numeric_limits<double>::infinity()
                                : std::chrono::duration<double>(at.time_since_epoch()).count();
  }

 private:
  [[nodiscard]] Choice choice_of(const GateTicket& ticket) const noexcept {
    const ReplicaId replica = ticket.lease().replica();
    std::size_t i = 0;
    while (replicas_[i] != replica) ++i;
    return {i, ticket.lease().outcome()};
  }

  RouterT& router_;
  WorkingSetGate<RouterT>& gate_;
  ManualClock clock_;
  std::vector<ReplicaId> replicas_;
  std::unordered_map<std::uint64_t, GateTicket> tickets_;
  std::vector<std::uint64_t> admitted_;  // since the simulator asked last
};

}  // namespace limpet::sim
