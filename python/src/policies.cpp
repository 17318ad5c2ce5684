// SPDX-License-Identifier: Apache-2.0
#include "policies.hpp"

namespace limpet::python {

void require_methods(const py::object& policy, const char* field,
                     std::initializer_list<const char*> methods) {
  if (PyType_Check(policy.ptr())) {
    const auto name = policy.attr("__name__").cast<std::string>();
    throw py::type_error(std::string(field) + " is the class " + name +
                         "; pass an object of it: " + name + "()");
  }
  for (const char* const method : methods) {
    if (py::hasattr(policy, method) && PyCallable_Check(policy.attr(method).ptr()) != 0) continue;
    throw py::type_error(std::string(field) +
                         " must be a policy of limpet or an object with its "
                         "methods; a " +
                         Py_TYPE(policy.ptr())->tp_name + " has no " + method + "()");
  }
}

std::string repr_of(double number) {
  return py::repr(py::float_(number)).cast<std::string>();
}

}  // namespace limpet::python
