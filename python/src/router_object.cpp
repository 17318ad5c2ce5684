// SPDX-License-Identifier: Apache-2.0
#include "router_object.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace limpet::python {

namespace {

[[nodiscard]] std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> numbers = 0;
  return ++numbers;
}

}  // namespace

PyRouter::PyRouter(std::unique_ptr<Scripts> scripts, ChosenPins pins, AnyScorer scorer,
                   AnyOverflow overflow, AnyMetricsParser metrics, AnyClock clock,
                   RouterOptions options)
    : scripts_(std::move(scripts)),
      safety_(pins.safety),
      is_scripted_(scripts_->decide()),
      number_(next_number()),
      router_(std::move(pins.pins), std::move(scorer), std::move(overflow), std::move(metrics),
              std::move(clock), options) {}

Lease PyRouter::commit(const Decision& decision) {
  Lease lease = router_.commit(decision);
  if (pending_error) [[unlikely]] {
    lease.cancel();
    raise_pending();
  }
  return lease;
}

py::object PyRouter::add(ReplicaOptions options) {
  const ReplicaId id = router_.add_replica(options);
  const py::object replica = py::cast(PyReplica{id, *router_.options(id)});
  if (known_.size() <= id.slot) known_.resize(std::size_t{id.slot} + 1);
  known_[id.slot] = {id, replica};
  raise_pending();
  return replica;
}

std::size_t PyRouter::size(py::handle self) const {
  const py::scoped_critical_section guard(self);
  return static_cast<std::size_t>(std::count_if(
      known_.begin(), known_.end(),
      [this](const Known& known) { return router_.state(known.id) != ReplicaState::removed; }));
}

PyDecision PyRouter::describe(py::handle self, const Decision& decision) const {
  const auto of = [&](ReplicaId id) {
    return py::reinterpret_steal<py::object>(replica(self, id));
  };
  return {.decision = decision,
          .router_number = number_,
          .replica = of(decision.replica),
          .home = of(decision.home.replica),
          .previous = of(decision.previous.replica)};
}

}  // namespace limpet::python
