// SPDX-License-Identifier: Apache-2.0
//
// Meter: what a fleet has done up to a moment, from its engines' counters and from when they
// worked.
//
// The difference of two readings is what a run came to: add_totals() puts it into the report. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/report.hpp>

namespace limpet::sim {

struct Totals {
  double at = 0;
  double busy = 0;  // replica-seconds with something to do
  std::uint64_t queries = 0;
  std::uint64_t hits = 0;
  std::uint64_t generated = 0;
  std::uint64_t preemptions = 0;
};

class Meter {
 public:
  explicit Meter(std::size_t replicas) : working_since_(replicas, idle) {}

  void begins(std::size_t replica, double now) noexcept {
    if (working_since_[replica] == idle) working_since_[replica] = now;
  }

  void ends(std::size_t replica, double now) noexcept {
    busy_ += now - working_since_[replica];
    working_since_[replica] = idle;
  }

  [[nodiscard]] Totals read(std::span<const Engine> engines, double now) const noexcept {
    Totals totals{.at = now, .busy = busy_};
    for (std::size_t i = 0; i < engines.size(); ++i) {
      const EngineCounters& counters = engines[i].counters();
      totals.queries += counters.prefix_queries;
      totals.hits += counters.prefix_hits;
      totals.generated += counters.generation_tokens;
      totals.preemptions += counters.preemptions;
      if (working_since_[i] != idle) totals.busy += now - working_since_[i];
    }
    return totals;
  }

 private:
  static constexpr double idle = -1.0;

  std::vector<double> working_since_;
  double busy_ = 0;
};

// The columns that are by time, and those that only the engines know.
inline void add_totals(Report& report, const Totals& before, const Totals& after) noexcept {
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
  const auto since = [](std::uint64_t now, std::uint64_t then) {
    return static_cast<double>(now - then);
  };
  report.seconds = after.at - before.at;
  report.sessions_per_hour = 3600 * share(static_cast<double>(report.sessions), report.seconds);
  report.output_tokens_per_minute =
      60 * share(since(after.generated, before.generated), report.seconds);
  report.prefix_hits = share(since(after.hits, before.hits), since(after.queries, before.queries));
  report.replicas_busy = share(after.busy - before.busy, report.seconds);
  report.preemptions = after.preemptions - before.preemptions;
}

}  // namespace limpet::sim
