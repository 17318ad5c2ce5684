// SPDX-License-Identifier: Apache-2.0
//
// WeightedLoad: the default placement score, a weighted sum of turns in flight, live conversations
// and, if wanted, KV cache use.
//
// By default the router's own counts alone: turns in flight, and live conversations, which stand for
// the load that is about to come back, at a quarter, so that they break ties and those that have
// ended never outweigh a turn that is being served. Stateless, thread-safe.
// Source of the weights: include/limpet/sim/README.md, "Which rule is the default". The published
// rule, 1, 8, 1 and the gauge as it was read, is presets::published().
//
// With kv_usage_weight > 0 the engine's gauge counts while every replica that is up has a fresh
// reading (comparing a known with an unknown would send everything to the unknown), and shrinks
// with the turns that have left since it was read: on a real vLLM 0.32.0 a gauge two seconds old
// still counted a turn that had ended, and two conversations were placed on one of two idle ranks.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>

#include <algorithm>
#include <cmath>

namespace limpet {

struct WeightedLoad {
  double in_flight_weight = 1.0;  // a turn in flight; all three finite and >= 0
  double kv_usage_weight = 0.0;   // a full KV cache
  double live_weight = 0.25;      // a live conversation
  bool scale_gauge = true;        // false: the gauge as it was read, as the published rule did

  void validate() const {
    check("in_flight_weight", in_flight_weight);
    check("kv_usage_weight", kv_usage_weight);
    check("live_weight", live_weight);
  }

  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
    return in_flight_weight * load.in_flight + kv_usage_weight * gauge(load, context) +
           live_weight * load.live_conversations;
  }

  [[nodiscard]] ScoreTerms terms(const ReplicaLoad& load,
                                 const ScoreContext& context) const noexcept {
    return {{{"in_flight", in_flight_weight * load.in_flight},
             {"kv_usage", kv_usage_weight * gauge(load, context)},
             {"live_conversations", live_weight * load.live_conversations},
             {}}};
  }

 private:
  static void check(const char* field, double weight) {
    detail::require(std::isfinite(weight) && weight >= 0.0, field, weight,
                    "a weight is finite and not negative");
  }

  [[nodiscard]] double gauge(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
    if (!context.gauges_fresh) return 0.0;
    if (!scale_gauge || load.in_flight_at_reading == 0) return load.kv_usage;
    return load.kv_usage *
           std::min(1.0, static_cast<double>(load.in_flight) / load.in_flight_at_reading);
  }
};

static_assert(ExplainsScore<WeightedLoad>);

}  // namespace limpet
