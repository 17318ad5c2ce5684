// SPDX-License-Identifier: Apache-2.0
//
// Router: sends every turn of a conversation to the replica that still holds its prefix cache.
//
// One router routes one pool: replicas of one model that can stand in for each other. A
// conversation's first turn is placed by score and pinned; later turns go home, unless home is
// overloaded (the overflow rule), excluded, down or restarted. What happens in operation is an
// outcome, never an exception; only bad configuration throws. A sticky turn, route and finish,
// takes two short locks each way and allocates nothing; a placement adds passes over the pool.
// Thread-safe if the store is.
#pragma once

#include <limpet/clock.hpp>
#include <limpet/concepts.hpp>
#include <limpet/detail/decide.hpp>
#include <limpet/detail/near_miss.hpp>
#include <limpet/detail/prefill.hpp>
#include <limpet/detail/prefill_share.hpp>
#include <limpet/detail/turns_of.hpp>
#include <limpet/explanation.hpp>
#include <limpet/fleet.hpp>
#include <limpet/fwd.hpp>
#include <limpet/hash.hpp>
#include <limpet/lease.hpp>
#include <limpet/metrics/vllm.hpp>
#include <limpet/overflow/spill_above.hpp>
#include <limpet/pins/sharded.hpp>
#include <limpet/scorers/weighted.hpp>
#include <limpet/snapshot.hpp>
#include <limpet/types.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace limpet {

enum class Affinity : std::uint8_t { on, off };

// Where a conversation that was forked from another goes.
enum class ParentHint : std::uint8_t {
  prefer_parent,  // to the parent's home while that has room: a fork shares its prefix
  independent,    // by score, as any other
  with_parent,    // it is its parent's conversation: same pin
};

struct RouterOptions {
  ParentHint parent_hint = ParentHint::prefer_parent;
  Affinity affinity = Affinity::on;

  // How long after its last turn a conversation counts as live; at least 64 ms.
  Duration live_window = detail::seconds(300);

  // From when a gauge counts as unknown.
  Duration reading_max_age = detail::seconds(15);

  // How much of every prompt the whole pool shares: cached once a replica, not once a conversation.
  std::uint64_t shared_prefix_tokens = 0;

  // Set it where keys come from strangers: see KeySecret.
  KeySecret secret{};
};

template <PinStore Pins, LoadScorer Scorer, OverflowRule Overflow, MetricsParser Parser,
          Clock ClockT>
class Router {
 public:
  explicit Router(Pins pins = Pins{}, Scorer scorer = Scorer{}, Overflow overflow = Overflow{},
                  Parser parser = Parser{}, ClockT clock = ClockT{}, RouterOptions options = {});

  // Throws: std::invalid_argument that names field and value, as do all configuring calls.
  explicit Router(RouterOptions options)
      : Router(Pins{}, Scorer{}, Overflow{}, Parser{}, ClockT{}, options) {}

  // Leases hold its address.
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // Turns -----------------------------------------------------------------------------------------

  // Effects: picks a replica, pins the conversation where the decision table says so, takes a slot.
  // Returns: the lease of that slot; without a replica where the turn was refused or affinity is
  // off.
  [[nodiscard, gnu::flatten]] Lease route(const Turn& turn);
  [[nodiscard]] Lease route(Key key) { return route(Turn{.key = key}); }

  // Returns: what route() would do now. Changes nothing.
  [[nodiscard]] Decision plan(const Turn& turn) const;
  [[nodiscard]] Decision plan(Key key) const { return plan(Turn{.key = key}); }

  // For frameworks that choose and commit in two steps. Takes the planned replica's slot whatever
  // its load is by now, since that is where the turn is going; refuses only when the replica is
  // gone. A conversation pinned elsewhere since the plan keeps that pin: the lease says `spilled`,
  // committed_elsewhere.
  [[nodiscard]] Lease commit(const Decision& decision);

  // Returns: the decision, and why each replica was or was not chosen. Changes nothing; allocates.
  [[nodiscard]] Explanation explain(const Turn& turn) const;
  [[nodiscard]] Explanation explain(Key key) const { return explain(Turn{.key = key}); }

  // A key, hashed once: pass it instead of the text where a conversation is named often.
  [[nodiscard]] KeyHash hash(std::string_view key) const noexcept { return hasher_(key); }
  [[nodiscard]] const KeyHasher& hasher() const noexcept { return hasher_; }

  // Load ------------------------------------------------------------------------------------------

  // Effects: feeds the gauges of every replica behind `endpoint`. A page that does not parse is
  // counted and changes nothing.
  ParseStatus observe(std::string_view endpoint, std::string_view page);

  // The same in two steps, for those who scrape by themselves or keep a record. read() appends what
  // the page says, referring to it, or nothing; observe() takes readings from wherever they come.
  ParseStatus read(std::string_view page, std::vector<Reading>& readings) const;
  void observe(std::string_view endpoint, const std::vector<Reading>& readings) {
    store_readings(endpoint, readings.data(), readings.size());
  }

  // Effects: calls visit(const ReplicaLoad&) for each replica of the pool, in fleet order, with what
  // is known of it at `now`. No policy is called, so the caller may hold a lock of its own.
  template <class F>
  void for_each_load(Instant now, F visit) const {
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
      const ReplicaLoad load = fleet_.load(i, now);
      if (load.state != ReplicaState::removed) visit(load);
    }
  }

  // Returns: one copy of all counters and loads; each replica's row is consistent in itself.
  [[nodiscard]] Snapshot snapshot() const;

  // Replica life ----------------------------------------------------------------------------------

  // Throws: std::invalid_argument for an empty or a used name.
  ReplicaId add_replica(ReplicaOptions options);

  // Those below return false where the replica has been removed.
  bool drain(ReplicaId replica) { return set_state(replica, ReplicaState::draining); }
  bool set_down(ReplicaId replica) { return set_state(replica, ReplicaState::down); }
  bool set_up(ReplicaId replica) { return set_state(replica, ReplicaState::up); }

  // Its leases may still be returned; its pins are stale from now on.
  bool remove(ReplicaId replica);

  // Its cache is gone: all its pins are forgotten at once.
  bool restarted(ReplicaId replica);

  [[nodiscard]] std::optional<ReplicaId> find(std::string_view name) const {
    return fleet_.find(name);
  }
  [[nodiscard]] std::optional<ReplicaOptions> options(ReplicaId replica) const {
    return fleet_.options(replica);
  }
  [[nodiscard]] ReplicaState state(ReplicaId replica) const noexcept {
    return fleet_.state(replica);
  }

  // Effects: after a scale-up, moves conversations from replicas with many pins to those with few,
  // only such that had no turn for `idle` (their cache is likely gone), oldest first. Returns: how
  // many it moved, at most `limit`.
  std::size_t rebalance(std::size_t limit, Duration idle = detail::seconds(300))
    requires TracksTurns<Pins>;

  // Off: turns are `unrouted`, the engine's own balancer decides. Pins are kept.
  void set_affinity(Affinity affinity) noexcept {
    affinity_.store(affinity, std::memory_order_relaxed);
  }
  [[nodiscard]] Affinity affinity() const noexcept {
    return affinity_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] const Scorer& scorer() const noexcept { return scorer_; }
  [[nodiscard]] const Overflow& overflow() const noexcept { return overflow_; }
  [[nodiscard]] const ClockT& clock() const noexcept { return clock_; }

 private:
  using Decider = detail::Decider<Scorer, Overflow>;
  static constexpr bool needs_prefill =
      detail::NeedsPrefill<Scorer> || detail::NeedsPrefill<Overflow>;

  struct Keys {
    KeyHash turn{};
    KeyHash parent{};
    bool has_turn = false;
    bool has_parent = false;  // and a hint may be taken from it
  };

  // The state of a turn between decision and lease.
  struct Booking {
    std::optional<TurnOpened> opened{};    // the turn counts in the store
    std::optional<Conversation> pinned{};  // what the next decision goes by
    Fleet::LiveWindow::Sum promised{};     // counted where it is to be pinned
    bool follows = false;                  // the turn counts as one of its conversation's
    bool at_home = false;                  // the turn counts in the fleet table
    std::uint32_t tokens = 0;  // the conversation's context, where the engine has not told it
  };

  enum class Settled : std::uint8_t { yes, pinned_elsewhere };

  [[nodiscard]] Keys keys_of(const Turn& turn) const noexcept;
  [[nodiscard]] std::optional<Conversation> parent_of(const Keys& keys,
                                                      const std::optional<Conversation>& pinned,
                                                      Instant now) const;
  // A sticky turn's two halves, route() and end_turn(), are one function each with all they call
  // inlined, which takes 8 % off; what other turns need stays out of line.
  [[nodiscard, gnu::noinline]] Lease route_anywhere(const Turn& turn, const Keys& keys,
                                                    Booking booking, Instant now);
  [[nodiscard, gnu::noinline]] Lease refuse(const Turn& turn, const Keys& keys, Instant now);
  [[nodiscard]] static Decision undecided(const Turn& turn, const Keys& keys) noexcept;
  [[nodiscard]] bool can_serve(const Turn& turn) const noexcept;
  [[nodiscard]] detail::Prompt prompt_of(std::uint64_t tokens) const noexcept;

  [[nodiscard]] detail::Uncached uncached_of(const Turn& turn, Instant now) const;
  // What a turn adds to the pending prefill of a replica, from before it takes its slot, so that who
  // sees the one sees the other.
  [[nodiscard]] detail::PrefillShare prefill_at(ReplicaId replica, std::uint64_t prompt_tokens,
                                                const Conversation* history, Instant now) noexcept;
  [[nodiscard]] Settled settle(Decision& decision, Booking& booking, Instant now);
  [[nodiscard]] Settled pin_anew(Decision& decision, Booking& booking, Instant now);
  void open_at(Home home, Booking& booking, Instant now,
               detail::Counter count = detail::Counter::none) noexcept;
  [[nodiscard]] Lease leased(const Decision& decision, const Booking* booking, std::uint64_t tokens,
                             detail::PrefillShare prefill) noexcept;
  [[nodiscard, gnu::noinline]] Lease without_replica(Decision decision, Outcome outcome) noexcept;
  void abandon(const Booking& booking, const Decision& decision, Instant now);
  [[gnu::flatten]] void end_turn(Lease& lease, Lease::End how, const Usage* usage) noexcept;
  static void end_turn_of(void* router, Lease& lease, Lease::End how, const Usage* usage) noexcept {
    static_cast<Router*>(router)->end_turn(lease, how, usage);
  }
  void store_readings(std::string_view endpoint, const Reading* readings, std::size_t count);
  bool set_state(ReplicaId replica, ReplicaState state);
  void membership_changed();
  void let_expired_go(Instant now) const;
  [[nodiscard]] std::uint32_t own_context(std::uint64_t tokens) const noexcept;
  void learn_context(std::uint32_t tokens) noexcept;

  mutable Pins pins_;  // snapshot() lets go of expired pins, which no caller can tell
  Scorer scorer_;
  Overflow overflow_;
  Parser parser_;
  ClockT clock_;
  RouterOptions options_;
  KeyHasher hasher_;
  mutable Fleet fleet_;
  std::atomic<Affinity> affinity_;

  // Apart from what every turn reads.
  alignas(64) std::atomic<std::uint32_t> mean_context_ = 0;  // tokens; 0: none told yet
  alignas(64) std::atomic<std::uint64_t> draws_ = 0;         // decisions that were not sticky
  std::atomic<std::uint64_t> refused_ = 0;
  std::atomic<std::uint64_t> unrouted_ = 0;
  std::atomic<std::uint64_t> unpinned_ = 0;
  std::atomic<std::uint64_t> evicted_ = 0;
  mutable std::atomic<std::uint64_t> expired_ = 0;
  std::atomic<std::uint64_t> readings_ = 0;
  std::atomic<std::uint64_t> bad_readings_ = 0;
  std::atomic<std::uint64_t> membership_ = 0;
};

Router(RouterOptions) -> Router<>;

// Never a router: see detail/near_miss.hpp.
template <class... Arguments>
Router(Arguments...) -> Router<detail::NearMissOf<Arguments...>>;

}  // namespace limpet

#include <limpet/detail/router_plan.hpp>
#include <limpet/detail/router_pool.hpp>
#include <limpet/detail/router_tokens.hpp>
#include <limpet/detail/router_turns.hpp>
