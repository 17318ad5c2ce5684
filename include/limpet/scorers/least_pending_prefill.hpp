// SPDX-License-Identifier: Apache-2.0
//
// LeastPendingPrefill: place a conversation where the fewest prompt tokens are to be read before it
// can answer, its own among them.
//
// Use it where prompts are long and differ in length: a turn in flight then says little of the wait
// it causes. It sees neither decoding nor conversations that pause, and knows of the end of a
// prefill only by Lease::first_byte(); who does not call that gets all turns in flight, by their
// uncached tokens. Stateless, thread-safe.
// Source: the prefill half of NVIDIA Dynamo's router cost.
#pragma once

#include <limpet/concepts.hpp>

namespace limpet {

struct LeastPendingPrefill {
  static constexpr bool needs_prefill = true;

  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
    return static_cast<double>(load.pending_prefill_tokens) +
           static_cast<double>(context.uncached_tokens);
  }

  [[nodiscard]] ScoreTerms terms(const ReplicaLoad& load,
                                 const ScoreContext& context) const noexcept {
    return {{{"pending_prefill_tokens", static_cast<double>(load.pending_prefill_tokens)},
             {"uncached_tokens", static_cast<double>(context.uncached_tokens)},
             {},
             {}}};
  }
};

static_assert(ExplainsScore<LeastPendingPrefill>);

}  // namespace limpet
