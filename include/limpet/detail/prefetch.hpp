// SPDX-License-Identifier: Apache-2.0
//
// Calls for a cache line that is about to be written, from wherever it is, while other work goes on.
//
// On x86-64 by name: there compilers make of __builtin_prefetch(at, 1) a fetch for reading unless
// told the very processor, and a line that another core has written must then be asked for a second
// time. Only a hint: changes nothing, and any address will do.
#pragma once

namespace limpet::detail {

inline void prefetch_to_write(const void* at) noexcept {
#ifdef __x86_64__
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace limpet::detail
