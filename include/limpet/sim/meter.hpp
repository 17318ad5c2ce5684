// SPDX-License-Identifier: Apache-2.0
//
// Meter: what a fleet has done up to a moment, from its engines' counters and from when they
// worked.
//
// The difference of two readings is what a run came to. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <limpet/sim/engine.hpp>

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

}  // namespace limpet::sim
