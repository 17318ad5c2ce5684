// SPDX-License-Identifier: Apache-2.0
//
// Makes the enumerations of the core.
#include "bind.hpp"
#include "enums.hpp"

namespace limpet::python {

void bind_enums(py::module_& module) {
  bind_enum<Outcome>(module, "What became of a turn.");
  bind_enum<Reason>(module,
                    "Why: one member a row of the decision table. Its value is a sentence.");
  bind_enum<ReplicaState>(module, "Whether a replica takes turns.");
  bind_enum<Standing>(module, "How a replica stood in one decision.");
  bind_enum<ParseStatus>(module, "What became of a metrics page. Unless ok, it changed nothing.");
  bind_enum<Affinity>(module, "Whether conversations are sent home, or nowhere in particular.");
  bind_enum<TurnClass>(module, "Whether a finished turn was a prefix hit, and if not, why.");
  bind_enum<ParentHint>(module, "Where a conversation that was forked from another is placed.");
}

}  // namespace limpet::python
