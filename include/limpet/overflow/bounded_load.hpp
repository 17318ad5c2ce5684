// SPDX-License-Identifier: Apache-2.0
//
// BoundedLoad: no replica serves more than (1 + epsilon) times the mean of the pool.
//
// Bounded-load consistent hashing's rule, for pools whose load varies so much that no fixed
// threshold fits. With few turns in flight the bound is tight: a single busy replica among idle
// ones is over it, so calm pools leave home more often than under SpillAbove. Cost: a scan of the
// pool on every turn whose home is not idle. Stateless, thread-safe.
// Source: Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads" (2018).
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>

#include <cmath>
#include <cstdint>

namespace limpet {

struct BoundedLoad {
  double epsilon = 0.25;  // finite and > 0

  void validate() const {
    detail::require(std::isfinite(epsilon) && epsilon > 0.0, "epsilon", epsilon,
                    "the slack over the mean is finite and above 0");
  }

  [[nodiscard]] bool overloaded(const ReplicaLoad& home) const noexcept {
    return home.in_flight > 0;
  }

  [[nodiscard]] Verdict decide(const OverflowView& view) const noexcept {
    double turns = 1.0 + view.home().in_flight;  // this turn counts
    view.for_each_other([&](const ReplicaLoad& other) { turns += other.in_flight; });
    const double bound = std::ceil((1.0 + epsilon) * turns / (1.0 + view.size()));
    return view.home().in_flight < bound ? Verdict::stay : Verdict::spill;
  }
};

static_assert(OverflowRule<BoundedLoad>);

}  // namespace limpet
