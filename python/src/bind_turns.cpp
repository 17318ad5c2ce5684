// SPDX-License-Identifier: Apache-2.0
//
// The turns of a Router: route, plan, explain and commit, as methods of CPython's fast calling
// convention.
#include "arguments.hpp"
#include "lease_object.hpp"
#include "router_object.hpp"
#include "turn_arguments.hpp"
#include "views.hpp"

#include <utility>

namespace limpet::python {

namespace {

PyObject* route(PyObject* self, PyObject* const* args, Py_ssize_t positional,
                PyObject* keywords) noexcept {
  return guarded([&] {
    PyRouter& router = router_of(self);
    const TurnArguments arguments("route", router, args, positional, keywords);
    return new_lease(self, router, [&] { return router.route(arguments.turn()); });
  });
}

PyObject* plan(PyObject* self, PyObject* const* args, Py_ssize_t positional,
               PyObject* keywords) noexcept {
  return guarded([&] {
    PyRouter& router = router_of(self);
    const TurnArguments arguments("plan", router, args, positional, keywords);
    const Decision decision = router.router().plan(arguments.turn());
    raise_pending();
    return py::cast(router.describe(self, decision)).release().ptr();
  });
}

PyObject* explain(PyObject* self, PyObject* const* args, Py_ssize_t positional,
                  PyObject* keywords) noexcept {
  return guarded([&] {
    PyRouter& router = router_of(self);
    const TurnArguments arguments("explain", router, args, positional, keywords);
    Explanation explanation = router.router().explain(arguments.turn());
    raise_pending();
    py::object decision = py::cast(router.describe(self, explanation.decision));
    PyExplanation result = explanation_of(std::move(explanation), std::move(decision));
    return py::cast(std::move(result)).release().ptr();
  });
}

PyObject* commit(PyObject* self, PyObject* decision) noexcept {
  return guarded([&] {
    PyRouter& router = router_of(self);
    if (!py::isinstance<PyDecision>(decision))
      refuse_type("decision", decision, "a limpet.Decision");
    const auto& planned = py::handle(decision).cast<const PyDecision&>();
    if (planned.router_number != router.number()) {
      throw py::value_error("the decision is one of another router");
    }
    return new_lease(self, router, [&] { return router.commit(planned.decision); });
  });
}

PyMethodDef turn_methods[] = {
    {"route", as_method(route), METH_FASTCALL | METH_KEYWORDS,
     "route" LIMPET_TURN_SIGNATURE "Picks a replica for a turn, pins its conversation where the "
     "decision table says so, and takes a "
     "slot: a Lease.\n\n"
     "key names the conversation: str, bytes, or the KeyHash that hash() gave; None: none. parent "
     "is "
     "the key of the conversation it was forked from. client_pinned is the name of the replica "
     "that "
     "the client asked for, exclude the names of those that just failed this turn; a name that is "
     "of "
     "no replica (any more) changes nothing. prompt_tokens: 0 where it is unknown. side_call: a "
     "title "
     "or summary call, which follows a pin and never makes or keeps one.\n\n"
     "What happens in operation is the lease's outcome, never an exception; only what a policy in "
     "Python raises comes through, and then no lease is taken. Below a microsecond, so it holds "
     "the "
     "GIL; thread-safe."},
    {"plan", as_method(plan), METH_FASTCALL | METH_KEYWORDS,
     "plan" LIMPET_TURN_SIGNATURE
     "What route() would do now: a Decision. Changes nothing. Arguments as for route()."},
    {"explain", as_method(explain), METH_FASTCALL | METH_KEYWORDS,
     "explain" LIMPET_TURN_SIGNATURE
     "What route() would do now, and why each replica was or was not chosen: an Explanation, whose "
     "str() is a table. Changes nothing. Arguments as for route()."},
    {"commit", commit, METH_O,
     "commit($self, decision, /)\n--\n\n"
     "The second step after plan(): takes the planned replica's slot whatever its load is by now. "
     "A "
     "conversation pinned elsewhere meanwhile keeps that pin. ValueError for another router's "
     "decision."},
};

void add_method(py::handle type, PyMethodDef& method) {
  PyObject* const descriptor =
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method);
  if (descriptor == nullptr) throw py::error_already_set();
  type.attr(method.ml_name) = py::reinterpret_steal<py::object>(descriptor);
}

}  // namespace

void bind_turns(py::class_<PyRouter>& type) {
  for (PyMethodDef& method : turn_methods) add_method(type, method);
}

}  // namespace limpet::python
