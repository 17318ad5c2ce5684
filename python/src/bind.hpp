// SPDX-License-Identifier: Apache-2.0
//
// limpet._core, the compiled half of the Python package: one bind_<area>() for each part of it, in
// the order in which module.cpp calls them.
//
// All of it stands on one instantiation, AnyRouter, so what Python decides is what C++ decides.
// What a turn passes through (route, finish and their like) is written against CPython's own
// calling convention, since pybind11's would cost more than the decision itself; the rest is
// pybind11.
#pragma once

#include <pybind11/pybind11.h>

namespace limpet::python {

namespace py = pybind11;

void bind_enums(py::module_& module);
void bind_values(py::module_& module);
void bind_clocks(py::module_& module);
void bind_pins(py::module_& module);
void bind_scorers(py::module_& module);
void bind_overflow(py::module_& module);
void bind_metrics(py::module_& module);
void bind_views(py::module_& module);
void bind_lease(py::module_& module);
void bind_router(py::module_& module);
void bind_ledger(py::module_& module);
void bind_gate(py::module_& module);
void bind_sim(py::module_& module);
void bind_lab(py::module_& module);

// What needs simdjson: only in a build that found it.
void bind_wire(py::module_& module);

}  // namespace limpet::python
