// SPDX-License-Identifier: Apache-2.0
//
// What became of finished turns: Ledger and Timeline, and what replaying a record of decisions needs.
#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"
#include "router_object.hpp"

#include <limpet/ledger/decisions.hpp>
#include <limpet/ledger/timeline.hpp>
#include <limpet/ledger/turns.hpp>

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace limpet::python {

namespace {

[[nodiscard]] py::dict totals_of(const ClassTotals& totals) {
  py::dict by_class;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    by_class[member_of(static_cast<TurnClass>(i))] = totals[i];
  }
  return by_class;
}

[[nodiscard]] double share_from(py::handle value, const char* field) {
  return number_from(value, field);
}

void bind_turn_classes(py::module_& module) {
  py::class_<ClassTotal>(module, "ClassTotal", "The turns of one class, and what they cost.")
      .def_readonly("turns", &ClassTotal::turns)
      .def_readonly("computed_tokens", &ClassTotal::computed_tokens)
      .def("__repr__", [](const ClassTotal& total) {
        return "<ClassTotal turns=" + std::to_string(total.turns) +
               " computed_tokens=" + std::to_string(total.computed_tokens) + ">";
      });

  py::class_<RecordedTurn>(module, "RecordedTurn", "What Ledger.record() made of a turn.")
      .def_property_readonly("turn_class",
                             [](const RecordedTurn& turn) { return member_of(turn.turn_class); })
      .def_readonly("reusable_tokens", &RecordedTurn::reusable_tokens)
      .def_readonly("computed_tokens", &RecordedTurn::computed_tokens)
      .def("__repr__", [](const RecordedTurn& turn) {
        return "<RecordedTurn " + std::string(to_string(turn.turn_class)) +
               " reusable_tokens=" + std::to_string(turn.reusable_tokens) +
               " computed_tokens=" + std::to_string(turn.computed_tokens) + ">";
      });

  py::class_<Ledger>(module, "Ledger",
                     "Says for every finished turn whether it was a prefix hit, and if not, why. "
                     "Thread-safe.")
      .def(py::init([](py::handle block_tokens, py::handle cold_below, py::handle hit_at_least,
                       py::handle lost_below, py::handle capacity) {
             return new Ledger({.block_tokens = static_cast<std::uint32_t>(
                                    count_from(block_tokens, "block_tokens")),
                                .cold_below = count_from(cold_below, "cold_below", token_counts),
                                .hit_at_least = share_from(hit_at_least, "hit_at_least"),
                                .lost_below = share_from(lost_below, "lost_below"),
                                .capacity = count_from(capacity, "capacity")});
           }),
           py::kw_only(), py::arg("block_tokens") = 16, py::arg("cold_below") = 256,
           py::arg("hit_at_least") = 0.9, py::arg("lost_below") = 0.1, py::arg("capacity") = 65536)
      .def(
          "record",
          [](Ledger& ledger, const PyDecision& decision, const Usage& usage,
             const std::vector<std::uint64_t>& prefix) {
            return ledger.record(decision.decision, usage, prefix);
          },
          py::arg("decision"), py::arg("usage"), py::arg("prefix") = std::vector<std::uint64_t>{},
          "Records a finished turn: lease.decision, what the engine said, and prefix_chain(body) "
          "where it is known.")
      .def(
          "totals",
          [](const Ledger& ledger, const PyReplica* replica) {
            return totals_of(replica == nullptr ? ledger.totals() : ledger.totals(replica->id));
          },
          py::arg("replica") = py::none(),
          "The ClassTotal of each TurnClass: of the turns that `replica` served, or of all.")
      .def_property_readonly("conversations", &Ledger::conversations)
      .def("__repr__", [](const Ledger& ledger) {
        return "<Ledger of " + std::to_string(ledger.conversations()) + " conversations>";
      });
}

[[nodiscard]] Instant instant_from(py::handle seconds) {
  return seconds.is_none() ? SteadyClock{}.now() : Instant{duration_from(seconds, "now")};
}

void bind_timeline(py::module_& module) {
  py::class_<PromptTokens>(module, "PromptTokens", "Prompt tokens of one second, or of a span.")
      .def_readonly("cached", &PromptTokens::cached)
      .def_readonly("computed", &PromptTokens::computed)
      .def_property_readonly("cached_share", &PromptTokens::cached_share,
                             "Share read from the prefix cache, 0..1; 0 where there were none.")
      .def("__repr__", [](const PromptTokens& tokens) {
        return "<PromptTokens cached=" + std::to_string(tokens.cached) +
               " computed=" + std::to_string(tokens.computed) + ">";
      });

  py::class_<Timeline>(module, "Timeline",
                       "Prompt tokens of the last hour, second by second, read from cache against "
                       "computed. `now` is in seconds of one clock; default: the monotonic one. "
                       "Thread-safe.")
      .def(py::init<>())
      .def(
          "record",
          [](Timeline& timeline, const PyReplica& replica, const Usage& usage, py::handle now) {
            timeline.record(replica.id, usage, instant_from(now));
          },
          py::arg("replica"), py::arg("usage"), py::kw_only(), py::arg("now") = py::none(),
          "Counts a prompt. One that its engine did not measure counts as computed.")
      .def(
          "series",
          [](const Timeline& timeline, const PyReplica* replica, py::handle now,
             py::handle seconds) {
            const std::size_t count = count_from(seconds, "seconds");
            return replica == nullptr ? timeline.series(instant_from(now), count)
                                      : timeline.series(replica->id, instant_from(now), count);
          },
          py::arg("replica") = py::none(), py::kw_only(), py::arg("now") = py::none(),
          py::arg("seconds") = Timeline::steps,
          "A PromptTokens for each second up to now, oldest first; an hour at most.")
      .def(
          "last_hour",
          [](const Timeline& timeline, const PyReplica* replica, py::handle now) {
            return replica == nullptr ? timeline.last_hour(instant_from(now))
                                      : timeline.last_hour(replica->id, instant_from(now));
          },
          py::arg("replica") = py::none(), py::kw_only(), py::arg("now") = py::none(),
          "The last hour together.");
}

}  // namespace

void bind_ledger(py::module_& module) {
  bind_turn_classes(module);
  bind_timeline(module);

  module.def(
      "_as_recorded",
      [](py::object self, const PyDecision& planned, const PyReplica& replica, py::handle outcome) {
        return router_of(self.ptr())
            .describe(self, as_recorded(planned.decision, replica.id,
                                        enum_from<Outcome>(outcome, "outcome")));
      },
      py::arg("router"), py::arg("planned"), py::arg("replica"), py::arg("outcome"),
      "The decision that a record tells of, for Router.commit().");
}

}  // namespace limpet::python
