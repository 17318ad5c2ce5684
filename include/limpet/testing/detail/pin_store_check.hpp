// SPDX-License-Identifier: Apache-2.0
//
// Random operations on a pin store, each compared with what the laws say must come of it. The
// expected pins are a std::map; keys are few, so that operations meet. Not thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/testing/detail/cases.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace limpet::testing::detail {

template <PinStore Pins>
class PinStoreCheck {
 public:
  PinStoreCheck(Pins& store, std::uint64_t seed) : store_(store), random_(seed), seed_(seed) {}

  [[nodiscard]] std::vector<std::string> run() {
    if constexpr (FollowsMembership<Pins>) {
      std::array<Member, homes.size()> members;
      for (std::size_t i = 0; i < homes.size(); ++i) members[i] = {homes[i], random_()};
      store_.set_members(members.data(), members.size());
    }
    // A store that knows the home of a key which nobody pinned chooses by itself.
    chooses_ = FollowsMembership<Pins> && store_.find(key_at(0), now_).has_value();
    for (step_ = 0; step_ < 5000 && found_.size() < 20; ++step_) {
      now_ += std::chrono::microseconds(random_() % 100);
      const KeyHash key = key_at(random_() % 12);
      const std::optional<Home> before = store_.find(key, now_);
      if (chooses_) {
        expect("found", before && std::count(homes.begin(), homes.end(), *before) == 1,
               "find returns none of the members");
      } else {
        expect("found", before == last_winner(key), "find does not return the last winner");
      }
      operate(key, before);
    }
    return std::move(found_);
  }

 private:
  // Two of them are one replica before and after a restart.
  static constexpr std::array<Home, 4> homes{
      {{{0, 0}, 0}, {{1, 0}, 7}, {{1, 0}, 8}, {{0xFFFE, 0xFFFF}, 0xFFFFFFFF}}};

  // Keys that differ in one half only.
  static KeyHash key_at(std::uint64_t i) noexcept {
    return i % 2 == 0 ? KeyHash{.hi = i, .lo = 1} : KeyHash{.hi = 1, .lo = i};
  }

  Home some_home() noexcept { return homes[random_() % homes.size()]; }

  [[nodiscard]] std::optional<Home> last_winner(KeyHash key) const {
    const auto found = expected_.find({key.hi, key.lo});
    return found == expected_.end() ? std::nullopt : std::optional(found->second);
  }

  void operate(KeyHash key, std::optional<Home> before) {
    const Home home = some_home();
    // The right guess is rarer than the wrong ones, so it is made on purpose.
    const Home guess = before && random_() % 2 == 0 ? *before : some_home();
    switch (random_() % (TracksTurns<Pins> ? 6 : 3)) {
      case 0:
        wrote("first pin wins", key, before, before.value_or(home), store_.pin(key, home, now_));
        break;
      case 1:
        wrote("compare and swap", key, before, before.value_or(guess) == guess ? home : *before,
              store_.repin(key, guess, home, now_));
        break;
      case 2: {
        const bool removed = store_.unpin(key, guess);
        if (chooses_) break;
        expect("conditional unpin", removed == (before == guess),
               "unpin does not say whether the pin was the expected one");
        if (before == guess) expected_.erase({key.hi, key.lo});
        break;
      }
      default:
        if constexpr (TracksTurns<Pins>) operate_on_turns(key, before, home, guess);
    }
  }

  void operate_on_turns(KeyHash key, std::optional<Home> before, Home home, Home guess) {
    const std::optional<Conversation> seen = store_.peek(key, now_);
    expect("peek", seen.has_value() == before.has_value() && (!seen || seen->home == *before),
           "peek does not find what find finds");
    switch (random_() % 3) {
      case 0: {
        const std::optional<TurnOpened> opened = store_.open_turn(key, now_, 0);
        expect(
            "open_turn",
            opened.has_value() == before.has_value() && (!opened || opened->before.home == *before),
            "open_turn does not find what find finds");
        if (opened) end(key, opened->ticket);
        break;
      }
      case 1: {
        const TurnOpened opened = store_.pin_turn(key, home, now_, 0);
        wrote("pin_turn", key, before, before.value_or(home), opened.before.home);
        end(key, opened.ticket);
        break;
      }
      default: {
        if (chooses_) break;
        const bool swapped = store_.repin_conversation(key, guess, home, now_).has_value();
        expect("repin_conversation", swapped == (before == guess),
               "repin_conversation does not say whether the pin was the expected one");
        if (before == guess) expected_[{key.hi, key.lo}] = home;
      }
    }
  }

  void end(KeyHash key, PinTicket ticket) {
    static_cast<void>(store_.close_turn(key, ticket, now_, 0, TurnEnd::keep_pin));
  }

  // A store that chooses by itself must at least stay with its choice.
  void wrote(const char* law, KeyHash key, std::optional<Home> before, Home should, Home winner) {
    expect(law, winner == (chooses_ ? *before : should), "the write returns another winner");
    if (!chooses_) expected_[{key.hi, key.lo}] = should;
  }

  void expect(const char* law, bool holds, const char* violation) {
    if (holds) return;
    found_.push_back(std::string(law) + ": " + violation + " (operation " + std::to_string(step_) +
                     " of seed " + std::to_string(seed_) + ")");
  }

  Pins& store_;
  Random random_;
  std::uint64_t seed_;
  bool chooses_ = false;
  int step_ = 0;
  Instant now_{};
  std::map<std::pair<std::uint64_t, std::uint64_t>, Home> expected_;
  std::vector<std::string> found_;
};

}  // namespace limpet::testing::detail
