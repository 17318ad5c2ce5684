// SPDX-License-Identifier: Apache-2.0
//
// The two clocks: the machine's, and one that a test or a simulator moves by hand.
//
// The core asks no other clock than the one its router was given, so a recording replays to the
// same decisions. Both are thread-safe. SteadyClock costs some 5 ns on Linux and one clock_gettime
// (some 25 ns) elsewhere; ManualClock one load.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/shared_atomic.hpp>
#include <limpet/types.hpp>

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace limpet {

// std::chrono::steady_clock; on Linux as of the kernel's last tick, 1 to 10 ms ago, since nothing
// here asks for more and reading the hardware's counter is a third of what a turn costs.
struct SteadyClock {
  [[nodiscard]] Instant now() const noexcept {
#ifdef CLOCK_MONOTONIC_COARSE
    timespec time{};
    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &time) == 0) [[likely]]
      return Instant{Duration{time.tv_sec * 1'000'000'000 + time.tv_nsec}};
#endif
    return std::chrono::steady_clock::now();
  }
};

// Copies share one time: hand a copy to the router, keep one to move it.
class ManualClock {
 public:
  explicit ManualClock(Instant start = Instant{}) : ticks_(start.time_since_epoch().count()) {}

  [[nodiscard]] Instant now() const noexcept {
    return Instant{Duration{ticks_->load(std::memory_order_relaxed)}};
  }

  // Requires: by >= 0; time does not go back.
  void advance(Duration by) noexcept {
    assert(by >= Duration::zero());
    ticks_->fetch_add(by.count(), std::memory_order_relaxed);
  }

  // Effects: moves the time to `at`, or leaves it where it is when that is later.
  void advance_to(Instant at) noexcept {
    const std::int64_t target = at.time_since_epoch().count();
    std::int64_t seen = ticks_->load(std::memory_order_relaxed);
    while (seen < target &&
           !ticks_->compare_exchange_weak(seen, target, std::memory_order_relaxed)) {
    }
  }

 private:
  detail::SharedAtomic<std::int64_t> ticks_;
};

static_assert(Clock<SteadyClock>);
static_assert(Clock<ManualClock>);

}  // namespace limpet
