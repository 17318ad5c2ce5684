// SPDX-License-Identifier: Apache-2.0
//
// The life of a Router's replicas, by name, since that is what a configuration or an operator
// knows. KeyError for a name that no replica has.
#include "arguments.hpp"
#include "router_object.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace limpet::python {

namespace {

[[nodiscard]] ReplicaId known_replica(PyRouter& router, const std::string& name) {
  if (const auto id = router.find(name)) return *id;
  std::string text =
      "no replica is named " + py::repr(py::str(name)).cast<std::string>() + "; there ";
  std::string names;
  const Snapshot snapshot = router.router().snapshot();
  constexpr std::size_t shown = 8;
  for (std::size_t i = 0; i < snapshot.replicas.size() && i < shown; ++i) {
    names += (i == 0 ? "" : ", ") + snapshot.replicas[i].name;
  }
  if (snapshot.replicas.size() > shown) names += ", ...";
  throw py::key_error(text + (names.empty() ? "are none" : "are " + names));
}

// A change of the pool tells the store, which may be in Python.
template <class Change>
auto by_name(Change change) {
  return [change](PyRouter& self, const std::string& name) {
    const ReplicaId id = known_replica(self, name);
    (self.router().*change)(id);
    raise_pending();
  };
}

}  // namespace

void bind_life(py::class_<PyRouter>& type) {
  type.def(
      "add_replica",
      [](const py::object& self, py::handle name, py::handle endpoint, py::handle rank,
         py::handle engine, py::handle max_num_seqs, py::handle kv_capacity_tokens) {
        ReplicaOptions options{.name = text_from(name, "name"),
                               .max_num_seqs = max_num_seqs_from(max_num_seqs),
                               .kv_capacity_tokens = count_or<std::uint64_t>(
                                   kv_capacity_tokens, 0, "kv_capacity_tokens", token_counts)};
        if (!endpoint.is_none()) options.endpoint = text_from(endpoint, "endpoint");
        if (!engine.is_none()) options.engine = text_from(engine, "engine");
        if (!rank.is_none()) options.rank = static_cast<std::uint32_t>(count_from(rank, "rank"));
        const py::scoped_critical_section guard(self);
        return router_of(self.ptr()).add(std::move(options));
      },
      py::arg("name"), py::kw_only(), py::arg("endpoint") = py::none(),
      py::arg("rank") = py::none(), py::arg("engine") = py::none(),
      py::arg("max_num_seqs") = py::none(), py::arg("kv_capacity_tokens") = py::none(),
      "Adds a replica, up at once: a Replica.\n\nendpoint is its base URL, by default its name; "
      "rank "
      "the data-parallel rank to ask the endpoint for; engine the `engine` label of its series on "
      "the "
      "metrics page (None: the page is all its own); max_num_seqs the engine's option of that name "
      "and kv_capacity_tokens the size of its cache (None: unknown, or as the page says). "
      "ValueError "
      "for an empty or a used name.");
  type.def("drain", by_name(&AnyRouter::drain), py::arg("name"),
           "It serves the conversations it has and takes no new ones, unless nothing else is up.");
  type.def("set_down", by_name(&AnyRouter::set_down), py::arg("name"),
           "It takes nothing; its conversations move at their next turn.");
  type.def("set_up", by_name(&AnyRouter::set_up), py::arg("name"), "It takes everything again.");
  type.def("restarted", by_name(&AnyRouter::restarted), py::arg("name"),
           "Its cache is gone: all its pins are forgotten at once.");
  type.def("remove", by_name(&AnyRouter::remove), py::arg("name"),
           "It leaves the pool, and its name is free. Its leases may still be returned.");
  type.def(
      "rebalance",
      [](PyRouter& self, py::handle limit, py::handle idle) {
        const auto most = static_cast<std::size_t>(count_from(limit, "limit"));
        const Duration since = duration_from(idle, "idle");
        std::size_t moved = 0;
        {
          std::optional<py::gil_scoped_release> release;
          if (self.is_thread_safe()) release.emplace();
          moved = self.router().rebalance(most, since);
        }
        raise_pending();
        return moved;
      },
      py::arg("limit"), py::kw_only(), py::arg("idle") = 300.0,
      "After a scale-up: moves up to `limit` conversations without a turn for `idle` seconds, "
      "oldest "
      "first, from replicas with many pins to those with few. Returns how many. Runs without the "
      "GIL.");
}

}  // namespace limpet::python
