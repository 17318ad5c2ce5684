// SPDX-License-Identifier: Apache-2.0
//
// The Python type Lease, written against CPython alone: an object of pybind11 costs more to make
// than the turn it stands for (benchmarks/python/call_cost.py).
#pragma once

#include "router_object.hpp"

#include <limpet/lease.hpp>

#include <pybind11/pybind11.h>

#include <new>
#include <stdexcept>

namespace limpet::python {

struct PyLease {
  PyObject_HEAD PyObject*
      router;         // owned: no router dies before its leases; null until `lease` is made
  PyObject* replica;  // owned: a Replica or None
  bool is_scripted;   // as the router is
  Lease lease;
};

inline PyTypeObject* lease_type = nullptr;  // made with the module, never released

// Effects: makes a Lease object of `self`, a Router, around the lease that `take()` returns.
// Returns: a new reference. Throws: what `take` throws, with nothing left behind.
template <class Take>
[[nodiscard]] PyObject* new_lease(PyObject* self, const PyRouter& router, Take take) {
  const auto object = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyObject_New(PyLease, lease_type)));
  if (!object) throw py::error_already_set();
  auto* const made = reinterpret_cast<PyLease*>(object.ptr());
  made->router = nullptr;
  made->replica = nullptr;
  new (&made->lease) Lease(take());
  made->router = Py_NewRef(self);
  made->is_scripted = router.is_scripted();
  made->replica = router.replica(self, made->lease.replica());
  return Py_NewRef(object.ptr());
}

// Runs the body of a function that CPython calls. Returns: what it returns; null, with the Python
// error set, where it throws.
template <class F>
[[nodiscard]] PyObject* guarded(F body) noexcept {
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// A function of CPython's fast calling conventions as PyMethodDef wants it.
template <class F>
[[nodiscard]] PyCFunction as_method(F* function) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace limpet::python
