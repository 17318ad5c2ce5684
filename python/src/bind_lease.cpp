// SPDX-License-Identifier: Apache-2.0
//
// Lease: the type's methods. Its objects are made by route() and commit() (lease_object.hpp).
#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"
#include "lease_object.hpp"

#include <string>

namespace limpet::python {

namespace {

[[nodiscard]] PyLease& lease_of(PyObject* self) noexcept {
  return *reinterpret_cast<PyLease*>(self);
}

// Ends the turn by `end(lease)` and raises what a clock in Python raised meanwhile: by then the
// slot has been returned.
template <class End>
[[nodiscard]] PyObject* end_turn(PyObject* self, End end) noexcept {
  return guarded([&] {
    PyLease& object = lease_of(self);
    end(object.lease);
    if (object.is_scripted) [[unlikely]]
      raise_pending();
    return Py_NewRef(Py_None);
  });
}

[[nodiscard]] bool is_keyword(PyObject* name, const char* wanted) noexcept {
  return PyUnicode_CompareWithASCIIString(name, wanted) == 0;
}

PyObject* finish(PyObject* self, PyObject* const* args, Py_ssize_t positional,
                 PyObject* keywords) noexcept {
  return end_turn(self, [&](Lease& lease) {
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    if (positional + named > 1) throw py::type_error("finish() takes at most one argument, usage");
    if (named == 1 && !is_keyword(PyTuple_GET_ITEM(keywords, 0), "usage")) {
      throw py::type_error("finish() takes one argument, usage");
    }
    if (positional + named == 0 || args[0] == Py_None) return lease.finish();
    if (!py::isinstance<Usage>(args[0])) refuse_type("usage", args[0], "a limpet.Usage or None");
    lease.finish(py::handle(args[0]).cast<const Usage&>());
  });
}

PyObject* first_byte(PyObject* self, PyObject*) noexcept {
  lease_of(self).lease.first_byte();
  return Py_NewRef(Py_None);
}

PyObject* cancel(PyObject* self, PyObject*) noexcept {
  return end_turn(self, [](Lease& lease) { lease.cancel(); });
}

PyObject* fail(PyObject* self, PyObject*) noexcept {
  return end_turn(self, [](Lease& lease) { lease.fail(); });
}

PyObject* enter(PyObject* self, PyObject*) noexcept {
  return Py_NewRef(self);
}

PyObject* exit(PyObject* self, PyObject* const* args, Py_ssize_t count) noexcept {
  const bool raised = count > 0 && args[0] != Py_None;
  return end_turn(self, [&](Lease& lease) { raised ? lease.cancel() : lease.finish(); });
}

PyObject* get_replica(PyObject* self, void*) noexcept {
  return Py_NewRef(lease_of(self).replica);
}

PyObject* get_outcome(PyObject* self, void*) noexcept {
  return Py_NewRef(borrowed_member(lease_of(self).lease.outcome()));
}

PyObject* get_decision(PyObject* self, void*) noexcept {
  return guarded([&] {
    const PyLease& object = lease_of(self);
    const PyRouter& router = router_of(object.router);
    return py::cast(router.describe(object.router, object.lease.decision())).release().ptr();
  });
}

PyObject* get_held(PyObject* self, void*) noexcept {
  return PyBool_FromLong(lease_of(self).lease.held());
}

int has_replica(PyObject* self) noexcept {
  return lease_of(self).replica != Py_None;
}

PyObject* repr(PyObject* self) noexcept {
  return guarded([&] {
    const PyLease& object = lease_of(self);
    std::string text = "<Lease " + std::string(name_of(object.lease.outcome()));
    if (object.replica != Py_None) {
      text += " on " + py::repr(py::handle(object.replica).attr("name")).cast<std::string>();
    }
    text += object.lease.held() ? ", held>" : ", ended>";
    return py::str(text).release().ptr();
  });
}

// Runs wherever the last reference goes, in the middle of an exception's way too.
void dealloc(PyObject* self) noexcept {
  PyLease& object = lease_of(self);
  if (object.router != nullptr) {
    if (object.is_scripted && object.lease.held()) [[unlikely]] {
      const py::error_scope in_flight;
      object.lease.cancel();
      report_pending("Lease");
    }
    object.lease.~Lease();
    Py_DECREF(object.router);
    Py_XDECREF(object.replica);
  }
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

constexpr const char* lease_doc =
    "One turn's slot on a replica, returned exactly once.\n\n"
    "End it with finish() when the engine answered, cancel() when the caller hung up, or fail() "
    "when "
    "the replica failed the turn; the first call counts, from whatever thread, the later ones do "
    "nothing. What none of them ended is cancelled when the object goes.\n\n"
    "In a with statement it is finished at the end of the block. An exception cancels it, since it "
    "is "
    "as often the caller's hang-up (asyncio.CancelledError) as the replica's failure: call fail() "
    "in "
    "the block where the replica is to blame. A lease whose bool() is False has no replica: the "
    "turn "
    "was refused, or affinity is off. Thread-safe.";

constexpr const char* first_byte_doc =
    "first_byte($self)\n--\n\n"
    "The first byte of the answer has come, so the prompt has been read: the turn leaves its "
    "replica's pending_prefill_tokens, which it else does when it ends. The lease stays held.";

constexpr const char* finish_doc =
    "finish($self, usage=None)\n--\n\n"
    "The engine answered; usage is what it said of the tokens.";

constexpr const char* cancel_doc =
    "cancel($self)\n--\n\n"
    "The caller does not want the answer any more. The pin stays.";

constexpr const char* fail_doc =
    "fail($self)\n--\n\n"
    "The replica did not serve the turn. The pin of a conversation's first turn goes with it, "
    "unless "
    "another turn used it meanwhile; any other pin stays, since one failure empties no cache.";

}  // namespace

void bind_lease(py::module_& module) {
  static PyMethodDef methods[] = {
      {"first_byte", first_byte, METH_NOARGS, first_byte_doc},
      {"finish", as_method(finish), METH_FASTCALL | METH_KEYWORDS, finish_doc},
      {"cancel", cancel, METH_NOARGS, cancel_doc},
      {"fail", fail, METH_NOARGS, fail_doc},
      {"__enter__", enter, METH_NOARGS, "__enter__($self)\n--\n\n"},
      {"__exit__", as_method(exit), METH_FASTCALL, "__exit__($self, /, *exc_info)\n--\n\n"},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyGetSetDef properties[] = {
      {"replica", get_replica, nullptr, "Where to send the turn: a Replica, or None.", nullptr},
      {"outcome", get_outcome, nullptr, "What became of the turn: an Outcome.", nullptr},
      {"decision", get_decision, nullptr, "The Decision, with its reason.", nullptr},
      {"held", get_held, nullptr, "Whether the slot is still held.", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>(lease_doc)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_repr, reinterpret_cast<void*>(repr)},
      {Py_nb_bool, reinterpret_cast<void*>(has_replica)},
      {0, nullptr},
  };
  static PyType_Spec spec = {
      .name = "limpet.Lease",
      .basicsize = sizeof(PyLease),
      .itemsize = 0,
      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
      .slots = slots,
  };
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  lease_type = reinterpret_cast<PyTypeObject*>(type);
  module.attr("Lease") = py::handle(type);
}

}  // namespace limpet::python
