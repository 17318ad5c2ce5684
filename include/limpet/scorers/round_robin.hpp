// SPDX-License-Identifier: Apache-2.0
//
// RoundRobin: place conversations on one replica after the other, whatever their load.
//
// A baseline: with equal replicas and equal conversations it is hard to beat, with a slow replica
// it is the worst. The turn of the wheel is the router's count of unpinned decisions
// (ScoreContext::draw), so the policy itself has no state and plan() shows what route() will do.
// Thread-safe.
#pragma once

#include <limpet/concepts.hpp>

#include <cstdint>

namespace limpet {

struct RoundRobin {
  [[nodiscard]] double score(const ReplicaLoad&, const ScoreContext& context) const noexcept {
    const std::uint64_t turn = context.draw % context.candidates;
    return static_cast<double>((context.position + context.candidates - turn) % context.candidates);
  }
};

static_assert(LoadScorer<RoundRobin>);

}  // namespace limpet
