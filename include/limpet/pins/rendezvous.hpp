// SPDX-License-Identifier: Apache-2.0
//
// RendezvousPins: no table at all. A conversation's home is the replica with the highest hash of
// (key, replica name).
//
// The honest baseline for "do we need a table": any number of routers agree without talking,
// nothing expires, and when a replica leaves only its own conversations change home. In exchange
// load never decides a placement, and a conversation cannot move: repin answers with the home that
// the hash gives. Costs a pass over the pool on every turn. Thread-safe.
// Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998).
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/array.hpp>
#include <limpet/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

namespace limpet {

class RendezvousPins {
 public:
  void set_members(const Member* members, std::size_t count) {
    detail::Array<Member> latest(count);
    for (std::size_t i = 0; i < count; ++i) latest[i] = members[i];
    const std::lock_guard lock(pool().mutex);
    pool().members = std::move(latest);
  }

  // Returns: nothing in an empty pool.
  [[nodiscard]] std::optional<Home> find(KeyHash key, Instant) const noexcept {
    const std::shared_lock lock(pool().mutex);
    std::optional<Home> best;
    std::uint64_t best_weight = 0;
    for (const Member& member : pool().members) {
      const std::uint64_t weight = rendezvous_weight(key, member.name_hash);
      if (!best || weight > best_weight) {
        best = member.home;
        best_weight = weight;
      }
    }
    return best;
  }

  [[nodiscard]] Home pin(KeyHash key, Home home, Instant now) const noexcept {
    return find(key, now).value_or(home);
  }

  [[nodiscard]] Home repin(KeyHash key, Home, Home desired, Instant now) const noexcept {
    return find(key, now).value_or(desired);
  }

  // Nothing is held, so nothing can be removed.
  [[nodiscard]] bool unpin(KeyHash, Home) const noexcept { return false; }

 private:
  struct Pool {
    std::shared_mutex mutex;
    detail::Array<Member> members;
  };

  [[nodiscard]] Pool& pool() const noexcept { return pool_[0]; }

  mutable detail::Array<Pool> pool_{1};  // in memory of its own: a mutex does not move
};

static_assert(PinStore<RendezvousPins>);
static_assert(FollowsMembership<RendezvousPins>);

}  // namespace limpet
