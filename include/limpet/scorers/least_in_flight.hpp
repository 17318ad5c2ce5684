// SPDX-License-Identifier: Apache-2.0
//
// LeastInFlight: place a conversation where the fewest of our turns are in flight.
//
// The plainest rule that adapts to slow replicas, and needs no metrics. It does not see
// conversations that pause between turns, so several can gather on one replica while they all wait
// for tools. Stateless, thread-safe.
#pragma once

#include <limpet/concepts.hpp>

namespace limpet {

struct LeastInFlight {
  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext&) const noexcept {
    return load.in_flight;
  }
};

static_assert(LoadScorer<LeastInFlight>);

}  // namespace limpet
