// SPDX-License-Identifier: Apache-2.0
//
// Makes the enumerations of enums.hpp, with Python's own enum.Enum: they compare, hash, iterate and
// pickle as any other.
#include "bind.hpp"
#include "enums.hpp"

#include <string_view>

namespace limpet::python {

namespace {

template <class E>
constexpr std::string_view value_of(E member) noexcept {
  if constexpr (requires { to_string(member); }) {
    return to_string(member);
  } else {
    return name_of(member);
  }
}

template <class E>
void bind_enum(py::module_& module, const char* doc) {
  py::list members;
  for (std::size_t i = 0; i < enum_size<E>; ++i) {
    const std::string_view value = value_of(static_cast<E>(i));
    members.append(py::make_tuple(EnumTraits<E>::members[i], py::str(value.data(), value.size())));
  }
  const py::object type = py::module_::import("enum").attr("Enum")(EnumTraits<E>::name, members,
                                                                   py::arg("module") = "limpet");
  type.attr("__doc__") = doc;
  for (std::size_t i = 0; i < enum_size<E>; ++i) {
    enum_members<E>[i] = py::object(type.attr(EnumTraits<E>::members[i])).release().ptr();
  }
  module.attr(EnumTraits<E>::name) = type;
}

}  // namespace

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
