// SPDX-License-Identifier: Apache-2.0
#include "scripted.hpp"

#include "arguments.hpp"
#include "enums.hpp"

#include <cmath>
#include <vector>

namespace limpet::python {

namespace {

// Returns: what `call()` returns, or `otherwise` where it threw or an earlier call of this thread
// did.
template <class T, class F>
T ask(T otherwise, F call) noexcept {
  if (pending_error) return otherwise;
  try {
    const py::gil_scoped_acquire gil;
    try {
      return call();
    } catch (...) {
      pending_error = std::current_exception();
    }
  } catch (...) {
    pending_error = std::current_exception();
  }
  return otherwise;
}

[[nodiscard]] py::object method(const py::object& policy, const char* name) {
  if (!policy) throw std::runtime_error("the router's Python policies have been garbage-collected");
  return policy.attr(name);
}

template <class T>
[[nodiscard]] T answer_as(const py::object& answer, const char* what, const char* wanted) {
  if (!py::isinstance<T>(answer)) refuse_type(what, answer, wanted);
  return answer.cast<T>();
}

[[nodiscard]] bool truth(const py::object& answer, const char* what) {
  if (!PyBool_Check(answer.ptr())) refuse_type(what, answer, "a bool");
  return answer.ptr() == Py_True;
}

}  // namespace

void report_pending(const char* where) noexcept {
  try {
    raise_pending();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable(where);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    PyErr_WriteUnraisable(nullptr);
  }
}

double ScriptedScorer::score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
  return ask(0.0, [&] {
    const py::object answer = method(scripts->scorer, "score")(load, context);
    const double score = number_from(answer, "score()");
    if (std::isnan(score)) refuse_value("score()", answer, "a score is not NaN");
    return score;
  });
}

bool ScriptedOverflow::overloaded(const ReplicaLoad& home) const noexcept {
  return ask(false,
             [&] { return truth(method(scripts->overflow, "overloaded")(home), "overloaded()"); });
}

Verdict ScriptedOverflow::decide(const OverflowView& view) const noexcept {
  return ask(Verdict::stay, [&] {
    const py::object answer = method(scripts->overflow, "decide")(ScriptedView(view));
    return answer_as<Verdict>(answer, "decide()", "a Verdict");
  });
}

ParseStatus ScriptedMetrics::parse(std::string_view page, ReadingSink sink) const noexcept {
  return ask(ParseStatus::malformed, [&] {
    const py::object answer =
        method(scripts->metrics, "parse")(py::bytes(page.data(), page.size()));
    for (std::size_t i = 0; i < enum_size<ParseStatus>; ++i) {
      const auto status = static_cast<ParseStatus>(i);
      if (answer.ptr() != borrowed_member(status)) continue;
      if (status == ParseStatus::ok) refuse_value("parse()", answer, "ok comes with readings");
      return status;
    }
    // All or none: the sink sees nothing before all of it is known to be readings.
    thread_local std::vector<OwnedReading> readings;
    std::vector<OwnedReading> fresh;
    for (const py::handle each : answer) {
      if (!py::isinstance<OwnedReading>(each)) {
        refuse_type("what parse() gives", each, "Readings, or a ParseStatus");
      }
      fresh.push_back(each.cast<const OwnedReading&>());
    }
    readings = std::move(fresh);
    for (const OwnedReading& reading : readings) {
      Reading figures = reading.figures;
      figures.engine = reading.engine;
      figures.model = reading.model;
      sink(figures);
    }
    return readings.empty() ? ParseStatus::no_engine : ParseStatus::ok;
  });
}

Instant ScriptedClock::now() const noexcept {
  const Instant stopped{Duration(last->load(std::memory_order_relaxed))};
  const Instant now = ask(
      stopped, [&] { return Instant{duration_from(method(scripts->clock, "now")(), "now()")}; });
  last->store(now.time_since_epoch().count(), std::memory_order_relaxed);
  return now;
}

std::optional<Home> ScriptedPins::find(KeyHash key, Instant now) const noexcept {
  return ask(std::optional<Home>{}, [&]() -> std::optional<Home> {
    const py::object answer = method(scripts->pins, "find")(key, seconds_of(now));
    if (answer.is_none()) return std::nullopt;
    return answer_as<Home>(answer, "find()", "a Home or None");
  });
}

Home ScriptedPins::pin(KeyHash key, Home home, Instant now) noexcept {
  return ask(home, [&] {
    const py::object answer = method(scripts->pins, "pin")(key, home, seconds_of(now));
    return answer_as<Home>(answer, "pin()", "a Home");
  });
}

Home ScriptedPins::repin(KeyHash key, Home expected, Home desired, Instant now) noexcept {
  return ask(expected, [&] {
    const py::object answer =
        method(scripts->pins, "repin")(key, expected, desired, seconds_of(now));
    return answer_as<Home>(answer, "repin()", "a Home");
  });
}

bool ScriptedPins::unpin(KeyHash key, Home expected) noexcept {
  return ask(false,
             [&] { return truth(method(scripts->pins, "unpin")(key, expected), "unpin()"); });
}

ScriptedView::ScriptedView(const OverflowView& view)
    : home(view.home()),
      prompt_tokens(view.prompt_tokens),
      context_tokens(view.context_tokens),
      uncached_at_home(view.uncached_at_home),
      uncached_elsewhere(view.uncached_elsewhere) {
  py::list loads;
  view.for_each_other([&](const ReplicaLoad& load) { loads.append(load); });
  others = py::tuple(loads);
}

OverflowView ScriptedView::view() const {
  OverflowView view(home, static_cast<std::uint32_t>(others.size()), &others,
                    [](const void* source, void* context, OverflowView::Visit visit) {
                      for (const py::handle load : *static_cast<const py::tuple*>(source)) {
                        visit(context, load.cast<const ReplicaLoad&>());
                      }
                    });
  view.prompt_tokens = prompt_tokens;
  view.context_tokens = context_tokens;
  view.uncached_at_home = uncached_at_home;
  view.uncached_elsewhere = uncached_elsewhere;
  return view;
}

}  // namespace limpet::python
