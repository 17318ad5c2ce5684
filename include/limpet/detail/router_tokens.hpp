// SPDX-License-Identifier: Apache-2.0
//
// Router's bodies: what a turn's tokens count for. Thread-safe; allocates nothing.
#pragma once

#include <limpet/router.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace limpet {

// A conversation's own part of a context: without the prefix that all of the pool share. Never 0,
// which means unknown.
template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
std::uint32_t Router<P, S, O, M, C>::own_context(std::uint64_t tokens) const noexcept {
  const std::uint64_t shared = std::min(options_.shared_prefix_tokens, tokens - 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens - shared, UINT32_MAX));
}

// The mean follows slowly, by a sixteenth. Two threads may overwrite each other's step: it stays a
// mean.
template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::learn_context(std::uint32_t tokens) noexcept {
  const std::uint32_t mean = mean_context_.load(std::memory_order_relaxed);
  const std::int64_t step = (std::int64_t{tokens} - std::int64_t{mean}) / 16;
  const std::uint32_t next =
      mean == 0 ? tokens : static_cast<std::uint32_t>(std::int64_t{mean} + step);
  if (next != mean) mean_context_.store(next, std::memory_order_relaxed);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
detail::Prompt Router<P, S, O, M, C>::prompt_of(std::uint64_t tokens) const noexcept {
  if constexpr (!needs_prefill) return {};
  return {.tokens = tokens != 0 ? own_context(tokens) : 0,
          .mean = mean_context_.load(std::memory_order_relaxed),
          .shared = options_.shared_prefix_tokens};
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
detail::Uncached Router<P, S, O, M, C>::uncached_of(const Turn& turn, Instant now) const {
  if constexpr (!needs_prefill) return {};
  const Keys keys = keys_of(turn);
  std::optional<Conversation> pinned;
  if (keys.has_turn && !turn.side_call) pinned = detail::peek(pins_, keys.turn, now);
  const std::optional<Conversation> parent = parent_of(keys, pinned, now);
  return {fleet_, prompt_of(turn.prompt_tokens), detail::history_of(parent, pinned), now};
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
detail::PrefillShare Router<P, S, O, M, C>::prefill_at(ReplicaId replica,
                                                       std::uint64_t prompt_tokens,
                                                       const Conversation* history,
                                                       Instant now) noexcept {
  if constexpr (!needs_prefill) return {};
  const detail::Uncached uncached(fleet_, prompt_of(prompt_tokens), history, now);
  return {fleet_.slot(replica.slot).pending_prefill_tokens, uncached.at(replica)};
}

}  // namespace limpet
