// SPDX-License-Identifier: Apache-2.0
//
// Runs work on several threads that begin together, and waits for all of them.
#pragma once

#include <barrier>
#include <cstddef>
#include <thread>
#include <vector>

namespace limpet_test {

// Calls work(0) ... work(threads - 1), each on a thread of its own. Catch2's assertions are not for
// other threads: work collects, the caller checks.
template <class Work>
void together(std::size_t threads, Work work) {
  std::barrier start(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
  for (std::thread& thread : running) thread.join();
}

}  // namespace limpet_test
