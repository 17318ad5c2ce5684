// SPDX-License-Identifier: Apache-2.0
//
// TokensTimesBatch: place a conversation where the product of its uncached tokens and the batch it
// would join, itself counted, is smallest.
//
// It weighs what is cached against how busy a replica is without a weight to tune, since one would
// cancel out in the comparison. Only where a conversation's history is, its parent's home, do the
// tokens differ; without a parent it is LeastInFlight. A turn whose length is not known counts as
// one token, so that the batch decides. Stateless, thread-safe.
// Source: Zhang et al., "LMetric: Simple is Better - Multiplication May Be All You Need for LLM
// Request Scheduling" (arXiv 2603.15202, 2026): new prefill tokens x batch size.
#pragma once

#include <limpet/concepts.hpp>

#include <algorithm>
#include <cstdint>

namespace limpet {

struct TokensTimesBatch {
  static constexpr bool needs_prefill = true;

  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
    return static_cast<double>(std::max<std::uint64_t>(context.uncached_tokens, 1)) *
           (1.0 + load.in_flight);
  }
};

static_assert(LoadScorer<TokensTimesBatch>);

}  // namespace limpet
