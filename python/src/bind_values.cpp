// SPDX-License-Identifier: Apache-2.0
//
// The plain values that cross between Python and the router: what a policy written in Python is
// handed and hands back, and what an engine said of a turn. Immutable, compared and hashed by
// value.
#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"

#include <limpet/concepts.hpp>
#include <limpet/types.hpp>

#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace limpet::python {

namespace {

[[nodiscard]] Py_hash_t hash_of(std::uint64_t bits) noexcept {
  const auto hash = std::bit_cast<std::int64_t>(bits * 0x9e3779b97f4a7c15ULL);
  return static_cast<Py_hash_t>(hash == -1 ? -2 : hash);
}

[[nodiscard]] std::uint64_t bits_of(ReplicaId id) noexcept {
  return std::uint64_t{id.slot} << 16 | id.version;
}

void bind_names(py::module_& module) {
  py::class_<ReplicaId>(module, "ReplicaId",
                        "Names one replica of one router; the id of a removed replica never comes "
                        "back.")
      .def(py::init([](py::handle slot, py::handle version) {
             return ReplicaId{
                 static_cast<std::uint16_t>(count_from(slot, "slot", {0, 0xFFFF})),
                 static_cast<std::uint16_t>(count_from(version, "version", {0, 0xFFFF}))};
           }),
           py::arg("slot"), py::arg("version"))
      .def_readonly("slot", &ReplicaId::slot)
      .def_readonly("version", &ReplicaId::version)
      .def(py::self == py::self)
      .def("__hash__", [](ReplicaId id) { return hash_of(bits_of(id)); })
      .def("__repr__", [](ReplicaId id) {
        return "ReplicaId(" + std::to_string(id.slot) + ", " + std::to_string(id.version) + ")";
      });

  py::class_<Home>(
      module, "Home",
      "A pin's value: a replica, and how often it had restarted when the pin was made.")
      .def(py::init([](ReplicaId replica, py::handle generation) {
             return Home{replica, static_cast<std::uint32_t>(count_from(generation, "generation"))};
           }),
           py::arg("replica"), py::arg("generation"))
      .def_readonly("replica", &Home::replica)
      .def_readonly("generation", &Home::generation)
      .def(py::self == py::self)
      .def("__hash__",
           [](Home home) { return hash_of(bits_of(home.replica) << 32 | home.generation); })
      .def("__repr__", [](Home home) {
        return "Home(ReplicaId(" + std::to_string(home.replica.slot) + ", " +
               std::to_string(home.replica.version) + "), " + std::to_string(home.generation) + ")";
      });

  py::class_<KeyHash>(module, "KeyHash",
                      "A conversation's key as the router keeps it: 128 bits, keyed with the "
                      "router's secret. bytes(hash) gives its 16 bytes, KeyHash(bytes) takes them.")
      .def(py::init([](const py::bytes& bytes) {
             const std::string_view text(bytes);
             if (text.size() != 16) refuse_value("digest", bytes, "a key's hash has 16 bytes");
             KeyHash hash;
             for (std::size_t i = 0; i < 8; ++i) {
               hash.hi = hash.hi << 8 | static_cast<unsigned char>(text[i]);
               hash.lo = hash.lo << 8 | static_cast<unsigned char>(text[8 + i]);
             }
             return hash;
           }),
           py::arg("digest"))
      .def("__bytes__",
           [](KeyHash hash) {
             std::array<char, 16> bytes;
             for (std::size_t i = 0; i < 8; ++i) {
               bytes[i] = static_cast<char>(hash.hi >> (56 - 8 * i));
               bytes[8 + i] = static_cast<char>(hash.lo >> (56 - 8 * i));
             }
             return py::bytes(bytes.data(), bytes.size());
           })
      .def(py::self == py::self)
      .def("__hash__", [](KeyHash hash) { return hash_of(hash.hi ^ hash.lo); })
      .def("__repr__", [](KeyHash hash) {
        std::array<char, 64> text;
        std::snprintf(text.data(), text.size(), "<KeyHash %016llx%016llx>",
                      static_cast<unsigned long long>(hash.hi),
                      static_cast<unsigned long long>(hash.lo));
        return std::string(text.data());
      });
}

void bind_usage(py::module_& module) {
  py::class_<Usage>(
      module, "Usage",
      "What the engine said of a finished turn, in tokens. cached_tokens is None, not "
      "0, where it did not say.")
      .def(py::init([](py::handle prompt, py::handle cached, py::handle completion) {
             Usage usage{
                 .prompt_tokens = count_from(prompt, "prompt_tokens", token_counts),
                 .completion_tokens = count_from(completion, "completion_tokens", token_counts)};
             if (!cached.is_none())
               usage.cached_tokens = count_from(cached, "cached_tokens", token_counts);
             return usage;
           }),
           py::kw_only(), py::arg("prompt_tokens") = 0, py::arg("cached_tokens") = py::none(),
           py::arg("completion_tokens") = 0)
      .def_readonly("prompt_tokens", &Usage::prompt_tokens)
      .def_readonly("cached_tokens", &Usage::cached_tokens)
      .def_readonly("completion_tokens", &Usage::completion_tokens)
      .def(py::self == py::self)
      .def("__hash__",
           [](const Usage& usage) {
             return hash_of(usage.prompt_tokens ^
                            usage.cached_tokens.value_or(~std::uint64_t{0}) << 21 ^
                            usage.completion_tokens << 42);
           })
      .def("__repr__", [](const Usage& usage) {
        return "Usage(prompt_tokens=" + std::to_string(usage.prompt_tokens) + ", cached_tokens=" +
               (usage.cached_tokens ? std::to_string(*usage.cached_tokens) : "None") +
               ", completion_tokens=" + std::to_string(usage.completion_tokens) + ")";
      });
}

void bind_loads(py::module_& module) {
  py::class_<ReplicaLoad>(
      module, "ReplicaLoad",
      "What is known of one replica at one moment: the router's own counts, which "
      "are exact, then the engine's gauges, which lag.")
      .def_readonly("replica", &ReplicaLoad::replica)
      .def_property_readonly("state", [](const ReplicaLoad& load) { return member_of(load.state); })
      .def_readonly("reading_fresh", &ReplicaLoad::reading_fresh)
      .def_readonly("max_num_seqs", &ReplicaLoad::max_num_seqs)
      .def_readonly("in_flight", &ReplicaLoad::in_flight)
      .def_readonly("in_flight_tokens", &ReplicaLoad::in_flight_tokens)
      .def_readonly("pending_prefill_tokens", &ReplicaLoad::pending_prefill_tokens)
      .def_readonly("live_conversations", &ReplicaLoad::live_conversations)
      .def_readonly("live_tokens", &ReplicaLoad::live_tokens)
      .def_readonly("kv_capacity_tokens", &ReplicaLoad::kv_capacity_tokens)
      .def_readonly("kv_usage", &ReplicaLoad::kv_usage)
      .def_readonly("in_flight_at_reading", &ReplicaLoad::in_flight_at_reading)
      .def_readonly("running", &ReplicaLoad::running)
      .def_readonly("waiting", &ReplicaLoad::waiting)
      .def("__repr__", [](const ReplicaLoad& load) {
        return "<ReplicaLoad slot=" + std::to_string(load.replica.slot) +
               " in_flight=" + std::to_string(load.in_flight) +
               " live_conversations=" + std::to_string(load.live_conversations) + ">";
      });

  py::class_<ScoreContext>(module, "ScoreContext",
                           "What the whole fleet and the turn say, beside one replica's load.")
      .def_readonly("gauges_fresh", &ScoreContext::gauges_fresh)
      .def_readonly("candidates", &ScoreContext::candidates)
      .def_readonly("position", &ScoreContext::position)
      .def_readonly("draw", &ScoreContext::draw)
      .def_readonly("prompt_tokens", &ScoreContext::prompt_tokens)
      .def_readonly("uncached_tokens", &ScoreContext::uncached_tokens)
      .def("__repr__", [](const ScoreContext& context) {
        return "<ScoreContext " + std::to_string(context.position) + " of " +
               std::to_string(context.candidates) + ">";
      });
}

}  // namespace

void bind_values(py::module_& module) {
  bind_names(module);
  bind_usage(module);
  bind_loads(module);
}

}  // namespace limpet::python
