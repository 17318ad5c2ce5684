// SPDX-License-Identifier: Apache-2.0
//
// A pool of equal replicas under a manual clock, with metrics pages that are one number: what most
// tests of the router stand on.
#pragma once

#include <limpet/clock.hpp>
#include <limpet/pins/local.hpp>
#include <limpet/router.hpp>

#include "support/test_policies.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace limpet_test {

template <class Overflow = limpet::SpillAbove, class Pins = limpet::LocalPins,
          class Scorer = limpet::WeightedLoad>
struct SmallPool {
  using Router = limpet::Router<Pins, Scorer, Overflow, NumberPage, limpet::ManualClock>;

  explicit SmallPool(std::size_t replicas, limpet::RouterOptions options = {},
                     Overflow overflow = {}, Pins pins = Pins{}, Scorer scorer = {})
      : router(std::move(pins), scorer, overflow, NumberPage{}, clock, options) {
    for (std::size_t i = 0; i < replicas; ++i) add();
  }

  // Spills from its second turn in flight on, unless the rule has a threshold of its own.
  limpet::ReplicaId add() {
    id.push_back(
        router.add_replica({.name = "gpu" + std::to_string(id.size()), .max_num_seqs = 8}));
    return id.back();
  }

  [[nodiscard]] limpet::ReplicaSnapshot row(std::size_t replica) const {
    for (const auto& row : router.snapshot().replicas) {
      if (row.id == id[replica]) return row;
    }
    return {};
  }

  [[nodiscard]] std::uint32_t in_flight(std::size_t replica) const {
    return row(replica).in_flight;
  }

  // Where the conversation is pinned; none without a current pin. A side call pins nothing, so its
  // plan shows the pin as it is.
  [[nodiscard]] limpet::ReplicaId pinned(limpet::Key key) const {
    return router.plan(limpet::Turn{.key = key, .side_call = true}).home.replica;
  }

  // Places a conversation on this replica and ends its turn.
  void settle(limpet::Key key, std::size_t replica) {
    std::vector<limpet::ReplicaId> others;
    for (std::size_t i = 0; i < id.size(); ++i) {
      if (i != replica) others.push_back(id[i]);
    }
    router.route(limpet::Turn{.key = key, .exclude = others}).finish();
  }

  limpet::ManualClock clock;
  Router router;
  std::vector<limpet::ReplicaId> id;
};

}  // namespace limpet_test
