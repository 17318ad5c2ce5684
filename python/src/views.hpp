// SPDX-License-Identifier: Apache-2.0
//
// What explain() and snapshot() hand out: the C++ result beside the Python objects made of it.
#pragma once

#include "router_object.hpp"

#include <limpet/explanation.hpp>
#include <limpet/snapshot.hpp>

#include <pybind11/pybind11.h>

#include <string>

namespace limpet::python {

namespace py = pybind11;

struct PyExplainedReplica {
  ExplainedReplica row;
  bool is_scored;  // it could have taken a new conversation
};

struct PyExplanation {
  Explanation explanation;
  py::object decision;
  py::tuple rows;  // of PyExplainedReplica
};

[[nodiscard]] PyExplanation explanation_of(Explanation explanation, py::object decision);

struct PySnapshot {
  Snapshot snapshot;
  py::tuple replicas;  // of ReplicaSnapshot
};

// Tables where the module was built with fmt, else a line a replica.
[[nodiscard]] std::string text_of(const PyExplanation& explanation);
[[nodiscard]] std::string text_of(const PySnapshot& snapshot);

}  // namespace limpet::python
