// SPDX-License-Identifier: Apache-2.0
//
// PrefillShare: what one turn adds to its replica's pending prefill, from before it takes its slot
// until its first byte, its end or a change of mind.
//
// Added when made, taken off once, whichever thread drops it first, so the total is never negative
// and 0 when all shares are gone. Without tokens it touches nothing. Moving it is for one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace limpet::detail {

class PrefillShare {
 public:
  PrefillShare() noexcept = default;
  PrefillShare(std::atomic<std::uint64_t>& pending, std::uint32_t tokens) noexcept
      : pending_(&pending), tokens_(tokens) {
    pending.fetch_add(tokens, std::memory_order_relaxed);
  }
  PrefillShare(PrefillShare&& other) noexcept
      : pending_(other.pending_), tokens_(std::exchange(other.tokens_, 0)) {}
  PrefillShare& operator=(PrefillShare&& other) noexcept {
    if (this != &other) {
      drop();
      pending_ = other.pending_;
      tokens_ = std::exchange(other.tokens_, 0);
    }
    return *this;
  }
  ~PrefillShare() {
    if (tokens_ != 0) drop();
  }

  void drop() noexcept {
    const std::atomic_ref<std::uint32_t> tokens(tokens_);
    if (tokens.load(std::memory_order_relaxed) == 0) return;
    pending_->fetch_sub(tokens.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t>* pending_ = nullptr;
  std::uint32_t tokens_ = 0;  // atomic in drop() alone: a router that counts none pays nothing
};

}  // namespace limpet::detail
