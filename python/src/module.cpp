// SPDX-License-Identifier: Apache-2.0
//
// limpet._core: see bind.hpp. Users import limpet, whose __init__.py re-exports what is here.
#include <limpet/version.hpp>

#include "bind.hpp"

namespace py = pybind11;

// Free-threaded Python is declared as supported, since every access to shared state is atomic,
// locked or in a critical section; it has not been tested on one.
PYBIND11_MODULE(_core, module, py::mod_gil_not_used()) {
  // The stubs hold the signatures, with the types that a user sees.
  py::options options;
  options.disable_function_signatures();

  module.doc() = "The compiled half of limpet; import limpet instead.";
  module.attr("__version__") = limpet::version_string;
  module.def("_empty", [] {}, "Does nothing: the floor that benchmarks/python compares with.");

  limpet::python::bind_enums(module);
  limpet::python::bind_values(module);
  limpet::python::bind_clocks(module);
  limpet::python::bind_pins(module);
  limpet::python::bind_scorers(module);
  limpet::python::bind_overflow(module);
  limpet::python::bind_metrics(module);
  limpet::python::bind_views(module);
  limpet::python::bind_lease(module);
  limpet::python::bind_router(module);
  limpet::python::bind_ledger(module);
  limpet::python::bind_gate(module);
  limpet::python::bind_sim(module);
  limpet::python::bind_lab(module);
#ifdef LIMPET_PYTHON_WIRE
  module.attr("has_wire") = true;
  limpet::python::bind_wire(module);
#else
  module.attr("has_wire") = false;
#endif
}
