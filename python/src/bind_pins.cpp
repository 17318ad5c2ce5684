// SPDX-License-Identifier: Apache-2.0
//
// The pin stores. A Python object of them is the configuration: each router that gets it builds a
// store of its own.
#include "arguments.hpp"
#include "bind.hpp"
#include "policies.hpp"

#include <limpet/pins/local.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/pins/sharded.hpp>

#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace limpet::python {

namespace {

constexpr Within capacities{1, std::uint64_t{1} << 30};

struct RendezvousPinOptions {};

[[nodiscard]] Duration ttl_from(py::handle seconds) {
  const Duration ttl = duration_from(seconds, "idle_ttl");
  if (ttl == Duration::zero()) refuse_value("idle_ttl", seconds, "a pin must live for some time");
  return ttl;
}

[[nodiscard]] double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Under the GIL one thread at a time is all there is; without one this store needs a lock.
[[nodiscard]] ChosenPins one_thread_store(const PinOptions& options) {
#ifdef Py_GIL_DISABLED
  return {AnyPins(ShardedPins<>(
              {.capacity = options.capacity, .idle_ttl = options.idle_ttl, .shards = 1})),
          ThreadSafety::any_thread};
#else
  return {AnyPins(LocalPins(options)), ThreadSafety::one_thread};
#endif
}

}  // namespace

ChosenPins pins_from(const py::object& policy, Scripts& scripts) {
  if (policy.is_none()) return {AnyPins(), ThreadSafety::any_thread};
  if (is_exactly<ShardedPinOptions>(policy)) {
    return {AnyPins(ShardedPins<>(policy.cast<ShardedPinOptions>())), ThreadSafety::any_thread};
  }
  if (is_exactly<PinOptions>(policy)) return one_thread_store(policy.cast<PinOptions>());
  if (is_exactly<RendezvousPinOptions>(policy)) {
    return {AnyPins(RendezvousPins{}), ThreadSafety::any_thread};
  }
  require_methods(policy, "pins", {"find", "pin", "repin", "unpin"});
  scripts.pins = policy;
  return {AnyPins(ScriptedPins{&scripts}), ThreadSafety::any_thread};
}

void bind_pins(py::module_& module) {
  py::class_<ShardedPinOptions>(
      module, "ShardedPins",
      "The default table of pins: up to `capacity` conversations, the least recently active one "
      "evicted first.\n\nA pin that was not used for `idle_ttl` seconds is forgotten. `shards` is "
      "a "
      "power of two up to 65,536; None: one for each 1,024 of capacity. ValueError, here or from "
      "Router(), for what makes no sense.")
      .def(py::init([](py::handle capacity, py::handle idle_ttl, py::handle shards) {
             return ShardedPinOptions{
                 .capacity = count_from(capacity, "capacity", capacities),
                 .idle_ttl = ttl_from(idle_ttl),
                 .shards = count_or<std::size_t>(shards, 0, "shards", {1, 65536})};
           }),
           py::kw_only(), py::arg("capacity") = 8192, py::arg("idle_ttl") = 1800.0,
           py::arg("shards") = py::none())
      .def_readonly("capacity", &ShardedPinOptions::capacity)
      .def_property_readonly("idle_ttl",
                             [](const ShardedPinOptions& pins) { return seconds(pins.idle_ttl); })
      .def_property_readonly("shards",
                             [](const ShardedPinOptions& pins) -> std::optional<std::size_t> {
                               if (pins.shards == 0) return std::nullopt;
                               return pins.shards;
                             })
      .def("__repr__", [](const ShardedPinOptions& pins) {
        return "ShardedPins(capacity=" + std::to_string(pins.capacity) +
               ", idle_ttl=" + repr_of(seconds(pins.idle_ttl)) +
               ", shards=" + (pins.shards == 0 ? "None" : std::to_string(pins.shards)) + ")";
      });

  py::class_<PinOptions>(
      module, "LocalPins",
      "The table of pins without locks: exact least-recently-active order over all of it. The GIL "
      "keeps threads apart.")
      .def(py::init([](py::handle capacity, py::handle idle_ttl) {
             return PinOptions{.capacity = count_from(capacity, "capacity", capacities),
                               .idle_ttl = ttl_from(idle_ttl)};
           }),
           py::kw_only(), py::arg("capacity") = 8192, py::arg("idle_ttl") = 1800.0)
      .def_readonly("capacity", &PinOptions::capacity)
      .def_property_readonly("idle_ttl",
                             [](const PinOptions& pins) { return seconds(pins.idle_ttl); })
      .def("__repr__", [](const PinOptions& pins) {
        return "LocalPins(capacity=" + std::to_string(pins.capacity) +
               ", idle_ttl=" + repr_of(seconds(pins.idle_ttl)) + ")";
      });

  py::class_<RendezvousPinOptions>(module, "RendezvousPins",
                                   "No table: a conversation's home is the replica with the "
                                   "highest hash of key and name. Routers "
                                   "agree without talking; load decides nothing.")
      .def(py::init<>())
      .def("__repr__", [](const RendezvousPinOptions&) { return "RendezvousPins()"; });
}

}  // namespace limpet::python
