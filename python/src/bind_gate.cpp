// SPDX-License-Identifier: Apache-2.0
//
// The admission gate's compiled half: what limpet/gate.py makes awaitable.
//
// Calls come with the GIL and keep it; the gate calls policies and callbacks outside its own lock,
// so the two cannot wait for each other. An exception of a policy or a clock in Python is raised by
// the call that met it. Times are s.
#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"
#include "router_object.hpp"
#include "turn_arguments.hpp"

#include <limpet/any.hpp>
#include <limpet/gate/working_set.hpp>

#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace limpet::python {

template <>
struct EnumTraits<TicketState> {
  static constexpr const char* name = "TicketState";
  static constexpr std::array members = {"waiting", "admitted", "refused", "ended"};
};

template <>
struct EnumTraits<GateReason> {
  static constexpr const char* name = "GateReason";
  static constexpr std::array members = {"none",       "inside",           "room",
                                         "waited",     "not_governed",     "full",
                                         "no_replica", "too_many_waiting", "deadline"};
};

namespace {

[[nodiscard]] double seconds_in(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// A ticket refers to its gate, a gate to its router: each keeps the next alive.
struct PyGate {
  PyGate(py::object of, GateOptions options)
      : router(std::move(of)), gate(router_of(router.ptr()).router(), std::move(options)) {}

  [[nodiscard]] PyRouter& owner() const { return router_of(router.ptr()); }

  py::object router;
  WorkingSetGate<AnyRouter> gate;
};

struct PyTicket {
  py::object gate;
  GateTicket ticket;
  py::object replica = py::none();  // once it is known: it outlives the turn
  py::object decision = py::none();
  Outcome outcome = Outcome::refused;
  TicketState seen = TicketState::waiting;
  GateReason reason = GateReason::full;
  double waited = 0;

  // Takes over what the ticket says once it is settled.
  void look() {
    if (seen != TicketState::waiting) return;
    const TicketState now = ticket.state();
    if (now == TicketState::waiting) return;
    seen = now;
    reason = ticket.reason();
    waited = seconds_in(ticket.waited());
    if (now != TicketState::admitted) return;
    const PyGate& owner = gate.cast<const PyGate&>();
    const Decision& decided = ticket.lease().decision();
    outcome = decided.outcome;
    decision = py::cast(owner.owner().describe(owner.router, decided));
    replica =
        py::reinterpret_steal<py::object>(owner.owner().replica(owner.router, decided.replica));
  }

  template <class End>
  void end(End how) {
    look();
    how();
    seen = TicketState::ended;
    raise_pending();
  }
};

[[nodiscard]] std::unique_ptr<PyTicket> enter(const py::object& self, const py::args& args,
                                              const py::kwargs& keywords) {
  auto& gate = self.cast<PyGate&>();
  std::vector<PyObject*> values;
  for (const py::handle value : args) values.push_back(value.ptr());
  py::object settled = py::none();
  std::vector<py::object> names;
  for (const auto& [name, value] : keywords) {
    if (name.cast<std::string>() == "settled") {
      settled = py::reinterpret_borrow<py::object>(value);
      continue;
    }
    names.push_back(py::reinterpret_borrow<py::object>(name));
    values.push_back(value.ptr());
  }
  const py::tuple named = py::cast(names);
  const TurnArguments turn("enter", gate.owner(), values.data(),
                           static_cast<Py_ssize_t>(args.size()),
                           names.empty() ? nullptr : named.ptr());
  std::function<void()> tell;
  if (!settled.is_none()) {
    // Shared, so that copies of the function need no GIL.
    tell = [callable = std::make_shared<py::object>(std::move(settled))] {
      const py::gil_scoped_acquire acquire;
      try {
        (*callable)();
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("a gate's callback");
      }
    };
  }
  auto ticket = std::make_unique<PyTicket>(self, gate.gate.enter(turn.turn(), std::move(tell)));
  ticket->look();
  raise_pending();
  return ticket;
}

[[nodiscard]] std::unique_ptr<PyGate> make_gate(const py::object& router, py::handle theta,
                                                py::handle max_wait, py::handle min_turns,
                                                py::handle grace, py::handle deadline,
                                                py::handle max_waiting, py::handle shared,
                                                py::handle capacity, bool automatic) {
  if (!py::isinstance<PyRouter>(router)) refuse_type("router", router, "a limpet.Router");
  GateOptions options;
  options.theta = number_from(theta, "theta");
  options.max_wait = duration_from(max_wait, "max_wait");
  options.min_turns = static_cast<std::uint32_t>(count_from(min_turns, "min_turns"));
  options.grace = duration_from(grace, "grace");
  options.deadline = deadline.is_none() ? Duration::zero() : duration_from(deadline, "deadline");
  options.max_waiting = static_cast<std::size_t>(count_from(max_waiting, "max_waiting"));
  if (!shared.is_none())
    options.shared_prefix_tokens = count_from(shared, "shared_prefix_tokens", token_counts);
  options.kv_capacity_tokens =
      count_or<std::uint64_t>(capacity, 0, "kv_capacity_tokens", token_counts);
  options.automatic = automatic;
  return std::make_unique<PyGate>(router, std::move(options));
}

[[nodiscard]] py::dict snapshot(const PyGate& gate) {
  const GateSnapshot now = gate.gate.snapshot();
  raise_pending();
  py::list replicas;
  for (const GateReplica& row : now.replicas) {
    py::dict one;
    one["name"] = gate.owner().router().options(row.replica).value_or(ReplicaOptions{}).name;
    one["capacity_tokens"] = row.capacity_tokens == 0 ? py::object(py::none())
                                                      : py::object(py::int_(row.capacity_tokens));
    one["resident_tokens"] = row.resident_tokens;
    one["residents"] = row.residents;
    one["theta"] = row.theta;
    replicas.append(one);
  }
  py::dict all;
  all["open"] = now.open;
  all["waiting"] = now.waiting;
  all["longest_wait"] = seconds_in(now.longest_wait);
  all["residents"] = now.residents;
  all["shared_prefix_tokens"] = now.shared_prefix_tokens;
  all["passed"] = now.passed;
  all["waited"] = now.waited;
  all["refused"] = now.refused;
  all["cancelled"] = now.cancelled;
  all["reusable_tokens"] = now.reusable_tokens;
  all["lost_tokens"] = now.lost_tokens;
  all["replicas"] = replicas;
  return all;
}

}  // namespace

void bind_gate(py::module_& module) {
  bind_enum<TicketState>(module, "Where a turn is at the gate.");
  bind_enum<GateReason>(module, "Why a ticket is admitted, waits or is refused.");

  py::class_<PyGate>(module, "_Gate")
      .def(py::init(&make_gate), py::arg("router"), py::kw_only(), py::arg("theta"),
           py::arg("max_wait"), py::arg("min_turns"), py::arg("grace"), py::arg("deadline"),
           py::arg("max_waiting"), py::arg("shared_prefix_tokens"), py::arg("kv_capacity_tokens"),
           py::arg("automatic"))
      .def("enter", &enter)
      .def("tick",
           [](PyGate& gate) {
             gate.gate.tick();
             raise_pending();
           })
      // Seconds from now on the router's clock, not under 0; None: at no time.
      .def("wake_in",
           [](PyGate& gate) -> std::optional<double> {
             const Instant at = gate.gate.wake_at();
             if (at == Instant::max()) return std::nullopt;
             return std::max(0.0, seconds_in(at - gate.owner().router().clock().now()));
           })
      .def("snapshot", &snapshot);

  py::class_<PyTicket>(module, "_Ticket")
      .def_property_readonly("state",
                             [](PyTicket& ticket) {
                               ticket.look();
                               return member_of(ticket.seen);
                             })
      .def_property_readonly("reason",
                             [](PyTicket& ticket) {
                               ticket.look();
                               return member_of(ticket.reason);
                             })
      .def_property_readonly("waited",
                             [](PyTicket& ticket) {
                               ticket.look();
                               return ticket.waited;
                             })
      .def_property_readonly("replica",
                             [](PyTicket& ticket) {
                               ticket.look();
                               return ticket.replica;
                             })
      .def_property_readonly("outcome",
                             [](PyTicket& ticket) {
                               ticket.look();
                               return member_of(ticket.outcome);
                             })
      .def_property_readonly("decision",
                             [](PyTicket& ticket) {
                               ticket.look();
                               return ticket.decision;
                             })
      .def("first_byte",
           [](PyTicket& ticket) {
             if (ticket.ticket.state() == TicketState::admitted) ticket.ticket.first_byte();
           })
      .def("finish",
           [](PyTicket& ticket, const std::optional<Usage>& usage) {
             ticket.end([&] {
               auto& gate = ticket.gate.cast<PyGate&>().gate;
               usage ? gate.leave(std::move(ticket.ticket), *usage)
                     : gate.leave(std::move(ticket.ticket));
             });
           })
      .def("cancel", [](PyTicket& ticket) { ticket.end([&] { ticket.ticket.cancel(); }); })
      .def("fail", [](PyTicket& ticket) { ticket.end([&] { ticket.ticket.fail(); }); });
}

}  // namespace limpet::python
