// SPDX-License-Identifier: Apache-2.0
//
// PowerOfTwo: of two replicas drawn at random, the one with fewer turns in flight.
//
// Spreads almost as well as LeastInFlight without herding many routers onto one replica that they
// all believe to be idle: choose it where several routers share a pool and not their counts. The
// draw is a hash of ScoreContext::draw, so equal histories give equal decisions. Stateless,
// thread-safe.
// Source: Mitzenmacher, "The power of two choices in randomized load balancing" (2001).
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/hash.hpp>

#include <cstdint>

namespace limpet {

struct PowerOfTwo {
  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
    constexpr double not_drawn = 1e12;  // above any count of turns, below where adding one is lost
    if (context.candidates <= 2) return load.in_flight;
    const std::uint64_t mixed =
        rendezvous_weight({context.draw, context.draw}, 0x9e3779b97f4a7c15ULL);
    const std::uint64_t first = (mixed >> 32) % context.candidates;
    const std::uint64_t second =
        (first + 1 + (mixed & 0xFFFFFFFF) % (context.candidates - 1)) % context.candidates;
    const bool drawn = context.position == first || context.position == second;
    return (drawn ? 0.0 : not_drawn) + load.in_flight;
  }
};

static_assert(LoadScorer<PowerOfTwo>);

}  // namespace limpet
