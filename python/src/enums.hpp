// SPDX-License-Identifier: Apache-2.0
//
// The enumerations as Python sees them: enum.Enum classes whose members are named as in C++ and
// whose values are the texts that to_string() gives.
//
// Members are made once, with the module; handing one out afterwards costs a reference count, where
// pybind11's native_enum costs a call of the class.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/explanation.hpp>
#include <limpet/ledger/turns.hpp>
#include <limpet/router.hpp>
#include <limpet/types.hpp>

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace limpet::python {

namespace py = pybind11;

// Name and members of an enumeration, in the order of its values.
template <class E>
struct EnumTraits;

template <>
struct EnumTraits<Outcome> {
  static constexpr const char* name = "Outcome";
  static constexpr std::array members = {"placed",   "sticky",        "spilled", "moved",
                                         "balanced", "client_pinned", "refused", "unrouted"};
};

template <>
struct EnumTraits<Reason> {
  static constexpr const char* name = "Reason";
  static constexpr std::array members = {"no_replica",
                                         "affinity_off",
                                         "client_named_replica",
                                         "no_key",
                                         "side_call",
                                         "no_pin",
                                         "stale_pin",
                                         "parent_home",
                                         "home_down",
                                         "home_excluded",
                                         "home_has_room",
                                         "home_overloaded",
                                         "home_overloaded_but_best",
                                         "committed_elsewhere"};
};

template <>
struct EnumTraits<ReplicaState> {
  static constexpr const char* name = "ReplicaState";
  static constexpr std::array members = {"up", "draining", "down", "removed"};
};

template <>
struct EnumTraits<Standing> {
  static constexpr const char* name = "Standing";
  static constexpr std::array members = {"chosen", "eligible", "excluded", "draining", "down"};
};

template <>
struct EnumTraits<ParseStatus> {
  static constexpr const char* name = "ParseStatus";
  static constexpr std::array members = {"ok", "malformed", "no_engine", "out_of_memory"};
};

template <>
struct EnumTraits<Affinity> {
  static constexpr const char* name = "Affinity";
  static constexpr std::array members = {"on", "off"};
};

template <>
struct EnumTraits<ParentHint> {
  static constexpr const char* name = "ParentHint";
  static constexpr std::array members = {"prefer_parent", "independent", "with_parent"};
};

template <>
struct EnumTraits<TurnClass> {
  static constexpr const char* name = "TurnClass";
  static constexpr std::array members = {"cold", "hit",      "partial",   "misrouted",
                                         "lost", "diverged", "unmeasured"};
};

template <class E>
inline constexpr std::size_t enum_size = EnumTraits<E>::members.size();

// Never released: they live as long as the process, as the module does.
template <class E>
inline std::array<PyObject*, enum_size<E>> enum_members{};

template <class E>
[[nodiscard]] PyObject* borrowed_member(E value) noexcept {
  return enum_members<E>[static_cast<std::size_t>(value)];
}

template <class E>
[[nodiscard]] py::object member_of(E value) {
  return py::reinterpret_borrow<py::object>(borrowed_member(value));
}

// Throws: TypeError that names the field.
template <class E>
[[nodiscard]] E enum_from(py::handle member, const char* field) {
  for (std::size_t i = 0; i < enum_size<E>; ++i) {
    if (member.ptr() == enum_members<E>[i]) return static_cast<E>(i);
  }
  throw py::type_error(std::string(field) + " must be a member of limpet." + EnumTraits<E>::name +
                       ", not " + py::repr(member).cast<std::string>());
}

// Its name, as __repr__s show it.
template <class E>
[[nodiscard]] constexpr std::string_view name_of(E value) noexcept {
  return EnumTraits<E>::members[static_cast<std::size_t>(value)];
}

// The value of its member in Python.
template <class E>
[[nodiscard]] constexpr std::string_view value_of(E member) noexcept {
  if constexpr (requires { to_string(member); }) {
    return to_string(member);
  } else {
    return name_of(member);
  }
}

// Makes the class, with Python's own enum.Enum: it compares, hashes, iterates and pickles as any
// other.
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

}  // namespace limpet::python
