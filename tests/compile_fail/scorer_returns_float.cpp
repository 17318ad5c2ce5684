// SPDX-License-Identifier: Apache-2.0
//
// A score is a double: a float is refused, with what to write.
// expect: the second policy is no LoadScorer
// expect: double score(const ReplicaLoad&, const ScoreContext&) const noexcept
#include <limpet/limpet.hpp>

#ifdef LIMPET_EXPECT_FAIL
using Score = float;
#else
using Score = double;
#endif

struct LeastTokens {
  Score score(const limpet::ReplicaLoad& load, const limpet::ScoreContext&) const noexcept {
    return static_cast<Score>(load.live_tokens);
  }
};

limpet::Router router{limpet::LocalPins{}, LeastTokens{}};
