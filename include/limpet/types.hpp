// SPDX-License-Identifier: Apache-2.0
//
// The words of the library: what a replica, a turn, a load and a decision are.
//
// Every type here is a plain value: cheap to copy, no locks, no allocation, safe to share between
// threads as any other value is. Token counts are whole tokens, times are nanoseconds of the
// router's own clock, ratios are 0..1.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace limpet {

using Duration = std::chrono::nanoseconds;
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

namespace detail {

// For default values: std::chrono::seconds would bring its conversions into every program.
[[nodiscard]] constexpr Duration seconds(std::int64_t count) noexcept {
  return Duration{count * 1'000'000'000};
}

}  // namespace detail

// Names one replica of one router. The slot says where it stands in the fleet table, the version
// how often that slot has been handed out: the id of a removed replica never matches the replica
// that took its place.
struct ReplicaId {
  std::uint16_t slot = 0xFFFF;
  std::uint16_t version = 0;

  [[nodiscard]] constexpr bool has_value() const noexcept { return slot != 0xFFFF; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] friend constexpr auto operator<=>(ReplicaId, ReplicaId) noexcept = default;
};

// A pin's value. `generation` counts the restarts of the replica: a pin made before the last one
// points at a cache that is gone, so it is stale without anybody having looked for it.
struct Home {
  ReplicaId replica{};
  std::uint32_t generation = 0;

  [[nodiscard]] friend constexpr bool operator==(Home, Home) noexcept = default;
};

// The keyed 128-bit hash that stands for a conversation everywhere inside: constant size, and
// nobody's session id is kept.
struct KeyHash {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;

  [[nodiscard]] friend constexpr bool operator==(KeyHash, KeyHash) noexcept = default;
};

// A conversation's name as a caller knows it: nothing, any bytes (empty and binary ones too), or a
// hash made earlier with Router::hash. Refers to the caller's bytes: use it as an argument, do not
// store it.
class Key {
 public:
  constexpr Key() noexcept = default;
  constexpr Key(std::nullopt_t) noexcept {}
  constexpr Key(std::string_view text) noexcept : text_(text), kind_(Kind::text) {}
  constexpr Key(const char* text) noexcept : Key(std::string_view(text)) {}
  Key(const std::string& text) noexcept : Key(std::string_view(text)) {}
  constexpr Key(KeyHash hash) noexcept : hash_(hash), kind_(Kind::hash) {}

  [[nodiscard]] constexpr bool has_value() const noexcept { return kind_ != Kind::none; }
  [[nodiscard]] constexpr bool is_hash() const noexcept { return kind_ == Kind::hash; }
  [[nodiscard]] constexpr std::string_view text() const noexcept { return text_; }
  [[nodiscard]] constexpr KeyHash hash() const noexcept { return hash_; }

 private:
  enum class Kind : std::uint8_t { none, text, hash };

  std::string_view text_;
  KeyHash hash_;
  Kind kind_ = Kind::none;
};

enum class ReplicaState : std::uint8_t {
  up,        // takes everything
  draining,  // serves the conversations it has, takes no new ones unless nothing else is up
  down,      // takes nothing; its conversations move at their next turn
  removed,   // no longer of the pool
};

// What became of a turn.
enum class Outcome : std::uint8_t {
  placed,         // no pin, or a stale one: pinned to the best score
  sticky,         // went home
  spilled,        // went elsewhere once; the pin is unchanged and the next turn goes home by itself
  moved,          // home is gone or too full: pinned anew
  balanced,       // no conversation, or a side call without a usable home: least in flight
  client_pinned,  // the client named the replica itself
  refused,        // no replica can take the turn
  unrouted,       // affinity is off: the engine's own balancer decides
};

// Why: one value a row of the decision table, so that a decision explains itself.
enum class Reason : std::uint8_t {
  no_replica,  // all are down or excluded
  affinity_off,
  client_named_replica,
  no_key,
  side_call,
  no_pin,       // the conversation's first turn, or its first since the pin expired or was evicted
  stale_pin,    // its replica was removed or restarted
  parent_home,  // a new conversation, placed beside its parent
  home_down,
  home_excluded,  // only for this turn
  home_has_room,
  home_overloaded,  // and another replica was better
  home_overloaded_but_best,
  committed_elsewhere,  // commit() of a plan whose conversation was pinned elsewhere meanwhile
};

[[nodiscard]] constexpr std::string_view to_string(ReplicaState state) noexcept {
  constexpr std::string_view names[] = {"up", "draining", "down", "removed"};
  return names[static_cast<std::size_t>(state)];
}

[[nodiscard]] constexpr std::string_view to_string(Outcome outcome) noexcept {
  constexpr std::string_view names[] = {"placed",   "sticky",        "spilled", "moved",
                                        "balanced", "client_pinned", "refused", "unrouted"};
  return names[static_cast<std::size_t>(outcome)];
}

[[nodiscard]] constexpr std::string_view to_string(Reason reason) noexcept {
  constexpr std::string_view names[] = {"no replica can take the turn",
                                        "affinity is off",
                                        "the client named the replica",
                                        "no conversation key",
                                        "a side call follows home and pins nothing",
                                        "no pin: first turn, expired or evicted",
                                        "its pin was stale: replica removed or restarted",
                                        "placed beside its parent",
                                        "home is down",
                                        "home is excluded for this turn",
                                        "home has room",
                                        "home is overloaded",
                                        "home is overloaded, nobody is better",
                                        "pinned elsewhere since the plan"};
  return names[static_cast<std::size_t>(reason)];
}

// One request of a conversation, with what else is known of it.
struct Turn {
  Key key{};                             // none: no conversation
  Key parent{};                          // the conversation it was forked from
  ReplicaId client_pinned{};             // the replica that the client named itself
  std::span<const ReplicaId> exclude{};  // not these, this time: they just failed it
  std::uint64_t prompt_tokens = 0;       // 0: unknown
  bool side_call = false;  // a title or summary call: follows a pin, never makes or keeps one
};

// What the engine said of a finished turn. `cached_tokens` is absent, not 0, where it did not say.
struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::optional<std::uint64_t> cached_tokens{};
  std::uint64_t completion_tokens = 0;

  [[nodiscard]] friend constexpr bool operator==(const Usage&, const Usage&) noexcept = default;
};

// What is known of one replica at one moment: our own counts, which are exact, then the engine's
// gauges, which lag.
struct ReplicaLoad {
  ReplicaId replica{};
  ReplicaState state = ReplicaState::up;
  bool reading_fresh = false;  // the gauges below are younger than RouterOptions::reading_max_age
  std::uint32_t max_num_seqs = 0;      // configured; 0: unknown
  std::uint32_t in_flight = 0;         // leases alive
  std::uint64_t in_flight_tokens = 0;  // sum of the context of those turns, as far as it is known
  // Of their prompts, what it presumably still has to read: of each turn before its first byte what
  // is not in its cache. Counted where a scorer or overflow rule of the router says `static constexpr
  // bool needs_prefill = true`, which also tells it what of the turn at hand is not cached; else 0.
  std::uint64_t pending_prefill_tokens = 0;
  std::uint32_t live_conversations = 0;    // with a turn in flight, or one that ended lately
  std::uint64_t live_tokens = 0;           // their contexts together: the working set
  std::uint64_t kv_capacity_tokens = 0;    // configured or read; 0: unknown
  double kv_usage = 0.0;                   // 0..1, as read
  std::uint32_t in_flight_at_reading = 0;  // our own count when the gauges arrived
  std::uint32_t running = 0;               // as read
  std::uint32_t waiting = 0;               // as read
};

// What router would do or did. Trivially copyable, without references: keep it, log it, replay it.
struct Decision {
  KeyHash key{};        // all zero where has_key is false
  Home home{};          // the pin that holds after this decision; none without a pin
  Home previous{};      // the pin that it replaces, where it replaces one
  ReplicaId replica{};  // where to send; none for refused and unrouted
  Outcome outcome = Outcome::refused;
  Reason reason = Reason::no_replica;
  bool has_key = false;
  bool side_call = false;
  std::uint32_t in_flight_seen = 0;  // of `replica`, when it was chosen
  std::uint64_t prompt_tokens = 0;   // as the turn said; 0: unknown

  [[nodiscard]] friend constexpr bool operator==(const Decision&,
                                                 const Decision&) noexcept = default;
};

}  // namespace limpet
