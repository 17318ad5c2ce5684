// SPDX-License-Identifier: Apache-2.0
//
// Routing never fails half-way, so a scorer says noexcept.
// expect: the second policy is no LoadScorer
// expect: const noexcept
#include <limpet/limpet.hpp>

struct LeastTokens {
  double score(const limpet::ReplicaLoad& load, const limpet::ScoreContext&) const
#ifndef LIMPET_EXPECT_FAIL
      noexcept
#endif
  {
    return static_cast<double>(load.live_tokens);
  }
};

limpet::Router router{limpet::LocalPins{}, LeastTokens{}};
