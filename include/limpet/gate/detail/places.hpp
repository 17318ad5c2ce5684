// SPDX-License-Identifier: Apache-2.0
//
// Places: which conversations are let in, on which replica, and how much of its cache they fill.
//
// The arithmetic of the gate without its queue. A conversation counts with its own context, as of
// the end of its turn in flight; what all prompts share counts once a replica. O(1) a turn. Not
// thread-safe: the gate locks.
#pragma once

#include <limpet/gate/detail/carried.hpp>
#include <limpet/gate/detail/learnt.hpp>
#include <limpet/gate/detail/place.hpp>
#include <limpet/gate/options.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace limpet::detail {

class Places {
 public:
  using Residents = std::unordered_map<KeyHash, Resident, HashOfKey>;

  explicit Places(const GateOptions& options) : options_(options), learnt_(options) {}

  [[nodiscard]] Learnt& learnt() noexcept { return learnt_; }
  [[nodiscard]] const Learnt& learnt() const noexcept { return learnt_; }

  // Replicas --------------------------------------------------------------------------------------

  // Takes in what is known of the pool: forget(), then see() for each replica, then settle().
  void forget() noexcept {
    for (Place& place : places_) place.serves = place.takes_new = false;
  }

  void see(const ReplicaLoad& load) {
    const std::size_t slot = load.replica.slot;
    if (slot >= places_.size()) places_.resize(slot + 1);
    Place& place = places_[slot];
    if (place.replica != load.replica) {
      let_all_go(place.replica);
      place = {.replica = load.replica, .theta = options_.theta};
    }
    place.capacity = load.kv_capacity_tokens != 0       ? load.kv_capacity_tokens
                     : options_.kv_capacity_tokens != 0 ? options_.kv_capacity_tokens
                                                        : place.guessed_capacity;
    place.serves = load.state <= ReplicaState::draining;
    place.takes_new = load.state == ReplicaState::up;
  }

  // Residents of replicas that serve no more are let go. With nobody up, draining replicas take new
  // conversations.
  void settle() {
    const bool any_up = std::any_of(places_.begin(), places_.end(),
                                    [](const Place& place) { return place.takes_new; });
    for (Place& place : places_) {
      if (!place.serves && place.residents > 0) let_all_go(place.replica);
      if (!any_up) place.takes_new = place.serves;
    }
  }

  [[nodiscard]] const std::vector<Place>& all() const noexcept { return places_; }
  [[nodiscard]] Place& at(ReplicaId replica) noexcept { return places_[replica.slot]; }
  [[nodiscard]] const Residents& residents() const noexcept { return residents_; }
  [[nodiscard]] const std::list<KeyHash>& idle() const noexcept { return idle_; }  // longest first

  [[nodiscard]] Resident* find(KeyHash key) noexcept {
    const auto found = residents_.find(key);
    return found == residents_.end() ? nullptr : &found->second;
  }

  // Whether `need` fits, after residents of so many tokens have left.
  [[nodiscard]] bool fits(const Place& place, Need need, Freed freed = {}) const noexcept {
    if (place.capacity == 0 || place.residents == freed.residents) return true;
    const std::uint64_t growth = need.growth * (place.residents - freed.residents + 1);
    return static_cast<double>(place.used - freed.tokens + need.tokens + growth +
                               learnt_.shared()) <=
           place.theta * static_cast<double>(place.capacity);
  }

  // Share of what may be filled that is, with `need` more.
  [[nodiscard]] double filled(const Place& place, std::uint64_t need) const noexcept {
    if (place.capacity == 0) return 0.0;
    return static_cast<double>(place.used + need) / static_cast<double>(place.capacity);
  }

  // Residents -------------------------------------------------------------------------------------

  Resident& admit(KeyHash key, ReplicaId replica, std::uint64_t need, Duration waited,
                  Instant now) {
    Resident& resident = residents_[key];
    resident.replica = replica;
    resident.stay = ++stays_;
    resident.since = now;
    resident.idle_since = now;
    resident.idle = idle_.insert(idle_.end(), key);
    resident.reserved = need;
    resident.waited = waited + carried(key);
    carried_.forget(key);
    Place& place = at(replica);
    place.used += need;
    ++place.residents;
    place.entered = now;
    return resident;
  }

  void begin_turn(Resident& resident, Instant now) noexcept {
    if (resident.in_flight++ == 0) {
      idle_.erase(resident.idle);
      resident.busy_since = now;
      if (resident.turns > 0) learnt_.learn_pause(now - resident.idle_since);
    }
    ++resident.turns;
  }

  void end_turn(KeyHash key, Resident& resident, Instant now) {
    if (--resident.in_flight > 0) return;
    resident.idle_since = now;
    resident.idle = idle_.insert(idle_.end(), key);
    // Where no capacity bounds them, this does.
    constexpr std::size_t most_idle = 65'536;
    if (idle_.size() > most_idle) let_go(idle_.front());
  }

  void let_go(KeyHash key) {
    const auto found = residents_.find(key);
    if (found == residents_.end()) return;
    learnt_.learn_stay(found->second.turns);
    erase(found);
  }

  void resize(Resident& resident, std::uint64_t need) noexcept {
    at(resident.replica).used += need - resident.reserved;
    resident.reserved = need;
  }

  // What counts of an earlier wait for the next one, at most max_wait.
  [[nodiscard]] Duration carried(KeyHash key) const noexcept {
    return std::min(carried_.of(key), options_.max_wait);
  }

  // Room ------------------------------------------------------------------------------------------

  // When a resident between two turns may be let go for `need`. For an urgent one that is not before
  // the respite after the last that came in there: two histories read side by side are both late.
  [[nodiscard]] Instant may_go_from(const Resident& resident, Need need) const noexcept {
    if (resident.yields) return resident.idle_since;
    const Instant paused = paused_too_long_from(resident);
    if (!need.urgent || resident.turns < options_.min_turns) return paused;
    return std::min(paused, places_[resident.replica.slot].entered + learnt_.respite());
  }

  // Where `need` fits: outright on the preferred replica, on it in place of idle ones, outright on
  // the emptiest, or wherever the longest idle make room first. None of `excluded`.
  [[nodiscard]] std::optional<ReplicaId> room_for(Need need, ReplicaId preferred,
                                                  const std::vector<ReplicaId>& excluded,
                                                  Instant now) {
    const auto barred = [&](ReplicaId replica) {
      return std::find(excluded.begin(), excluded.end(), replica) != excluded.end();
    };
    if (preferred && preferred.slot < places_.size()) {
      Place& place = at(preferred);
      if (place.replica == preferred && place.serves && !barred(preferred) &&
          (fits(place, need) || make_room(place, need, now, {}))) {
        return preferred;
      }
    }
    const Place* emptiest = nullptr;
    for (const Place& place : places_) {
      if (!place.takes_new || barred(place.replica) || !fits(place, need)) continue;
      if (emptiest == nullptr || filled(place, need.tokens) < filled(*emptiest, need.tokens))
        emptiest = &place;
    }
    if (emptiest != nullptr) return emptiest->replica;
    return evict_longest_idle(need, now, barred);
  }

  // Effects: lets idle ones of that replica go until `need` fits there, sparing `spared`; none where
  // that is not to be had.
  bool make_room(Place& place, Need need, Instant now, KeyHash spared) {
    Freed freed;
    std::vector<KeyHash> gone;
    for (const KeyHash key : idle_) {
      const Resident& resident = *find(key);
      if (resident.replica != place.replica || key == spared || now < may_go_from(resident, need))
        continue;
      freed.tokens += resident.reserved;
      ++freed.residents;
      gone.push_back(key);
      if (!fits(place, need, freed)) continue;
      for (const KeyHash one : gone) send_out(one, now);
      return true;
    }
    return false;
  }

  // Judges a replica by a turn of a conversation that had not left it: of `reusable` tokens read
  // before, `lost` had to be read again. Where that is automatic, sets its theta, or takes what is
  // in use for the capacity that nobody told.
  void judge(Place& place, std::uint64_t reusable, std::uint64_t lost, bool somebody_waits) {
    place.reusable += reusable;
    place.lost += lost;
    ++place.judged;
    constexpr std::uint32_t enough = 8;
    if (!options_.automatic || place.judged < enough) return;
    const double share = static_cast<double>(place.lost) / static_cast<double>(place.reusable);
    // Steps grow while they go one way: a setting that is far off is left soon, one that is right is
    // passed by little.
    constexpr int most_steps = 3;
    if (share > 0.10 && place.capacity == 0) {
      place.guessed_capacity = place.used + learnt_.shared();
    } else if (share > 0.10) {
      place.streak = std::max(-most_steps, std::min(place.streak, 0) - 1);
      place.theta = std::max(0.2, place.theta * (1.0 + 0.05 * place.streak));
    } else if (share < 0.02 && somebody_waits) {
      place.streak = std::min(most_steps, std::max(place.streak, 0) + 1);
      place.theta = std::min(2.0, place.theta + 0.02 * place.streak);
    } else {
      place.streak = 0;
    }
    place.reusable = place.lost = 0;
    place.judged = 0;
  }

 private:
  // When the pause of a resident between two turns outlasts its grace.
  [[nodiscard]] Instant paused_too_long_from(const Resident& resident) const noexcept {
    const Duration grace = learnt_.grace_of(resident.reserved);
    const bool never = grace > Instant::max() - resident.idle_since;
    return never ? Instant::max() : resident.idle_since + grace;
  }

  // Lets an idle one go. One whose pause was too long has not had the usual turns for its wait; what
  // those would have cost is carried over, or whoever pauses waits as long for each single turn.
  void send_out(KeyHash key, Instant now) {
    const Resident resident = *find(key);
    let_go(key);
    if (now < paused_too_long_from(resident)) return;
    const double unused = 1.0 - static_cast<double>(resident.turns) / learnt_.stay_turns();
    const double carried = unused * static_cast<double>(resident.waited.count());
    if (carried >= 1.0) carried_.set(key, Duration(static_cast<Duration::rep>(carried)));
  }

  template <class Barred>
  [[nodiscard]] std::optional<ReplicaId> evict_longest_idle(Need need, Instant now, Barred barred) {
    std::unordered_map<std::uint16_t, Freed> freed;
    for (const KeyHash key : idle_) {
      const Resident& resident = *find(key);
      Place& place = at(resident.replica);
      if (!place.takes_new || barred(place.replica) || now < may_go_from(resident, need)) continue;
      Freed& here = freed[place.replica.slot];
      here.tokens += resident.reserved;
      ++here.residents;
      if (!fits(place, need, here)) continue;
      const ReplicaId replica = place.replica;
      make_room(place, need, now, {});
      return replica;
    }
    return std::nullopt;
  }

  void let_all_go(ReplicaId replica) {
    if (!replica) return;
    std::vector<KeyHash> gone;
    for (const auto& [key, resident] : residents_) {
      if (resident.replica == replica) gone.push_back(key);
    }
    for (const KeyHash key : gone) erase(residents_.find(key));  // tells nothing of usual stays
  }

  void erase(Residents::iterator found) {
    const Resident& resident = found->second;
    Place& place = at(resident.replica);
    place.used -= resident.reserved;
    --place.residents;
    if (resident.in_flight == 0) idle_.erase(resident.idle);
    residents_.erase(found);
  }

  const GateOptions& options_;
  Learnt learnt_;
  std::vector<Place> places_;  // by slot
  Residents residents_;
  std::list<KeyHash> idle_;
  CarriedWaits carried_;
  std::uint64_t stays_ = 0;
};

}  // namespace limpet::detail
