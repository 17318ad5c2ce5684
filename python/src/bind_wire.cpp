// SPDX-License-Identifier: Apache-2.0
//
// What clients and engines say: identify(), Identity, Usage.parse() and UsageScanner.
//
// str, bytes and contiguous buffers are read where they lie, headers as a mapping, as any iterable
// of pairs, or as the list of an ASGI scope. A header that is no text says nothing; it raises no
// more than anything else that a client can send.
#include <limpet/wire/identity.hpp>
#include <limpet/wire/prefix.hpp>
#include <limpet/wire/usage.hpp>

#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"

namespace limpet::python {

template <>
struct EnumTraits<IdentitySource> {
  static constexpr const char* name = "IdentitySource";
  static constexpr std::array members = {"configured_header",  "limpet_header",
                                         "claude_code_header", "codex_header",
                                         "session_header",     "gateway_header",
                                         "claude_code_body",   "body_field",
                                         "fingerprint",        "none"};
};

template <>
struct EnumTraits<RequestKind> {
  static constexpr const char* name = "RequestKind";
  static constexpr std::array members = {"main", "subagent", "side_call", "compaction"};
};

template <>
struct EnumTraits<BodyStatus> {
  static constexpr const char* name = "BodyStatus";
  static constexpr std::array members = {"unread", "read", "malformed", "too_large"};
};

namespace {

// The bytes of a str, bytes or contiguous buffer, for as long as this lives.
class Bytes {
 public:
  Bytes(py::handle value, const char* field) {
    if (PyBytes_Check(value.ptr())) {
      view_ = {PyBytes_AS_STRING(value.ptr()),
               static_cast<std::size_t>(PyBytes_GET_SIZE(value.ptr()))};
    } else if (PyUnicode_Check(value.ptr())) {
      view_ = utf8_of(value.ptr());
    } else if (value.is_none()) {
      view_ = {};
    } else if (PyObject_GetBuffer(value.ptr(), &buffer_, PyBUF_SIMPLE) == 0) {
      view_ = {static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
    } else {
      PyErr_Clear();
      refuse_type(field, value, "a str, bytes or another contiguous buffer");
    }
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&buffer_); }  // does nothing where none was taken

  [[nodiscard]] std::string_view view() const noexcept { return view_; }

 private:
  Py_buffer buffer_{};
  std::string_view view_;
};

// The headers of one request, as views of Python's own texts.
class HeaderList {
 public:
  explicit HeaderList(py::handle headers) {
    if (headers.is_none()) return;
    if (PyDict_Check(headers.ptr())) {
      views_.reserve(static_cast<std::size_t>(PyDict_Size(headers.ptr())));
      PyObject* name = nullptr;
      PyObject* value = nullptr;
      for (Py_ssize_t at = 0; PyDict_Next(headers.ptr(), &at, &name, &value) != 0;) {
        add(name, value);
      }
      return;
    }
    kept_ = py::hasattr(headers, "items") ? py::list(headers.attr("items")())
                                          : py::list(py::reinterpret_borrow<py::object>(headers));
    views_.reserve(kept_.size());
    for (const py::handle item : kept_) {
      // A pair is nearly always a tuple, or a list in an ASGI scope: both are read in place.
      const py::sequence pair = py::reinterpret_borrow<py::sequence>(item);
      if (!PyTuple_Check(item.ptr()) && !PyList_Check(item.ptr())) {
        refuse_type("headers", item, "a mapping or an iterable of pairs");
      }
      if (PySequence_Fast_GET_SIZE(item.ptr()) != 2) {
        refuse_value("headers", item, "a header is a pair of name and value");
      }
      add(PySequence_Fast_GET_ITEM(item.ptr(), 0), PySequence_Fast_GET_ITEM(item.ptr(), 1));
    }
  }

  [[nodiscard]] const std::vector<std::pair<std::string_view, std::string_view>>& views()
      const noexcept {
    return views_;
  }

 private:
  void add(PyObject* name, PyObject* value) { views_.emplace_back(text(name), text(value)); }

  [[nodiscard]] static std::string_view text(PyObject* object) {
    if (PyBytes_Check(object)) {
      return {PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object))};
    }
    if (!PyUnicode_Check(object))
      refuse_type("headers", object, "names and values of str or bytes");
    Py_ssize_t size = 0;
    const char* const bytes = PyUnicode_AsUTF8AndSize(object, &size);
    if (bytes == nullptr) {  // a lone surrogate: undecodable bytes of a client's
      PyErr_Clear();
      return {};
    }
    return {bytes, static_cast<std::size_t>(size)};
  }

  py::list kept_;
  std::vector<std::pair<std::string_view, std::string_view>> views_;
};

// An Identity whose field no longer leans on the options that it was found with.
struct PyIdentity {
  Identity identity;
  std::string field;
};

[[nodiscard]] py::object text_or_none(std::string_view text) {
  if (text.empty()) return py::none();
  return py::str(text.data(), text.size());
}

[[nodiscard]] IdentityOptions options_from(py::handle session_headers, py::handle max_body_bytes,
                                           py::handle side_call_max_bytes) {
  IdentityOptions options;
  if (PyUnicode_Check(session_headers.ptr())) {
    refuse_type("session_headers", session_headers, "a sequence of names");
  }
  for (const py::handle name : session_headers) {
    options.session_headers.push_back(text_from(name, "session_headers"));
  }
  options.max_body_bytes =
      count_or<std::size_t>(max_body_bytes, options.max_body_bytes, "max_body_bytes");
  options.side_call_max_bytes = count_or<std::size_t>(
      side_call_max_bytes, options.side_call_max_bytes, "side_call_max_bytes");
  return options;
}

[[nodiscard]] PyIdentity identify_request(py::handle headers, py::handle body,
                                          py::handle session_headers, py::handle max_body_bytes,
                                          py::handle side_call_max_bytes) {
  // Above this a walk takes tens of microseconds, and other threads may have better to do.
  constexpr std::size_t long_body = std::size_t{256} << 10;
  const IdentityOptions options =
      options_from(session_headers, max_body_bytes, side_call_max_bytes);
  const HeaderList list(headers);
  const Bytes bytes(body, "body");
  PyIdentity found;
  // Only of objects that cannot change meanwhile.
  const bool immutable = PyBytes_Check(body.ptr()) || PyUnicode_Check(body.ptr());
  if (immutable && bytes.view().size() >= long_body) {
    const py::gil_scoped_release release;
    found.identity = identify(list.views(), bytes.view(), options);
  } else {
    found.identity = identify(list.views(), bytes.view(), options);
  }
  found.field = found.identity.field;
  found.identity.field = {};
  return found;
}

[[nodiscard]] std::string repr_of(const PyIdentity& found) {
  const Identity& identity = found.identity;
  const auto quoted = [](const Id& id) {
    return id.empty() ? std::string("None") : "'" + std::string(id.view()) + "'";
  };
  return "<Identity session=" + quoted(identity.session) + " agent=" + quoted(identity.agent) +
         " parent=" + quoted(identity.parent) + " source=" + std::string(name_of(identity.source)) +
         " kind=" + std::string(name_of(identity.kind)) + ">";
}

void bind_identity(py::module_& module) {
  py::class_<PyIdentity>(module, "Identity",
                         "Which conversation a request belongs to, and how that was told.")
      .def_property_readonly(
          "session", [](const PyIdentity& self) { return text_or_none(self.identity.session); })
      .def_property_readonly(
          "agent", [](const PyIdentity& self) { return text_or_none(self.identity.agent); })
      .def_property_readonly(
          "parent", [](const PyIdentity& self) { return text_or_none(self.identity.parent); })
      .def_property_readonly("source",
                             [](const PyIdentity& self) { return member_of(self.identity.source); })
      .def_property_readonly("kind",
                             [](const PyIdentity& self) { return member_of(self.identity.kind); })
      .def_property_readonly(
          "body_status",
          [](const PyIdentity& self) { return member_of(self.identity.body_status); })
      .def_property_readonly("field",
                             [](const PyIdentity& self) { return text_or_none(self.field); })
      .def(
          "key",
          [](const PyIdentity& self, py::handle tenant, const py::bytes& secret) {
            return self.identity.key(Bytes(tenant, "tenant").view(),
                                     KeyHasher(secret_from(secret)));
          },
          py::arg("tenant") = "", py::kw_only(), py::arg("secret") = py::bytes(),
          "The conversation's key, for Router.route(); None where nothing names it. tenant is "
          "whoever was authenticated: clients choose their session ids, so without it one could "
          "steer where another's conversation is served. secret: the router's.")
      .def(
          "parent_key",
          [](const PyIdentity& self, py::handle tenant, const py::bytes& secret) {
            return self.identity.parent_key(Bytes(tenant, "tenant").view(),
                                            KeyHasher(secret_from(secret)));
          },
          py::arg("tenant") = "", py::kw_only(), py::arg("secret") = py::bytes(),
          "The key of the conversation that started this one, where the client said.")
      .def("__repr__", repr_of);

  module.def(
      "identify", identify_request, py::arg("headers"), py::arg("body") = py::bytes(),
      py::kw_only(), py::arg("session_headers") = py::tuple(),
      py::arg("max_body_bytes") = py::none(), py::arg("side_call_max_bytes") = py::none(),
      "Which conversation a request belongs to. headers: a mapping or pairs, of str or bytes. "
      "body: "
      "str, bytes or a contiguous buffer; it is read only where the headers leave a question. "
      "session_headers: names of headers that your own clients send, ahead of all others. A body "
      "over max_body_bytes (8 MiB) is not read, one over side_call_max_bytes (4 KiB) is no side "
      "call; 0 bytes: never look for one. Raises for arguments of a wrong type, never for what a "
      "client sent.");
}

void bind_prefix(py::module_& module) {
  module.def(
      "prefix_chain", [](py::handle body) { return prefix_chain(Bytes(body, "body").view()); },
      py::arg("body"),
      "Fingerprints of a request's prompt for Ledger.record(): one for what stands before the "
      "messages, one a message, each of all up to there. Empty for a body that cannot be read or "
      "says only what is new.");
}

void bind_usage_scanner(py::module_& module) {
  module.attr("Usage").attr("parse") = py::staticmethod(py::cpp_function(
      [](py::handle answer) { return parse_usage(Bytes(answer, "answer").view()); },
      py::name("parse"), py::arg("answer"),
      "The usage that an answer states, a whole body or a stream, of chat, completions, responses "
      "or messages; None where it states none."));

  py::class_<UsageScanner>(
      module, "UsageScanner",
      "Reads usage off an answer that passes by, in chunks cut anywhere, a body or a stream of "
      "events. Keeps no more than a few hundred bytes. For one answer and one thread.")
      .def(py::init<>())
      .def(
          "feed",
          [](UsageScanner& self, py::handle chunk) { self.feed(Bytes(chunk, "chunk").view()); },
          py::arg("chunk"), "Takes the next chunk: str, bytes or a contiguous buffer.")
      .def_property_readonly("usage", &UsageScanner::usage)
      .def_property_readonly("failed", &UsageScanner::failed)
      .def("__repr__", [](const UsageScanner& self) {
        const py::object usage = py::cast(self.usage());
        return "<UsageScanner usage=" + py::repr(usage).cast<std::string>() +
               (self.failed() ? " failed>" : ">");
      });
}

}  // namespace

void bind_wire(py::module_& module) {
  bind_enum<IdentitySource>(module, "Where a session's name was found, best first.");
  bind_enum<RequestKind>(module, "What a request is to its conversation.");
  bind_enum<BodyStatus>(module, "What became of a request's body when its session was looked for.");
  bind_identity(module);
  bind_prefix(module);
  bind_usage_scanner(module);
}

}  // namespace limpet::python
