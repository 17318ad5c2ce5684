// SPDX-License-Identifier: Apache-2.0
//
// Rules with a history, by name, for comparison with the default.
//
// `published` is the rule that was measured on four RTX A4000 with vLLM 0.26.0, data parallel:
// weights 1, 8, 1 and the KV gauge as it was read. On a real vLLM 0.32.0 it placed four
// conversations on one of two idle ranks, because a gauge two seconds old outweighed what the
// router knew itself; the simulator shows the same, and include/limpet/sim/README.md what it costs.
//
//   limpet::Router router{limpet::ShardedPins<>{}, limpet::presets::published(),
//                         limpet::presets::published_overflow()};
#pragma once

#include <limpet/overflow/spill_above.hpp>
#include <limpet/scorers/weighted.hpp>

namespace limpet::presets {

[[nodiscard]] constexpr WeightedLoad published() noexcept {
  return {
      .in_flight_weight = 1.0, .kv_usage_weight = 8.0, .live_weight = 1.0, .scale_gauge = false};
}

// A quarter of max_num_seqs: 8 on those machines.
[[nodiscard]] constexpr SpillAbove published_overflow() noexcept {
  return {};
}

}  // namespace limpet::presets
