// SPDX-License-Identifier: Apache-2.0
//
// How many conversations of a replica are live, and how many tokens they hold: running sums, no
// scan over pins.
//
// A conversation is live while a turn of it is in flight and for a window after its last one ended.
// The window is cut into 64 buckets by the time of that end; when a bucket's time is over, all of
// it leaves the sums at once, so the window is exact to 1/64 of itself. O(1) a turn, O(buckets
// passed) when time has moved on. Its replica's lock guards it; the totals may be read without.
//
// The newest bucket, where nearly all turns end and most begin again, stands with the totals in 32
// bytes: a turn writes these and none of the other buckets.
//
// The additions commute. Two threads may report an end and the next begin of one conversation in
// either order; a bucket may then be -1 for a moment, and the sums come out right.
#pragma once

#include <limpet/types.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace limpet::detail {

class LiveWindow {
 public:
  static constexpr std::int64_t buckets = 64;

  // Conversations and their tokens, or a change of such.
  struct Sum {
    std::int64_t tokens = 0;
    std::int32_t conversations = 0;

    constexpr void operator+=(const Sum& other) noexcept {
      tokens += other.tokens;
      conversations += other.conversations;
    }
    [[nodiscard]] constexpr Sum operator-() const noexcept { return {-tokens, -conversations}; }
  };

  // How long a bucket lasts; the time of an event divided by it is the number of its bucket.
  [[nodiscard]] static std::int64_t bucket_width(Duration window) noexcept {
    return window.count() / buckets;
  }

  // Effects: lets go of all that ended a window ago. Time never goes back: an earlier `now` changes
  // nothing.
  void advance(std::int64_t now) noexcept {
    if (now <= newest()) return;
    sums_[index(newest())] = {newest_tokens_, newest_conversations_};
    newest_tokens_ = 0;
    newest_conversations_ = 0;
    const std::int64_t passed = std::min(now - newest(), buckets);
    Sum over;
    for (std::int64_t i = 1; i <= passed; ++i) {
      Sum& oldest = sums_[index(now - passed + i)];
      over += oldest;
      oldest = {};
    }
    add(-over);
    newest_.store(now, std::memory_order_release);
  }

  // Adds to the totals. What belongs together comes in one call: who reads without the lock must
  // not see a conversation leave that only begins another turn.
  void add(const Sum& change) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    conversations_.store(conversations_.load(relaxed) + change.conversations, relaxed);
    tokens_.store(tokens_.load(relaxed) + change.tokens, relaxed);
  }

  // A conversation whose last turn ended in `bucket` comes (+1) or goes (-1). Returns: what that
  // adds to the totals, for add(); nothing where it is past the window and not in them any more.
  [[nodiscard]] Sum add_idle(std::int64_t bucket, const Sum& change) noexcept {
    advance(bucket);  // another thread's clock may be ahead of ours
    if (bucket <= newest() - buckets) return {};
    if (bucket == newest()) {
      newest_conversations_ += change.conversations;
      newest_tokens_ += change.tokens;
    } else {
      sums_[index(bucket)] += change;
    }
    return change;
  }

  // Up to which time the totals are right.
  [[nodiscard]] std::int64_t newest() const noexcept {
    return newest_.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::uint32_t conversations() const noexcept {
    const std::int32_t sum = conversations_.load(std::memory_order_relaxed);
    return sum > 0 ? static_cast<std::uint32_t>(sum) : 0;
  }

  [[nodiscard]] std::uint64_t tokens() const noexcept {
    const std::int64_t sum = tokens_.load(std::memory_order_relaxed);
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }

  // Returns: tokens of the conversations that are active or whose last turn ended after `bucket`:
  // what a cache has used since. Those of the same bucket do not count.
  [[nodiscard]] std::uint64_t tokens_since(std::int64_t bucket) const noexcept {
    std::int64_t sum = tokens_.load(std::memory_order_relaxed);
    if (bucket >= newest()) sum -= newest_tokens_;
    const std::int64_t last = std::min(bucket, newest() - 1);
    for (std::int64_t i = newest() - buckets + 1; i <= last; ++i) sum -= sums_[index(i)].tokens;
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }

  void clear() noexcept {
    for (Sum& sum : sums_) sum = {};
    newest_tokens_ = 0;
    newest_conversations_ = 0;
    conversations_.store(0, std::memory_order_relaxed);
    tokens_.store(0, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] static std::size_t index(std::int64_t bucket) noexcept {
    return static_cast<std::uint64_t>(bucket) % static_cast<std::uint64_t>(buckets);
  }

  std::atomic<std::int64_t> newest_ = INT64_MIN / 2;
  std::atomic<std::int64_t> tokens_ = 0;         // active and idle together
  std::atomic<std::int32_t> conversations_ = 0;  // active and idle together
  std::int32_t newest_conversations_ = 0;        // idle, in the newest bucket
  std::int64_t newest_tokens_ = 0;               // idle, in the newest bucket
  Sum sums_[buckets];                            // idle, in the others
};

}  // namespace limpet::detail
