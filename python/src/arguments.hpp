// SPDX-License-Identifier: Apache-2.0
//
// Python arguments into C++ values, with errors that name field and value: TypeError for a wrong
// type, ValueError for a value that makes no sense. pybind11's own conversion would say for both
// that no overload matches.
#pragma once

#include <limpet/hash.hpp>
#include <limpet/types.hpp>

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace limpet::python {

namespace py = pybind11;

// The range of a count.
struct Within {
  std::uint64_t lowest = 0;
  std::uint64_t highest = std::numeric_limits<std::uint32_t>::max();
};

inline constexpr Within token_counts{0, std::uint64_t{1} << 48};

[[nodiscard]] std::uint64_t count_from(py::handle value, const char* field, Within range = {});

// As above, cast down; None is the default value.
template <class T>
[[nodiscard]] T count_or(py::handle value, T otherwise, const char* field, Within range = {}) {
  return value.is_none() ? otherwise : static_cast<T>(count_from(value, field, range));
}

// The engine's option of that name; None: 0, which means unknown.
[[nodiscard]] inline std::uint32_t max_num_seqs_from(py::handle value) {
  return count_or<std::uint32_t>(value, 0, "max_num_seqs", {.lowest = 1});
}

[[nodiscard]] double number_from(py::handle value, const char* field);

// Seconds, not negative, below 292 years.
[[nodiscard]] Duration duration_from(py::handle seconds, const char* field);

[[nodiscard]] std::string text_from(py::handle value, const char* field);

// str (as UTF-8), bytes, KeyHash or None. Refers to the argument's own bytes.
[[nodiscard]] Key key_from(PyObject* value, const char* field);

// A router's secret: 16 bytes, or none.
[[nodiscard]] KeySecret secret_from(const py::bytes& secret);

// The UTF-8 bytes of a str. Requires: it is one. Throws: UnicodeEncodeError for a lone surrogate.
[[nodiscard]] std::string_view utf8_of(PyObject* text);

[[nodiscard]] constexpr double seconds_of(Instant at) noexcept {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

// Throws: ValueError "field = value: why".
[[noreturn]] void refuse_value(const char* field, py::handle value, const char* why);

// Throws: TypeError "field must be <wanted>, not <type of value>".
[[noreturn]] void refuse_type(const char* field, py::handle value, const char* wanted);

}  // namespace limpet::python
