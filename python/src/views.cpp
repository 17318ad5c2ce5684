// SPDX-License-Identifier: Apache-2.0
#include "views.hpp"

#ifdef LIMPET_PYTHON_FMT
#include <limpet/fmt.hpp>
#endif

#include <algorithm>
#include <string>
#include <utility>

namespace limpet::python {

// Draining replicas are scored only where none is up.
PyExplanation explanation_of(Explanation explanation, py::object decision) {
  const auto takes_turns = [](const ExplainedReplica& row) {
    return row.standing <= Standing::eligible;
  };
  const bool any_up = std::any_of(explanation.replicas.begin(), explanation.replicas.end(),
                                  [&](const ExplainedReplica& row) {
                                    return takes_turns(row) && row.load.state == ReplicaState::up;
                                  });
  py::list rows;
  for (const ExplainedReplica& row : explanation.replicas) {
    const bool is_scored = takes_turns(row) && (row.load.state == ReplicaState::up || !any_up);
    rows.append(PyExplainedReplica{row, is_scored});
  }
  return {std::move(explanation), std::move(decision), py::tuple(rows)};
}

#ifdef LIMPET_PYTHON_FMT

std::string text_of(const PyExplanation& explanation) {
  return fmt::format("{}", explanation.explanation);
}

std::string text_of(const PySnapshot& snapshot) {
  return fmt::format("{}", snapshot.snapshot);
}

#else

namespace {

[[nodiscard]] std::string lines_of(py::handle head, const py::tuple& rows) {
  std::string text = py::repr(head).cast<std::string>();
  for (const py::handle row : rows) text += "\n" + py::repr(row).cast<std::string>();
  return text;
}

}  // namespace

std::string text_of(const PyExplanation& explanation) {
  return lines_of(explanation.decision, explanation.rows);
}

std::string text_of(const PySnapshot& snapshot) {
  return lines_of(py::str(std::to_string(snapshot.replicas.size()) + " replicas"),
                  snapshot.replicas);
}

#endif

}  // namespace limpet::python
