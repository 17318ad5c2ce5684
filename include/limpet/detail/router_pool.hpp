// SPDX-License-Identifier: Apache-2.0
//
// Router's bodies, last part: construction, the life of replicas, readings, and the views for
// people.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/array.hpp>
#include <limpet/router.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace limpet {

namespace detail {

// A policy that can be configured wrongly says so in validate().
template <class Policy>
void validate(const Policy& policy) {
  if constexpr (requires { policy.validate(); }) policy.validate();
}

// The readings of a page that is being read: what a std::vector of them would do in observe(), at
// a third of what that costs every program to compile.
class ReadingList {
 public:
  // Must not throw through a parser that is noexcept.
  void add(const Reading& reading) noexcept {
    if (size_ == list_.size()) grow();
    if (!lost_) list_[size_++] = reading;
  }

  [[nodiscard]] bool lost() const noexcept { return lost_; }  // there was no memory for one
  [[nodiscard]] const Reading* begin() const noexcept { return list_.begin(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void grow() noexcept {
    try {
      Array<Reading> larger(2 * size_ + 1);
      for (std::size_t i = 0; i < size_; ++i) larger[i] = list_[i];
      list_ = std::move(larger);
    } catch (...) {
      lost_ = true;
    }
  }

  Array<Reading> list_;
  std::size_t size_ = 0;
  bool lost_ = false;
};

}  // namespace detail

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Router<P, S, O, M, C>::Router(P pins, S scorer, O overflow, M parser, C clock,
                              RouterOptions options)
    : pins_(std::move(pins)),
      scorer_(std::move(scorer)),
      overflow_(std::move(overflow)),
      parser_(std::move(parser)),
      clock_(std::move(clock)),
      options_(options),
      hasher_(options.secret),
      fleet_(options.live_window, options.reading_max_age),
      affinity_(options.affinity) {
  detail::validate(scorer_);
  detail::validate(overflow_);
  detail::validate(parser_);
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
ReplicaId Router<P, S, O, M, C>::add_replica(ReplicaOptions options) {
  const ReplicaId added = fleet_.add(std::move(options));
  membership_changed();
  return added;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
bool Router<P, S, O, M, C>::set_state(ReplicaId replica, ReplicaState state) {
  const bool known = fleet_.set_state(replica, state);
  membership_changed();
  return known;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
bool Router<P, S, O, M, C>::remove(ReplicaId replica) {
  const bool known = fleet_.remove(replica);
  membership_changed();
  return known;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
bool Router<P, S, O, M, C>::restarted(ReplicaId replica) {
  const bool known = fleet_.restarted(replica);
  membership_changed();
  return known;
}

// No policy is called under a lock of ours, so two changes may reach the store in the wrong order:
// whoever sees that another one came in between tells it again.
template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::membership_changed() {
  if constexpr (FollowsMembership<P>) {
    std::uint64_t seen = membership_.fetch_add(1) + 1;
    for (;;) {
      const std::vector<Member> members = fleet_.members();
      pins_.set_members(members.data(), members.size());
      const std::uint64_t latest = membership_.load();
      if (latest == seen) return;
      seen = latest;
    }
  }
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
ParseStatus Router<P, S, O, M, C>::observe(std::string_view endpoint, std::string_view page) {
  detail::ReadingList readings;
  auto collect = [&](const Reading& reading) noexcept { readings.add(reading); };
  ParseStatus status = parser_.parse(page, ReadingSink(collect));
  if (readings.lost()) status = ParseStatus::out_of_memory;
  if (status == ParseStatus::ok) {
    store_readings(endpoint, readings.begin(), readings.size());
  } else {
    bad_readings_.fetch_add(1, std::memory_order_relaxed);
  }
  return status;
}

// The sink must not throw through a parser that is noexcept.
template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
ParseStatus Router<P, S, O, M, C>::read(std::string_view page,
                                        std::vector<Reading>& readings) const {
  const std::size_t before = readings.size();
  bool lost = false;
  auto collect = [&](const Reading& reading) noexcept {
    try {
      readings.push_back(reading);
    } catch (...) {
      lost = true;
    }
  };
  const ParseStatus status = parser_.parse(page, ReadingSink(collect));
  if (!lost) return status;
  while (readings.size() > before) readings.pop_back();
  return ParseStatus::out_of_memory;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::store_readings(std::string_view endpoint, const Reading* readings,
                                           std::size_t count) {
  readings_.fetch_add(1, std::memory_order_relaxed);
  if (fleet_.observe(endpoint, readings, count, clock_.now()).restarts > 0) membership_changed();
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
void Router<P, S, O, M, C>::let_expired_go(Instant now) const {
  if constexpr (TracksTurns<P>) {
    std::vector<Conversation> gone;
    pins_.expire(now, gone);
    for (const Conversation& conversation : gone)
      fleet_.leave(conversation.home, conversation, now);
    expired_.fetch_add(gone.size(), std::memory_order_relaxed);
  }
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Snapshot Router<P, S, O, M, C>::snapshot() const {
  const Instant now = clock_.now();
  let_expired_go(now);
  Snapshot snapshot{.refused = refused_.load(),
                    .unrouted = unrouted_.load(),
                    .unpinned = unpinned_.load(),
                    .evicted = evicted_.load(),
                    .expired = expired_.load(),
                    .readings = readings_.load(),
                    .bad_readings = bad_readings_.load(),
                    .affinity = affinity() == Affinity::on};
  fleet_.snapshot(now, snapshot.replicas, needs_prefill);
  return snapshot;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
Explanation Router<P, S, O, M, C>::explain(const Turn& turn) const {
  const Instant now = clock_.now();
  Explanation explanation{.decision = plan(turn)};
  const Decision& decision = explanation.decision;
  const detail::Candidates candidates(fleet_, now, turn.exclude, ReplicaId{},
                                      detail::Draining::if_none_is_up);
  explanation.gauges_fresh = candidates.gauges_fresh();
  ScoreContext context{.gauges_fresh = candidates.gauges_fresh(),
                       .candidates = candidates.count(),
                       .draw = draws_.load(std::memory_order_relaxed),
                       .prompt_tokens = turn.prompt_tokens};
  const ReplicaId home = decision.outcome == Outcome::placed || decision.outcome == Outcome::moved
                             ? decision.previous.replica
                             : decision.home.replica;

  [[maybe_unused]] const detail::Uncached uncached = uncached_of(turn, now);
  std::vector<ReplicaSnapshot> rows;
  fleet_.snapshot(now, rows, needs_prefill);
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.id.slot < b.id.slot; });
  for (ReplicaSnapshot& row : rows) {
    ExplainedReplica replica{.name = std::move(row.name),
                             .load = fleet_.load(row.id.slot, now),
                             .reading_age = fleet_.reading_age(row.id.slot, now)};
    const bool excluded = detail::excludes(turn.exclude, row.id);
    replica.standing = row.id == decision.replica        ? Standing::chosen
                       : row.state == ReplicaState::down ? Standing::down
                       : excluded                        ? Standing::excluded
                       : candidates.contains(row.id)     ? Standing::eligible
                                                         : Standing::draining;
    replica.home = row.id == home;
    replica.overloaded = overflow_.overloaded(replica.load);
    if (candidates.contains(row.id)) {
      if constexpr (detail::NeedsPrefill<S>) context.uncached_tokens = uncached.at(row.id);
      replica.score = scorer_.score(replica.load, context);
      if constexpr (ExplainsScore<S>) replica.terms = scorer_.terms(replica.load, context);
      ++context.position;
    }
    explanation.replicas.push_back(std::move(replica));
  }
  return explanation;
}

template <PinStore P, LoadScorer S, OverflowRule O, MetricsParser M, Clock C>
std::size_t Router<P, S, O, M, C>::rebalance(std::size_t limit, Duration idle)
  requires TracksTurns<P>
{
  const Instant now = clock_.now();
  let_expired_go(now);
  struct Place {
    Member member;
    std::uint32_t pins;
  };
  std::vector<Place> places;
  for (const Member& member : fleet_.members())
    places.push_back({member, fleet_.pins(member.home.replica)});
  if (places.size() < 2) return 0;

  std::vector<IdleConversation> conversations;
  pins_.idle_since(now - idle, SIZE_MAX, conversations);
  std::size_t moved = 0;
  for (const IdleConversation& idle_one : conversations) {
    if (moved == limit) break;
    const Home left = idle_one.conversation.home;
    const auto home = std::find_if(places.begin(), places.end(),
                                   [&](const Place& place) { return place.member.home == left; });
    if (home == places.end()) continue;  // its replica is down, draining or has restarted
    const auto fewest =
        std::min_element(places.begin(), places.end(), [&](const Place& a, const Place& b) {
          if (a.pins != b.pins) return a.pins < b.pins;
          return rendezvous_weight(idle_one.key, a.member.name_hash) >
                 rendezvous_weight(idle_one.key, b.member.name_hash);
        });
    if (home->pins <= fewest->pins + 1) continue;
    const std::optional<Conversation> before =
        pins_.repin_idle(idle_one.key, left, fewest->member.home, now - idle);
    if (!before) continue;
    fleet_.leave(left, *before, now);
    fleet_.enter(fewest->member.home, *before, now);
    --home->pins;
    ++fewest->pins;
    ++moved;
  }
  return moved;
}

}  // namespace limpet
