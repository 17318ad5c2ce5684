// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/spin_lock.hpp>

#include "catch.hpp"

#include <mutex>
#include <thread>
#include <vector>

TEST_CASE("a spin lock lets one thread in at a time") {
  limpet::detail::SpinLock lock;
  long count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(count == 80'000);
}
