// SPDX-License-Identifier: Apache-2.0
//
// NeverSpill: a conversation stays at home whatever the load.
//
// The most prefix hits that routing can give, at the price of queues that nobody leaves: the upper
// bound to compare with. Stateless, thread-safe, free.
#pragma once

#include <limpet/concepts.hpp>

namespace limpet {

struct NeverSpill {
  [[nodiscard]] bool overloaded(const ReplicaLoad&) const noexcept { return false; }
  [[nodiscard]] Verdict decide(const OverflowView&) const noexcept { return Verdict::stay; }
};

static_assert(OverflowRule<NeverSpill>);

}  // namespace limpet
