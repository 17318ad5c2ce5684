// SPDX-License-Identifier: Apache-2.0
//
// The overflow rules, and what a rule written in Python sees and answers.
#include "arguments.hpp"
#include "bind.hpp"
#include "policies.hpp"

#include <limpet/overflow/adjustable_spill.hpp>
#include <limpet/overflow/bounded_load.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/overflow/move_when_full.hpp>
#include <limpet/overflow/never.hpp>
#include <limpet/overflow/spill_above.hpp>

#include <pybind11/operators.h>

#include <string>

namespace limpet::python {

namespace {

[[nodiscard]] std::uint32_t threshold_from(py::handle value) {
  return count_or<std::uint32_t>(value, 0, "threshold", {1, 0xFFFFFFFF});
}

[[nodiscard]] py::object threshold_of(std::uint32_t threshold) {
  if (threshold == 0) return py::none();
  return py::int_(threshold);
}

[[nodiscard]] std::string threshold_repr(std::uint32_t threshold) {
  return "threshold=" + (threshold == 0 ? "None" : std::to_string(threshold));
}

[[nodiscard]] const char* action_name(Verdict verdict) {
  constexpr const char* names[] = {"stay", "spill", "move"};
  return names[static_cast<std::size_t>(verdict.action)];
}

template <class Rule>
py::class_<Rule> bind_rule(py::module_& module, const char* name, const char* doc) {
  py::class_<Rule> type(module, name, doc);
  type.def("overloaded", &Rule::overloaded, py::arg("home"),
           "Whether a conversation should ask if it can go elsewhere.");
  type.def(
      "decide",
      [](const Rule& rule, const ScriptedView& seen) {
        const OverflowView view = seen.view();
        return rule.decide(view);
      },
      py::arg("view"), "What to do with a turn whose home is overloaded.");
  return type;
}

void bind_verdict(py::module_& module) {
  py::class_<Verdict> verdict(
      module, "Verdict",
      "What an overflow rule answers: Verdict.stay, Verdict.spill (go elsewhere once) or "
      "Verdict.move "
      "(for good). spill and move may name a replica with to(load.replica); without a name a spill "
      "goes to the fewest turns in flight and a move to the best score.");
  verdict.def(
      "to", [](Verdict self, ReplicaId replica) { return self.to(replica); }, py::arg("replica"),
      "The same verdict, to a replica that is one of view.others.");
  verdict.def_property_readonly("action", &action_name);
  verdict.def_property_readonly("target", [](Verdict self) -> py::object {
    if (!self.target) return py::none();
    return py::cast(self.target);
  });
  verdict.def(py::self == py::self);
  verdict.def("__hash__", [](Verdict self) {
    return py::hash(py::make_tuple(action_name(self), self.target.slot, self.target.version));
  });
  verdict.def("__repr__", [](Verdict self) {
    std::string text = std::string("Verdict.") + action_name(self);
    if (self.target) text += ".to(" + py::repr(py::cast(self.target)).cast<std::string>() + ")";
    return text;
  });
  verdict.attr("stay") = Verdict::stay;
  verdict.attr("spill") = Verdict::spill;
  verdict.attr("move") = Verdict::move;
}

void bind_view(py::module_& module) {
  py::class_<ScriptedView>(
      module, "OverflowView",
      "Home, the other replicas that may take the turn, and what is known of it.")
      .def_readonly("home", &ScriptedView::home)
      .def_readonly("others", &ScriptedView::others)
      .def_readonly("prompt_tokens", &ScriptedView::prompt_tokens)
      .def_readonly("context_tokens", &ScriptedView::context_tokens)
      .def_readonly("uncached_at_home", &ScriptedView::uncached_at_home)
      .def_readonly("uncached_elsewhere", &ScriptedView::uncached_elsewhere)
      .def("__repr__", [](const ScriptedView& view) {
        return "<OverflowView home and " + std::to_string(view.others.size()) + " others>";
      });
}

}  // namespace

AnyOverflow overflow_from(const py::object& policy, Scripts& scripts) {
  return policy_from<AnyOverflow, SpillAbove, AdjustableSpill, MoveIfCheaper, MoveWhenFull,
                     NeverSpill, BoundedLoad>(policy, "overflow", {"overloaded", "decide"},
                                              scripts.overflow, ScriptedOverflow{&scripts});
}

void bind_overflow(py::module_& module) {
  bind_verdict(module);
  bind_view(module);

  bind_rule<SpillAbove>(module, "SpillAbove",
                        "The default: leave home for one turn when it already serves `threshold` "
                        "turns of ours. None: a "
                        "quarter of that replica's max_num_seqs, of 256 where that is unknown.")
      .def(py::init([](py::handle threshold) { return SpillAbove{threshold_from(threshold)}; }),
           py::kw_only(), py::arg("threshold") = py::none())
      .def_property_readonly("threshold",
                             [](SpillAbove rule) { return threshold_of(rule.threshold); })
      .def("__repr__",
           [](SpillAbove rule) { return "SpillAbove(" + threshold_repr(rule.threshold) + ")"; });

  bind_rule<AdjustableSpill>(module, "AdjustableSpill",
                             "SpillAbove with a threshold that can be set while a router runs: "
                             "give it to the router "
                             "and keep it. A change counts from the next turn on. Thread-safe.")
      .def(
          py::init([](py::handle threshold) { return AdjustableSpill(threshold_from(threshold)); }),
          py::kw_only(), py::arg("threshold") = py::none())
      .def_property(
          "threshold", [](const AdjustableSpill& rule) { return threshold_of(rule.threshold()); },
          [](AdjustableSpill& rule, py::handle threshold) {
            rule.set_threshold(threshold_from(threshold));
          })
      .def("__repr__", [](const AdjustableSpill& rule) {
        return "AdjustableSpill(" + threshold_repr(rule.threshold()) + ")";
      });

  bind_rule<MoveIfCheaper>(module, "MoveIfCheaper",
                           "Leave home for good where what is pending and not cached at home is "
                           "more than `margin` times "
                           "what is pending elsewhere and the whole prompt, and `floor_tokens` "
                           "more than that. margin >= "
                           "1. lease.first_byte() says that a turn's prompt has been read.")
      .def(py::init([](py::handle margin, py::handle floor_tokens) {
             const MoveIfCheaper rule{.margin = number_from(margin, "margin"),
                                      .floor_tokens = static_cast<std::uint32_t>(count_from(
                                          floor_tokens, "floor_tokens", {0, 0xFFFFFFFF}))};
             rule.validate();
             return rule;
           }),
           py::kw_only(), py::arg("margin") = 1.25, py::arg("floor_tokens") = 2'048)
      .def_readonly("margin", &MoveIfCheaper::margin)
      .def_readonly("floor_tokens", &MoveIfCheaper::floor_tokens)
      .def("__repr__", [](const MoveIfCheaper& rule) {
        return "MoveIfCheaper(margin=" + repr_of(rule.margin) +
               ", floor_tokens=" + std::to_string(rule.floor_tokens) + ")";
      });

  bind_rule<MoveWhenFull>(module, "MoveWhenFull",
                          "Leave home for good when its live tokens exceed `full` of its KV "
                          "capacity and another replica "
                          "stays under `room` of its own with this conversation added (shares, 0 < "
                          "room <= full). Within "
                          "that, SpillAbove(threshold).")
      .def(py::init([](py::handle full, py::handle room, py::handle threshold) {
             const MoveWhenFull rule{.full = number_from(full, "full"),
                                     .room = number_from(room, "room"),
                                     .threshold = threshold_from(threshold)};
             rule.validate();
             return rule;
           }),
           py::kw_only(), py::arg("full") = 0.95, py::arg("room") = 0.90,
           py::arg("threshold") = py::none())
      .def_readonly("full", &MoveWhenFull::full)
      .def_readonly("room", &MoveWhenFull::room)
      .def_property_readonly("threshold",
                             [](const MoveWhenFull& rule) { return threshold_of(rule.threshold); })
      .def("__repr__", [](const MoveWhenFull& rule) {
        return "MoveWhenFull(full=" + repr_of(rule.full) + ", room=" + repr_of(rule.room) + ", " +
               threshold_repr(rule.threshold) + ")";
      });

  bind_rule<NeverSpill>(module, "NeverSpill", "Stay at home whatever the load.")
      .def(py::init<>())
      .def("__repr__", [](NeverSpill) { return "NeverSpill()"; });

  bind_rule<BoundedLoad>(
      module, "BoundedLoad",
      "No replica serves more than (1 + epsilon) times the mean of the pool. epsilon > 0.")
      .def(py::init([](py::handle epsilon) {
             const BoundedLoad rule{.epsilon = number_from(epsilon, "epsilon")};
             rule.validate();
             return rule;
           }),
           py::kw_only(), py::arg("epsilon") = 0.25)
      .def_readonly("epsilon", &BoundedLoad::epsilon)
      .def("__repr__", [](const BoundedLoad& rule) {
        return "BoundedLoad(epsilon=" + repr_of(rule.epsilon) + ")";
      });
}

}  // namespace limpet::python
