// SPDX-License-Identifier: Apache-2.0
//
// Fleet: the table of a pool's replicas and what is known of their load. The router asks and books
// here; users do not.
//
// Booking a turn takes one replica's spin lock for some dozen instructions; reading loads takes
// none. Joining, leaving and readings share one mutex that no turn ever waits for. A replica's row
// never moves and is used again only after its last lease has ended, so a lease can always be
// returned. Thread-safe. Up to 65,535 replicas.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>
#include <limpet/detail/prefetch.hpp>
#include <limpet/detail/replica_slot.hpp>
#include <limpet/hash.hpp>
#include <limpet/snapshot.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace limpet {

struct ReplicaOptions {
  std::string name{};                   // unique in the pool, not empty
  std::string endpoint{};               // base URL; empty: the name
  std::optional<std::uint32_t> rank{};  // data-parallel rank to ask the endpoint for
  std::string engine{};            // `engine` label of its series; empty: the page is all its own
  std::uint32_t max_num_seqs = 0;  // the engine's option of that name; 0: unknown
  std::uint64_t kv_capacity_tokens = 0;  // 0: as the metrics page says
};

class Fleet {
 public:
  using Slot = detail::ReplicaSlot;
  using LiveWindow = detail::LiveWindow;

  Fleet(Duration live_window, Duration reading_max_age)
      : bucket_width_(detail::LiveWindow::bucket_width(live_window)),
        reading_max_age_(reading_max_age) {
    detail::require(live_window.count() >= 64'000'000, "live_window", live_window.count(),
                    "nanoseconds; must be at least 64 ms");
    detail::require(reading_max_age.count() > 0, "reading_max_age", reading_max_age.count(),
                    "nanoseconds; a reading must count for some time");
  }

  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  ~Fleet() {
    for (Chunk* const chunk : chunks_) delete chunk;
  }

  // Membership ------------------------------------------------------------------------------------

  // Throws: std::invalid_argument for an empty or a used name, std::length_error for the 65,536th
  // replica.
  ReplicaId add(ReplicaOptions options);

  // Returns: false where there is no such replica any more, as do restarted and remove. Requires:
  // state is not removed.
  bool set_state(ReplicaId replica, ReplicaState state);
  bool restarted(ReplicaId replica);
  bool remove(ReplicaId replica);

  [[nodiscard]] std::optional<ReplicaId> find(std::string_view name) const;
  [[nodiscard]] std::optional<ReplicaOptions> options(ReplicaId replica) const;

  // The replicas that can be a home: those that are up, or the draining ones where none is.
  // A template, so that only those who call it compile it; so is snapshot().
  template <class Members = std::vector<Member>>
  [[nodiscard]] Members members() const;

  // Readings --------------------------------------------------------------------------------------

  // Effects: stores the gauges of every replica behind `endpoint`; one whose counters fell or whose
  // start time changed has restarted. Several engines for a replica without an engine label add up.
  struct Observed {
    std::size_t replicas = 0;  // took a reading
    std::size_t restarts = 0;  // of those
  };
  Observed observe(std::string_view endpoint, const Reading* readings, std::size_t count,
                   Instant now);

  // Loads -----------------------------------------------------------------------------------------

  // Rows in use, those of removed replicas included.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return size_.load(std::memory_order_acquire);
  }

  [[nodiscard]] Slot& slot(std::uint32_t index) const noexcept {
    return chunks_[index / chunk_size]->slots[index % chunk_size];
  }

  [[nodiscard]] ReplicaId id_of(std::uint32_t index) const noexcept {
    return {static_cast<std::uint16_t>(index),
            Slot::version_of(slot(index).status.load(std::memory_order_relaxed))};
  }

  // Returns: removed for an id that names nobody (any more).
  [[nodiscard]] ReplicaState state(ReplicaId replica) const noexcept {
    if (!replica || replica.slot >= size()) return ReplicaState::removed;
    const std::uint32_t status = slot(replica.slot).status.load(std::memory_order_relaxed);
    return Slot::version_of(status) == replica.version ? Slot::state_of(status)
                                                       : ReplicaState::removed;
  }

  // Whether the cache that this pin points at still exists.
  [[nodiscard]] bool is_current(Home home) const noexcept {
    return state(home.replica) != ReplicaState::removed &&
           slot(home.replica.slot).generation.load(std::memory_order_relaxed) == home.generation;
  }

  [[nodiscard]] Home home_at(ReplicaId replica) const noexcept {
    return {replica, slot(replica.slot).generation.load(std::memory_order_relaxed)};
  }

  // Replicas that are up or draining.
  [[nodiscard]] std::uint32_t serving() const noexcept {
    return serving_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] ReplicaLoad load(std::uint32_t index, Instant now) const noexcept;

  // Whether a conversation's history is presumably still in its home's cache. That evicts what was
  // least recently used, so it is, iff what other conversations of this home have used since its
  // last turn, its own context and the prefix that the pool shares fit. An estimate, to a bucket of
  // the live window; without a known capacity everything is still there.
  [[nodiscard]] bool still_caches(const Conversation& conversation, std::uint64_t shared,
                                  Instant now) const noexcept;

  [[nodiscard]] bool reading_fresh(std::uint32_t index, Instant now) const noexcept {
    const std::int64_t at = slot(index).reading_at.load(std::memory_order_relaxed);
    return at != Slot::never && now.time_since_epoch().count() - at < reading_max_age_.count();
  }

  // Returns: s since the KV gauge was read; nothing where it never was.
  [[nodiscard]] std::optional<double> reading_age(std::uint32_t index, Instant now) const noexcept {
    const std::int64_t at = slot(index).reading_at.load(std::memory_order_relaxed);
    if (at == Slot::never) return std::nullopt;
    return std::chrono::duration<double>(now - Instant{Duration{at}}).count();
  }

  // Booking ---------------------------------------------------------------------------------------

  // What a turn changes about its conversation's home.
  struct Opening {
    const TurnOpened& turn;
    Home home;
  };

  // Calls for the line that booking at this replica will write.
  void expect(ReplicaId replica) const noexcept {
    if (replica && replica.slot < size()) detail::prefetch_to_write(&slot(replica.slot).lock);
  }

  // Takes a slot for a turn, iff the replica serves and has at most `at_most` turns in flight: what
  // it was chosen for must still hold. `opening`, of which home is this replica, is booked with it:
  // a turn that goes home, or the promise of a conversation that is about to be pinned here.
  bool take(ReplicaId replica, std::uint32_t at_most, Outcome outcome, std::uint64_t tokens,
            Instant now, const Opening* opening = nullptr) noexcept;

  // Undoes a take() whose turn went elsewhere after all, and its promise.
  void untake(ReplicaId replica, Outcome outcome, std::uint64_t tokens,
              const Opening* promise = nullptr) noexcept;

  // Returns a slot. `closed` is booked with it where that conversation's home is this replica, else
  // by itself.
  void release(ReplicaId replica, std::uint64_t tokens, Instant now, const TurnClosed* closed,
               detail::Counter count) noexcept;

  // Books the begin of a turn at its home; here and in enter(), in place of what was `promised`
  // with its slot. A pin whose cache is gone is passed over here and below.
  void open(Home home, const TurnOpened& turn, Instant now,
            detail::Counter count = detail::Counter::none,
            const LiveWindow::Sum& promised = {}) noexcept;

  // Books the end of a turn at its conversation's home, for a turn that never got a slot.
  void close(const TurnClosed& closed, Instant now) noexcept;

  // Books a turn under another outcome than it was taken for.
  void recount(ReplicaId replica, Outcome from, Outcome to) noexcept;

  // Books a conversation that is pinned here from now on, or no longer.
  void enter(Home home, const Conversation& conversation, Instant now,
             const LiveWindow::Sum& promised = {}) noexcept {
    transfer(home, conversation, now, 1, promised);
  }
  void leave(Home home, const Conversation& conversation, Instant now) noexcept {
    transfer(home, conversation, now, -1, {});
  }

  [[nodiscard]] std::uint32_t pins(ReplicaId replica) const noexcept {
    const std::lock_guard lock(slot(replica.slot).lock);
    return slot(replica.slot).pinned();
  }

  // Effects: appends every replica's row, each consistent in itself, in the order they joined, to a
  // vector of ReplicaSnapshot; pending prefill only where it is counted.
  void snapshot(Instant now, auto& rows, bool counts_prefill) const;

 private:
  static constexpr std::uint32_t chunk_size = 64;

  // What turns do not need. Guarded by membership_.
  struct Info {
    ReplicaOptions options{};
    std::uint64_t joined = 0;
    bool is_read = false;
    Reading last{};  // without its texts
    Instant read_at{};
  };

  struct Chunk {
    Slot slots[chunk_size];
    Info infos[chunk_size];
  };

  [[nodiscard]] Info& info(std::uint32_t index) const noexcept {
    return chunks_[index / chunk_size]->infos[index % chunk_size];
  }

  // Returns: the row of a home whose cache still exists, its lock taken, else null.
  [[nodiscard]] Slot* lock_row_of(Home home) noexcept;

  [[nodiscard]] std::int64_t bucket_of(Instant at) const noexcept {
    return at.time_since_epoch().count() / bucket_width_;
  }

  void open_live(Slot& row, const TurnOpened& turn, Instant now,
                 const LiveWindow::Sum& promised) noexcept;
  void close_live(Slot& row, const TurnClosed& closed, Instant now) noexcept;
  void transfer(Home home, const Conversation& conversation, Instant now, int sign,
                const LiveWindow::Sum& promised) noexcept;
  [[nodiscard]] static Reading sum_for(const ReplicaOptions& options, const Reading* readings,
                                       std::size_t count, bool& found);
  [[nodiscard]] static bool has_restarted(const Reading& before, const Reading& after) noexcept;
  [[nodiscard]] Info* info_of(ReplicaId replica) noexcept;
  [[nodiscard]] static std::string_view without_last_slashes(std::string_view endpoint) noexcept;

  const std::int64_t bucket_width_;  // ns
  const Duration reading_max_age_;
  Chunk* chunks_[1024] = {};
  std::atomic<std::uint32_t> size_ = 0;
  std::atomic<std::uint32_t> serving_ = 0;

  mutable std::mutex membership_;
  std::uint64_t joins_ = 0;
};

}  // namespace limpet

#include <limpet/detail/fleet_booking.hpp>
#include <limpet/detail/fleet_membership.hpp>
