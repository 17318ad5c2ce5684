// SPDX-License-Identifier: Apache-2.0
//
// AdjustableSpill: SpillAbove with a threshold that can be changed while the router runs.
//
// Use it where an operator tunes a live pool; where the threshold is configuration, SpillAbove says
// the same without the indirection. Copies share one threshold: give a copy to the router and keep
// one to set it. A change counts from the next turn that is decided. Cost: one relaxed load more
// than SpillAbove on every sticky turn. Thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/shared_atomic.hpp>
#include <limpet/overflow/spill_above.hpp>

#include <atomic>
#include <cstdint>

namespace limpet {

class AdjustableSpill {
 public:
  explicit AdjustableSpill(std::uint32_t threshold = 0) : threshold_(threshold) {}

  // Turns in flight on one replica; 0: auto_threshold of that replica.
  [[nodiscard]] std::uint32_t threshold() const noexcept {
    return threshold_->load(std::memory_order_relaxed);
  }
  void set_threshold(std::uint32_t threshold) noexcept {
    threshold_->store(threshold, std::memory_order_relaxed);
  }

  [[nodiscard]] bool overloaded(const ReplicaLoad& home) const noexcept {
    return SpillAbove{threshold()}.overloaded(home);
  }

  [[nodiscard]] Verdict decide(const OverflowView&) const noexcept { return Verdict::spill; }

 private:
  detail::SharedAtomic<std::uint32_t> threshold_;
};

static_assert(OverflowRule<AdjustableSpill>);

}  // namespace limpet
