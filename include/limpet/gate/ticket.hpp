// SPDX-License-Identifier: Apache-2.0
//
// GateTicket: one turn's stay at the gate, from enter() to leave(); once admitted it holds the
// router's lease.
//
// Movable, one type for every gate; must not outlive its gate. Ending it is for whoever holds it:
// leave() when the engine answered, cancel() when the caller hung up, waiting or not, fail() when
// the replica failed the turn; the destructor cancels. state() may be asked from any thread.
#pragma once

#include <limpet/gate/detail/admission.hpp>
#include <limpet/lease.hpp>
#include <limpet/types.hpp>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace limpet {

enum class TicketState : std::uint8_t { waiting, admitted, refused, ended };

// Why a ticket is admitted, waits or is refused.
enum class GateReason : std::uint8_t {
  none,
  inside,            // its conversation was inside
  room,              // there was room for it
  waited,            // it was let in after a wait
  not_governed,      // no conversation, a side call, named by the client, affinity off
  full,              // waiting: the conversations inside fill the caches
  no_replica,        // refused: nobody can take the turn
  too_many_waiting,  // refused: the queue is full
  deadline,          // refused: it has waited too long
};

[[nodiscard]] constexpr std::string_view to_string(TicketState state) noexcept {
  constexpr std::string_view names[] = {"waiting", "admitted", "refused", "ended"};
  return names[static_cast<std::size_t>(state)];
}

[[nodiscard]] constexpr std::string_view to_string(GateReason reason) noexcept {
  constexpr std::string_view names[] = {"none",
                                        "its conversation was inside",
                                        "there was room",
                                        "let in after a wait",
                                        "the gate has no say in such turns",
                                        "the conversations inside fill the caches",
                                        "no replica can take the turn",
                                        "too many turns wait",
                                        "it has waited too long"};
  return names[static_cast<std::size_t>(reason)];
}

namespace detail {

// What a ticket and its gate share. All but `state` is guarded by the gate's lock until the state
// says admitted or refused, and then left alone.
struct GateEntry {
  enum class Stage : std::uint8_t { waiting, settling, settled };

  std::atomic<TicketState> state = TicketState::waiting;
  GateReason reason = GateReason::full;
  Stage stage = Stage::waiting;
  bool abandoned = false;  // while it was settling
  bool governed = true;
  bool first_ever = false;  // the router had not seen its conversation
  std::uint64_t stay = 0;
  Waiter turn{};
  Key parent{};  // a hash
  Instant since{};
  Duration waited{};
  Lease lease{};
  std::function<void()> settled{};
};

}  // namespace detail

class GateTicket {
 public:
  GateTicket() noexcept = default;
  GateTicket(GateTicket&& other) noexcept
      : gate_(other.gate_), end_(other.end_), entry_(std::move(other.entry_)) {}
  GateTicket& operator=(GateTicket&& other) noexcept {
    if (this != &other) {
      cancel();
      gate_ = other.gate_;
      end_ = other.end_;
      entry_ = std::move(other.entry_);
    }
    return *this;
  }
  ~GateTicket() { cancel(); }

  [[nodiscard]] TicketState state() const noexcept {
    return entry_ ? entry_->state.load(std::memory_order_acquire) : TicketState::ended;
  }

  // The lease, where to send the turn among it. Without a replica where affinity is off. Requires:
  // admitted.
  [[nodiscard]] const Lease& lease() const noexcept {
    assert(state() == TicketState::admitted);
    return entry_->lease;
  }

  // Requires: not waiting, as waited(), which is how long it did.
  [[nodiscard]] GateReason reason() const noexcept {
    return entry_ ? entry_->reason : GateReason::none;
  }
  [[nodiscard]] Duration waited() const noexcept { return entry_ ? entry_->waited : Duration{}; }

  // As Lease::first_byte(). Requires: admitted.
  void first_byte() noexcept {
    assert(state() == TicketState::admitted);
    entry_->lease.first_byte();
  }

  // The caller does not want the answer any more: leaves the queue, or gives the slot back.
  void cancel() noexcept { end(Lease::End::cancel, nullptr); }

  // The replica did not serve the turn: as Lease::fail().
  void fail() noexcept { end(Lease::End::fail, nullptr); }

 private:
  template <class RouterT>
  friend class WorkingSetGate;

  using End = void (*)(void* gate, const std::shared_ptr<detail::GateEntry>& entry, Lease::End how,
                       const Usage* usage) noexcept;

  GateTicket(void* gate, End end_turn, std::shared_ptr<detail::GateEntry> entry) noexcept
      : gate_(gate), end_(end_turn), entry_(std::move(entry)) {}

  void end(Lease::End how, const Usage* usage) noexcept {
    if (const auto entry = std::exchange(entry_, nullptr)) end_(gate_, entry, how, usage);
  }

  void* gate_ = nullptr;
  End end_ = nullptr;
  std::shared_ptr<detail::GateEntry> entry_;
};

}  // namespace limpet
