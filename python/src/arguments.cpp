// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <cmath>

namespace limpet::python {

void refuse_value(const char* field, py::handle value, const char* why) {
  throw py::value_error(std::string(field) + " = " + py::repr(value).cast<std::string>() + ": " +
                        why);
}

void refuse_type(const char* field, py::handle value, const char* wanted) {
  throw py::type_error(std::string(field) + " must be " + wanted + ", not " +
                       Py_TYPE(value.ptr())->tp_name);
}

std::uint64_t count_from(py::handle value, const char* field, Within range) {
  if (!PyIndex_Check(value.ptr()) || PyBool_Check(value.ptr())) {
    refuse_type(field, value, "an int");
  }
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) throw py::error_already_set();
  const std::uint64_t count = PyLong_AsUnsignedLongLong(number.ptr());
  const bool overflowed = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (overflowed || count < range.lowest || count > range.highest) {
    const std::string why =
        "must be " + std::to_string(range.lowest) + " to " + std::to_string(range.highest);
    refuse_value(field, value, why.c_str());
  }
  return count;
}

double number_from(py::handle value, const char* field) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    const bool overflowed = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (overflowed) refuse_value(field, value, "too large");
    refuse_type(field, value, "a number");
  }
  return number;
}

Duration duration_from(py::handle seconds, const char* field) {
  constexpr double limit = 9.2e9;  // s; an Instant holds 2^63 ns
  const double value = number_from(seconds, field);
  if (!(value >= 0.0 && value < limit)) {
    refuse_value(field, seconds, "must be 0 to 9.2e9 seconds");
  }
  return Duration(std::llround(value * 1e9));
}

std::string text_from(py::handle value, const char* field) {
  if (!PyUnicode_Check(value.ptr())) refuse_type(field, value, "a str");
  return std::string(utf8_of(value.ptr()));
}

std::string_view utf8_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) throw py::error_already_set();
  return {bytes, static_cast<std::size_t>(size)};
}

Key key_from(PyObject* value, const char* field) {
  if (PyUnicode_Check(value)) return utf8_of(value);
  if (value == Py_None) return {};
  if (PyBytes_Check(value)) {
    return std::string_view(PyBytes_AS_STRING(value),
                            static_cast<std::size_t>(PyBytes_GET_SIZE(value)));
  }
  if (py::isinstance<KeyHash>(value)) return py::handle(value).cast<const KeyHash&>();
  refuse_type(field, value, "a str, bytes, KeyHash or None");
}

KeySecret secret_from(const py::bytes& secret) {
  const std::string_view bytes(secret);
  KeySecret key;
  if (bytes.empty()) return key;
  if (bytes.size() != 16) {
    throw py::value_error("secret = <" + std::to_string(bytes.size()) +
                          " bytes>: must be 16 bytes, as os.urandom(16) gives, or none");
  }
  key.k0 = limpet::detail::load_le64(bytes.data());
  key.k1 = limpet::detail::load_le64(bytes.data() + 8);
  return key;
}

}  // namespace limpet::python
