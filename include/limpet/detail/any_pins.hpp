// SPDX-License-Identifier: Apache-2.0
//
// AnyPins: any pin store behind one type, chosen at run time. A part of any.hpp.
//
// A store that tracks turns does so through it; for one that only pins, the same emulation stands
// in as in a Router<> of that store, so decisions are equal. One virtual call an operation and one
// allocation a store; otherwise as thread-safe and as costly as the store inside.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/turns_of.hpp>
#include <limpet/pins/sharded.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace limpet {

class AnyPins {
 public:
  AnyPins() : AnyPins(ShardedPins<>{}) {}

  template <class Store>
    requires(!std::same_as<Store, AnyPins> && PinStore<Store>)
  explicit AnyPins(Store store) : store_(std::make_unique<Model<Store>>(std::move(store))) {}

  // PinStore --------------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Home> find(KeyHash key, Instant now) const {
    return store_->find(key, now);
  }
  Home pin(KeyHash key, Home home, Instant now) { return store_->pin(key, home, now); }
  Home repin(KeyHash key, Home expected, Home desired, Instant now) {
    return store_->repin(key, expected, desired, now);
  }
  bool unpin(KeyHash key, Home expected) { return store_->unpin(key, expected); }

  // TracksTurns -----------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Conversation> peek(KeyHash key, Instant now) const {
    return store_->peek(key, now);
  }
  std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) {
    return store_->open_turn(key, now, tokens);
  }
  TurnOpened pin_turn(KeyHash key, Home home, Instant now, std::uint32_t tokens) {
    return store_->pin_turn(key, home, now, tokens);
  }
  // `tokens`: what the caller's turn counts for, which a store that only pins cannot know.
  std::optional<Conversation> repin_conversation(KeyHash key, Home expected, Home desired,
                                                 Instant now, std::uint32_t tokens = 0) {
    return store_->repin_conversation(key, expected, desired, now, tokens);
  }
  std::optional<Conversation> repin_idle(KeyHash key, Home expected, Home desired, Instant cutoff) {
    return store_->repin_idle(key, expected, desired, cutoff);
  }
  std::optional<TurnClosed> close_turn(KeyHash key, PinTicket ticket, Instant now,
                                       std::uint32_t context_tokens, TurnEnd end) {
    return close_turn({.key = key, .ticket = ticket}, now, context_tokens, end);
  }
  // As above, with all that the turn remembers: see `tokens` of repin_conversation.
  std::optional<TurnClosed> close_turn(const detail::TurnTie& tie, Instant now,
                                       std::uint32_t context_tokens, TurnEnd end) {
    return store_->close_turn(tie, now, context_tokens, end);
  }
  void idle_since(Instant cutoff, std::size_t limit, std::vector<IdleConversation>& out) const {
    store_->idle_since(cutoff, limit, out);
  }
  void expire(Instant now, std::vector<Conversation>& out) { store_->expire(now, out); }

  // FollowsMembership -----------------------------------------------------------------------------

  void set_members(const Member* members, std::size_t count) {
    store_->set_members(members, count);
  }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::optional<Home> find(KeyHash, Instant) const = 0;
    virtual Home pin(KeyHash, Home, Instant) = 0;
    virtual Home repin(KeyHash, Home, Home, Instant) = 0;
    virtual bool unpin(KeyHash, Home) = 0;
    virtual std::optional<Conversation> peek(KeyHash, Instant) const = 0;
    virtual std::optional<TurnOpened> open_turn(KeyHash, Instant, std::uint32_t) = 0;
    virtual TurnOpened pin_turn(KeyHash, Home, Instant, std::uint32_t) = 0;
    virtual std::optional<Conversation> repin_conversation(KeyHash, Home, Home, Instant,
                                                           std::uint32_t) = 0;
    virtual std::optional<Conversation> repin_idle(KeyHash, Home, Home, Instant) = 0;
    virtual std::optional<TurnClosed> close_turn(const detail::TurnTie&, Instant, std::uint32_t,
                                                 TurnEnd) = 0;
    virtual void idle_since(Instant, std::size_t, std::vector<IdleConversation>&) const = 0;
    virtual void expire(Instant, std::vector<Conversation>&) = 0;
    virtual void set_members(const Member*, std::size_t) = 0;
  };

  template <PinStore Store>
  struct Model final : Interface {
    explicit Model(Store inside) : store(std::move(inside)) {}

    std::optional<Home> find(KeyHash key, Instant now) const override {
      return store.find(key, now);
    }
    Home pin(KeyHash key, Home home, Instant now) override { return store.pin(key, home, now); }
    Home repin(KeyHash key, Home expected, Home desired, Instant now) override {
      return store.repin(key, expected, desired, now);
    }
    bool unpin(KeyHash key, Home expected) override { return store.unpin(key, expected); }

    std::optional<Conversation> peek(KeyHash key, Instant now) const override {
      return detail::peek(store, key, now);
    }
    std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) override {
      return detail::open_turn(store, key, now, tokens);
    }
    TurnOpened pin_turn(KeyHash key, Home home, Instant now, std::uint32_t tokens) override {
      return detail::pin_turn(store, key, home, now, tokens);
    }
    std::optional<Conversation> repin_conversation(KeyHash key, Home expected, Home desired,
                                                   Instant now, std::uint32_t tokens) override {
      return detail::repin(store, key, expected, desired, now, tokens);
    }
    std::optional<Conversation> repin_idle(KeyHash key, Home expected, Home desired,
                                           Instant cutoff) override {
      if constexpr (TracksTurns<Store>) return store.repin_idle(key, expected, desired, cutoff);
      return std::nullopt;
    }
    std::optional<TurnClosed> close_turn(const detail::TurnTie& tie, Instant now,
                                         std::uint32_t context_tokens, TurnEnd end) override {
      return detail::close_turn(store, tie, now, context_tokens, end);
    }
    void idle_since(Instant cutoff, std::size_t limit,
                    std::vector<IdleConversation>& out) const override {
      if constexpr (TracksTurns<Store>) store.idle_since(cutoff, limit, out);
    }
    void expire(Instant now, std::vector<Conversation>& out) override {
      if constexpr (TracksTurns<Store>) store.expire(now, out);
    }
    void set_members(const Member* members, std::size_t count) override {
      if constexpr (FollowsMembership<Store>) store.set_members(members, count);
    }

    Store store;
  };

  std::unique_ptr<Interface> store_;
};

static_assert(TracksTurns<AnyPins>);
static_assert(FollowsMembership<AnyPins>);

}  // namespace limpet
