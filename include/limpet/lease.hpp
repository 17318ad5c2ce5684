// SPDX-License-Identifier: Apache-2.0
//
// Lease: one turn's slot on a replica, returned exactly once.
//
// finish() when the engine answered, cancel() when the caller hung up, fail() when the replica
// failed the turn; the destructor returns what none of them did, as cancel() does. Only the first
// call counts, from whatever thread it comes; the later ones do nothing. Movable, one type for
// every Router<>, no allocation. It must not outlive its router.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/prefill_share.hpp>
#include <limpet/fwd.hpp>
#include <limpet/types.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace limpet {

class Lease {
 public:
  Lease() noexcept = default;
  Lease(Lease&& other) noexcept { take(other); }
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      cancel();
      take(other);
    }
    return *this;
  }
  ~Lease() { cancel(); }

  // Where to send the turn; none where it was refused or is not routed.
  [[nodiscard]] ReplicaId replica() const noexcept { return decision_.replica; }
  [[nodiscard]] Outcome outcome() const noexcept { return decision_.outcome; }
  [[nodiscard]] const Decision& decision() const noexcept { return decision_; }

  // Whether there is a replica to send to. Stays true after the lease has ended.
  [[nodiscard]] explicit operator bool() const noexcept { return decision_.replica.has_value(); }

  // Whether the slot is still held.
  [[nodiscard]] bool held() const noexcept {
    return router_.load(std::memory_order_acquire) != nullptr;
  }

  // The first byte of the answer has come, so the prompt has been read: from now on the turn does not
  // count in its replica's pending_prefill_tokens. Only the first call counts, from whatever thread;
  // an end does the same. Nothing where no policy of the router has needs_prefill.
  void first_byte() noexcept { booked_.prefill.drop(); }

  // The engine answered; `usage` is what it said of the tokens.
  void finish(const Usage& usage) noexcept { end(End::finish, &usage); }
  void finish() noexcept { end(End::finish, nullptr); }

  // The caller does not want the answer any more. The pin stays.
  void cancel() noexcept { end(End::cancel, nullptr); }

  // The replica did not serve the turn. The pin of a conversation's first turn goes if no other
  // turn used it meanwhile, so that a second try is free to choose; any other pin stays, since one
  // failure does not empty a cache.
  void fail() noexcept { end(End::fail, nullptr); }

  enum class End : std::uint8_t { finish, cancel, fail };

 private:
  template <PinStore, LoadScorer, OverflowRule, MetricsParser, Clock>
  friend class Router;

  using EndTurn = void (*)(void* router, Lease& lease, End how, const Usage* usage) noexcept;

  // What the turn counts for until it ends.
  struct Booked {
    std::uint64_t tokens = 0;          // in flight on its replica
    std::uint32_t counted_tokens = 0;  // of its conversation
    bool follows = false;              // it counts as one of its conversation's
    PinTicket ticket{};
    detail::PrefillShare prefill{};
  };

  explicit Lease(const Decision& decision) noexcept : decision_(decision) {}
  Lease(void* router, EndTurn end_turn, const Decision& decision, const Booked& booked) noexcept
      : router_(router), end_turn_(end_turn), decision_(decision), booked_(booked) {}

  void end(End how, const Usage* usage) noexcept {
    if (router_.load(std::memory_order_relaxed) == nullptr) return;
    if (void* const router = router_.exchange(nullptr, std::memory_order_acq_rel)) {
      end_turn_(router, *this, how, usage);
    }
  }

  void take(Lease& other) noexcept {
    router_.store(other.router_.exchange(nullptr, std::memory_order_acq_rel),
                  std::memory_order_release);
    end_turn_ = other.end_turn_;
    decision_ = other.decision_;
    booked_ = other.booked_;
    other.booked_.prefill = {};
  }

  std::atomic<void*> router_ = nullptr;  // null once the slot is returned
  EndTurn end_turn_ = nullptr;
  Decision decision_{};
  Booked booked_{};
};

}  // namespace limpet
