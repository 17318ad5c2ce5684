// SPDX-License-Identifier: Apache-2.0
//
// What a fleet does without Limpet: the balancer inside vLLM, in its three historical forms.
//
// With data parallelism vLLM's own front end picks a rank for every request, from counts that the
// engines report through a coordinator (DPLBAsyncMPClient.get_core_engine_for_request and
// DPCoordinator in vllm/v1/engine, read in July 2026). One API server is assumed. O(replicas) a
// turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/types.hpp>

namespace limpet::sim {

// Mid 2026 on (vllm-project/vllm #47420 and #49204; 0.32.0 has it). Own turns in flight or what the
// coordinator says, whichever is more; a queue counts more the fuller the cache; the scan starts
// one rank later each time, so that ties turn a conversation round the ranks.
struct VllmBalancer : FrontEndBase {
  static constexpr bool listens_to_counts = true;
  static constexpr bool inside_server = true;

  void start(std::span<const EngineProfile> fleet) {
    in_flight.assign(fleet.size(), 0);
    seen.assign(fleet.size(), {});
  }

  [[nodiscard]] Choice choose(const Arrival&, double) {
    const std::size_t n = seen.size();
    std::size_t best = first;
    double best_score = score(first);
    for (std::size_t i = 1; i < n; ++i) {
      const std::size_t rank = (first + i) % n;
      if (score(rank) < best_score) best_score = score(best = rank);
    }
    first = (first + 1) % n;
    ++seen[best].waiting;  // until the coordinator says otherwise
    ++in_flight[best];
    return {best};
  }

  void finished(std::uint64_t, std::size_t replica, const Usage&, double) { --in_flight[replica]; }
  void counted(std::span<const EngineCounts> counts, double) {
    seen.assign(counts.begin(), counts.end());
  }

  [[nodiscard]] double score(std::size_t rank) const noexcept {
    const EngineCounts& counts = seen[rank];
    const double load = std::max(in_flight[rank], counts.waiting + counts.running);
    return load + 6.0 * counts.waiting * std::max(0.0, counts.kv_usage - 0.5);
  }

  std::vector<std::uint32_t> in_flight;
  std::vector<EngineCounts> seen;
  std::size_t first = 0;
};

// Until then: 4 x waiting + running, the first rank winning every tie.
struct VllmBalancer4w : FrontEndBase {
  static constexpr bool listens_to_counts = true;
  static constexpr bool inside_server = true;

  void start(std::span<const EngineProfile> fleet) { seen.assign(fleet.size(), {}); }

  [[nodiscard]] Choice choose(const Arrival&, double) {
    const auto less = [](const EngineCounts& a, const EngineCounts& b) {
      return 4 * a.waiting + a.running < 4 * b.waiting + b.running;
    };
    const auto best = std::min_element(seen.begin(), seen.end(), less);
    ++best->waiting;
    return {static_cast<std::size_t>(best - seen.begin())};
  }

  void counted(std::span<const EngineCounts> counts, double) {
    seen.assign(counts.begin(), counts.end());
  }

  std::vector<EngineCounts> seen;
};

// 0.14 to mid 2026, dense models (#30739 to #49204): the engines never published their counts, so
// only what the front end added itself was seen, and the rule above went round the ranks.
struct VllmBalancerBlind : VllmBalancer4w {
  static constexpr bool listens_to_counts = false;
};

static_assert(FrontEnd<VllmBalancer>);
static_assert(FrontEnd<VllmBalancer4w>);
static_assert(FrontEnd<VllmBalancerBlind>);

}  // namespace limpet::sim
