// SPDX-License-Identifier: Apache-2.0
//
// The decision procedure: what to do with a turn, given the pool and the conversation's pin.
// Decides and changes nothing.
//
// The steps stand in the order of the decision table; each return is one of its rows. A sticky turn
// pays for one replica's load and one comparison; everything else pays for passes over the pool.
// Thread-safe; the caller checks, when it books the decision, that what it was founded on still
// holds.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/candidates.hpp>
#include <limpet/detail/prefill.hpp>
#include <limpet/fleet.hpp>
#include <limpet/types.hpp>

#include <cstdint>
#include <optional>

namespace limpet::detail {

template <LoadScorer Scorer, OverflowRule Overflow>
class Decider {
 public:
  Decider(const Fleet& fleet, const Scorer& scorer, const Overflow& overflow, const Turn& turn,
          Instant now, std::uint64_t draw, const Prompt& prompt = {}) noexcept
      : fleet_(fleet),
        scorer_(scorer),
        overflow_(overflow),
        turn_(turn),
        now_(now),
        draw_(draw),
        prompt_(prompt) {}

  // `decision` says what was asked: key, side call, prompt. `pinned` is the turn's conversation and
  // `parent` its parent's, where there are such.
  [[nodiscard]] Decision decide(Decision decision, const std::optional<Conversation>& pinned,
                                const std::optional<Conversation>& parent) const noexcept {
    if (pinned && fleet_.is_current(pinned->home)) decision.home = pinned->home;

    if (client_named(fleet_, turn_)) {
      return chosen(decision, Outcome::client_pinned, Reason::client_named_replica,
                    choice(turn_.client_pinned));
    }
    if (!decision.has_key) {
      return chosen(decision, Outcome::balanced, Reason::no_key, all().least_in_flight(draw_));
    }
    if (const Choice home = home_with_room(decision.home)) {
      return chosen(decision, Outcome::sticky,
                    turn_.side_call ? Reason::side_call : Reason::home_has_room, home);
    }
    if (turn_.side_call) {
      return chosen(decision, Outcome::balanced, Reason::side_call, all().least_in_flight(draw_));
    }
    if (!decision.home.replica) return place(decision, pinned, parent);
    const ReplicaId home = decision.home.replica;
    if (fleet_.state(home) > ReplicaState::draining) {
      decision.previous = decision.home;
      return chosen(decision, Outcome::moved, Reason::home_down,
                    best(all(), decision.key, &*pinned));
    }
    if (left_out(home)) {
      return chosen(decision, Outcome::spilled, Reason::home_excluded,
                    all().least_in_flight(draw_));
    }
    return overflow(decision, fleet_.load(home.slot, now_), *pinned);
  }

  // Returns: home, where it can take the turn and is not overloaded.
  [[nodiscard]] Choice home_with_room(Home home) const noexcept {
    if (!fleet_.is_current(home) || fleet_.state(home.replica) > ReplicaState::draining ||
        left_out(home.replica)) {
      return {};
    }
    const ReplicaLoad load = fleet_.load(home.replica.slot, now_);
    return overflow_.overloaded(load) ? Choice{} : Choice{home.replica, load.in_flight};
  }

  // Whether the client named a replica that can take the turn.
  [[nodiscard]] static bool client_named(const Fleet& fleet, const Turn& turn) noexcept {
    return turn.client_pinned && fleet.state(turn.client_pinned) <= ReplicaState::draining &&
           !excludes(turn.exclude, turn.client_pinned);
  }

 private:
  [[nodiscard]] bool left_out(ReplicaId replica) const noexcept {
    return excludes(turn_.exclude, replica);
  }

  // The last rows: home is overloaded. Draining replicas take no spills while home is up.
  [[nodiscard]] Decision overflow(Decision decision, const ReplicaLoad& home,
                                  const Conversation& pinned) const noexcept {
    const Candidates candidates(
        fleet_, now_, turn_.exclude, home.replica,
        home.state == ReplicaState::up ? Draining::never : Draining::if_none_is_up);
    OverflowView view(home, candidates.count(), &candidates, &Candidates::show);
    view.prompt_tokens = turn_.prompt_tokens;
    view.context_tokens = pinned.counted_tokens;
    if constexpr (NeedsPrefill<Overflow>) {
      const Uncached uncached(fleet_, prompt_, &pinned, now_);
      view.uncached_at_home = uncached.at(home.replica);
      view.uncached_elsewhere = uncached.elsewhere();
    }
    const Verdict verdict = candidates.count() == 0 ? Verdict::stay : overflow_.decide(view);
    const bool named = verdict.target && candidates.contains(verdict.target);

    if (verdict.action == Verdict::Action::move) {
      decision.previous = decision.home;
      return chosen(decision, Outcome::moved, Reason::home_overloaded,
                    named ? choice(verdict.target) : best(candidates, decision.key, &pinned));
    }
    if (verdict.action == Verdict::Action::spill) {
      const Choice other = named ? choice(verdict.target) : candidates.least_in_flight(draw_);
      if (named || (other && other.in_flight < home.in_flight)) {
        return chosen(decision, Outcome::spilled, Reason::home_overloaded, other);
      }
    }
    return chosen(decision, Outcome::sticky, Reason::home_overloaded_but_best,
                  {home.replica, home.in_flight});
  }

  [[nodiscard]] Decision place(Decision decision, const std::optional<Conversation>& pinned,
                               const std::optional<Conversation>& parent) const noexcept {
    if (pinned) decision.previous = pinned->home;
    if (parent && fleet_.is_current(parent->home)) {
      const ReplicaId beside = parent->home.replica;
      const ReplicaLoad load = fleet_.load(beside.slot, now_);
      if (!overflow_.overloaded(load) && all().contains(beside)) {
        return chosen(decision, Outcome::placed, Reason::parent_home, {beside, load.in_flight});
      }
    }
    return chosen(decision, Outcome::placed, pinned ? Reason::stale_pin : Reason::no_pin,
                  best(all(), decision.key, history_of(parent, pinned)));
  }

  [[nodiscard]] Candidates all() const noexcept {
    return {fleet_, now_, turn_.exclude, ReplicaId{}, Draining::if_none_is_up};
  }

  [[nodiscard]] Choice best(const Candidates& candidates, KeyHash key,
                            const Conversation* history) const noexcept {
    const ScoreContext context{.draw = draw_, .prompt_tokens = turn_.prompt_tokens};
    if constexpr (NeedsPrefill<Scorer>)
      return candidates.best(scorer_, context, key, Uncached(fleet_, prompt_, history, now_));
    return candidates.best(scorer_, context, key);
  }

  [[nodiscard]] Choice choice(ReplicaId replica) const noexcept {
    return {replica, fleet_.slot(replica.slot).in_flight.load(std::memory_order_relaxed)};
  }

  // A row of the table whose replica was found; without one, the first row: nobody can take the
  // turn.
  [[nodiscard]] Decision chosen(Decision decision, Outcome outcome, Reason reason,
                                Choice choice) const noexcept {
    if (!choice) {
      decision.outcome = Outcome::refused;
      decision.reason = Reason::no_replica;
      decision.previous = {};
      return decision;
    }
    decision.outcome = outcome;
    decision.reason = reason;
    decision.replica = choice.replica;
    decision.in_flight_seen = choice.in_flight;
    if (outcome == Outcome::placed || outcome == Outcome::moved) {
      decision.home = fleet_.home_at(choice.replica);
    }
    return decision;
  }

  const Fleet& fleet_;
  const Scorer& scorer_;
  const Overflow& overflow_;
  const Turn& turn_;
  Instant now_;
  std::uint64_t draw_;
  Prompt prompt_;
};

}  // namespace limpet::detail
