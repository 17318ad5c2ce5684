// SPDX-License-Identifier: Apache-2.0
//
// The C++ half of a Python Router, and of what it hands out: Replica and Decision.
//
// What may outlive a router (a Replica or a Decision kept in a log) holds copies and the router's
// number; a Lease holds a reference to the router itself (lease_object.hpp).
#pragma once

#include "policies.hpp"
#include "scripted.hpp"

#include <limpet/any.hpp>

#include <pybind11/critical_section.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace limpet::python {

namespace py = pybind11;

// A replica as it was configured. One object for as long as it is of the pool, so that handing it
// out costs a reference.
struct PyReplica {
  ReplicaId id;
  ReplicaOptions options;
};

struct PyDecision {
  Decision decision;
  std::uint64_t router_number;
  py::object replica;  // a Replica or None, as are these
  py::object home;
  py::object previous;
};

class PyRouter {
 public:
  PyRouter(std::unique_ptr<Scripts> scripts, ChosenPins pins, AnyScorer scorer,
           AnyOverflow overflow, AnyMetricsParser metrics, AnyClock clock, RouterOptions options);

  [[nodiscard]] AnyRouter& router() noexcept { return router_; }
  [[nodiscard]] Scripts& scripts() noexcept { return *scripts_; }

  // Differs from router to router of this process.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

  // Whether decisions ask Python: then raise_pending() belongs after each call.
  [[nodiscard]] bool is_scripted() const noexcept { return is_scripted_; }

  // Whether other threads may use the router while this one is in it.
  [[nodiscard]] bool is_thread_safe() const noexcept { return safety_ == ThreadSafety::any_thread; }

  // Returns: the turn's lease. With policies in Python a turn is planned first and committed only
  // if none of them raised: an exception leaves nothing behind. Throws: what they raised.
  [[nodiscard]] Lease route(const Turn& turn) {
    if (!is_scripted_) [[likely]]
      return router_.route(turn);
    const Decision planned = router_.plan(turn);
    raise_pending();
    return commit(planned);
  }
  [[nodiscard]] Lease commit(const Decision& decision);

  // Replicas. `self` is the Python object of this router: a critical section where there is no GIL.

  // Returns: its Replica. Requires: the caller is in that critical section, or has yet to share
  // self.
  py::object add(ReplicaOptions options);

  // Returns: nothing where there is no such replica (any more).
  [[nodiscard]] std::optional<ReplicaId> find(std::string_view name) const {
    return router_.find(name);
  }

  // Returns: a new reference to its Replica, or to None where the id names none.
  [[nodiscard]] PyObject* replica(py::handle self, ReplicaId id) const {
    const py::scoped_critical_section guard(self);
    return Py_NewRef(id && id.slot < known_.size() && known_[id.slot].id == id
                         ? known_[id.slot].object.ptr()
                         : Py_None);
  }

  // Replicas that are of the pool.
  [[nodiscard]] std::size_t size(py::handle self) const;

  [[nodiscard]] PyDecision describe(py::handle self, const Decision& decision) const;

 private:
  struct Known {
    ReplicaId id;
    py::object object;
  };

  std::unique_ptr<Scripts> scripts_;  // before the router, whose policies refer to it
  ThreadSafety safety_;
  bool is_scripted_;
  std::uint64_t number_;
  AnyRouter router_;
  std::vector<Known> known_;  // by slot; a removed replica stays until its slot is used again
};

// The C++ half of `self`, whose type the call has checked already: pybind11's own cast would look
// the type up again. Throws: TypeError where a derived class forgot super().__init__().
[[nodiscard]] inline PyRouter& router_of(PyObject* self) {
  auto* const instance = reinterpret_cast<py::detail::instance*>(self);
  void* const held = instance->simple_layout ? instance->simple_value_holder[0]
                                             : instance->get_value_and_holder().value_ptr();
  if (held == nullptr) throw py::type_error("Router.__init__() was not called");
  return *static_cast<PyRouter*>(held);
}

// Adds the methods of Router that bind_turns.cpp and bind_life.cpp hold.
void bind_turns(py::class_<PyRouter>& type);
void bind_life(py::class_<PyRouter>& type);

}  // namespace limpet::python
