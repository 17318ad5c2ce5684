// SPDX-License-Identifier: Apache-2.0
//
// The placement scorers. Each can also be asked by Python, so that a scorer of one's own can build
// on it.
#include "arguments.hpp"
#include "bind.hpp"
#include "policies.hpp"

#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/power_of_two.hpp>
#include <limpet/scorers/round_robin.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>
#include <limpet/scorers/weighted.hpp>

#include <string>

namespace limpet::python {

namespace {

template <class Scorer>
py::class_<Scorer> bind_scorer(py::module_& module, const char* name, const char* doc) {
  py::class_<Scorer> type(module, name, doc);
  type.def("score", &Scorer::score, py::arg("load"), py::arg("context"),
           "The score of a replica as a place for a new conversation; lower is better.");
  return type;
}

template <class Scorer>
void bind_plain_scorer(py::module_& module, const char* name, const char* doc) {
  bind_scorer<Scorer>(module, name, doc).def(py::init<>()).def("__repr__", [name](const Scorer&) {
    return std::string(name) + "()";
  });
}

}  // namespace

AnyScorer scorer_from(const py::object& policy, Scripts& scripts) {
  return policy_from<AnyScorer, WeightedLoad, LeastInFlight, LeastPendingPrefill, RoundRobin,
                     PowerOfTwo, TokensTimesBatch>(policy, "scorer", {"score"}, scripts.scorer,
                                                   ScriptedScorer{&scripts});
}

void bind_scorers(py::module_& module) {
  bind_scorer<WeightedLoad>(
      module, "WeightedLoad",
      "The default: in_flight_weight x turns in flight + kv_usage_weight x KV cache use (0..1) + "
      "live_weight x live conversations.\n\nBy default the router's own counts alone. With a "
      "kv_usage_weight (the published rule: 8, with live_weight=1) the gauge counts while every "
      "replica that is up has a fresh reading, and shrinks with the turns that left since; "
      "scale_gauge=False takes it as it was read. ValueError for a weight that is negative or not "
      "finite.")
      .def(py::init(
               [](py::handle in_flight, py::handle kv_usage, py::handle live, bool scale_gauge) {
                 const WeightedLoad scorer{
                     .in_flight_weight = number_from(in_flight, "in_flight_weight"),
                     .kv_usage_weight = number_from(kv_usage, "kv_usage_weight"),
                     .live_weight = number_from(live, "live_weight"),
                     .scale_gauge = scale_gauge};
                 scorer.validate();
                 return scorer;
               }),
           py::kw_only(), py::arg("in_flight_weight") = 1.0, py::arg("kv_usage_weight") = 0.0,
           py::arg("live_weight") = 0.25, py::arg("scale_gauge") = true)
      .def_readonly("in_flight_weight", &WeightedLoad::in_flight_weight)
      .def_readonly("kv_usage_weight", &WeightedLoad::kv_usage_weight)
      .def_readonly("live_weight", &WeightedLoad::live_weight)
      .def_readonly("scale_gauge", &WeightedLoad::scale_gauge)
      .def("__repr__", [](const WeightedLoad& scorer) {
        return "WeightedLoad(in_flight_weight=" + repr_of(scorer.in_flight_weight) +
               ", kv_usage_weight=" + repr_of(scorer.kv_usage_weight) +
               ", live_weight=" + repr_of(scorer.live_weight) +
               ", scale_gauge=" + (scorer.scale_gauge ? "True" : "False") + ")";
      });
  bind_plain_scorer<LeastInFlight>(module, "LeastInFlight",
                                   "Fewest turns in flight. Needs no metrics.");
  bind_plain_scorer<LeastPendingPrefill>(
      module, "LeastPendingPrefill",
      "Fewest prompt tokens to be read before the conversation can answer, its own among them. "
      "lease.first_byte() says that a turn's have been read.");
  bind_plain_scorer<TokensTimesBatch>(
      module, "TokensTimesBatch",
      "Lowest product of the tokens that the replica would have to read of this prompt and its "
      "turns in flight with this one.");
  bind_plain_scorer<RoundRobin>(module, "RoundRobin",
                                "One replica after the other, whatever their load: a baseline.");
  bind_plain_scorer<PowerOfTwo>(
      module, "PowerOfTwo",
      "Of two replicas drawn at random, the one with fewer turns in flight: "
      "for several routers that share a pool and not their counts.");
}

}  // namespace limpet::python
