// SPDX-License-Identifier: Apache-2.0
#include "alloc/counting.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> calls = 0;
std::atomic<std::size_t> bytes = 0;

// Returns: null where memory is short.
void* count(std::size_t size, std::size_t alignment) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
  // aligned_alloc wants whole multiples.
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size == 0 ? 1 : size)
             : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* count_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = count(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

limpet_test::Allocations limpet_test::allocations_so_far() noexcept {
  return {calls.load(std::memory_order_relaxed), bytes.load(std::memory_order_relaxed)};
}

void* operator new(std::size_t size) {
  return count_or_throw(size, 1);
}
void* operator new[](std::size_t size) {
  return count_or_throw(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return count_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return count_or_throw(size, static_cast<std::size_t>(alignment));
}
// Every form, since a sanitizer would take those that are missing from itself, with another heap.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return count(size, 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return count(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return count(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
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
