// SPDX-License-Identifier: Apache-2.0
//
// The arguments that route(), plan() and explain() share: key, and what else is known of the turn.
//
// Read by hand from CPython's fast calling convention: route("key") costs one comparison here.
#pragma once

#include "router_object.hpp"

#include <limpet/types.hpp>

#include <pybind11/pybind11.h>

#include <vector>

namespace limpet::python {

namespace py = pybind11;

class TurnArguments {
 public:
  // Effects: reads the arguments of `function`, which refer to the caller's objects. Throws:
  // TypeError or ValueError that names the argument.
  TurnArguments(const char* function, const PyRouter& router, PyObject* const* args,
                Py_ssize_t positional, PyObject* keywords);

  TurnArguments(const TurnArguments&) = delete;
  TurnArguments& operator=(const TurnArguments&) = delete;

  [[nodiscard]] const Turn& turn() const noexcept { return turn_; }

 private:
  void read_keyword(const char* function, const PyRouter& router, PyObject* name, PyObject* value);
  void read_exclude(const PyRouter& router, PyObject* names);

  Turn turn_;
  std::vector<ReplicaId> exclude_;
};

// How the three look in help() and to inspect.signature().
#define LIMPET_TURN_SIGNATURE                                                          \
  "($self, key=None, *, parent=None, client_pinned=None, exclude=(), prompt_tokens=0," \
  " side_call=False)\n--\n\n"

}  // namespace limpet::python
