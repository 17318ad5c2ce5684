// SPDX-License-Identifier: Apache-2.0
//
// How many conversations of a replica are live, and how many tokens they hold: running sums, no
// scan over pins.
//
// A conversation is live while a turn of it is in flight and for a window after its last one ended.
// The window is cut into 64 buckets by the time of that end; when a bucket's time is over, all of
// it leaves the sums at once, so the window is exact to 1/64 of itself. O(1) a turn, O(buckets
// passed) when time has moved on. Not thread-safe: its replica's lock guards it.
//
// The additions commute. Two threads may report an end and the next begin of one conversation in
// either order; a bucket may then be -1 for a moment, and the sums come out right.
#pragma once

#include <limpet/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace limpet::detail {

class LiveWindow {
 public:
  static constexpr std::int64_t buckets = 64;

  // How long a bucket lasts; the time of an event divided by it is the number of its bucket.
  [[nodiscard]] static std::int64_t bucket_width(Duration window) noexcept {
    return window.count() / buckets;
  }

  // Effects: lets go of all that ended a window ago. Time never goes back: an earlier `now` changes
  // nothing.
  void advance(std::int64_t now) noexcept {
    if (now <= newest_) return;
    const std::int64_t passed = std::min(now - newest_, buckets);
    for (std::int64_t i = 1; i <= passed; ++i) {
      Sum& oldest = sums_[index(now - passed + i)];
      add_active(-oldest.conversations, -oldest.tokens);
      oldest = {};
    }
    newest_ = now;
  }

  void add_active(std::int64_t conversations, std::int64_t tokens) noexcept {
    live_.conversations += conversations;
    live_.tokens += tokens;
  }

  // A conversation whose last turn ended in `bucket` comes (+1) or goes (-1). Nothing happens where
  // that is past the window: it is not in the sums any more.
  void add_idle(std::int64_t bucket, std::int64_t conversations, std::int64_t tokens) noexcept {
    advance(bucket);  // another thread's clock may be ahead of ours
    if (bucket <= newest_ - buckets) return;
    Sum& sum = sums_[index(bucket)];
    sum.conversations += conversations;
    sum.tokens += tokens;
    add_active(conversations, tokens);
  }

  [[nodiscard]] std::int64_t newest() const noexcept { return newest_; }

  [[nodiscard]] std::uint32_t conversations() const noexcept {
    return static_cast<std::uint32_t>(std::max<std::int64_t>(0, live_.conversations));
  }

  [[nodiscard]] std::uint64_t tokens() const noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, live_.tokens));
  }

  void clear() noexcept {
    sums_ = {};
    live_ = {};
  }

 private:
  struct Sum {
    std::int64_t conversations = 0;
    std::int64_t tokens = 0;
  };

  [[nodiscard]] static std::size_t index(std::int64_t bucket) noexcept {
    return static_cast<std::uint64_t>(bucket) % static_cast<std::uint64_t>(buckets);
  }

  Sum live_;  // active and idle together
  std::int64_t newest_ = INT64_MIN / 2;
  std::array<Sum, buckets> sums_{};
};

}  // namespace limpet::detail
