// SPDX-License-Identifier: Apache-2.0
//
// One face for stores that follow turns and for those that only pin: the router is written once.
//
// A store with nothing but the four primitives counts each turn in flight as a live conversation
// that is forgotten when the turn ends. AnyPins learns only at run time which kind it holds, so it
// also takes what that needs to know: the turn's tokens and its tie. Stateless; as thread-safe as
// the store.
#pragma once

#include <limpet/concepts.hpp>

#include <cstdint>
#include <optional>

namespace limpet::detail {

// A turn's tie to its conversation, as long as it lasts.
struct TurnTie {
  KeyHash key{};
  Home home{};
  PinTicket ticket{};
  std::uint32_t counted_tokens = 0;
};

[[nodiscard]] inline Conversation bare_conversation(Home home, std::uint32_t in_flight,
                                                    std::uint32_t tokens) noexcept {
  return {.home = home,
          .last_active = Instant::min(),
          .turns = 1,
          .in_flight = in_flight,
          .context_tokens = 0,
          .counted_tokens = tokens};
}

template <PinStore Pins>
[[nodiscard]] std::optional<Conversation> peek(const Pins& pins, KeyHash key, Instant now) {
  if constexpr (TracksTurns<Pins>) {
    return pins.peek(key, now);
  } else {
    const std::optional<Home> home = pins.find(key, now);
    return home ? std::optional(bare_conversation(*home, 0, 0)) : std::nullopt;
  }
}

template <PinStore Pins>
[[nodiscard]] std::optional<TurnOpened> open_turn(Pins& pins, KeyHash key, Instant now,
                                                  std::uint32_t tokens) {
  if constexpr (TracksTurns<Pins>) {
    return pins.open_turn(key, now, tokens);
  } else {
    const std::optional<Conversation> found = peek(pins, key, now);
    if (!found) return std::nullopt;
    return TurnOpened{.before = *found, .counted_tokens = tokens};
  }
}

template <PinStore Pins>
[[nodiscard]] TurnOpened pin_turn(Pins& pins, KeyHash key, Home home, Instant now,
                                  std::uint32_t tokens) {
  if constexpr (TracksTurns<Pins>) {
    return pins.pin_turn(key, home, now, tokens);
  } else {
    return {.before = bare_conversation(pins.pin(key, home, now), 0, 0), .counted_tokens = tokens};
  }
}

// Returns: the conversation as it was, iff its pin was `expected` and is now `desired`.
template <PinStore Pins>
[[nodiscard]] std::optional<Conversation> repin(Pins& pins, KeyHash key, Home expected,
                                                Home desired, Instant now, std::uint32_t tokens) {
  if constexpr (requires { pins.repin_conversation(key, expected, desired, now, tokens); }) {
    return pins.repin_conversation(key, expected, desired, now, tokens);
  } else if constexpr (TracksTurns<Pins>) {
    return pins.repin_conversation(key, expected, desired, now);
  } else {
    if (pins.repin(key, expected, desired, now) != desired) return std::nullopt;
    return bare_conversation(expected, 1, tokens);
  }
}

template <PinStore Pins>
[[nodiscard]] std::optional<TurnClosed> close_turn(Pins& pins, const TurnTie& tie, Instant now,
                                                   std::uint32_t context_tokens, TurnEnd end) {
  if constexpr (requires { pins.close_turn(tie, now, context_tokens, end); }) {
    return pins.close_turn(tie, now, context_tokens, end);
  } else if constexpr (TracksTurns<Pins>) {
    return pins.close_turn(tie.key, tie.ticket, now, context_tokens, end);
  } else {
    // Whether another turn used the pin is not known: losing one that was used costs less than
    // staying with a replica that fails.
    return TurnClosed{.before = bare_conversation(tie.home, 1, tie.counted_tokens),
                      .unpinned = end == TurnEnd::unpin_if_first && pins.unpin(tie.key, tie.home),
                      .remembered = false};
  }
}

}  // namespace limpet::detail
