// SPDX-License-Identifier: Apache-2.0
//
// Ledger: was a turn a prefix hit, and if not, was it routing, the engine's eviction or the client?
//
// Give it every finished turn with what the engine said of it. It remembers, for each conversation,
// how much of it its home has read, and compares that with what the engine reused. A class has a
// count and a cost: the tokens that were computed and that a hit would have saved. Thread-safe (one
// mutex, some 100 ns a turn; it is not on the way of a decision). Remembers up to `capacity`
// conversations, the least recently recorded leave first.
// Source of the thresholds: conventions of ours; the figures that depend on them are named after
// them.
#pragma once

#include <limpet/detail/check.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace limpet {

enum class TurnClass : std::uint8_t {
  cold,        // its home had read next to nothing of the conversation before
  hit,         // the engine reused (nearly) all that its home had read
  partial,     // it went home, and the engine reused some of it
  misrouted,   // it did not go home, and so found too little
  lost,        // it went home, and the engine had evicted it
  diverged,    // the prompt does not begin with the previous one any more: the client changed it
  unmeasured,  // the engine did not say how much it reused
};

inline constexpr std::size_t turn_classes = 7;

[[nodiscard]] constexpr std::string_view to_string(TurnClass turn_class) noexcept {
  constexpr std::string_view names[turn_classes] = {"cold", "hit",      "partial",   "misrouted",
                                                    "lost", "diverged", "unmeasured"};
  return names[static_cast<std::size_t>(turn_class)];
}

struct LedgerOptions {
  std::uint32_t block_tokens = 16;  // the engine reuses whole blocks: 16 in vLLM on GPUs; > 0
  std::uint64_t cold_below = 256;   // tokens; less than this to reuse is not worth a verdict
  double hit_at_least = 0.9;        // share of the reusable tokens, 0..1
  double lost_below = 0.1;          // share of the reusable tokens, 0..hit_at_least
  std::size_t capacity = 65536;     // conversations remembered, >= 1
};

struct ClassTotal {
  std::uint64_t turns = 0;
  std::uint64_t computed_tokens = 0;  // that a hit would have saved

  [[nodiscard]] friend constexpr bool operator==(const ClassTotal&,
                                                 const ClassTotal&) noexcept = default;
};

using ClassTotals = std::array<ClassTotal, turn_classes>;  // indexed by TurnClass

struct RecordedTurn {
  TurnClass turn_class = TurnClass::unmeasured;
  std::uint64_t reusable_tokens =
      0;  // whole blocks of the conversation that its home had read before
  std::uint64_t computed_tokens = 0;  // of those, computed again
};

class Ledger {
 public:
  // Throws: std::invalid_argument that names field and value.
  explicit Ledger(LedgerOptions options = {}) : options_(options) {
    detail::require(options.block_tokens > 0, "block_tokens", options.block_tokens,
                    "a block holds at least a token");
    detail::require(options.hit_at_least > 0.0 && options.hit_at_least <= 1.0, "hit_at_least",
                    options.hit_at_least, "a share above 0 and at most 1");
    detail::require(options.lost_below >= 0.0 && options.lost_below <= options.hit_at_least,
                    "lost_below", options.lost_below, "a share of at most hit_at_least");
    detail::require(options.capacity > 0, "capacity", options.capacity,
                    "must remember a conversation at least");
  }

  // Records a finished turn. `prefix` is the prompt's chain of fingerprints (wire/prefix.hpp),
  // element i standing for its first i + 1 parts; empty: unknown, and then no turn is `diverged`.
  // Turns without a key and side calls have no history to reuse and are cold or, where the engine
  // was silent, unmeasured.
  RecordedTurn record(const Decision& decision, const Usage& usage,
                      std::span<const std::uint64_t> prefix = {}) {
    const std::lock_guard lock(mutex_);
    RecordedTurn turn;
    bool diverged = false;
    if (decision.has_key && !decision.side_call) {
      History& history = history_of(decision.key);
      const Home judged = decision.outcome == Outcome::moved ? decision.previous : decision.home;
      if (history.home == judged)
        turn.reusable_tokens = history.read_tokens / options_.block_tokens * options_.block_tokens;
      // The last token is always computed: it yields the first output.
      if (usage.prompt_tokens > 0) {
        turn.reusable_tokens =
            std::min(turn.reusable_tokens,
                     (usage.prompt_tokens - 1) / options_.block_tokens * options_.block_tokens);
      }
      diverged =
          !prefix.empty() && history.parts > 0 &&
          (prefix.size() < history.parts || prefix[history.parts - 1] != history.fingerprint);
      remember(history, decision, usage, prefix);
    }
    turn.turn_class = classify(decision, usage, turn.reusable_tokens, diverged);
    if (usage.cached_tokens && turn.turn_class != TurnClass::cold &&
        *usage.cached_tokens < turn.reusable_tokens) {
      turn.computed_tokens = turn.reusable_tokens - *usage.cached_tokens;
    }
    add(pool_, turn);
    add(replicas_[decision.replica], turn);
    return turn;
  }

  [[nodiscard]] ClassTotals totals() const {
    const std::lock_guard lock(mutex_);
    return pool_;
  }

  // Of the turns that this replica served.
  [[nodiscard]] ClassTotals totals(ReplicaId replica) const {
    const std::lock_guard lock(mutex_);
    const auto found = replicas_.find(replica);
    return found == replicas_.end() ? ClassTotals{} : found->second;
  }

  [[nodiscard]] std::size_t conversations() const {
    const std::lock_guard lock(mutex_);
    return histories_.size();
  }

 private:
  struct History {
    KeyHash key{};
    Home home{};
    std::uint64_t read_tokens = 0;  // prompt and output of the last turn that its home served
    std::size_t parts = 0;          // of the last prompt whose fingerprints were given
    std::uint64_t fingerprint = 0;
  };

  struct HashOfKey {
    std::size_t operator()(KeyHash key) const noexcept { return static_cast<std::size_t>(key.lo); }
  };

  static void add(ClassTotals& totals, const RecordedTurn& turn) noexcept {
    ClassTotal& total = totals[static_cast<std::size_t>(turn.turn_class)];
    ++total.turns;
    total.computed_tokens += turn.computed_tokens;
  }

  [[nodiscard]] TurnClass classify(const Decision& decision, const Usage& usage,
                                   std::uint64_t reusable, bool diverged) const noexcept {
    if (!usage.cached_tokens) return TurnClass::unmeasured;
    if (reusable < options_.cold_below) return TurnClass::cold;
    const double cached = static_cast<double>(*usage.cached_tokens);
    if (cached >= options_.hit_at_least * static_cast<double>(reusable)) return TurnClass::hit;
    if (diverged) return TurnClass::diverged;
    const bool went_home = decision.replica && decision.replica == decision.home.replica &&
                           decision.outcome != Outcome::moved;
    if (!went_home) return TurnClass::misrouted;
    return cached < options_.lost_below * static_cast<double>(reusable) ? TurnClass::lost
                                                                        : TurnClass::partial;
  }

  // What a turn leaves at its conversation's home: all of it where it went there, nothing where it
  // went elsewhere.
  static void remember(History& history, const Decision& decision, const Usage& usage,
                       std::span<const std::uint64_t> prefix) {
    if (history.home != decision.home) {
      history.home = decision.home;
      history.read_tokens = 0;
    }
    if (decision.replica == decision.home.replica)
      history.read_tokens = usage.prompt_tokens + usage.completion_tokens;
    history.parts = prefix.size();
    history.fingerprint = prefix.empty() ? 0 : prefix.back();
  }

  [[nodiscard]] History& history_of(KeyHash key) {
    const auto found = histories_.find(key);
    if (found != histories_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return *found->second;
    }
    if (histories_.size() >= options_.capacity) {
      histories_.erase(recent_.back().key);
      recent_.pop_back();
    }
    recent_.push_front({.key = key});
    histories_.emplace(key, recent_.begin());
    return recent_.front();
  }

  const LedgerOptions options_;
  mutable std::mutex mutex_;
  std::list<History> recent_;  // most recently recorded first
  std::unordered_map<KeyHash, std::list<History>::iterator, HashOfKey> histories_;
  ClassTotals pool_{};
  std::map<ReplicaId, ClassTotals> replicas_;
};

}  // namespace limpet
