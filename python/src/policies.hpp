// SPDX-License-Identifier: Apache-2.0
//
// Policy objects of Python into the erased policies of AnyRouter.
//
// A policy of ours becomes itself, in C++; any other object with the right methods, a subclass of
// ours among them, is called as Python and kept in Scripts. None is the default.
#pragma once

#include "scripted.hpp"

#include <limpet/any.hpp>

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <string>

namespace limpet::python {

namespace py = pybind11;

enum class ThreadSafety : bool { one_thread, any_thread };

struct ChosenPins {
  AnyPins pins;
  ThreadSafety safety;
};

// Throws: TypeError for an object that is no such policy.
[[nodiscard]] ChosenPins pins_from(const py::object& policy, Scripts& scripts);
[[nodiscard]] AnyScorer scorer_from(const py::object& policy, Scripts& scripts);
[[nodiscard]] AnyOverflow overflow_from(const py::object& policy, Scripts& scripts);
[[nodiscard]] AnyMetricsParser metrics_from(const py::object& policy, Scripts& scripts);
[[nodiscard]] AnyClock clock_from(const py::object& policy, Scripts& scripts);

// Throws: TypeError where one is missing, or where `policy` is a class and not an object.
void require_methods(const py::object& policy, const char* field,
                     std::initializer_list<const char*> methods);

// Whether it is a T, and not of a Python class derived from it, which may override anything.
template <class T>
[[nodiscard]] bool is_exactly(const py::object& policy) {
  return py::type::handle_of(policy).is(py::type::of<T>());
}

// Returns: the erased policy where `policy` is one of `Ours` or None, else that made of `scripted`
// once the object is known to have the methods.
template <class Any, class... Ours, class Scripted>
[[nodiscard]] Any policy_from(const py::object& policy, const char* field,
                              std::initializer_list<const char*> methods, py::object& script,
                              Scripted scripted) {
  Any chosen;
  if (policy.is_none()) return chosen;
  const bool ours =
      ((is_exactly<Ours>(policy) ? (chosen = Any(policy.cast<Ours>()), true) : false) || ...);
  if (ours) return chosen;
  require_methods(policy, field, methods);
  script = policy;
  return Any(std::move(scripted));
}

[[nodiscard]] std::string repr_of(double number);

}  // namespace limpet::python
