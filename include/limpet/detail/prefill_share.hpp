// SPDX-License-Identifier: Apache-2.0
//
// PrefillShare: what one turn adds to its replica's pending prefill, from before it takes its slot
// until its first byte, its end or a change of mind.
//
// Added when made, taken off by the first drop(), whichever thread calls it, so the total is never
// negative, and 0 when all shares are dropped. A plain value, so that a router which counts nothing
// pays nothing for it; of its copies one alone may be dropped.
#pragma once

#include <atomic>
#include <cstdint>

namespace limpet::detail {

class PrefillShare {
 public:
  PrefillShare() noexcept = default;
  PrefillShare(std::atomic<std::uint64_t>& pending, std::uint32_t tokens) noexcept
      : pending_(&pending), tokens_(tokens) {
    pending.fetch_add(tokens, std::memory_order_relaxed);
  }

  void drop() noexcept {
    const std::atomic_ref<std::uint32_t> tokens(tokens_);
    if (tokens.load(std::memory_order_relaxed) == 0) return;
    pending_->fetch_sub(tokens.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t>* pending_ = nullptr;
  std::uint32_t tokens_ = 0;
};

}  // namespace limpet::detail
