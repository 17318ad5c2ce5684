// SPDX-License-Identifier: Apache-2.0
#include "alloc/counting.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> calls = 0;
std::atomic<std::size_t> bytes = 0;

void* count(std::size_t size, std::size_t alignment) {
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
  // aligned_alloc wants whole multiples.
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(size == 0 ? 1 : size)
                           : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

limpet_test::Allocations limpet_test::allocations_so_far() noexcept {
  return {calls.load(std::memory_order_relaxed), bytes.load(std::memory_order_relaxed)};
}

void* operator new(std::size_t size) {
  return count(size, 1);
}
void* operator new[](std::size_t size) {
  return count(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return count(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return count(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
