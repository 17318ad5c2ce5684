// SPDX-License-Identifier: Apache-2.0
//
// The replicas that a turn may choose from, and the two ways of choosing one: fewest turns in
// flight, or best score.
//
// A survey of the pool (one pass over its first cache lines) says how many there are; draining
// replicas stand in only where none is up. Nothing is copied or allocated: choosing is another
// pass. Reads without locks; the booking that follows checks that what was seen still holds.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/prefill.hpp>
#include <limpet/fleet.hpp>
#include <limpet/hash.hpp>
#include <limpet/types.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace limpet::detail {

struct Choice {
  ReplicaId replica{};
  std::uint32_t in_flight = 0;

  [[nodiscard]] explicit operator bool() const noexcept { return replica.has_value(); }
};

// Whether a turn must not go to this replica.
[[nodiscard]] inline bool excludes(std::span<const ReplicaId> exclude, ReplicaId replica) noexcept {
  for (std::size_t i = 0; i < exclude.size(); ++i) {
    if (exclude[i] == replica) return true;
  }
  return false;
}

enum class Draining : std::uint8_t { never, if_none_is_up };

class Candidates {
 public:
  Candidates(const Fleet& fleet, Instant now, std::span<const ReplicaId> exclude, ReplicaId skip,
             Draining draining) noexcept
      : fleet_(fleet), now_(now), exclude_(exclude), skip_(skip) {
    std::uint32_t up = 0;
    std::uint32_t standing_in = 0;
    bool standing_in_fresh = true;
    const std::uint32_t rows = fleet.size();
    for (std::uint32_t i = 0; i < rows; ++i) {
      const ReplicaId id = fleet.id_of(i);
      const ReplicaState state = fleet.state(id);
      if (state > ReplicaState::draining) continue;
      const bool is_up = state == ReplicaState::up;
      if (!fleet.reading_fresh(i, now)) (is_up ? gauges_fresh_ : standing_in_fresh) = false;
      if (!left_out(id)) ++(is_up ? up : standing_in);
    }
    if (up == 0 && draining == Draining::if_none_is_up) {
      tier_ = ReplicaState::draining;
      count_ = standing_in;
      gauges_fresh_ = gauges_fresh_ && standing_in_fresh;
    } else {
      count_ = up;
    }
  }

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

  // Every replica that is up has a fresh reading, the ones that were left out too; so has every
  // draining one where those stand in.
  [[nodiscard]] bool gauges_fresh() const noexcept { return gauges_fresh_; }

  [[nodiscard]] bool contains(ReplicaId id) const noexcept {
    return fleet_.state(id) == tier_ && !left_out(id);
  }

  template <class F>
  void for_each(F visit) const noexcept {
    const std::uint32_t rows = fleet_.size();
    for (std::uint32_t i = 0; i < rows; ++i) {
      if (contains(fleet_.id_of(i))) visit(fleet_.load(i, now_));
    }
  }

  // The same, as an OverflowView asks for it. Requires: `candidates` is such.
  static void show(const void* candidates, void* context, OverflowView::Visit visit) noexcept {
    static_cast<const Candidates*>(candidates)->for_each([&](const ReplicaLoad& load) {
      visit(context, load);
    });
  }

  // Returns: the one with the fewest turns in flight; among equals, `rotation` goes round.
  [[nodiscard]] Choice least_in_flight(std::uint64_t rotation) const noexcept {
    std::uint32_t least = UINT32_MAX;
    std::uint64_t equals = 0;
    for_each([&](const ReplicaLoad& load) {
      if (load.in_flight < least) {
        least = load.in_flight;
        equals = 0;
      }
      if (load.in_flight == least) ++equals;
    });
    if (equals == 0) return {};
    std::uint64_t skip = rotation % equals;
    Choice chosen;
    for_each([&](const ReplicaLoad& load) {
      if (chosen || load.in_flight != least) return;
      if (skip-- == 0) chosen = {load.replica, load.in_flight};
    });
    return chosen;
  }

  // Returns: the one with the lowest score at three decimals; among equals the one with fewer live
  // conversations, then the rendezvous choice, so that a burst spreads and routers that share
  // nothing agree.
  template <LoadScorer Scorer>
  [[nodiscard]] Choice best(const Scorer& scorer, ScoreContext context, KeyHash key,
                            const Uncached& uncached = {}) const noexcept {
    context.candidates = count_;
    context.gauges_fresh = gauges_fresh_;
    context.position = 0;
    Choice chosen;
    double lowest = 0.0;
    std::uint32_t fewest = 0;
    for_each([&](const ReplicaLoad& load) {
      if constexpr (NeedsPrefill<Scorer>) context.uncached_tokens = uncached.at(load.replica);
      const double score = rounded(scorer.score(load, context));
      ++context.position;
      const bool better =
          !chosen || score < lowest ||
          (score == lowest && (load.live_conversations < fewest ||
                               (load.live_conversations == fewest &&
                                weight(key, load.replica) > weight(key, chosen.replica))));
      if (!better) return;
      chosen = {load.replica, load.in_flight};
      lowest = score;
      fewest = load.live_conversations;
    });
    return chosen;
  }

  // Scores are compared at three decimals: noise of the gauges must not outweigh a whole turn's
  // tie-break.
  [[nodiscard]] static double rounded(double score) noexcept {
    return std::nearbyint(score * 1000.0);
  }

 private:
  [[nodiscard]] bool left_out(ReplicaId id) const noexcept {
    return id == skip_ || excludes(exclude_, id);
  }

  [[nodiscard]] std::uint64_t weight(KeyHash key, ReplicaId id) const noexcept {
    return rendezvous_weight(key, fleet_.slot(id.slot).name_hash.load(std::memory_order_relaxed));
  }

  const Fleet& fleet_;
  Instant now_;
  std::span<const ReplicaId> exclude_;
  ReplicaId skip_;
  ReplicaState tier_ = ReplicaState::up;
  std::uint32_t count_ = 0;
  bool gauges_fresh_ = true;
};

}  // namespace limpet::detail
