// SPDX-License-Identifier: Apache-2.0
//
// Router: construction, readings and views. Its turns are in bind_turns.cpp, the life of its
// replicas in bind_life.cpp.
#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"
#include "policies.hpp"
#include "router_object.hpp"
#include "views.hpp"

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet::python {

namespace {

// Construction ------------------------------------------------------------------------------------

[[nodiscard]] std::vector<std::string> names_from(py::handle names) {
  if (PyUnicode_Check(names.ptr())) refuse_type("names", names, "a list of names");
  std::vector<std::string> texts;
  for (const py::handle name : py::reinterpret_borrow<py::object>(names)) {
    texts.push_back(text_from(name, "a name"));
  }
  return texts;
}

[[nodiscard]] std::unique_ptr<PyRouter> make_router(
    const py::object& names, py::handle max_num_seqs, const py::object& pins,
    const py::object& scorer, const py::object& overflow, const py::object& metrics,
    const py::object& clock, py::handle parent_hint, py::handle affinity, py::handle live_window,
    py::handle reading_max_age, py::handle shared_prefix_tokens, const py::bytes& secret) {
  const RouterOptions options{.parent_hint = enum_from<ParentHint>(parent_hint, "parent_hint"),
                              .affinity = enum_from<Affinity>(affinity, "affinity"),
                              .live_window = duration_from(live_window, "live_window"),
                              .reading_max_age = duration_from(reading_max_age, "reading_max_age"),
                              .shared_prefix_tokens = count_from(
                                  shared_prefix_tokens, "shared_prefix_tokens", token_counts),
                              .secret = secret_from(secret)};
  const std::vector<std::string> replicas = names_from(names);
  const auto slots = max_num_seqs_from(max_num_seqs);

  auto scripts = std::make_unique<Scripts>();
  Scripts& owner = *scripts;
  ChosenPins chosen_pins = pins_from(pins, owner);
  AnyScorer chosen_scorer = scorer_from(scorer, owner);
  AnyOverflow chosen_overflow = overflow_from(overflow, owner);
  AnyMetricsParser chosen_metrics = metrics_from(metrics, owner);
  AnyClock chosen_clock = clock_from(clock, owner);
  auto router = std::make_unique<PyRouter>(
      std::move(scripts), std::move(chosen_pins), std::move(chosen_scorer),
      std::move(chosen_overflow), std::move(chosen_metrics), std::move(chosen_clock), options);
  for (const std::string& name : replicas) router->add({.name = name, .max_num_seqs = slots});
  return router;
}

// Readings and views ------------------------------------------------------------------------------

[[nodiscard]] PySnapshot take_snapshot(PyRouter& self) {
  PySnapshot result;
  {
    std::optional<py::gil_scoped_release> release;  // letting go of many expired pins takes a while
    if (self.is_thread_safe()) release.emplace();
    result.snapshot = self.router().snapshot();
  }
  raise_pending();
  py::list rows;
  for (const ReplicaSnapshot& row : result.snapshot.replicas) rows.append(row);
  result.replicas = py::tuple(rows);
  return result;
}

[[nodiscard]] ParseStatus parse_page(PyRouter& router, std::string_view endpoint, py::handle page) {
  std::string_view bytes;
  if (PyUnicode_Check(page.ptr())) {
    bytes = utf8_of(page.ptr());
  } else if (PyBytes_Check(page.ptr())) {
    bytes = {PyBytes_AS_STRING(page.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(page.ptr()))};
  } else {
    refuse_type("page", page, "a str or bytes");
  }
  const py::gil_scoped_release release;
  return router.router().observe(endpoint, bytes);
}

[[nodiscard]] py::object observe(PyRouter& self, const std::string& endpoint, py::handle page) {
  const ParseStatus status = parse_page(self, endpoint, page);
  raise_pending();
  return member_of(status);
}

// The garbage collector's view: a policy in Python may refer to its router.
[[nodiscard]] PyRouter* made_router(PyObject* self) noexcept {
  if (!py::detail::is_holder_constructed(self)) return nullptr;
  return reinterpret_cast<py::detail::instance*>(self)
      ->get_value_and_holder()
      .value_ptr<PyRouter>();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (PyRouter* const router = made_router(self)) {
    Scripts& scripts = router->scripts();
    Py_VISIT(scripts.pins.ptr());
    Py_VISIT(scripts.scorer.ptr());
    Py_VISIT(scripts.overflow.ptr());
    Py_VISIT(scripts.metrics.ptr());
    Py_VISIT(scripts.clock.ptr());
  }
  return 0;
}

int clear(PyObject* self) {
  if (PyRouter* const router = made_router(self)) {
    const Scripts gone = std::exchange(router->scripts(), Scripts{});
  }
  return 0;
}

void collectable(PyHeapTypeObject* heap_type) {
  PyTypeObject& type = heap_type->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = traverse;
  type.tp_clear = clear;
}

constexpr const char* router_doc =
    "Sends every turn of a conversation to the replica that still holds its prefix cache.\n\n"
    "One router routes one pool: replicas of one model that can stand in for each other. names are "
    "those of the first replicas; max_num_seqs is the engine's option of that name, the same for "
    "all "
    "of them (None: unknown).\n\n"
    "pins, scorer, overflow, metrics and clock are policies; None: ShardedPins(), WeightedLoad(), "
    "SpillAbove(), VllmMetrics(), SteadyClock(). Any object with the methods of the protocol of "
    "that "
    "name (limpet.policies) will do, at the price of a Python call for each question: tens of "
    "times "
    "slower.\n\n"
    "live_window: seconds for which a conversation counts as live after its last turn. "
    "reading_max_age: seconds from which a gauge counts as unknown. shared_prefix_tokens: how much "
    "of "
    "every prompt the whole pool shares. secret: 16 bytes, the same in every process that should "
    "agree; set it where keys come from clients that you do not trust.\n\n"
    "ValueError for configuration that makes no sense, with field and value; TypeError for an "
    "object "
    "of the wrong kind. Thread-safe; decisions hold the GIL.";

}  // namespace

void bind_router(py::module_& module) {
  py::class_<PyRouter> type(module, "Router", py::custom_type_setup(collectable), router_doc);

  type.def(py::init(&make_router), py::arg("names") = py::tuple(), py::kw_only(),
           py::arg("max_num_seqs") = py::none(), py::arg("pins") = py::none(),
           py::arg("scorer") = py::none(), py::arg("overflow") = py::none(),
           py::arg("metrics") = py::none(), py::arg("clock") = py::none(),
           py::arg("parent_hint") = member_of(ParentHint::prefer_parent),
           py::arg("affinity") = member_of(Affinity::on), py::arg("live_window") = 300.0,
           py::arg("reading_max_age") = 15.0, py::arg("shared_prefix_tokens") = 0,
           py::arg("secret") = py::bytes());
  bind_turns(type);
  bind_life(type);

  type.def("observe", &observe, py::arg("endpoint"), py::arg("page"),
           "Feeds a metrics page, str or bytes, to every replica behind `endpoint`: a ParseStatus. "
           "Unless it is ok, the page is counted and changes nothing. Parses without the GIL.");
  type.def("snapshot", &take_snapshot,
           "One copy of all counters and loads: enough for a panel or an exporter.");
  type.def(
      "set_affinity",
      [](PyRouter& self, py::handle affinity) {
        self.router().set_affinity(enum_from<Affinity>(affinity, "affinity"));
      },
      py::arg("affinity"),
      "Affinity.off: turns are unrouted and the engine's own balancer decides. Pins are kept.");
  type.def_property_readonly(
      "affinity", [](PyRouter& self) { return member_of(self.router().affinity()); },
      "Whether conversations are sent home: what set_affinity() was last told.");
  type.def(
      "hash",
      [](PyRouter& self, py::handle key) {
        const Key text = key_from(key.ptr(), "key");
        if (!text.has_value() || text.is_hash()) refuse_type("key", key, "a str or bytes");
        return self.router().hash(text.text());
      },
      py::arg("key"), "A key, hashed once: pass it instead where a conversation is named often.");
  type.def("__repr__", [](const py::object& self) {
    const std::size_t size = router_of(self.ptr()).size(self);
    return "<Router of " + std::to_string(size) + (size == 1 ? " replica>" : " replicas>");
  });
}

}  // namespace limpet::python
