// SPDX-License-Identifier: Apache-2.0
//
// Admission: the gate's rule. Who comes in, who waits, who makes way; told of the time, calling
// nobody.
//
// A conversation that is inside passes at once. Another comes in where it fits, past idle ones whose
// grace is over if need be; else it waits in one queue for the whole pool. A smaller one may come in
// before the first of the queue until that has waited max_wait; from then on nobody may, and whoever
// has had min_turns and ends a turn makes way for it, one at a time on each replica; where one is
// not enough, those who have stayed longest. What somebody waited for a place that a pause cost it
// early counts as waited in the queue. Costs: O(1) for a turn from inside; else a scan of
// replicas, of those idle and of those who wait. Not thread-safe: the gate locks.
#pragma once

#include <limpet/gate/detail/places.hpp>
#include <limpet/gate/options.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace limpet::detail {

struct Waiter {
  std::uint64_t id = 0;
  KeyHash key{};
  std::uint64_t prompt_tokens = 0;
  ReplicaId home{};  // where it is pinned; none: nowhere, or the cache is gone
  Instant since{};
  Duration carried{};                // counts as waited too, at most max_wait; set by wait()
  std::vector<ReplicaId> exclude{};  // not these: they just failed it. Forgotten by waiting
  bool made_way = false;             // residents have been told to yield for it
};

struct Admitted {
  std::uint64_t id = 0;
  ReplicaId replica{};
  std::uint64_t stay = 0;
};

class Admission {
 public:
  explicit Admission(const GateOptions& options) : options_(options), places_(options) {}

  [[nodiscard]] Places& places() noexcept { return places_; }
  [[nodiscard]] const Places& places() const noexcept { return places_; }
  [[nodiscard]] const std::list<Waiter>& queue() const noexcept { return queue_; }
  [[nodiscard]] std::uint64_t reusable_tokens() const noexcept { return reusable_; }
  [[nodiscard]] std::uint64_t lost_tokens() const noexcept { return lost_; }
  [[nodiscard]] bool is_full() const noexcept { return queue_.size() >= options_.max_waiting; }

  // Returns: admitted, where the turn's conversation is inside and still fits there. `home` is where
  // the router has it pinned: one that is pinned elsewhere by now is not inside any more.
  [[nodiscard]] std::optional<Admitted> pass(const Waiter& turn, Instant now) {
    Resident* const resident = places_.find(turn.key);
    if (resident == nullptr) return std::nullopt;
    Place& place = places_.at(resident->replica);
    if (resident->in_flight > 0) return begin(turn, *resident, now);
    const std::uint64_t need = places_.learnt().need_of(turn.prompt_tokens);
    const std::uint64_t grown = need - std::min(need, resident->reserved);
    const bool stays = turn.home == resident->replica && !(resident->yields && !queue_.empty()) &&
                       (places_.fits(place, {grown}) || place.residents == 1 ||
                        places_.make_room(place, {grown}, now, turn.key));
    if (!stays) {
      places_.let_go(turn.key);
      return std::nullopt;
    }
    places_.resize(*resident, need);
    return begin(turn, *resident, now);
  }

  // Returns: admitted, where its conversation is inside by now or there is room for it, if possible
  // on `preferred` (the router's choice).
  [[nodiscard]] std::optional<Admitted> admit(const Waiter& turn, ReplicaId preferred,
                                              Instant now) {
    if (Resident* const inside = places_.find(turn.key)) return begin(turn, *inside, now);
    return come_in(turn, need_of(turn), preferred, now);
  }

  // Whether a turn that has just come may be let in before those who wait.
  [[nodiscard]] bool may_overtake(Instant now) const noexcept {
    return queue_.empty() || now < urgent_from();
  }

  void wait(Waiter turn) {
    const std::uint64_t id = turn.id;
    turn.exclude.clear();
    turn.carried = places_.carried(turn.key);
    const auto later = std::find_if(queue_.begin(), queue_.end(), [&](const Waiter& other) {
      return counted_from(other) > counted_from(turn);
    });
    where_.emplace(id, queue_.insert(later, std::move(turn)));
  }

  // Returns: whether it was waiting.
  bool abandon(std::uint64_t id) {
    const auto found = where_.find(id);
    if (found == where_.end()) return false;
    queue_.erase(found->second);
    where_.erase(found);
    return true;
  }

  // A turn of that stay has ended. `usage`: where it was answered, what the engine said of it, with
  // prompt_tokens 0 where it said nothing.
  void leave(const Waiter& turn, std::uint64_t stay, std::optional<Usage> usage, bool first_ever,
             Instant now) {
    const KeyHash key = turn.key;
    Resident* const resident = places_.find(key);
    const bool same = resident != nullptr && resident->stay == stay;
    if (usage) {
      const std::uint64_t before = same ? resident->context : 0;
      places_.learnt().learn(*usage, before, first_ever);
      if (usage->prompt_tokens == 0) usage = places_.learnt().guess(turn.prompt_tokens);
      if (same) told(*resident, *usage, before);
    }
    if (!same) return;
    if (usage && resident->in_flight == 1)
      places_.learnt().learn_turn(now - resident->busy_since, resident->turns == 1);
    places_.end_turn(key, *resident, now);
    if (resident->in_flight > 0) return;
    const Place& place = places_.at(resident->replica);
    const bool overgrown = place.residents > 1 && !places_.fits(place, {});
    if (resident->context == 0 || overgrown) {  // it holds no cache, or more than there is room for
      places_.let_go(key);
    }
  }

  // Effects: lets in whoever may come in now, in order.
  void pump(Instant now, std::vector<Admitted>& admitted) {
    while (!queue_.empty()) {
      auto next = queue_.begin();
      auto let_in = admit(*next, next->home, now);
      if (!let_in && now >= urgent_from()) {
        Need urgent = need_of(*next);
        urgent.urgent = true;
        let_in = come_in(*next, urgent, next->home, now);
        if (!let_in) {
          make_way(now);
          let_in = come_in(*next, urgent, next->home, now);
        }
        if (!let_in) return;
      }
      while (!let_in && ++next != queue_.end()) let_in = admit(*next, next->home, now);
      if (!let_in) return;
      admitted.push_back(*let_in);
      const KeyHash key = next->key;
      abandon(next->id);
      // Further turns of that conversation go with it.
      for (auto other = queue_.begin(); other != queue_.end();) {
        const Waiter waiter = *other++;
        if (waiter.key != key) continue;
        admitted.push_back(begin(waiter, *places_.find(key), now));
        abandon(waiter.id);
      }
    }
  }

  // Of whoever has waited longest. Requires: somebody waits.
  [[nodiscard]] Instant waiting_since() const noexcept {
    const auto earlier = [](const Waiter& a, const Waiter& b) { return a.since < b.since; };
    return std::min_element(queue_.begin(), queue_.end(), earlier)->since;
  }

  // Returns: those whose deadline has come; they wait no more.
  [[nodiscard]] std::vector<std::uint64_t> expire(Instant now) {
    std::vector<std::uint64_t> gone;
    if (options_.deadline == Duration::zero()) return gone;
    for (const Waiter& turn : queue_) {
      if (now - turn.since >= options_.deadline) gone.push_back(turn.id);
    }
    for (const std::uint64_t id : gone) abandon(id);
    return gone;
  }

  // When, after `now`, time alone may change something: a grace that ends, a first one that gets
  // urgent, a deadline. Instant::max(): nothing will.
  [[nodiscard]] Instant wake_at(Instant now) const noexcept {
    if (queue_.empty()) return Instant::max();
    Instant at = Instant::max();
    const auto consider = [&](Instant when) {
      if (when > now) at = std::min(at, when);
    };
    consider(urgent_from());
    if (options_.deadline > Duration::zero()) consider(waiting_since() + options_.deadline);
    const Need need{.urgent = now >= urgent_from()};
    for (const KeyHash key : places_.idle())
      consider(places_.may_go_from(places_.residents().at(key), need));
    return at;
  }

 private:
  [[nodiscard]] static Instant counted_from(const Waiter& turn) noexcept {
    return turn.since - turn.carried;
  }

  [[nodiscard]] Instant urgent_from() const noexcept {
    const Instant since = counted_from(queue_.front());
    return options_.max_wait > Instant::max() - since ? Instant::max() : since + options_.max_wait;
  }

  // Whoever comes in while others wait can count on min_turns turns: the growth of all there for so
  // long is kept free, else those inside push each other out as they grow.
  [[nodiscard]] Need need_of(const Waiter& turn) const noexcept {
    const std::uint64_t turns = queue_.empty() ? 0 : options_.min_turns - 1;
    return {places_.learnt().need_of(turn.prompt_tokens), turns * places_.learnt().growth()};
  }

  [[nodiscard]] std::optional<Admitted> come_in(const Waiter& turn, Need need, ReplicaId preferred,
                                                Instant now) {
    const auto replica = places_.room_for(need, preferred, turn.exclude, now);
    if (!replica) return std::nullopt;
    return begin(turn, places_.admit(turn.key, *replica, need.tokens, now - turn.since, now), now);
  }

  [[nodiscard]] Admitted begin(const Waiter& turn, Resident& resident, Instant now) noexcept {
    places_.begin_turn(resident, now);
    return {turn.id, resident.replica, resident.stay};
  }

  // For each who has waited max_wait, where one that leaves is not enough, several are told to yield.
  void make_way(Instant now) {
    const bool in_vain = std::none_of(places_.residents().begin(), places_.residents().end(),
                                      [](const auto& resident) { return resident.second.yields; });
    if (in_vain) queue_.front().made_way = false;  // it has grown, or what left was taken
    for (Waiter& waiter : queue_) {
      if (now - counted_from(waiter) < options_.max_wait) return;
      if (!waiter.made_way) waiter.made_way = make_way_for(waiter);
    }
  }

  // Nobody, where one is enough: whoever ends a turn first makes way. Else those who have stayed
  // longest, on the first replica where they are enough. Returns: whether there is one.
  bool make_way_for(const Waiter& turn) {
    const Need need = need_of(turn);
    std::vector<std::pair<Instant, KeyHash>> by_age;
    for (const auto& [key, resident] : places_.residents()) {
      const Place& place = places_.at(resident.replica);
      if (!place.takes_new || resident.yields || resident.turns < options_.min_turns) continue;
      if (places_.fits(place, need, {resident.reserved, 1})) return true;
      by_age.emplace_back(resident.since, key);
    }
    std::sort(by_age.begin(), by_age.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.first, a.second.hi, a.second.lo) <
             std::tuple(b.first, b.second.hi, b.second.lo);
    });
    std::unordered_map<std::uint16_t, Freed> freed;
    for (auto last = by_age.begin(); last != by_age.end(); ++last) {
      const ReplicaId replica = places_.find(last->second)->replica;
      Freed& here = freed[replica.slot];
      here.tokens += places_.find(last->second)->reserved;
      ++here.residents;
      if (!places_.fits(places_.at(replica), need, here)) continue;
      for (auto one = by_age.begin(); one <= last; ++one) {
        Resident& resident = *places_.find(one->second);
        if (resident.replica == replica) resident.yields = true;
      }
      return true;
    }
    return false;
  }

  // The engine has told of a resident's turn.
  void told(Resident& resident, const Usage& usage, std::uint64_t before) {
    resident.context = usage.prompt_tokens + usage.completion_tokens;
    places_.resize(resident, places_.learnt().own(static_cast<double>(resident.context)));
    if (before < 256 || !usage.cached_tokens) return;
    const std::uint64_t reusable = std::min(before, usage.prompt_tokens);
    const std::uint64_t lost = reusable - std::min(reusable, *usage.cached_tokens);
    lost_ += lost >= 256 ? lost : 0;  // less than that is the last blocks, never whole
    reusable_ += reusable;
    places_.judge(places_.at(resident.replica), reusable, lost >= 256 ? lost : 0, !queue_.empty());
  }

  const GateOptions& options_;
  Places places_;
  std::list<Waiter> queue_;
  std::unordered_map<std::uint64_t, std::list<Waiter>::iterator> where_;
  std::uint64_t reusable_ =
      0;                    // tokens of conversations that had not left, since the gate was made
  std::uint64_t lost_ = 0;  // of those, read again
};

}  // namespace limpet::detail
