// SPDX-License-Identifier: Apache-2.0
//
// Router's bodies, first part: a turn from its key to its lease and back.
//
// A decision is founded on loads read without locks. Booking it checks under the chosen replica's
// lock that they still hold and decides anew if not, so a hundred first turns from a hundred
// threads spread as evenly as from one. The pin comes after the slot: a store's answer may be that
// another turn has won, and then the slot is given back and this one goes there.
#pragma once

#include <limpet/router.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace limpet {

// Under a storm of turns the loads may change for as long as the storm lasts: from then on a
// slightly old one is good enough.
inline constexpr int max_decisions_a_turn = 64;

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Lease Router<P, S, O, M, C>::route(const Turn& turn) {
  const Keys keys = keys_of(turn);
  const Instant now = clock_.now();
  if (!can_serve(turn)) [[unlikely]]
    return refuse(turn, keys, now);
  if (affinity() == Affinity::off) [[unlikely]]
    return without_replica(undecided(turn, keys), Outcome::unrouted);

  const std::uint32_t context = turn.prompt_tokens != 0
                                    ? own_context(turn.prompt_tokens)
                                    : mean_context_.load(std::memory_order_relaxed);
  const bool follows = keys.has_turn && !turn.side_call && !Decider::client_named(fleet_, turn);
  if (!follows) {
    Booking booking{.tokens = context};
    if (keys.has_turn) booking.pinned = detail::peek(pins_, keys.turn, now);
    return route_anywhere(turn, keys, booking, now);
  }
  const std::optional<TurnOpened> opened = detail::open_turn(pins_, keys.turn, now, context);
  if (!opened) return route_anywhere(turn, keys, {.follows = true, .tokens = context}, now);

  // The way of nearly every turn. It copies nothing and is apart from the general way, which would
  // decide the same.
  const Home home = opened->before.home;
  fleet_.expect(home.replica);
  if (const detail::Choice choice =
          Decider(fleet_, scorer_, overflow_, turn, now, 0).home_with_room(home)) [[likely]] {
    const std::uint64_t tokens =
        turn.prompt_tokens != 0 ? turn.prompt_tokens : opened->counted_tokens;
    const Fleet::Opening opening{*opened, home};
    detail::PrefillShare prefill =
        prefill_at(home.replica, turn.prompt_tokens, &opened->before, now);
    if (fleet_.take(home.replica, choice.in_flight, Outcome::sticky, tokens, now, &opening))
        [[likely]] {
      return Lease(this, &end_turn_of,
                   {.key = keys.turn,
                    .home = home,
                    .replica = home.replica,
                    .outcome = Outcome::sticky,
                    .reason = Reason::home_has_room,
                    .has_key = true,
                    .in_flight_seen = choice.in_flight,
                    .prompt_tokens = turn.prompt_tokens},
                   {.tokens = tokens,
                    .counted_tokens = opened->counted_tokens,
                    .follows = true,
                    .ticket = opened->ticket,
                    .prefill = prefill});
    }
    prefill.drop();
  }
  return route_anywhere(
      turn, keys, {.opened = opened, .pinned = opened->before, .follows = true, .tokens = context},
      now);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Lease Router<P, S, O, M, C>::route_anywhere(const Turn& turn, const Keys& keys, Booking booking,
                                            Instant now) {
  const std::optional<Conversation> parent = parent_of(keys, booking.pinned, now);
  const detail::Prompt prompt = prompt_of(turn.prompt_tokens);

  for (int tries = 1;; ++tries) {
    const std::uint64_t draw = draws_.load(std::memory_order_relaxed);
    Decision decision = Decider(fleet_, scorer_, overflow_, turn, now, draw, prompt)
                            .decide(undecided(turn, keys), booking.pinned, parent);
    if (!decision.replica) {
      abandon(booking, decision, now);
      return without_replica(decision, Outcome::refused);
    }
    // The replica that the client named came or went since: begin anew, as the other kind of turn.
    const bool as_named = decision.outcome == Outcome::client_pinned;
    if (keys.has_turn && !turn.side_call && booking.follows == as_named) {
      abandon(booking, decision, now);
      return route(turn);
    }
    const std::uint64_t tokens = turn.prompt_tokens != 0 ? turn.prompt_tokens
                                 : booking.opened        ? booking.opened->counted_tokens
                                                         : booking.tokens;
    const std::uint32_t at_most =
        tries < max_decisions_a_turn ? decision.in_flight_seen : UINT32_MAX;
    const Conversation* const history = detail::history_of(parent, booking.pinned);
    detail::PrefillShare prefill =
        prefill_at(decision.replica, turn.prompt_tokens, turn.side_call ? nullptr : history, now);
    if (decision.outcome == Outcome::sticky && booking.follows && !booking.at_home) {
      const Fleet::Opening opening{*booking.opened, decision.home};
      if (fleet_.take(decision.replica, at_most, decision.outcome, tokens, now, &opening))
        return leased(decision, &booking, tokens, prefill);
      prefill.drop();
      continue;
    }
    // A conversation to be pinned counts from its slot on, since its store may take its time.
    const bool pins = booking.follows &&
                      (decision.outcome == Outcome::placed || decision.outcome == Outcome::moved);
    const TurnOpened expected{.counted_tokens =
                                  booking.opened ? booking.opened->counted_tokens : booking.tokens};
    const Fleet::Opening opening{expected, decision.home};
    const Fleet::Opening* const promise = pins ? &opening : nullptr;
    if (!fleet_.take(decision.replica, at_most, decision.outcome, tokens, now, promise)) {
      prefill.drop();
      continue;
    }
    if (decision.outcome != Outcome::sticky && decision.outcome != Outcome::client_pinned) {
      draws_.fetch_add(1, std::memory_order_relaxed);
    }
    if (!booking.follows) return leased(decision, nullptr, tokens, prefill);
    if (pins) booking.promised = {expected.counted_tokens, 1};
    if (settle(decision, booking, now) == Settled::yes)
      return leased(decision, &booking, tokens, prefill);
    prefill.drop();
    fleet_.untake(decision.replica, decision.outcome, tokens, promise);
    booking.promised = {};
  }
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Decision Router<P, S, O, M, C>::undecided(const Turn& turn, const Keys& keys) noexcept {
  return {.key = keys.turn,
          .has_key = keys.has_turn,
          .side_call = turn.side_call,
          .prompt_tokens = turn.prompt_tokens};
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Lease Router<P, S, O, M, C>::refuse(const Turn& turn, const Keys& keys, Instant now) {
  Decision decision = undecided(turn, keys);
  const auto pinned = keys.has_turn ? detail::peek(pins_, keys.turn, now) : std::nullopt;
  if (pinned && fleet_.is_current(pinned->home)) decision.home = pinned->home;
  return without_replica(decision, Outcome::refused);
}

// Makes the pins agree with a decision whose slot is taken.
template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
auto Router<P, S, O, M, C>::settle(Decision& decision, Booking& booking, Instant now) -> Settled {
  if (decision.outcome == Outcome::sticky) return Settled::yes;  // booked at home already
  if (decision.outcome == Outcome::spilled) {
    decision.home = booking.pinned->home;
    open_at(decision.home, booking, now, detail::Counter::spilled_out);
    return Settled::yes;
  }
  if (!booking.pinned) return pin_anew(decision, booking, now);

  const Home left = booking.pinned->home;
  open_at(left, booking, now);
  if (const auto conversation = detail::repin(pins_, decision.key, left, decision.home, now,
                                              booking.opened->counted_tokens)) {
    fleet_.leave(left, *conversation, now);
    fleet_.enter(decision.home, *conversation, now, booking.promised);
    return Settled::yes;
  }
  if (!booking.opened->ticket.has_value()) {
    // A store that only pins does not move the turn along with its conversation: begin anew.
    fleet_.leave(left, detail::bare_conversation(left, 1, booking.opened->counted_tokens), now);
    booking.at_home = false;
  }
  booking.pinned = detail::peek(pins_, decision.key, now);
  if (!booking.pinned) {
    booking.opened.reset();  // evicted meanwhile, and its turns forgotten with it
    booking.at_home = false;
  }
  return Settled::pinned_elsewhere;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
auto Router<P, S, O, M, C>::pin_anew(Decision& decision, Booking& booking, Instant now) -> Settled {
  const std::optional<TurnOpened> opened =
      detail::pin_turn(pins_, decision.key, decision.home, now, booking.tokens);
  booking.opened = opened;
  booking.pinned = std::optional(opened->before);
  if (const auto& gone = opened->evicted) {
    fleet_.leave(gone->home, *gone, now);
    (opened->renewed ? expired_ : evicted_).fetch_add(1, std::memory_order_relaxed);
  }
  if (booking.pinned->home != decision.home) return Settled::pinned_elsewhere;
  fleet_.open(decision.home, *opened, now, detail::Counter::none, booking.promised);
  booking.at_home = true;
  return Settled::yes;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::open_at(Home home, Booking& booking, Instant now,
                                    detail::Counter count) noexcept {
  if (!booking.at_home) fleet_.open(home, *booking.opened, now, count);
  booking.at_home = true;
}

// A turn that counts in the store got no slot: it ends where it began.
template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::abandon(const Booking& booking, const Decision& decision, Instant now) {
  if (!booking.opened) return;
  if (!booking.at_home) fleet_.open(booking.opened->before.home, *booking.opened, now);
  const detail::TurnTie tie{decision.key, booking.opened->before.home, booking.opened->ticket,
                            booking.opened->counted_tokens};
  if (const auto closed = detail::close_turn(pins_, tie, now, 0, TurnEnd::keep_pin))
    fleet_.close(*closed, now);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Lease Router<P, S, O, M, C>::leased(const Decision& decision, const Booking* booking,
                                    std::uint64_t tokens, detail::PrefillShare prefill) noexcept {
  if (booking == nullptr) {
    return Lease(this, &end_turn_of, decision, {.tokens = tokens, .prefill = prefill});
  }
  return Lease(this, &end_turn_of, decision,
               {.tokens = tokens,
                .counted_tokens = booking->opened->counted_tokens,
                .follows = true,
                .ticket = booking->opened->ticket,
                .prefill = prefill});
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Lease Router<P, S, O, M, C>::without_replica(Decision decision, Outcome outcome) noexcept {
  (outcome == Outcome::unrouted ? unrouted_ : refused_).fetch_add(1, std::memory_order_relaxed);
  decision.replica = {};
  decision.outcome = outcome;
  decision.reason = outcome == Outcome::unrouted ? Reason::affinity_off : Reason::no_replica;
  return Lease(decision);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::end_turn(Lease& lease, Lease::End how, const Usage* usage) noexcept {
  fleet_.expect(lease.replica());
  if constexpr (needs_prefill) lease.first_byte();
  const Instant now = clock_.now();
  const Lease::Booked& booked = lease.booked_;
  const auto count = how == Lease::End::fail ? detail::Counter::failed : detail::Counter::none;
  if (!booked.follows) {
    fleet_.release(lease.replica(), booked.tokens, now, nullptr, count);
    return;
  }
  const std::uint32_t context = usage != nullptr && usage->prompt_tokens != 0
                                    ? own_context(usage->prompt_tokens + usage->completion_tokens)
                                    : 0;
  const bool first_failed = how == Lease::End::fail && lease.outcome() == Outcome::placed;
  const std::optional<TurnClosed> closed = detail::close_turn(
      pins_, {lease.decision().key, lease.decision().home, booked.ticket, booked.counted_tokens},
      now, context, first_failed ? TurnEnd::unpin_if_first : TurnEnd::keep_pin);
  if (closed && closed->unpinned) unpinned_.fetch_add(1, std::memory_order_relaxed);
  if (context != 0) learn_context(context);
  fleet_.release(lease.replica(), booked.tokens, now, closed ? &*closed : nullptr, count);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
auto Router<P, S, O, M, C>::keys_of(const Turn& turn) const noexcept -> Keys {
  const auto hashed = [&](const Key& key) {
    return key.is_hash() ? key.hash() : hasher_(key.text());
  };
  if (!turn.key.has_value()) return {};
  if (!turn.parent.has_value()) return {.turn = hashed(turn.key), .has_turn = true};
  switch (options_.parent_hint) {
    case ParentHint::with_parent:
      return {.turn = hashed(turn.parent), .has_turn = true};
    case ParentHint::prefer_parent:
      return {.turn = hashed(turn.key),
              .parent = hashed(turn.parent),
              .has_turn = true,
              .has_parent = true};
    default:
      return {.turn = hashed(turn.key), .has_turn = true};
  }
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
std::optional<Conversation> Router<P, S, O, M, C>::parent_of(
    const Keys& keys, const std::optional<Conversation>& pinned, Instant now) const {
  if (!keys.has_parent || (pinned && fleet_.is_current(pinned->home))) return std::nullopt;
  return detail::peek(pins_, keys.parent, now);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
bool Router<P, S, O, M, C>::can_serve(const Turn& turn) const noexcept {
  if (turn.exclude.empty()) [[likely]]
    return fleet_.serving() > 0;
  for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
    const ReplicaId id = fleet_.id_of(i);
    if (fleet_.state(id) <= ReplicaState::draining && !detail::excludes(turn.exclude, id)) {
      return true;
    }
  }
  return false;
}

}  // namespace limpet
