// SPDX-License-Identifier: Apache-2.0
//
// One row of the fleet table: what a turn reads and writes on its way, laid out by who touches it
// when.
//
// A turn that goes home writes one cache line, the second: each further one might have to come from
// another core. A scan over the pool reads that and the first, by relaxed loads without a lock.
// Every write happens under the row's spin lock, so counts are exact, never negative and never
// leaked; a reader sees each of them, not all of one instant.
#pragma once

#include <limpet/detail/live_window.hpp>
#include <limpet/detail/spin_lock.hpp>
#include <limpet/types.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace limpet::detail {

enum class Counter : std::uint8_t {
  placed,
  spilled_in,
  moved,
  balanced,
  client_pinned,
  spilled_out,
  failed,
  restarts,
  sticky,  // the only one that nearly every turn counts
  none,    // not counted
};

// Under which counter of the chosen replica a turn is booked. Requires: the outcome chose a
// replica.
[[nodiscard]] constexpr Counter counter_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::placed:
      return Counter::placed;
    case Outcome::sticky:
      return Counter::sticky;
    case Outcome::spilled:
      return Counter::spilled_in;
    case Outcome::moved:
      return Counter::moved;
    case Outcome::client_pinned:
      return Counter::client_pinned;
    default:
      return Counter::balanced;
  }
}

struct alignas(64) ReplicaSlot {
  static constexpr std::int64_t never = INT64_MIN;

  // Written by a reading or a change of membership only, and the last one by turns, where a policy
  // asks for it.
  std::atomic<std::uint64_t> name_hash = 0;
  std::atomic<std::uint64_t> kv_capacity_tokens = 0;
  std::atomic<std::uint32_t> max_num_seqs = 0;
  std::atomic<std::uint32_t> running = 0;
  std::atomic<std::uint32_t> waiting = 0;
  std::atomic<std::uint32_t> in_flight_at_reading = 0;
  std::atomic<std::int64_t> reading_at = never;
  std::atomic<double> kv_usage = 0.0;
  std::atomic<std::uint64_t> pending_prefill_tokens = 0;  // balanced by leases, without the lock

  // Written by every turn; the line ends where the older buckets of `live` begin.
  alignas(64) mutable SpinLock lock;
  std::atomic<std::uint32_t> status = pack(0, ReplicaState::removed);
  std::atomic<std::uint32_t> generation = 0;
  std::atomic<std::uint32_t> in_flight = 0;
  std::atomic<std::uint64_t> in_flight_tokens = 0;
  std::uint64_t sticky = 0;  // guarded by `lock`
  LiveWindow live;

  // Guarded by `lock`.
  std::uint64_t counters[8] = {};  // but for `sticky`
  std::int32_t pins = 0;           // the end of one may be told before its begin

  [[nodiscard]] static constexpr std::uint32_t pack(std::uint16_t version,
                                                    ReplicaState state) noexcept {
    return std::uint32_t{version} << 8 | static_cast<std::uint32_t>(state);
  }
  [[nodiscard]] static constexpr std::uint16_t version_of(std::uint32_t status) noexcept {
    return static_cast<std::uint16_t>(status >> 8);
  }
  [[nodiscard]] static constexpr ReplicaState state_of(std::uint32_t status) noexcept {
    return static_cast<ReplicaState>(status & 0xFF);
  }

  // All below require the lock.

  void count(Counter counter, std::uint64_t by = 1) noexcept {
    if (counter != Counter::none) counted(counter) += by;
  }

  [[nodiscard]] std::uint64_t& counted(Counter counter) noexcept {
    return counter == Counter::sticky ? sticky : counters[static_cast<std::size_t>(counter)];
  }

  // A store that only pins tells of ends alone.
  [[nodiscard]] std::uint32_t pinned() const noexcept {
    return pins > 0 ? static_cast<std::uint32_t>(pins) : 0;
  }

  void add_turn(std::uint64_t tokens) noexcept {
    add(in_flight, 1U);
    add(in_flight_tokens, tokens);
  }

  void drop_turn(std::uint64_t tokens) noexcept {
    add(in_flight, ~std::uint32_t{0});
    add(in_flight_tokens, ~tokens + 1);
  }

  // Everything that belonged to the engine's cache is gone with it.
  void forget_cache() noexcept {
    add(generation, 1U);
    live.clear();
    pins = 0;
    reading_at.store(never, std::memory_order_relaxed);
    kv_usage.store(0.0, std::memory_order_relaxed);
    running.store(0, std::memory_order_relaxed);
    waiting.store(0, std::memory_order_relaxed);
  }

 private:
  // The lock makes a load and a store as good as a locked addition, and cheaper.
  template <class T>
  static void add(std::atomic<T>& to, T by) noexcept {
    to.store(to.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

}  // namespace limpet::detail
