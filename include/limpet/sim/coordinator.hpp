// SPDX-License-Identifier: Apache-2.0
//
// Coordinator: when the engines' counts reach the balancer in front of them.
//
// vLLM's rule (DPCoordinator, vllm/v1/engine/coordinator.py, read in July 2026): counts go out when
// they have been still for 50 ms, 100 ms after the last ones at the earliest; where nothing
// changes, every 5 s, which changes nothing but what a balancer has added to them itself. So a
// balancer may choose by counts that are older than the turn that has just ended. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>

namespace limpet::sim {

class Coordinator {
 public:
  // A step has ended. Returns whether due() has changed.
  bool hear(std::span<const Engine> engines, double now) {
    bool changed = told_.size() != engines.size();
    told_.resize(engines.size());
    for (std::size_t i = 0; i < engines.size(); ++i) {
      const EngineCounters& counters = engines[i].counters();
      changed |= told_[i].waiting != counters.waiting || told_[i].running != counters.running;
      // The cache's use travels with the other counts, and alone sends nothing.
      fresh_.resize(engines.size());
      fresh_[i] = {counters.waiting, counters.running, counters.kv_usage};
    }
    if (!changed) return false;
    told_ = fresh_;
    due_ = std::max(now + 0.050, sent_at_ + 0.100);
    return true;
  }

  // When to ask is_due() next.
  [[nodiscard]] double due() const noexcept { return due_; }
  // False: something has changed since that was scheduled.
  [[nodiscard]] bool is_due(double now) const noexcept { return now == due_; }

  // What goes out now; due() is then the next time at the latest.
  [[nodiscard]] std::span<const EngineCounts> send(double now) noexcept {
    sent_at_ = now;
    due_ = now + 5.0;
    return told_;
  }

 private:
  std::vector<EngineCounts> told_;
  std::vector<EngineCounts> fresh_;
  double sent_at_ = -1.0;
  double due_ = -1.0;
};

}  // namespace limpet::sim
