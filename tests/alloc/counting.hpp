// SPDX-License-Identifier: Apache-2.0
//
// Counts what operator new hands out, in calls and in bytes, while a test asks for it. counting.cpp
// replaces the operators of this executable. Counts of all threads together.
#pragma once

#include <cstddef>

namespace limpet_test {

struct Allocations {
  std::size_t calls = 0;
  std::size_t bytes = 0;  // asked for, still held or not
};

[[nodiscard]] Allocations allocations_so_far() noexcept;

// What `work` allocates.
template <class Work>
[[nodiscard]] Allocations allocations_of(Work&& work) {
  const Allocations before = allocations_so_far();
  work();
  const Allocations after = allocations_so_far();
  return {after.calls - before.calls, after.bytes - before.bytes};
}

}  // namespace limpet_test
