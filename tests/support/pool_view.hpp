// SPDX-License-Identifier: Apache-2.0
//
// An OverflowView over a vector of loads, for tests of overflow rules.
#pragma once

#include <limpet/concepts.hpp>

#include <cstdint>
#include <vector>

namespace limpet_test {

// Requires: home and others outlive the view.
inline limpet::OverflowView pool_view(const limpet::ReplicaLoad& home,
                                      const std::vector<limpet::ReplicaLoad>& others) {
  return {
      home, static_cast<std::uint32_t>(others.size()), &others,
      [](const void* source, void* context, limpet::OverflowView::Visit visit) {
        for (const auto& other : *static_cast<const std::vector<limpet::ReplicaLoad>*>(source)) {
          visit(context, other);
        }
      }};
}

}  // namespace limpet_test
