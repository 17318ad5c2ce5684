// SPDX-License-Identifier: Apache-2.0
//
// The simulated fleet: what limpet/sim.py makes a public, typed module of.
//
// A policy is a name, a Routed (policies of the router) or any object with choose(turn, now). Named
// ones run without the GIL, the others with it, since they may call Python at every turn.
#include "bind.hpp"
#include "policies.hpp"
#include "scripted.hpp"

#include <limpet/any.hpp>
#include <limpet/sim/calibrate.hpp>
#include <limpet/sim/plot.hpp>
#include <limpet/sim/policies.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/recording.hpp>
#include <limpet/sim/report.hpp>
#include <limpet/sim/router_front_end.hpp>
#include <limpet/sim/scenario.hpp>

#include <pybind11/stl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace limpet::python {

namespace {

// What a front end in Python is told of a turn. Copies: Python may keep it.
struct SimTurn {
  std::uint64_t id;
  std::string conversation;
  std::string parent;
  std::uint64_t prompt_tokens;
  std::uint64_t shared_tokens;
};

// A front end in Python: choose(turn, now) is asked for each turn, start(replicas) and
// finished(turn id, replica, usage, now) are called where it has them.
struct ScriptedFrontEnd : sim::FrontEndBase {
  explicit ScriptedFrontEnd(py::object object) : policy(std::move(object)) {}

  void start(std::span<const sim::EngineProfile> fleet) {
    replicas = fleet.size();
    if (py::hasattr(policy, "start")) policy.attr("start")(replicas);
  }

  [[nodiscard]] sim::Choice choose(const sim::Arrival& turn, double now) {
    const SimTurn told{turn.id, std::string(turn.conversation), std::string(turn.parent),
                       turn.prompt_tokens, turn.shared_tokens};
    const auto chosen = policy.attr("choose")(told, now).cast<std::int64_t>();
    if (chosen < 0 || static_cast<std::uint64_t>(chosen) >= replicas) {
      throw py::value_error("choose() = " + std::to_string(chosen) + ": no such replica of " +
                            std::to_string(replicas));
    }
    return {static_cast<std::size_t>(chosen)};
  }

  void finished(std::uint64_t id, std::size_t replica, const Usage& usage, double now) {
    if (py::hasattr(policy, "finished")) policy.attr("finished")(id, replica, usage, now);
  }

  py::object policy;
  std::size_t replicas = 0;
};

[[nodiscard]] sim::Scenario scenario_from(const std::string& workload,
                                          const sim::EngineProfile& profile, std::uint32_t replicas,
                                          double slow, std::vector<std::uint32_t> sessions,
                                          double seconds, double think, double wander,
                                          double scrape, std::uint64_t seed) {
  return {.workload = workload,
          .profile = profile,
          .replicas = replicas,
          .slow = slow,
          .sessions = std::move(sessions),
          .seconds = seconds,
          .think = think,
          .wander = wander,
          .scrape = scrape,
          .seed = seed};
}

template <class Front, class Done>
void play_routed(const py::object& routed, Front play, Done done) {
  Scripts scripts;
  ManualClock clock;
  RouterOptions options;
  options.shared_prefix_tokens = routed.attr("shared_prefix_tokens").cast<std::uint64_t>();
  options.live_window = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(routed.attr("live_window").cast<double>()));
  AnyRouter router(pins_from(routed.attr("pins"), scripts).pins,
                   scorer_from(routed.attr("scorer"), scripts),
                   overflow_from(routed.attr("overflow"), scripts), AnyMetricsParser{},
                   AnyClock{clock}, options);
  sim::RouterFrontEnd front(router, clock);
  play(front, [&](sim::Report report) {
    raise_pending();
    done(std::move(report));
  });
}

// Returns: one report for each size; calls done(report) after each.
[[nodiscard]] std::vector<sim::Report> play_policy(const py::object& policy,
                                                   const std::string& name,
                                                   const sim::Scenario& scenario,
                                                   const py::object& done) {
  std::vector<sim::Report> reports;
  const auto keep = [&](sim::Report report) {
    report.policy = name;
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    reports.push_back(std::move(report));
    if (!done.is_none()) done(reports.back());
  };
  const auto play = [&](auto& front, const auto& each) { sim::play(scenario, front, each); };
  if (py::isinstance<py::str>(policy)) {
    const auto named = policy.cast<std::string>();
    const py::gil_scoped_release release;
    if (!sim::with_policy(named, [&](auto& front) { play(front, keep); })) {
      throw std::invalid_argument("policy = " + named + ": no such policy");
    }
  } else if (py::hasattr(policy, "choose")) {
    ScriptedFrontEnd front(policy);
    play(front, keep);
  } else {
    play_routed(policy, play, keep);
  }
  return reports;
}

[[nodiscard]] std::tuple<sim::EngineProfile, double, double> calibrated(
    const std::string& file, const sim::EngineProfile& start, int replays) {
  const py::gil_scoped_release release;
  const auto measured = sim::read_measurements(file);
  if (measured.empty()) throw std::invalid_argument(file + ": holds no measurement");
  const sim::CalibrateOptions options{.replays = replays};
  const sim::EngineProfile fitted = sim::calibrate(start, measured, options);
  return {fitted, sim::misfit(start, measured, options), sim::misfit(fitted, measured, options)};
}

void bind_profile(py::module_& module) {
  py::class_<sim::StepTime>(module, "StepTime",
                            "How long a step of an engine takes, s: max(weights, per_token x new "
                            "tokens) + per_pair x prefill attention + per_context x decode "
                            "attention + per_sequence + fixed.")
      .def(py::init<>())
      .def_readwrite("weights", &sim::StepTime::weights)
      .def_readwrite("per_token", &sim::StepTime::per_token)
      .def_readwrite("per_pair", &sim::StepTime::per_pair)
      .def_readwrite("per_context", &sim::StepTime::per_context)
      .def_readwrite("per_sequence", &sim::StepTime::per_sequence)
      .def_readwrite("fixed", &sim::StepTime::fixed);

  py::class_<sim::EngineProfile>(module, "EngineProfile",
                                 "A machine: capacities in tokens, times in s. Change a copy.")
      .def(py::init<>())
      .def(py::init<const sim::EngineProfile&>(), py::arg("other"))
      .def_readwrite("name", &sim::EngineProfile::name)
      .def_readwrite("kv_tokens", &sim::EngineProfile::kv_tokens)
      .def_readwrite("block_tokens", &sim::EngineProfile::block_tokens)
      .def_readwrite("max_num_seqs", &sim::EngineProfile::max_num_seqs)
      .def_readwrite("max_num_batched_tokens", &sim::EngineProfile::max_num_batched_tokens)
      .def_readwrite("step", &sim::EngineProfile::step)
      .def_readwrite("front_end", &sim::EngineProfile::front_end)
      .def_readwrite("front_end_spread", &sim::EngineProfile::front_end_spread)
      .def_readwrite("slowdown", &sim::EngineProfile::slowdown)
      .def("__repr__", [](const sim::EngineProfile& profile) {
        return "<EngineProfile " + profile.name +
               " kv_tokens=" + std::to_string(profile.kv_tokens) + ">";
      });
}

void bind_report(py::module_& module) {
  py::class_<sim::Quantity>(module, "Quantity", "Quantiles, mean and maximum of some times, s.")
      .def_readonly("p50", &sim::Quantity::p50)
      .def_readonly("p95", &sim::Quantity::p95)
      .def_readonly("p99", &sim::Quantity::p99)
      .def_readonly("mean", &sim::Quantity::mean)
      .def_readonly("max", &sim::Quantity::max);

  py::class_<sim::Report>(module, "Report", "What one run came to. Shares are 0..1, times s.")
      .def_readonly("policy", &sim::Report::policy)
      .def_readonly("seats", &sim::Report::seats)
      .def_readonly("seconds", &sim::Report::seconds)
      .def_readonly("turns", &sim::Report::turns)
      .def_readonly("sessions", &sim::Report::sessions)
      .def_readonly("sessions_per_hour", &sim::Report::sessions_per_hour)
      .def_readonly("output_tokens_per_minute", &sim::Report::output_tokens_per_minute)
      .def_readonly("ttfb", &sim::Report::ttfb)
      .def_readonly("ttfb_first", &sim::Report::ttfb_first)
      .def_readonly("session", &sim::Report::session)
      .def_readonly("prefix_hits", &sim::Report::prefix_hits)
      .def_readonly("from_cache", &sim::Report::from_cache)
      .def_readonly("replicas_busy", &sim::Report::replicas_busy)
      .def_readonly("stayed_home", &sim::Report::stayed_home)
      .def_readonly("spilled", &sim::Report::spilled)
      .def_readonly("moved", &sim::Report::moved)
      .def_readonly("preemptions", &sim::Report::preemptions)
      .def_readonly("jain", &sim::Report::jain)
      .def("to_json", &sim::to_json, "One JSON object with all columns.")
      .def("__repr__", [](const sim::Report& report) {
        return "<Report " + report.policy + " seats=" + std::to_string(report.seats) +
               " turns=" + std::to_string(report.turns) + ">";
      });
}

}  // namespace

void bind_sim(py::module_& module) {
  bind_profile(module);
  bind_report(module);
  py::class_<SimTurn>(module, "SimTurn", "What a front end is told of a turn.")
      .def_readonly("id", &SimTurn::id)
      .def_readonly("conversation", &SimTurn::conversation)
      .def_readonly("parent", &SimTurn::parent, "Of a sub-agent: the conversation it works for.")
      .def_readonly("prompt_tokens", &SimTurn::prompt_tokens)
      .def_readonly("shared_tokens", &SimTurn::shared_tokens,
                    "Of the prompt: what all sessions begin with.");

  module.def("_sim_profiles", [] {
    std::vector<sim::EngineProfile> all;
    for (const sim::EngineProfile& profile : sim::profiles::all()) all.push_back(profile);
    return all;
  });
  module.def("_sim_policies", [] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const sim::PolicyName& policy : sim::policy_names) {
      all.emplace_back(policy.name, policy.meaning);
    }
    return all;
  });
  module.def("_sim_play",
             [](const py::object& policy, const std::string& name, const std::string& workload,
                const sim::EngineProfile& profile, std::uint32_t replicas, double slow,
                std::vector<std::uint32_t> sessions, double seconds, double think, double wander,
                double scrape, std::uint64_t seed, const py::object& done) {
               return play_policy(
                   policy, name,
                   scenario_from(workload, profile, replicas, slow, std::move(sessions), seconds,
                                 think, wander, scrape, seed),
                   done);
             });
  module.def("_sim_calibrate", &calibrated);
  module.def("_sim_svg",
             [](const std::vector<sim::Report>& reports) { return sim::Plot::svg(reports); });
  module.def("_sim_advice",
             [](const std::vector<sim::Report>& reports, const std::string& candidate,
                const std::string& today) { return sim::advice(reports, candidate, today); });
  module.def("_sim_table", [](const std::vector<sim::Report>& reports) {
    std::string table = sim::table_head();
    for (const sim::Report& report : reports) table += sim::table_row(report);
    return table;
  });
}

}  // namespace limpet::python
