// SPDX-License-Identifier: Apache-2.0
//
// An overflow rule has two steps.
// expect: the third policy is no OverflowRule
// expect: Verdict decide(const OverflowView&) const noexcept
#include <limpet/limpet.hpp>

struct AboveTen {
  bool overloaded(const limpet::ReplicaLoad& home) const noexcept { return home.in_flight > 10; }
#ifndef LIMPET_EXPECT_FAIL
  limpet::Verdict decide(const limpet::OverflowView&) const noexcept {
    return limpet::Verdict::spill;
  }
#endif
};

limpet::Router router{limpet::LocalPins{}, limpet::WeightedLoad{}, AboveTen{}};
