// SPDX-License-Identifier: Apache-2.0
//
// What Router::snapshot() hands out: enough to draw a panel or to export metrics, and nothing that
// refers back to the router.
//
// Counters rise from the replica's birth; `in_flight`, `live_*` and the gauges are of the moment.
// Unknown is absent, never 0.
#pragma once

#include <limpet/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace limpet {

struct ReplicaSnapshot {
  ReplicaId id{};
  std::string name{};
  std::string endpoint{};
  std::optional<std::uint32_t> rank{};  // sent to the endpoint to choose the replica behind it
  std::string engine{};  // the label of its series on the endpoint's metrics page; empty: any
  ReplicaState state = ReplicaState::up;
  std::uint32_t max_num_seqs = 0;  // 0: unknown

  // The router's own.
  std::uint32_t in_flight = 0;  // leases alive
  std::uint64_t in_flight_tokens = 0;
  std::optional<std::uint64_t> pending_prefill_tokens{};  // absent: no policy counts it
  std::uint32_t live_conversations = 0;
  std::uint64_t live_tokens = 0;
  std::uint32_t pins = 0;    // 0 where the store only pins and does not follow turns
  std::uint64_t placed = 0;  // turns by outcome
  std::uint64_t sticky = 0;
  std::uint64_t spilled_in = 0;   // served for another home
  std::uint64_t spilled_out = 0;  // of conversations at home here, served elsewhere
  std::uint64_t moved = 0;        // of conversations that were pinned anew to this replica
  std::uint64_t balanced = 0;
  std::uint64_t client_pinned = 0;
  std::uint64_t failed = 0;  // leases that ended in fail()
  std::uint64_t restarts = 0;

  // The engine's, as of its last reading.
  std::optional<double> running{};         // requests
  std::optional<double> waiting{};         // requests
  std::optional<double> kv_usage{};        // 0..1
  std::optional<double> prefix_queries{};  // tokens since the engine started
  std::optional<double> prefix_hits{};     // tokens since the engine started
  std::optional<double> kv_capacity_tokens{};
  std::optional<double> reading_age{};  // s; absent: never read
};

struct Snapshot {
  std::vector<ReplicaSnapshot> replicas{};  // in the order they joined
  std::uint64_t refused = 0;                // turns that no replica could take
  std::uint64_t unrouted = 0;               // turns while affinity was off
  std::uint64_t unpinned = 0;      // pins removed because a conversation's first turn failed
  std::uint64_t evicted = 0;       // pins that left to make room
  std::uint64_t expired = 0;       // pins past their time to live
  std::uint64_t readings = 0;      // metrics pages that parsed
  std::uint64_t bad_readings = 0;  // metrics pages that did not
  bool affinity = true;
};

}  // namespace limpet
