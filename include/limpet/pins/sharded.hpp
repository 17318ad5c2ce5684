// SPDX-License-Identifier: Apache-2.0
//
// ShardedPins: the default store of pins, for any number of threads.
//
// An array of LocalPins, each with a mutex of its own; a key's hash picks the shard, so threads
// meet only where their keys do. Eviction is exactly least-recently-active within a shard. A shard
// should hold about 1,024 pins: fewer shards collide more, smaller ones evict early, since keys
// fall on shards unevenly. Thread-safe unless Mutex is NullMutex. An operation costs a lock and a
// probe; nothing is allocated after construction.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/array.hpp>
#include <limpet/detail/check.hpp>
#include <limpet/detail/prefetch.hpp>
#include <limpet/fwd.hpp>
#include <limpet/pins/local.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace limpet {

// For a router that one thread uses: locking costs nothing.
struct NullMutex {
  void lock() noexcept {}
  void unlock() noexcept {}
};

struct ShardedPinOptions {
  std::size_t capacity = 8192;                   // conversations in all, 1 to 2^30
  Duration idle_ttl = detail::seconds(30 * 60);  // > 0
  std::size_t shards = 0;  // a power of two up to 65,536; 0: one for each 1,024 of capacity
};

template <class Mutex>
class ShardedPins {
 public:
  explicit ShardedPins(ShardedPinOptions options = {}) {
    detail::require(options.capacity >= 1 && options.capacity <= std::size_t{1} << 30, "capacity",
                    options.capacity, "a pin store holds 1 to 2^30 conversations");
    if (options.shards == 0) {
      options.shards =
          std::min(std::bit_ceil((options.capacity + 1023) / 1024), std::size_t{65536});
    }
    detail::require(std::has_single_bit(options.shards) && options.shards <= 65536, "shards",
                    options.shards, "must be a power of two up to 65,536");
    detail::require(options.shards <= options.capacity, "shards", options.shards,
                    "there are more shards than pins");
    const PinOptions each{.capacity = (options.capacity + options.shards - 1) / options.shards,
                          .idle_ttl = options.idle_ttl};
    shards_ = detail::Array<Shard>(options.shards);
    tables_ = detail::Array<const detail::PinTable::Entry*>(options.shards);
    for (std::size_t i = 0; i < options.shards; ++i) {
      shards_[i].pins = LocalPins(each);
      tables_[i] = shards_[i].pins.table().entries().begin();
    }
    mask_ = options.shards - 1;
    places_ = shards_[0].pins.table().entries().size();
  }

  [[nodiscard]] std::optional<Home> find(KeyHash key, Instant now) const noexcept {
    return locked(key)->find(key, now);
  }

  Home pin(KeyHash key, Home home, Instant now) noexcept {
    return locked(key)->pin(key, home, now);
  }

  Home repin(KeyHash key, Home expected, Home desired, Instant now) noexcept {
    return locked(key)->repin(key, expected, desired, now);
  }

  bool unpin(KeyHash key, Home expected) noexcept { return locked(key)->unpin(key, expected); }

  [[nodiscard]] std::optional<Conversation> peek(KeyHash key, Instant now) const noexcept {
    return locked(key)->peek(key, now);
  }

  std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) noexcept {
    return locked(key)->open_turn(key, now, tokens);
  }

  TurnOpened pin_turn(KeyHash key, Home home, Instant now, std::uint32_t tokens) noexcept {
    return locked(key)->pin_turn(key, home, now, tokens);
  }

  std::optional<Conversation> repin_conversation(KeyHash key, Home expected, Home desired,
                                                 Instant now) noexcept {
    return locked(key)->repin_conversation(key, expected, desired, now);
  }

  std::optional<Conversation> repin_idle(KeyHash key, Home expected, Home desired,
                                         Instant cutoff) noexcept {
    return locked(key)->repin_idle(key, expected, desired, cutoff);
  }

  std::optional<TurnClosed> close_turn(KeyHash key, PinTicket ticket, Instant now,
                                       std::uint32_t context_tokens, TurnEnd end) noexcept {
    return locked(key)->close_turn(key, ticket, now, context_tokens, end);
  }

  // The next two append to a vector, as those of LocalPins do, and are templates as those are.
  void idle_since(Instant cutoff, std::size_t limit, auto& out) const {
    const std::size_t first = out.size();
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      shard.pins.idle_since(cutoff, limit, out);
    }
    const auto older = [](const IdleConversation& a, const IdleConversation& b) {
      return a.conversation.last_active < b.conversation.last_active;
    };
    std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), older);
    if (out.size() - first > limit) out.resize(first + limit);
  }

  void expire(Instant now, auto& out) {
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      shard.pins.expire(now, out);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t sum = 0;
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      sum += shard.pins.size();
    }
    return sum;
  }

  [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }
  [[nodiscard]] std::size_t capacity() const noexcept {
    return shards_.size() * shards_[0].pins.capacity();
  }

  // All memory it holds, taken at construction.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return shards_.size() * (sizeof(Shard) + sizeof(tables_[0]) + shards_[0].pins.bytes());
  }

 private:
  struct alignas(64) Shard {
    mutable Mutex mutex;
    LocalPins pins{{.capacity = 1}};  // until the constructor knows how many there will be
  };

  // A shard whose lock is held.
  class Locked {
   public:
    explicit Locked(Shard& shard) : shard_(shard) { shard_.mutex.lock(); }
    ~Locked() { shard_.mutex.unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

    [[nodiscard]] LocalPins* operator->() const noexcept { return &shard_.pins; }

   private:
    Shard& shard_;
  };

  // LocalPins probes with `lo`, so the shard comes from the other half. The entry is called for
  // before the lock, so that both are on their way from memory at once.
  [[nodiscard]] Locked locked(KeyHash key) const noexcept {
    const std::size_t number = (key.hi >> 48) & mask_;
    detail::prefetch_to_write(tables_[number] + detail::PinTable::first_place(key, places_));
    return Locked(shards_[number]);
  }

  mutable detail::Array<Shard> shards_;
  detail::Array<const detail::PinTable::Entry*> tables_;  // of the shards
  std::size_t mask_ = 0;
  std::size_t places_ = 0;  // in each table
};

static_assert(TracksTurns<ShardedPins<>>);

}  // namespace limpet
