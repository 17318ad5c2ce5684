// SPDX-License-Identifier: Apache-2.0
//
// MoveIfCheaper: leave home, for good, where the wait saved is worth more than reading the history
// again.
//
// Both sides are tokens to be read before this turn can answer: at home what is pending there and
// what its cache has lost of this conversation, all or nothing; at the cheapest other replica what
// is pending there and the whole prompt. So four conversations that were placed on one replica
// spread, and one that waits a moment stays. A replica whose turns in flight leave no room for this
// prompt is nowhere to go: to move there would push out what is being served. It counts tokens and
// knows neither speeds nor decoding; without Lease::first_byte() a turn counts until its end.
// Cost: one comparison on every sticky turn; a scan of the pool where that much is pending at home.
// Stateless, thread-safe. Source of the constants: include/limpet/sim/README.md, "Rules that count
// tokens".
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>

#include <cmath>
#include <cstdint>

namespace limpet {

struct MoveIfCheaper {
  static constexpr bool needs_prefill = true;

  // Home must cost more than `margin` times the other: what is expected to be cached is an estimate,
  // and with equal costs nothing may move to and fro. Finite and >= 1.
  double margin = 1.25;

  // And this many tokens more: a step's prefill on smaller GPUs, less than a second, is not worth a
  // second copy of the history.
  std::uint32_t floor_tokens = 2'048;

  void validate() const {
    detail::require(std::isfinite(margin) && margin >= 1.0, "margin", margin,
                    "a factor of at least 1");
  }

  // To move saves at most what is pending at home.
  [[nodiscard]] bool overloaded(const ReplicaLoad& home) const noexcept {
    return home.pending_prefill_tokens > floor_tokens;
  }

  [[nodiscard]] Verdict decide(const OverflowView& view) const noexcept {
    ReplicaId cheapest;
    std::uint64_t least = UINT64_MAX;
    view.for_each_other([&](const ReplicaLoad& other) {
      if (other.pending_prefill_tokens >= least || !has_room(other, view.uncached_elsewhere))
        return;
      least = other.pending_prefill_tokens;
      cheapest = other.replica;
    });
    if (!cheapest) return Verdict::stay;
    const double at_home =
        static_cast<double>(view.home().pending_prefill_tokens + view.uncached_at_home);
    const double there = static_cast<double>(least + view.uncached_elsewhere);
    return at_home > margin * there + floor_tokens ? Verdict::move.to(cheapest) : Verdict::stay;
  }

 private:
  // Where no capacity is known there is room.
  [[nodiscard]] static bool has_room(const ReplicaLoad& other, std::uint64_t tokens) noexcept {
    return other.kv_capacity_tokens == 0 ||
           other.in_flight_tokens + tokens <= other.kv_capacity_tokens;
  }
};

static_assert(OverflowRule<MoveIfCheaper>);

}  // namespace limpet
