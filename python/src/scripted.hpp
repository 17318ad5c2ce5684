// SPDX-License-Identifier: Apache-2.0
//
// Policies written in Python, as models of the C++ concepts.
//
// A policy may not throw into a decision that is half made, so an exception of the Python method is
// kept for this thread, a harmless answer is given in its place, and whoever entered the router
// from Python calls raise_pending() before handing out a result. Until then no other Python method
// is asked. Each call takes the GIL: microseconds where a policy in C++ takes nanoseconds.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/types.hpp>

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace limpet::python {

namespace py = pybind11;

// The Python objects behind one router's policies. The router owns them, so that the garbage
// collector sees them there and nowhere else; null where the policy is one of C++ and once they are
// collected.
struct Scripts {
  py::object pins;
  py::object scorer;
  py::object overflow;
  py::object metrics;
  py::object clock;

  // Whether decisions, and not only readings, call Python.
  [[nodiscard]] bool decide() const noexcept { return pins || scorer || overflow || clock; }
};

inline thread_local std::exception_ptr pending_error;

inline void raise_pending() {
  if (pending_error) [[unlikely]]
    std::rethrow_exception(std::exchange(pending_error, nullptr));
}

// Drops a pending error where there is nobody to raise it to, with a note on stderr.
void report_pending(const char* where) noexcept;

struct ScriptedScorer {
  const Scripts* scripts;
  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept;
};

struct ScriptedOverflow {
  const Scripts* scripts;
  [[nodiscard]] bool overloaded(const ReplicaLoad& home) const noexcept;
  [[nodiscard]] Verdict decide(const OverflowView& view) const noexcept;
};

// The texts of its readings live until this thread parses its next page.
struct ScriptedMetrics {
  const Scripts* scripts;
  [[nodiscard]] ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept;
};

// After an error it stands still at the last time it gave.
struct ScriptedClock {
  explicit ScriptedClock(const Scripts* owner)
      : scripts(owner), last(std::make_unique<std::atomic<std::int64_t>>(0)) {}
  [[nodiscard]] Instant now() const noexcept;

  const Scripts* scripts;
  std::unique_ptr<std::atomic<std::int64_t>> last;
};

struct ScriptedPins {
  const Scripts* scripts;
  [[nodiscard]] std::optional<Home> find(KeyHash key, Instant now) const noexcept;
  Home pin(KeyHash key, Home home, Instant now) noexcept;
  Home repin(KeyHash key, Home expected, Home desired, Instant now) noexcept;
  bool unpin(KeyHash key, Home expected) noexcept;
};

static_assert(LoadScorer<ScriptedScorer>);
static_assert(OverflowRule<ScriptedOverflow>);
static_assert(MetricsParser<ScriptedMetrics>);
static_assert(Clock<ScriptedClock>);
static_assert(PinStore<ScriptedPins>);

// A Reading that owns its texts.
struct OwnedReading {
  Reading figures;  // its texts are empty
  std::string engine;
  std::string model;
};

// Home's side and the others' loads, copied: Python may keep the view for longer than the decision.
struct ScriptedView {
  explicit ScriptedView(const OverflowView& view);

  // What it was copied from, again: for a rule in C++ that a rule in Python asks.
  [[nodiscard]] OverflowView view() const;

  ReplicaLoad home;
  py::tuple others;
  std::uint64_t prompt_tokens;
  std::uint64_t context_tokens;
  std::uint64_t uncached_at_home;
  std::uint64_t uncached_elsewhere;
};

}  // namespace limpet::python
