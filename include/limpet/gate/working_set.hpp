// SPDX-License-Identifier: Apache-2.0
//
// WorkingSetGate: lets only as many conversations in at once as the replicas' caches hold.
//
// Put it before a router whose conversations together outgrow the KV caches: there every turn is
// read from the start, whatever the routing. Those inside keep their caches, the others wait here,
// where they cost nobody's; while everything fits it changes nothing (README.md: why, and figures).
// enter() a turn, leave() with what the engine said; an admitted ticket holds the router's lease.
//
// Event-driven: no thread, no timer. Whoever is let in later is told by its callback, on the thread
// whose leave(), cancel() or tick() made room. Time moves it too: call tick() at wake_at().
// Thread-safe; router, clock and callbacks are never called under the gate's lock.
#pragma once

#include <limpet/gate/detail/admission.hpp>
#include <limpet/gate/options.hpp>
#include <limpet/gate/ticket.hpp>
#include <limpet/lease.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace limpet {

// One replica as the gate sees it. Tokens.
struct GateReplica {
  ReplicaId replica{};
  std::uint64_t capacity_tokens = 0;  // of its KV cache; 0: unknown, it lets everyone in
  std::uint64_t resident_tokens = 0;  // that those inside count for, the shared prefix apart
  std::uint32_t residents = 0;        // conversations
  double theta = 0;
};

struct GateSnapshot {
  bool open = false;          // some replica that is up lets everyone in: its capacity is unknown
  std::size_t waiting = 0;    // turns
  Duration longest_wait{};    // of those
  std::size_t residents = 0;  // conversations inside
  std::uint64_t shared_prefix_tokens = 0;  // configured or learnt
  // Turns since the gate was made.
  std::uint64_t passed = 0;  // at once
  std::uint64_t waited = 0;  // let in after a wait
  std::uint64_t refused = 0;
  std::uint64_t cancelled = 0;  // while they waited
  // Of conversations that had not left: tokens that they had been read, and those read again.
  std::uint64_t reusable_tokens = 0;
  std::uint64_t lost_tokens = 0;
  std::vector<GateReplica> replicas{};
};

template <class RouterT>
class WorkingSetGate {
 public:
  // `router` must outlive the gate. Throws: std::invalid_argument that names field and value.
  explicit WorkingSetGate(RouterT& router, GateOptions options = {})
      : router_(router), options_(std::move(options)), admission_(options_) {
    options_.validate();
  }

  WorkingSetGate(const WorkingSetGate&) = delete;
  WorkingSetGate& operator=(const WorkingSetGate&) = delete;

  // Returns: a ticket that is admitted, waits or is refused. For one that waits `settled` is called
  // once, when it has been admitted or refused, unless it is cancelled first. It must not throw, may
  // use the gate, and where other threads do may come before this call has returned.
  [[nodiscard]] GateTicket enter(const Turn& turn, std::function<void()> settled = {}) {
    auto entry = std::make_shared<Entry>();
    entry->since = router_.clock().now();
    begin(turn, entry);
    if (settled) {
      const std::lock_guard lock(mutex_);
      if (entry->stage != Entry::Stage::settled) entry->settled = std::move(settled);
    }
    return GateTicket(this, &end_of, std::move(entry));
  }
  [[nodiscard]] GateTicket enter(Key key, std::function<void()> settled = {}) {
    return enter(Turn{.key = key}, std::move(settled));
  }

  // The engine answered, and said `usage` of the tokens. One that still waits leaves the queue.
  void leave(GateTicket&& ticket, const Usage& usage) noexcept {
    ticket.end(Lease::End::finish, &usage);
  }
  void leave(GateTicket&& ticket) noexcept { ticket.end(Lease::End::finish, nullptr); }

  // When to call tick() next, which may be over already; Instant::max(): at no time. Every turn may
  // change it.
  [[nodiscard]] Instant wake_at() const {
    const std::lock_guard lock(mutex_);
    return admission_.wake_at(pumped_at_);
  }

  // Effects: lets in and refuses whom time has brought so far.
  void tick() {
    const Instant now = router_.clock().now();
    Due due;
    {
      const std::lock_guard lock(mutex_);
      pump(now, due);
    }
    deliver(due);
  }

  [[nodiscard]] GateSnapshot snapshot() const;

  [[nodiscard]] const GateOptions& options() const noexcept { return options_; }

 private:
  using Entry = detail::GateEntry;
  using EntryPtr = std::shared_ptr<Entry>;

  // What has been decided under the lock and is still to be told.
  struct Due {
    std::vector<std::pair<EntryPtr, ReplicaId>> admitted;
    std::vector<std::function<void()>> refused;  // whom to tell
  };

  void begin(const Turn& turn, const EntryPtr& entry);
  void settle_at_once(const EntryPtr& entry, Lease lease, GateReason reason);
  void settle(const EntryPtr& entry, ReplicaId replica, const Decision& plan);
  void finish_settling(const EntryPtr& entry, Lease lease);
  void end(const EntryPtr& entry, Lease::End how, const Usage* usage);
  void pump(Instant now, Due& due);
  void deliver(Due& due);
  void refuse(const EntryPtr& entry, GateReason reason, Due& due, Instant now);
  [[nodiscard]] static Decision directed(Decision plan, ReplicaId replica);
  [[nodiscard]] static Turn turn_of(const Entry& entry);

  static void end_of(void* gate, const EntryPtr& entry, Lease::End how,
                     const Usage* usage) noexcept {
    static_cast<WorkingSetGate*>(gate)->end(entry, how, usage);
  }

  RouterT& router_;
  const GateOptions options_;
  mutable std::mutex mutex_;
  detail::Admission admission_;
  std::unordered_map<std::uint64_t, EntryPtr> waiting_;
  Instant pumped_at_{};  // since then nobody has looked whom time lets in
  std::uint64_t last_id_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t cancelled_ = 0;
  // Conversations let in whose lease the router has not been asked for yet: until then its loads
  // are those before them.
  std::atomic<std::uint64_t> begun_ = 0;
  std::atomic<std::uint64_t> committed_ = 0;
};

}  // namespace limpet

#include <limpet/gate/detail/working_set_turns.hpp>
