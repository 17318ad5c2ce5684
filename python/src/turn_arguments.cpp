// SPDX-License-Identifier: Apache-2.0
#include "turn_arguments.hpp"

#include "arguments.hpp"

#include <string>

namespace limpet::python {

namespace {

[[nodiscard]] bool is(PyObject* name, const char* wanted) noexcept {
  return PyUnicode_CompareWithASCIIString(name, wanted) == 0;
}

}  // namespace

TurnArguments::TurnArguments(const char* function, const PyRouter& router, PyObject* const* args,
                             Py_ssize_t positional, PyObject* keywords) {
  if (positional > 1) [[unlikely]] {
    throw py::type_error(std::string(function) +
                         "() takes one positional argument, the key; the others are keywords");
  }
  if (positional == 1) turn_.key = key_from(args[0], "key");
  if (keywords == nullptr) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
    PyObject* const name = PyTuple_GET_ITEM(keywords, i);
    if (positional == 1 && is(name, "key")) {
      throw py::type_error(std::string(function) + "() got the key twice");
    }
    read_keyword(function, router, name, args[positional + i]);
  }
}

void TurnArguments::read_keyword(const char* function, const PyRouter& router, PyObject* name,
                                 PyObject* value) {
  if (is(name, "key")) {
    turn_.key = key_from(value, "key");
  } else if (is(name, "parent")) {
    turn_.parent = key_from(value, "parent");
  } else if (is(name, "client_pinned")) {
    if (value == Py_None) return;
    turn_.client_pinned = router.find(text_from(value, "client_pinned")).value_or(ReplicaId{});
  } else if (is(name, "exclude")) {
    read_exclude(router, value);
  } else if (is(name, "prompt_tokens")) {
    turn_.prompt_tokens = count_or<std::uint64_t>(value, 0, "prompt_tokens", token_counts);
  } else if (is(name, "side_call")) {
    const int truth = PyObject_IsTrue(value);
    if (truth < 0) throw py::error_already_set();
    turn_.side_call = truth == 1;
  } else {
    throw py::type_error(std::string(function) + "() has no argument " +
                         py::repr(name).cast<std::string>());
  }
}

void TurnArguments::read_exclude(const PyRouter& router, PyObject* names) {
  if (PyUnicode_Check(names)) refuse_type("exclude", names, "a list or tuple of names");
  for (const py::handle name : py::reinterpret_borrow<py::object>(names)) {
    if (const auto id = router.find(text_from(name, "a name in exclude"))) exclude_.push_back(*id);
  }
  turn_.exclude = exclude_;
}

}  // namespace limpet::python
