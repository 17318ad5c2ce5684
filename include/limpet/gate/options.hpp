// SPDX-License-Identifier: Apache-2.0
//
// GateOptions: how many conversations the gate lets in, how long one may stay and how long another
// must wait. README.md tells each option's effect with figures.
//
// Plain values, checked when a gate is made.
#pragma once

#include <limpet/detail/check.hpp>
#include <limpet/types.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace limpet {

struct GateOptions {
  // Share of a replica's KV cache that the conversations let in may fill, > 0 and <= 2. Under 1,
  // since what is cached and not held by a running turn goes first when space runs out.
  double theta = 0.95;

  // The wait to aim at. For each who has waited that long whoever ends a turn first makes way, and
  // nobody who came later gets in first. Long: more output, for a longer wait of those who wait.
  // Short: the reverse. With too many conversations for it nobody can keep it.
  Duration max_wait = std::chrono::seconds(60);

  // Turns that a conversation can count on in one stay, >= 1: nobody makes way before, and while
  // others wait the growth of so many turns is kept free. A history is read once a stay, so two turns
  // a stay halve what is read. With 20 and long sessions fewer than a twentieth of the turns wait.
  std::uint32_t min_turns = 2;

  // How long a conversation may keep its place between two turns while others wait, at most: what is
  // usual in this pool is learnt; a conversation larger than usual may for longer, in proportion.
  // Tools answer in seconds; a place that is held for longer than a history takes to be read again is
  // held in vain.
  Duration grace = std::chrono::milliseconds(2'000);

  // After this wait a turn is refused; zero: never. And how many turns may wait; those beyond are
  // refused at once. Refusing clearly beats a client's own timeout.
  Duration deadline = std::chrono::seconds(600);
  std::size_t max_waiting = 1'024;

  // What every prompt begins with, tokens: cached once a replica, not once a conversation. Nothing:
  // learnt from what the engines reuse of conversations they have not seen before.
  std::optional<std::uint64_t> shared_prefix_tokens{};

  // For replicas whose capacity is neither configured nor on their metrics page; 0: unknown, and
  // such a replica lets everyone in.
  std::uint64_t kv_capacity_tokens = 0;

  // Lets each replica's theta follow what it has to read again of conversations that never left:
  // down while that is more than a tenth, up while it is less than a fiftieth and others wait. Where
  // no capacity is known, what is in use when a tenth is lost becomes the first guess.
  bool automatic = false;

  void validate() const {
    detail::require(std::isfinite(theta) && theta > 0.0 && theta <= 2.0, "theta", theta,
                    "a share of the KV cache above 0 and at most 2");
    detail::require(max_wait >= Duration::zero(), "max_wait", max_wait.count(),
                    "a wait is not negative");
    detail::require(min_turns >= 1, "min_turns", min_turns, "a stay has a turn at least");
    detail::require(grace >= Duration::zero(), "grace", grace.count(), "a time is not negative");
    detail::require(deadline >= Duration::zero(), "deadline", deadline.count(),
                    "a wait is not negative");
  }
};

}  // namespace limpet
