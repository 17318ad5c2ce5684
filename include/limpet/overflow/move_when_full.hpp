// SPDX-License-Identifier: Apache-2.0
//
// MoveWhenFull: leave home for good when the conversations there no longer fit its KV cache and
// another replica has room.
//
// A placement that turned out badly costs a conversation its whole life, since requests in flight
// may never reach a spill threshold while the cache thrashes. This rule counts tokens of working
// set instead: over `full` of the capacity is full, room is what stays under `room` with this
// conversation added; between the two nothing moves, so nothing moves to and fro. Within it,
// SpillAbove decides. Needs the capacity, configured or read; without it, it is SpillAbove.
// Stateless, thread-safe.
// Source: seen on a real vLLM 0.32.0, where four conversations shared one rank of two for 120 s.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>
#include <limpet/overflow/spill_above.hpp>

#include <cmath>
#include <cstdint>

namespace limpet {

struct MoveWhenFull {
  double full = 0.95;           // share of the KV capacity, > 0
  double room = 0.90;           // share of the KV capacity, > 0 and <= full
  std::uint32_t threshold = 0;  // as SpillAbove::threshold

  void validate() const {
    detail::require(std::isfinite(full) && full > 0.0, "full", full,
                    "a share of the KV capacity above 0");
    detail::require(room > 0.0 && room <= full, "room", room,
                    "a share of the KV capacity above 0 and at most `full`");
  }

  [[nodiscard]] bool overloaded(const ReplicaLoad& home) const noexcept {
    return is_full(home) || SpillAbove{threshold}.overloaded(home);
  }

  [[nodiscard]] Verdict decide(const OverflowView& view) const noexcept {
    if (is_full(view.home())) {
      ReplicaId emptiest;
      double least = room;
      view.for_each_other([&](const ReplicaLoad& other) {
        if (other.kv_capacity_tokens == 0) return;
        const double filled = static_cast<double>(other.live_tokens + needed(view)) /
                              static_cast<double>(other.kv_capacity_tokens);
        if (filled < least || (filled == least && !emptiest)) {
          least = filled;
          emptiest = other.replica;
        }
      });
      if (emptiest) return Verdict::move.to(emptiest);
    }
    return SpillAbove{threshold}.overloaded(view.home()) ? Verdict::spill : Verdict::stay;
  }

 private:
  [[nodiscard]] bool is_full(const ReplicaLoad& home) const noexcept {
    return home.kv_capacity_tokens != 0 && static_cast<double>(home.live_tokens) >
                                               full * static_cast<double>(home.kv_capacity_tokens);
  }

  [[nodiscard]] static std::uint64_t needed(const OverflowView& view) noexcept {
    return view.context_tokens > view.prompt_tokens ? view.context_tokens : view.prompt_tokens;
  }
};

static_assert(OverflowRule<MoveWhenFull>);

}  // namespace limpet
