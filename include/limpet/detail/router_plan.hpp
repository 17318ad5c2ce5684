// SPDX-License-Identifier: Apache-2.0
//
// Router's bodies, second part: a turn in two steps, for frameworks that choose and commit apart.
//
// plan() decides and changes nothing; commit() carries out what was planned, whatever has changed
// since: the turn is on its way to that replica, so only one that is gone refuses it. Thread-safe if
// the store is; allocates nothing.
#pragma once

#include <limpet/router.hpp>

#include <cstdint>
#include <optional>

namespace limpet {

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Decision Router<P, S, O, M, C>::plan(const Turn& turn) const {
  const Keys keys = keys_of(turn);
  if (affinity() == Affinity::off && can_serve(turn)) {
    Decision decision = undecided(turn, keys);
    decision.outcome = Outcome::unrouted;
    decision.reason = Reason::affinity_off;
    return decision;
  }
  const Instant now = clock_.now();
  std::optional<Conversation> pinned;
  if (keys.has_turn) pinned = detail::peek(pins_, keys.turn, now);
  return Decider(fleet_, scorer_, overflow_, turn, now, draws_.load(std::memory_order_relaxed),
                 prompt_of(turn.prompt_tokens))
      .decide(undecided(turn, keys), pinned, parent_of(keys, pinned, now));
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Lease Router<P, S, O, M, C>::commit(const Decision& planned) {
  Decision decision = planned;
  if (!decision.replica) return without_replica(decision, decision.outcome);

  const Instant now = clock_.now();
  Booking booking{.tokens = decision.prompt_tokens != 0
                                ? own_context(decision.prompt_tokens)
                                : mean_context_.load(std::memory_order_relaxed)};
  const bool follows =
      decision.has_key && !decision.side_call && decision.outcome != Outcome::client_pinned;
  if (follows) booking.opened = detail::open_turn(pins_, decision.key, now, booking.tokens);
  if (booking.opened) booking.pinned = booking.opened->before;
  const std::uint64_t tokens = decision.prompt_tokens != 0 ? decision.prompt_tokens
                               : booking.opened            ? booking.opened->counted_tokens
                                                           : booking.tokens;
  if (fleet_.state(decision.replica) == ReplicaState::removed ||
      !fleet_.take(decision.replica, UINT32_MAX, decision.outcome, tokens, now)) {
    abandon(booking, decision, now);
    return without_replica(decision, Outcome::refused);
  }
  const detail::PrefillShare prefill = prefill_at(decision.replica, decision.prompt_tokens,
                                                  booking.pinned ? &*booking.pinned : nullptr, now);
  if (decision.outcome != Outcome::sticky && decision.outcome != Outcome::client_pinned) {
    draws_.fetch_add(1, std::memory_order_relaxed);
  }
  if (!follows) return leased(decision, nullptr, tokens, prefill);

  // Home has restarted since the plan: the turn still goes there, but there is nothing to stick to.
  if (decision.outcome == Outcome::sticky && booking.pinned &&
      !fleet_.is_current(booking.pinned->home)) {
    fleet_.recount(decision.replica, Outcome::sticky, Outcome::placed);
    decision.outcome = Outcome::placed;
    decision.reason = Reason::stale_pin;
    decision.previous = booking.pinned->home;
  }
  const bool pins = decision.outcome == Outcome::placed || decision.outcome == Outcome::moved;
  Settled settled = Settled::pinned_elsewhere;
  if (!booking.pinned) {
    decision.home = {};
    if (decision.outcome == Outcome::spilled)
      return leased(decision, nullptr, tokens, prefill);  // its pin is gone since
    decision.home = fleet_.home_at(decision.replica);
    settled = pin_anew(decision, booking, now);
  } else if (const Home current = booking.pinned->home;
             current.replica == decision.replica && fleet_.is_current(current)) {
    open_at(current, booking, now);
    decision.home = current;
    settled = Settled::yes;
  } else if (decision.outcome == Outcome::spilled ||
             (pins && (current == decision.previous || !fleet_.is_current(current)))) {
    decision.home = fleet_.home_at(decision.replica);
    settled = settle(decision, booking, now);
  }
  if (settled == Settled::pinned_elsewhere) {
    fleet_.recount(decision.replica, decision.outcome, Outcome::spilled);
    decision.outcome = Outcome::spilled;
    decision.reason = Reason::committed_elsewhere;
    decision.home = booking.pinned ? booking.pinned->home : Home{};
    if (!booking.pinned) return leased(decision, nullptr, tokens, prefill);
    open_at(decision.home, booking, now, detail::Counter::spilled_out);
  }
  return leased(decision, &booking, tokens, prefill);
}

}  // namespace limpet
