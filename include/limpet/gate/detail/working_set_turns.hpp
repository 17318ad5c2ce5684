// SPDX-License-Identifier: Apache-2.0
//
// WorkingSetGate's bodies: a turn from enter() to its lease and back.
//
// What is decided under the lock is carried out after it: the router is asked to commit the turn to
// the replica that was chosen, and the ticket told. Between the two a ticket is `settling`: whoever
// abandons it then leaves a note, and the thread that settles it cleans up.
#pragma once

#include <limpet/gate/working_set.hpp>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace limpet {

template <class R>
void WorkingSetGate<R>::begin(const Turn& turn, const EntryPtr& entry) {
  constexpr int max_plans = 8;
  for (int tries = 1;; ++tries) {
    const std::uint64_t committed = committed_.load(std::memory_order_acquire);
    const Decision plan = router_.plan(turn);
    const bool governed =
        plan.replica && plan.has_key && !plan.side_call && plan.outcome != Outcome::client_pinned;
    if (!governed) {
      Lease lease = router_.route(turn);
      const bool refused = lease.outcome() == Outcome::refused;
      return settle_at_once(entry, std::move(lease),
                            refused ? GateReason::no_replica : GateReason::not_governed);
    }
    const bool at_home = plan.outcome == Outcome::sticky || plan.outcome == Outcome::spilled;
    std::optional<detail::Admitted> admitted;
    Due due;
    {
      const std::lock_guard lock(mutex_);
      // Others are on their way to replicas that looked idle to this plan.
      if (!at_home && begun_ != committed && tries < max_plans) continue;
      entry->turn = {.id = ++last_id_,
                     .key = plan.key,
                     .prompt_tokens = turn.prompt_tokens,
                     .home = at_home ? plan.home.replica : ReplicaId{},
                     .since = entry->since,
                     .exclude = {turn.exclude.begin(), turn.exclude.end()}};
      if (turn.parent.has_value()) {
        entry->parent =
            turn.parent.is_hash() ? turn.parent.hash() : router_.hash(turn.parent.text());
      }
      admitted = admission_.pass(entry->turn, entry->since);
      entry->reason = GateReason::inside;
      if (!admitted) {
        pump(entry->since, due);
        entry->reason = GateReason::room;
        if (admission_.may_overtake(entry->since))
          admitted = admission_.admit(entry->turn, plan.home.replica, entry->since);
      }
      if (admitted) {
        ++passed_;
        ++begun_;
        entry->stage = Entry::Stage::settling;
        entry->stay = admitted->stay;
      } else if (admission_.is_full()) {
        refuse(entry, GateReason::too_many_waiting, due, entry->since);
      } else {
        entry->reason = GateReason::full;
        admission_.wait(entry->turn);
        waiting_.emplace(entry->turn.id, entry);
        pump(entry->since, due);
      }
    }
    if (admitted) settle(entry, admitted->replica, plan);
    return deliver(due);
  }
}

template <class R>
void WorkingSetGate<R>::settle_at_once(const EntryPtr& entry, Lease lease, GateReason reason) {
  const std::lock_guard lock(mutex_);
  entry->governed = false;
  entry->reason = reason;
  entry->lease = std::move(lease);
  entry->stage = Entry::Stage::settled;
  ++(reason == GateReason::no_replica ? refused_ : passed_);
  entry->state.store(
      reason == GateReason::no_replica ? TicketState::refused : TicketState::admitted,
      std::memory_order_release);
}

// The plan, made to send the turn to `replica` and to pin its conversation there.
template <class R>
Decision WorkingSetGate<R>::directed(Decision plan, ReplicaId replica) {
  if (plan.home.replica == replica) return plan;  // a spill from there included
  const bool pinned = plan.outcome == Outcome::sticky || plan.outcome == Outcome::spilled;
  if (pinned) {
    plan.previous = plan.home;
    plan.outcome = Outcome::moved;
    plan.reason = Reason::home_overloaded;
  }
  plan.home = {};
  plan.replica = replica;
  return plan;
}

template <class R>
Turn WorkingSetGate<R>::turn_of(const Entry& entry) {
  return {.key = entry.turn.key,
          .parent = entry.parent,
          .exclude = entry.turn.exclude,
          .prompt_tokens = entry.turn.prompt_tokens};
}

// Gets the lease of a turn that has been let in. A replica that went away since is no place: the
// turn then waits again, where it stood.
template <class R>
void WorkingSetGate<R>::settle(const EntryPtr& entry, ReplicaId replica, const Decision& plan) {
  entry->first_ever = plan.outcome == Outcome::placed && plan.reason == Reason::no_pin;
  const bool unrouted = plan.outcome == Outcome::unrouted;  // affinity was switched off meanwhile
  Lease lease = router_.commit(unrouted || !plan.replica ? plan : directed(plan, replica));
  committed_.fetch_add(1, std::memory_order_release);
  if (lease) return finish_settling(entry, std::move(lease));
  const Instant now = router_.clock().now();
  Due due;
  {
    const std::lock_guard lock(mutex_);
    admission_.leave(entry->turn, entry->stay, std::nullopt, false, now);
    entry->governed = !unrouted;
    if (!unrouted && entry->abandoned) {
      ++cancelled_;
      entry->stage = Entry::Stage::settled;
      entry->state.store(TicketState::ended, std::memory_order_release);
    } else if (!unrouted) {
      entry->stage = Entry::Stage::waiting;
      entry->reason = GateReason::full;
      entry->turn.home = {};
      admission_.wait(entry->turn);
      waiting_.emplace(entry->turn.id, entry);
    }
    pump(now, due);
  }
  if (unrouted) finish_settling(entry, std::move(lease));
  deliver(due);
}

template <class R>
void WorkingSetGate<R>::finish_settling(const EntryPtr& entry, Lease lease) {
  bool abandoned = false;
  std::function<void()> settled;
  {
    const std::lock_guard lock(mutex_);
    entry->lease = std::move(lease);
    entry->stage = Entry::Stage::settled;
    abandoned = entry->abandoned;
    settled = std::move(entry->settled);
    entry->state.store(TicketState::admitted, std::memory_order_release);
  }
  if (abandoned) return end(entry, Lease::End::cancel, nullptr);
  if (settled) settled();
}

template <class R>
void WorkingSetGate<R>::end(const EntryPtr& entry, Lease::End how, const Usage* usage) {
  const Instant now = router_.clock().now();
  Due due;
  bool was_waiting = false;
  {
    const std::lock_guard lock(mutex_);
    if (entry->stage == Entry::Stage::settling) {
      entry->abandoned = true;
      return;
    }
    if (entry->stage == Entry::Stage::waiting) {
      was_waiting = true;
      ++cancelled_;
      admission_.abandon(entry->turn.id);
      waiting_.erase(entry->turn.id);
      entry->stage = Entry::Stage::settled;
      entry->state.store(TicketState::ended, std::memory_order_release);
      pump(now, due);
    }
  }
  if (was_waiting) return deliver(due);
  const bool admitted = entry->state.exchange(TicketState::ended) == TicketState::admitted;
  if (!admitted) return;
  switch (how) {
    case Lease::End::finish:
      usage != nullptr ? entry->lease.finish(*usage) : entry->lease.finish();
      break;
    case Lease::End::cancel:
      entry->lease.cancel();
      break;
    case Lease::End::fail:
      entry->lease.fail();
      break;
  }
  if (!entry->governed) return;
  {
    const std::lock_guard lock(mutex_);
    std::optional<Usage> said;
    if (how == Lease::End::finish) said = usage != nullptr ? *usage : Usage{};
    admission_.leave(entry->turn, entry->stay, said, entry->first_ever, now);
    pump(now, due);
  }
  deliver(due);
}

template <class R>
void WorkingSetGate<R>::refuse(const EntryPtr& entry, GateReason reason, Due& due, Instant now) {
  ++refused_;
  entry->reason = reason;
  entry->waited = now - entry->since;
  entry->stage = Entry::Stage::settled;
  entry->state.store(TicketState::refused, std::memory_order_release);
  if (entry->settled) due.refused.push_back(std::move(entry->settled));
}

// Under the lock.
template <class R>
void WorkingSetGate<R>::pump(Instant now, Due& due) {
  pumped_at_ = std::max(pumped_at_, now);
  detail::Places& places = admission_.places();
  places.forget();
  router_.for_each_load(now, [&](const ReplicaLoad& load) { places.see(load); });
  places.settle();
  const bool anyone_serves = std::any_of(places.all().begin(), places.all().end(),
                                         [](const detail::Place& place) { return place.serves; });
  const auto taken = [&](std::uint64_t id) {
    auto node = waiting_.extract(id);
    return std::move(node.mapped());
  };
  for (const std::uint64_t id : admission_.expire(now))
    refuse(taken(id), GateReason::deadline, due, now);
  while (!anyone_serves && !admission_.queue().empty()) {
    const std::uint64_t id = admission_.queue().front().id;
    admission_.abandon(id);
    refuse(taken(id), GateReason::no_replica, due, now);
  }
  std::vector<detail::Admitted> admitted;
  admission_.pump(now, admitted);
  for (const detail::Admitted& one : admitted) {
    EntryPtr entry = taken(one.id);
    ++waited_;
    ++begun_;
    entry->stage = Entry::Stage::settling;
    entry->stay = one.stay;
    entry->reason = GateReason::waited;
    entry->waited = now - entry->since;
    due.admitted.emplace_back(std::move(entry), one.replica);
  }
}

template <class R>
void WorkingSetGate<R>::deliver(Due& due) {
  for (const auto& settled : due.refused) settled();
  for (const auto& [entry, replica] : due.admitted)
    settle(entry, replica, router_.plan(turn_of(*entry)));
}

template <class R>
GateSnapshot WorkingSetGate<R>::snapshot() const {
  const Instant now = router_.clock().now();
  const std::lock_guard lock(mutex_);
  GateSnapshot snapshot{.waiting = admission_.queue().size(),
                        .residents = admission_.places().residents().size(),
                        .shared_prefix_tokens = admission_.places().learnt().shared(),
                        .passed = passed_,
                        .waited = waited_,
                        .refused = refused_,
                        .cancelled = cancelled_,
                        .reusable_tokens = admission_.reusable_tokens(),
                        .lost_tokens = admission_.lost_tokens()};
  if (snapshot.waiting > 0) snapshot.longest_wait = now - admission_.waiting_since();
  for (const detail::Place& place : admission_.places().all()) {
    if (!place.replica || !place.serves) continue;
    snapshot.open = snapshot.open || place.capacity == 0;
    snapshot.replicas.push_back(
        {place.replica, place.capacity, place.used, place.residents, place.theta});
  }
  return snapshot;
}

}  // namespace limpet
