// SPDX-License-Identifier: Apache-2.0
//
// Where template arguments are spelt out the compiler names concept and expression.
// expect: OverflowRule
// expect: rule.decide(view)
#include <limpet/limpet.hpp>

struct AboveTen {
  bool overloaded(const limpet::ReplicaLoad& home) const noexcept { return home.in_flight > 10; }
#ifndef LIMPET_EXPECT_FAIL
  limpet::Verdict decide(const limpet::OverflowView&) const noexcept {
    return limpet::Verdict::spill;
  }
#endif
};

limpet::Router<limpet::LocalPins, limpet::WeightedLoad, AboveTen> router;
