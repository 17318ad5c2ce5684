// SPDX-License-Identifier: Apache-2.0
//
// A four-byte lock for sections of a few dozen instructions that call nobody: one atomic exchange
// to take, one store to leave.
//
// std::mutex would cost a second locked instruction and 40 bytes, and a replica's accounting should
// fit its cache lines. A waiter spins on a plain load, then gives its time slice away, so more
// threads than cores do no harm. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace limpet::detail {

class SpinLock {
 public:
  void lock() noexcept {
    while (taken_.exchange(1, std::memory_order_acquire) != 0) {
      for (int spins = 0; taken_.load(std::memory_order_relaxed) != 0; ++spins) {
        if (spins > 64) std::this_thread::yield();
      }
    }
  }

  void unlock() noexcept { taken_.store(0, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> taken_ = 0;
};

}  // namespace limpet::detail
