// SPDX-License-Identifier: Apache-2.0
//
// Timeline: prompt tokens a second over the last hour, read from cache against computed, for each
// replica and for all.
//
// A ring of one-second steps, fixed at construction: recording is O(1) and allocates nothing for a
// replica seen before. A prompt that its engine did not measure counts as computed, since nothing
// shows that it was not; an aborted one counts with what is known of it. Thread-safe (one mutex).
#pragma once

#include <limpet/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace limpet {

// Prompt tokens of one second, or of a span of them.
struct PromptTokens {
  std::uint64_t cached = 0;  // read from the prefix cache
  std::uint64_t computed = 0;

  // Share read from cache, 0..1; 0 where there were none.
  [[nodiscard]] double cached_share() const noexcept {
    const std::uint64_t all = cached + computed;
    return all == 0 ? 0.0 : static_cast<double>(cached) / static_cast<double>(all);
  }

  [[nodiscard]] friend constexpr bool operator==(const PromptTokens&,
                                                 const PromptTokens&) noexcept = default;
};

class Timeline {
 public:
  static constexpr std::size_t steps = 3600;  // one-second steps kept

  void record(ReplicaId replica, const Usage& usage, Instant now) {
    const std::uint64_t cached = std::min(usage.cached_tokens.value_or(0), usage.prompt_tokens);
    const PromptTokens tokens{.cached = cached, .computed = usage.prompt_tokens - cached};
    const std::lock_guard lock(mutex_);
    pool_.add(second_of(now), tokens);
    std::unique_ptr<Ring>& ring = replicas_[replica];
    if (!ring) ring = std::make_unique<Ring>();
    ring->add(second_of(now), tokens);
  }

  // The steps up to the one that `now` is in, oldest first: at most `count` of them, at most an
  // hour.
  [[nodiscard]] std::vector<PromptTokens> series(Instant now, std::size_t count = steps) const {
    const std::lock_guard lock(mutex_);
    return pool_.series(second_of(now), count);
  }
  [[nodiscard]] std::vector<PromptTokens> series(ReplicaId replica, Instant now,
                                                 std::size_t count = steps) const {
    const std::lock_guard lock(mutex_);
    const auto found = replicas_.find(replica);
    return (found == replicas_.end() ? Ring{} : *found->second).series(second_of(now), count);
  }

  // The last hour together.
  [[nodiscard]] PromptTokens last_hour(Instant now) const { return sum(series(now)); }
  [[nodiscard]] PromptTokens last_hour(ReplicaId replica, Instant now) const {
    return sum(series(replica, now));
  }

 private:
  class Ring {
   public:
    void add(std::int64_t second, PromptTokens tokens) noexcept {
      Step& step = steps_[index(second)];
      if (step.second > second) return;  // more than an hour late
      if (step.second != second) step = {.second = second};
      step.tokens.cached += tokens.cached;
      step.tokens.computed += tokens.computed;
    }

    [[nodiscard]] std::vector<PromptTokens> series(std::int64_t now, std::size_t count) const {
      count = std::min(count, steps);
      std::vector<PromptTokens> out(count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t second = now - static_cast<std::int64_t>(count - 1 - i);
        const Step& step = steps_[index(second)];
        if (step.second == second) out[i] = step.tokens;
      }
      return out;
    }

   private:
    struct Step {
      std::int64_t second = INT64_MIN;  // which one this place holds
      PromptTokens tokens{};
    };

    [[nodiscard]] static std::size_t index(std::int64_t second) noexcept {
      const std::int64_t size = steps;
      return static_cast<std::size_t>((second % size + size) % size);
    }

    std::array<Step, steps> steps_{};
  };

  [[nodiscard]] static std::int64_t second_of(Instant at) noexcept {
    return std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count();
  }

  [[nodiscard]] static PromptTokens sum(const std::vector<PromptTokens>& series) noexcept {
    PromptTokens all;
    for (const PromptTokens& step : series) {
      all.cached += step.cached;
      all.computed += step.computed;
    }
    return all;
  }

  mutable std::mutex mutex_;
  Ring pool_;
  std::map<ReplicaId, std::unique_ptr<Ring>> replicas_;
};

}  // namespace limpet
