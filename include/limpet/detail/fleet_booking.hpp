// SPDX-License-Identifier: Apache-2.0
//
// Fleet's bodies, first half: what every turn runs through. Split from fleet.hpp, which is the face
// and the contract.
#pragma once

#include <limpet/fleet.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace limpet {

inline ReplicaLoad Fleet::load(std::uint32_t index, Instant now) const noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  Slot& row = slot(index);
  if (const std::int64_t bucket = bucket_of(now); row.live.newest() < bucket) {
    const std::lock_guard lock(row.lock);
    row.live.advance(bucket);
  }
  const std::uint32_t status = row.status.load(relaxed);
  return {.replica = {static_cast<std::uint16_t>(index), Slot::version_of(status)},
          .state = Slot::state_of(status),
          .reading_fresh = reading_fresh(index, now),
          .max_num_seqs = row.max_num_seqs.load(relaxed),
          .in_flight = row.in_flight.load(relaxed),
          .in_flight_tokens = row.in_flight_tokens.load(relaxed),
          .pending_prefill_tokens = row.pending_prefill_tokens.load(relaxed),
          .live_conversations = row.live.conversations(),
          .live_tokens = row.live.tokens(),
          .kv_capacity_tokens = row.kv_capacity_tokens.load(relaxed),
          .kv_usage = row.kv_usage.load(relaxed),
          .in_flight_at_reading = row.in_flight_at_reading.load(relaxed),
          .running = row.running.load(relaxed),
          .waiting = row.waiting.load(relaxed)};
}

inline bool Fleet::still_caches(const Conversation& conversation, std::uint64_t shared,
                                Instant now) const noexcept {
  if (!is_current(conversation.home)) return false;
  Slot& row = slot(conversation.home.replica.slot);
  const std::uint64_t capacity = row.kv_capacity_tokens.load(std::memory_order_relaxed);
  if (capacity == 0 || conversation.in_flight > 0) return true;
  const std::uint64_t own = shared + conversation.counted_tokens;
  if (row.live.tokens() + own <= capacity) return true;
  const std::lock_guard lock(row.lock);
  row.live.advance(bucket_of(now));
  return row.live.tokens_since(bucket_of(conversation.last_active)) + own <= capacity;
}

inline bool Fleet::take(ReplicaId replica, std::uint32_t at_most, Outcome outcome,
                        std::uint64_t tokens, Instant now, const Opening* opening) noexcept {
  Slot& row = slot(replica.slot);
  const std::lock_guard lock(row.lock);
  const std::uint32_t status = row.status.load(std::memory_order_relaxed);
  if (Slot::version_of(status) != replica.version ||
      Slot::state_of(status) > ReplicaState::draining ||
      row.in_flight.load(std::memory_order_relaxed) > at_most) {
    return false;
  }
  if (opening != nullptr) {
    if (row.generation.load(std::memory_order_relaxed) != opening->home.generation) return false;
    open_live(row, opening->turn, now, {});
  }
  row.add_turn(tokens);
  row.count(detail::counter_of(outcome));
  return true;
}

inline void Fleet::untake(ReplicaId replica, Outcome outcome, std::uint64_t tokens,
                          const Opening* promise) noexcept {
  Slot& row = slot(replica.slot);
  const std::lock_guard lock(row.lock);
  row.drop_turn(tokens);
  if (Slot::version_of(row.status.load(std::memory_order_relaxed)) != replica.version) return;
  row.count(detail::counter_of(outcome), ~std::uint64_t{0});
  if (promise != nullptr &&
      row.generation.load(std::memory_order_relaxed) == promise->home.generation) {
    row.live.add({-std::int64_t{promise->turn.counted_tokens}, -1});
  }
}

inline void Fleet::recount(ReplicaId replica, Outcome from, Outcome to) noexcept {
  Slot& row = slot(replica.slot);
  const std::lock_guard lock(row.lock);
  if (Slot::version_of(row.status.load(std::memory_order_relaxed)) != replica.version) return;
  row.count(detail::counter_of(from), ~std::uint64_t{0});
  row.count(detail::counter_of(to));
}

inline void Fleet::release(ReplicaId replica, std::uint64_t tokens, Instant now,
                           const TurnClosed* closed, detail::Counter count) noexcept {
  const bool together = closed != nullptr && closed->before.home.replica == replica;
  {
    Slot& row = slot(replica.slot);
    const std::lock_guard lock(row.lock);
    row.drop_turn(tokens);
    if (Slot::version_of(row.status.load(std::memory_order_relaxed)) == replica.version) {
      row.count(count);
      if (together &&
          row.generation.load(std::memory_order_relaxed) == closed->before.home.generation) {
        close_live(row, *closed, now);
      }
    }
  }
  if (closed != nullptr && !together) close(*closed, now);
}

inline Fleet::Slot* Fleet::lock_row_of(Home home) noexcept {
  if (!home.replica || home.replica.slot >= size()) return nullptr;
  Slot& row = slot(home.replica.slot);
  row.lock.lock();
  const std::uint32_t status = row.status.load(std::memory_order_relaxed);
  if (Slot::version_of(status) == home.replica.version &&
      Slot::state_of(status) != ReplicaState::removed &&
      row.generation.load(std::memory_order_relaxed) == home.generation) {
    return &row;
  }
  row.lock.unlock();
  return nullptr;
}

inline void Fleet::open(Home home, const TurnOpened& turn, Instant now, detail::Counter count,
                        const LiveWindow::Sum& promised) noexcept {
  Slot* const row = lock_row_of(home);
  if (row == nullptr) return;
  const std::lock_guard lock(row->lock, std::adopt_lock);
  if (turn.before.turns == 0) ++row->pins;
  open_live(*row, turn, now, promised);
  row->count(count);
}

inline void Fleet::close(const TurnClosed& closed, Instant now) noexcept {
  Slot* const row = lock_row_of(closed.before.home);
  if (row == nullptr) return;
  const std::lock_guard lock(row->lock, std::adopt_lock);
  close_live(*row, closed, now);
}

// A turn began: its conversation is no longer idle, whatever it was before.
inline void Fleet::open_live(Slot& row, const TurnOpened& turn, Instant now,
                             const LiveWindow::Sum& promised) noexcept {
  row.live.advance(bucket_of(now));
  const Conversation& before = turn.before;
  const std::int64_t was = before.counted_tokens;
  LiveWindow::Sum change{turn.counted_tokens, 1};
  if (before.in_flight > 0) {
    change += {-was, -1};
  } else if (before.turns > 0) {
    change += row.live.add_idle(bucket_of(before.last_active), {-was, -1});
  }
  change += -promised;
  row.live.add(change);
}

// A turn ended: with its last one a conversation is idle from now on.
inline void Fleet::close_live(Slot& row, const TurnClosed& closed, Instant now) noexcept {
  row.live.advance(bucket_of(now));
  const Conversation& before = closed.before;
  const LiveWindow::Sum is{closed.counted_tokens, 1};
  LiveWindow::Sum change{-std::int64_t{before.counted_tokens}, -1};
  if (before.in_flight > 1) {
    change += is;
  } else {
    if (closed.unpinned) --row.pins;
    if (closed.remembered)
      change += row.live.add_idle(bucket_of(std::max(before.last_active, now)), is);
  }
  row.live.add(change);
}

inline void Fleet::transfer(Home home, const Conversation& conversation, Instant now, int sign,
                            const LiveWindow::Sum& promised) noexcept {
  Slot* const row = lock_row_of(home);
  if (row == nullptr) return;
  const std::lock_guard lock(row->lock, std::adopt_lock);
  row->live.advance(bucket_of(now));
  LiveWindow::Sum change{sign * std::int64_t{conversation.counted_tokens}, sign};
  if (conversation.in_flight == 0)
    change = row->live.add_idle(bucket_of(conversation.last_active), change);
  change += -promised;
  row->live.add(change);
  if (conversation.last_active == Instant::min()) return;  // its store only pins: nothing to count
  row->pins += sign;
}

}  // namespace limpet
