// SPDX-License-Identifier: Apache-2.0
//
// Replaces operator new by one that counts, a thread by itself, so that a benchmark can say how
// often it allocated. The array and nothrow forms of the standard library end in these.
#include "support.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local limpet::bench::Allocated so_far;

void* counted(std::size_t size, void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  ++so_far.calls;
  so_far.bytes += size;
  return memory;
}

}  // namespace

limpet::bench::Allocated limpet::bench::allocated() noexcept {
  return so_far;
}

void* operator new(std::size_t size) {
  return counted(size, std::malloc(size != 0 ? size : 1));
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return counted(size, std::aligned_alloc(align, (size + align - 1) / align * align));
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
