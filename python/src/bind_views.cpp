// SPDX-License-Identifier: Apache-2.0
//
// What people and panels look at: Replica, Decision, Explanation and Snapshot.
#include "bind.hpp"
#include "enums.hpp"
#include "policies.hpp"
#include "router_object.hpp"
#include "views.hpp"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>

namespace limpet::python {

namespace {

template <class T>
[[nodiscard]] std::optional<T> unless_zero(T value) {
  if (value == 0) return std::nullopt;
  return value;
}

[[nodiscard]] std::optional<std::string> unless_empty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

[[nodiscard]] std::string quoted(const std::string& text) {
  return py::repr(py::str(text)).cast<std::string>();
}

[[nodiscard]] std::string name_or_none(const py::object& replica) {
  return replica.is_none() ? "None" : quoted(replica.cast<const PyReplica&>().options.name);
}

void bind_replica(py::module_& module) {
  py::class_<PyReplica>(
      module, "Replica",
      "One copy of the model with a prefix cache of its own, as it was configured.")
      .def_property_readonly("name", [](const PyReplica& self) { return self.options.name; })
      .def_property_readonly("endpoint",
                             [](const PyReplica& self) { return self.options.endpoint; })
      .def_property_readonly("rank", [](const PyReplica& self) { return self.options.rank; })
      .def_property_readonly(
          "engine", [](const PyReplica& self) { return unless_empty(self.options.engine); })
      .def_property_readonly(
          "max_num_seqs",
          [](const PyReplica& self) { return unless_zero(self.options.max_num_seqs); })
      .def_property_readonly(
          "kv_capacity_tokens",
          [](const PyReplica& self) { return unless_zero(self.options.kv_capacity_tokens); },
          "As configured; None: as the metrics page says.")
      .def_readonly("id", &PyReplica::id,
                    "What ReplicaLoad.replica names, in a policy of one's own.")
      .def("__repr__", [](const PyReplica& self) {
        std::string text = "Replica(" + quoted(self.options.name);
        if (self.options.endpoint != self.options.name) {
          text += ", endpoint=" + quoted(self.options.endpoint);
        }
        if (self.options.rank) text += ", rank=" + std::to_string(*self.options.rank);
        return text + ")";
      });
}

void bind_decision(py::module_& module) {
  py::class_<PyDecision>(
      module, "Decision",
      "What the router would do with a turn, or did. Keeps no router alive; equal "
      "where all it says is equal.")
      .def_readonly("replica", &PyDecision::replica, "Where to send it: a Replica, or None.")
      .def_readonly("home", &PyDecision::home,
                    "Where the conversation is pinned after this decision: a Replica, or None.")
      .def_readonly("previous", &PyDecision::previous,
                    "Where it was pinned until now, if this decision pins it anew and that replica "
                    "is still known.")
      .def_property_readonly(
          "outcome", [](const PyDecision& self) { return member_of(self.decision.outcome); })
      .def_property_readonly("reason",
                             [](const PyDecision& self) { return member_of(self.decision.reason); })
      .def_property_readonly("key",
                             [](const PyDecision& self) -> std::optional<KeyHash> {
                               if (!self.decision.has_key) return std::nullopt;
                               return self.decision.key;
                             })
      .def_property_readonly("side_call",
                             [](const PyDecision& self) { return self.decision.side_call; })
      .def_property_readonly("in_flight_seen",
                             [](const PyDecision& self) { return self.decision.in_flight_seen; })
      .def_property_readonly(
          "prompt_tokens",
          [](const PyDecision& self) { return unless_zero(self.decision.prompt_tokens); })
      .def(
          "__eq__",
          [](const PyDecision& self, const PyDecision& other) {
            return self.router_number == other.router_number && self.decision == other.decision;
          },
          py::is_operator())
      .def(
          "__hash__",
          [](const PyDecision& self) { return static_cast<Py_ssize_t>(self.decision.key.hi >> 2); })
      .def("__repr__", [](const PyDecision& self) {
        return "<Decision " + std::string(name_of(self.decision.outcome)) + " on " +
               name_or_none(self.replica) + ": " + std::string(to_string(self.decision.reason)) +
               ">";
      });
}

void bind_explanation(py::module_& module) {
  py::class_<PyExplainedReplica>(module, "ExplainedReplica",
                                 "How one replica stood in a decision: a row of Explanation.rows.")
      .def_property_readonly("name", [](const PyExplainedReplica& self) { return self.row.name; })
      .def_property_readonly(
          "standing", [](const PyExplainedReplica& self) { return member_of(self.row.standing); })
      .def_property_readonly(
          "home", [](const PyExplainedReplica& self) { return self.row.home; },
          "Whether the conversation was pinned here before the decision.")
      .def_property_readonly("overloaded",
                             [](const PyExplainedReplica& self) { return self.row.overloaded; })
      .def_property_readonly("load", [](const PyExplainedReplica& self) { return self.row.load; })
      .def_property_readonly(
          "reading_age", [](const PyExplainedReplica& self) { return self.row.reading_age; },
          "Seconds; None: never read.")
      .def_property_readonly(
          "score",
          [](const PyExplainedReplica& self) -> std::optional<double> {
            if (!self.is_scored) return std::nullopt;
            return self.row.score;
          },
          "As a place for a new conversation, lower is better; None where it could "
          "not be one.")
      .def_property_readonly(
          "terms",
          [](const PyExplainedReplica& self) {
            py::dict terms;
            for (const ScoreTerm& term : self.row.terms) {
              if (term.name != nullptr) terms[term.name] = term.value;
            }
            return terms;
          },
          "The score's addends by name, where the scorer explains itself.")
      .def("__repr__", [](const PyExplainedReplica& self) {
        return "<ExplainedReplica " + quoted(self.row.name) + " " +
               std::string(name_of(self.row.standing)) +
               (self.is_scored ? ", score " + repr_of(self.row.score) : "") + ">";
      });

  py::class_<PyExplanation>(
      module, "Explanation",
      "What the router would do with a turn, and for every replica why. str() is "
      "a table for people, rows is for programs.")
      .def_readonly("decision", &PyExplanation::decision)
      .def_property_readonly(
          "gauges_fresh", [](const PyExplanation& self) { return self.explanation.gauges_fresh; },
          "Whether every replica that is up has a fresh reading.")
      .def_readonly("rows", &PyExplanation::rows)
      .def("__str__", [](const PyExplanation& self) { return text_of(self); })
      .def("__repr__", [](const PyExplanation& self) {
        return "<Explanation of " + py::repr(self.decision).cast<std::string>() + ">";
      });
}

template <class T>
using Field = T ReplicaSnapshot::*;

void bind_replica_snapshot(py::module_& module) {
  py::class_<ReplicaSnapshot> row(
      module, "ReplicaSnapshot",
      "One replica at one moment: the router's own counts, then what its engine said last. None: "
      "unknown. reading_age is in seconds, kv_usage 0..1.");
  row.def_readonly("id", &ReplicaSnapshot::id);
  row.def_readonly("name", &ReplicaSnapshot::name);
  row.def_readonly("endpoint", &ReplicaSnapshot::endpoint);
  row.def_readonly("rank", &ReplicaSnapshot::rank);
  row.def_property_readonly("engine",
                            [](const ReplicaSnapshot& self) { return unless_empty(self.engine); });
  row.def_property_readonly("state",
                            [](const ReplicaSnapshot& self) { return member_of(self.state); });
  row.def_property_readonly(
      "max_num_seqs", [](const ReplicaSnapshot& self) { return unless_zero(self.max_num_seqs); });
  constexpr std::pair<const char*, Field<std::uint32_t>> small_counts[] = {
      {"in_flight", &ReplicaSnapshot::in_flight},
      {"live_conversations", &ReplicaSnapshot::live_conversations},
      {"pins", &ReplicaSnapshot::pins},
  };
  for (const auto& [name, field] : small_counts) row.def_readonly(name, field);
  constexpr std::pair<const char*, Field<std::uint64_t>> counts[] = {
      {"in_flight_tokens", &ReplicaSnapshot::in_flight_tokens},
      {"live_tokens", &ReplicaSnapshot::live_tokens},
      {"placed", &ReplicaSnapshot::placed},
      {"sticky", &ReplicaSnapshot::sticky},
      {"spilled_in", &ReplicaSnapshot::spilled_in},
      {"spilled_out", &ReplicaSnapshot::spilled_out},
      {"moved", &ReplicaSnapshot::moved},
      {"balanced", &ReplicaSnapshot::balanced},
      {"client_pinned", &ReplicaSnapshot::client_pinned},
      {"failed", &ReplicaSnapshot::failed},
      {"restarts", &ReplicaSnapshot::restarts},
  };
  for (const auto& [name, field] : counts) row.def_readonly(name, field);
  row.def_readonly("pending_prefill_tokens", &ReplicaSnapshot::pending_prefill_tokens);
  constexpr std::pair<const char*, Field<std::optional<double>>> gauges[] = {
      {"running", &ReplicaSnapshot::running},
      {"waiting", &ReplicaSnapshot::waiting},
      {"kv_usage", &ReplicaSnapshot::kv_usage},
      {"prefix_queries", &ReplicaSnapshot::prefix_queries},
      {"prefix_hits", &ReplicaSnapshot::prefix_hits},
      {"kv_capacity_tokens", &ReplicaSnapshot::kv_capacity_tokens},
      {"reading_age", &ReplicaSnapshot::reading_age},
  };
  for (const auto& [name, field] : gauges) row.def_readonly(name, field);
  row.def("__repr__", [](const ReplicaSnapshot& self) {
    return "<ReplicaSnapshot " + quoted(self.name) + " " + std::string(name_of(self.state)) +
           ", in_flight " + std::to_string(self.in_flight) + ", live_conversations " +
           std::to_string(self.live_conversations) + ", pins " + std::to_string(self.pins) + ">";
  });
}

void bind_snapshot(py::module_& module) {
  py::class_<PySnapshot>(module, "Snapshot",
                         "One copy of all counters and loads; each row is consistent in itself. "
                         "Counters rise from the router's, or the replica's, birth.")
      .def_readonly("replicas", &PySnapshot::replicas, "A row a replica, in the order they joined.")
      .def_property_readonly("refused",
                             [](const PySnapshot& self) { return self.snapshot.refused; })
      .def_property_readonly("unrouted",
                             [](const PySnapshot& self) { return self.snapshot.unrouted; })
      .def_property_readonly("unpinned",
                             [](const PySnapshot& self) { return self.snapshot.unpinned; })
      .def_property_readonly("evicted",
                             [](const PySnapshot& self) { return self.snapshot.evicted; })
      .def_property_readonly("expired",
                             [](const PySnapshot& self) { return self.snapshot.expired; })
      .def_property_readonly("readings",
                             [](const PySnapshot& self) { return self.snapshot.readings; })
      .def_property_readonly("bad_readings",
                             [](const PySnapshot& self) { return self.snapshot.bad_readings; })
      .def_property_readonly(
          "affinity",
          [](const PySnapshot& self) {
            return member_of(self.snapshot.affinity ? Affinity::on : Affinity::off);
          })
      .def("__str__", [](const PySnapshot& self) { return text_of(self); })
      .def("__repr__", [](const PySnapshot& self) {
        return "<Snapshot of " + std::to_string(self.replicas.size()) + " replicas>";
      });
}

}  // namespace

void bind_views(py::module_& module) {
  bind_replica(module);
  bind_decision(module);
  bind_explanation(module);
  bind_replica_snapshot(module);
  bind_snapshot(module);
}

}  // namespace limpet::python
