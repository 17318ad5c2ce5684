// SPDX-License-Identifier: Apache-2.0
//
// The decision table as a slow plain model: maps, scans and exact times, for random histories that
// run beside the router.
//
// It keeps every conversation for ever and recounts everything at each question, so that no running
// count can be wrong in it. It follows the written rule, not the headers, and shares no code with
// them: where the two differ, one of them is a bug. Ties that the rule leaves to a hash or a
// rotation come out as a set of equally good replicas; what fades within 1/64 of a window comes out
// as a lowest and a highest count. Not thread-safe.
//
// Where the rule is silent, the model reads it so: an excluded replica is not for the client to
// name either; a turn still in flight when its conversation is placed anew is a use of the new pin;
// the pool's mean context follows each told one by a sixteenth. What a replica has to read of a
// prompt is all of it, less at the conversation's home (before it has one, at its parent's) the
// context there; capacities are not known, so nothing is ever evicted.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace limpet_test {

enum class PlainState { up, draining, down, removed };
enum class PlainScorer { weighted, least_pending_prefill, tokens_times_batch };
enum class PlainHint { prefer_parent, independent, with_parent };

struct PlainTurn {
  std::optional<std::string> key;
  std::optional<std::string> parent;
  std::optional<int> client_pinned;
  std::set<int> exclude;
  double prompt_tokens = 0;  // 0: not known
  bool side_call = false;
};

struct PlainAnswer {
  std::string outcome;
  std::set<int> replicas;  // equally good; empty where no replica is chosen
};

class PlainRouter {
 public:
  // Times are seconds. A threshold of 0 is the automatic one.
  double spill_threshold = 0;
  PlainScorer scorer = PlainScorer::weighted;
  bool move_if_cheaper = false;  // in place of the spill rule
  double margin = 1.25;
  double floor_tokens = 2048;
  double in_flight_weight = 1;
  double kv_weight = 0;
  double live_weight = 0.25;
  bool scale_gauge = true;
  double fresh_for = 15;
  double live_window = 300;
  double time_to_live = 1800;
  bool affinity = true;
  PlainHint hint = PlainHint::prefer_parent;
  double now = 0;

  int add_replica(std::string name, double max_num_seqs) {
    replicas_.push_back({std::move(name), max_num_seqs, PlainState::up, 0, std::nullopt});
    return size() - 1;
  }

  void set_state(int replica, PlainState state) { at(replica).state = state; }

  // The cache is gone: what was pinned there before now is not pinned any more.
  void restarted(int replica) {
    at(replica).epoch++;
    at(replica).gauge.reset();  // the engine that said it is gone
  }

  void observe(int replica, double kv_usage) {
    at(replica).gauge = Gauge{kv_usage, now, in_flight(replica)};
  }

  [[nodiscard]] int size() const { return static_cast<int>(replicas_.size()); }
  [[nodiscard]] PlainState state(int replica) const { return at(replica).state; }

  [[nodiscard]] double in_flight_tokens(int replica) const {
    double sum = 0;
    for (const auto& [id, turn] : turns_) sum += turn.replica == replica ? turn.tokens : 0;
    return sum;
  }

  [[nodiscard]] double pending_prefill(int replica) const {
    double sum = 0;
    for (const auto& [id, turn] : turns_) sum += turn.replica == replica ? turn.unread : 0;
    return sum;
  }

  [[nodiscard]] int pins(int replica) const {
    int count = 0;
    for (const auto& [key, pin] : pins_) count += home(key) == replica;
    return count;
  }

  [[nodiscard]] int in_flight(int replica) const {
    int count = 0;
    for (const auto& [id, turn] : turns_) count += turn.replica == replica;
    return count;
  }

  // Where the conversation lives; none without a pin or when the pin is stale.
  [[nodiscard]] std::optional<int> home(const std::string& key) const {
    const auto found = pins_.find(key);
    if (found == pins_.end()) return std::nullopt;
    const Pin& pin = found->second;
    const Replica& replica = at(pin.home);
    if (replica.state == PlainState::removed || replica.epoch != pin.epoch) return std::nullopt;
    if (expired(key, pin)) return std::nullopt;
    return pin.home;
  }

  [[nodiscard]] int lowest_live(int replica) const {
    return live(replica, live_window * (1 - 1.0 / 64));
  }
  [[nodiscard]] int highest_live(int replica) const {
    return live(replica, live_window * (1 + 1.0 / 64));
  }

  // The context of the conversations that live there, as last told.
  [[nodiscard]] double lowest_tokens(int replica) const {
    return tokens(replica, live_window * (1 - 1.0 / 64));
  }
  [[nodiscard]] double highest_tokens(int replica) const {
    return tokens(replica, live_window * (1 + 1.0 / 64));
  }

  [[nodiscard]] PlainAnswer decide(const PlainTurn& asked) const {
    const PlainTurn turn = in_the_name_of(asked);
    const std::set<int> open = candidates(turn.exclude);
    if (open.empty() && !home_takes(turn)) return {"refused", {}};
    if (!affinity) return {"unrouted", {}};
    if (turn.client_pinned && is_up(*turn.client_pinned) &&
        turn.exclude.count(*turn.client_pinned) == 0) {
      return {"client_pinned", {*turn.client_pinned}};
    }
    if (!turn.key) return {"balanced", least_in_flight(open)};
    const std::optional<int> home_now = home(*turn.key);
    if (turn.side_call) {
      if (home_now && is_up(*home_now) && turn.exclude.count(*home_now) == 0 &&
          !overloaded(*home_now)) {
        return {"sticky", {*home_now}};
      }
      return {"balanced", least_in_flight(open)};
    }
    if (!home_now) {
      if (hint == PlainHint::prefer_parent && turn.parent) {
        const std::optional<int> parent = home(*turn.parent);
        if (parent && open.count(*parent) == 1 && !overloaded(*parent))
          return {"placed", {*parent}};
      }
      return {"placed", lowest_score(open, turn)};
    }
    if (!is_up(*home_now)) return {"moved", lowest_score(open, turn)};
    if (turn.exclude.count(*home_now) == 1) return {"spilled", least_in_flight(open)};
    if (!overloaded(*home_now)) return {"sticky", {*home_now}};
    if (move_if_cheaper) {
      const std::optional<int> other = cheaper_than(*home_now, open, turn);
      return other ? PlainAnswer{"moved", {*other}} : PlainAnswer{"sticky", {*home_now}};
    }
    const std::set<int> best = least_in_flight(open);
    if (!best.empty() && in_flight(*best.begin()) < in_flight(*home_now)) return {"spilled", best};
    return {"sticky", {*home_now}};
  }

  // Carries out an answer with the replica that was taken among the equally good ones. Returns: the
  // number of the turn. A turn that is committed from a plan has lost its parent, and one that its
  // client sent there its conversation.
  int take(const PlainTurn& asked, const std::string& outcome, int replica, bool from_plan) {
    PlainTurn turn = in_the_name_of(asked);
    PlainTurn known = turn;
    if (from_plan) known.parent.reset();
    if (from_plan && outcome == "client_pinned") known.key.reset();
    const double unread = uncached(known, replica);
    const bool uses_pin = turn.key && !turn.side_call && outcome != "client_pinned";
    Turn& taken = turns_[next_turn_];
    taken.replica = replica;
    taken.outcome = outcome;
    taken.unread = unread;
    taken.tokens = turn.prompt_tokens > 0 ? turn.prompt_tokens : mean_context_;
    if (uses_pin) {
      if (outcome == "placed") {
        const int others = turns_in_flight(*turn.key);
        Pin placed{replica, at(replica).epoch, others, now, std::nullopt, 0, 0};
        if (const auto old = pins_.find(*turn.key);
            old != pins_.end() && !expired(*turn.key, old->second)) {
          placed.told_context = old->second.told_context;  // its cache is gone, its length is not
        }
        pins_[*turn.key] = placed;
      }
      Pin& pin = pins_[*turn.key];
      if (outcome == "moved") {
        pin.home = replica;
        pin.epoch = at(replica).epoch;
      }
      pin.used = now;
      if (taken.tokens > 0) pin.guessed_context = taken.tokens;
      if (turn.prompt_tokens == 0) taken.tokens = context(pin);
      taken.key = turn.key;
      taken.pin_use = ++pin.uses;
    }
    return next_turn_++;
  }

  void first_byte(int turn) { turns_.at(turn).unread = 0; }
  void finish(int turn) { end(turn); }
  void finish(int turn, double prompt_and_output) {
    const Turn ended = end(turn);
    if (!ended.key) return;
    if (pins_.count(*ended.key) == 1) pins_[*ended.key].told_context = prompt_and_output;
    const double step = std::trunc((prompt_and_output - mean_context_) / 16);
    mean_context_ = mean_context_ == 0 ? prompt_and_output : mean_context_ + step;
  }
  void cancel(int turn) { end(turn); }
  void fail(int turn) {
    const Turn ended = end(turn);
    if (ended.outcome != "placed" || !ended.key || ended.pin_use != 1) return;
    const auto pin = pins_.find(*ended.key);
    if (pin != pins_.end() && pin->second.uses == 1 && pin->second.home == ended.replica)
      pins_.erase(pin);
  }

  // Conversations idle for at least `idle`, oldest first: who may be moved by a rebalance.
  [[nodiscard]] std::vector<std::string> idle_for(double idle) const {
    std::vector<std::pair<double, std::string>> found;
    for (const auto& [key, pin] : pins_) {
      if (home(key) && turns_in_flight(key) == 0 && now - pin.used >= idle)
        found.emplace_back(pin.used, key);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> keys;
    for (const auto& [used, key] : found) keys.push_back(key);
    return keys;
  }

  void repin(const std::string& key, int replica) {
    pins_.at(key).home = replica;
    pins_.at(key).epoch = at(replica).epoch;
  }

  [[nodiscard]] bool overloaded(int replica) const {
    if (move_if_cheaper) return pending_prefill(replica) > floor_tokens;
    const double seqs = at(replica).max_num_seqs > 0 ? at(replica).max_num_seqs : 256;
    const double threshold =
        spill_threshold > 0 ? spill_threshold : std::max(1.0, std::floor(seqs / 4));
    return in_flight(replica) >= threshold;
  }

  // What this replica would have to read of the turn's prompt.
  [[nodiscard]] double uncached(const PlainTurn& turn, int replica) const {
    const Pin* history = nullptr;
    std::optional<int> cached_at;
    if (turn.key && !turn.side_call) {
      const bool beside = hint == PlainHint::prefer_parent && turn.parent && !home(*turn.key);
      for (const auto& key : {beside ? turn.parent : std::nullopt, turn.key}) {
        const auto found = key ? pins_.find(*key) : pins_.end();
        if (found == pins_.end() || expired(*key, found->second)) continue;
        history = &found->second;
        cached_at = home(*key);
        break;
      }
    }
    const double known = history != nullptr ? context(*history) : 0;
    const double prompt = turn.prompt_tokens > 0 ? turn.prompt_tokens
                          : known > 0            ? known
                                                 : mean_context_;
    if (cached_at != replica) return prompt;
    return known > 0 ? std::max(0.0, prompt - known)
                     : 0;  // a length that is not known is all there
  }

  // Where the least has to be read before this turn, all of its prompt included, if that is so much
  // less than at home.
  [[nodiscard]] std::optional<int> cheaper_than(int home, const std::set<int>& others,
                                                const PlainTurn& turn) const {
    std::optional<int> cheapest;
    for (const int r : others) {
      if (r != home && (!cheapest || pending_prefill(r) < pending_prefill(*cheapest))) cheapest = r;
    }
    const auto cost = [&](int r) { return pending_prefill(r) + uncached(turn, r); };
    if (cheapest && cost(home) > margin * cost(*cheapest) + floor_tokens) return cheapest;
    return std::nullopt;
  }

  [[nodiscard]] double score(int replica, double live_conversations, const PlainTurn& turn) const {
    if (scorer == PlainScorer::least_pending_prefill)
      return pending_prefill(replica) + uncached(turn, replica);
    if (scorer == PlainScorer::tokens_times_batch)
      return std::max(1.0, uncached(turn, replica)) * (in_flight(replica) + 1);
    double sum = in_flight_weight * in_flight(replica) + live_weight * live_conversations;
    if (all_gauges_fresh(at(replica).state)) sum += kv_weight * gauge(replica);
    return std::round(sum * 1000) / 1000;
  }

 private:
  struct Gauge {
    double kv_usage = 0;
    double arrived = 0;
    int in_flight = 0;
  };
  struct Replica {
    std::string name;
    double max_num_seqs = 0;
    PlainState state = PlainState::up;
    int epoch = 0;
    std::optional<Gauge> gauge;
  };
  struct Pin {
    int home = 0;
    int epoch = 0;
    int uses = 0;
    double used = 0;              // start or end of the last turn
    std::optional<double> ended;  // end of the last turn
    double told_context = 0;      // tokens; 0: the engine has not told
    double guessed_context = 0;
  };
  struct Turn {
    int replica = 0;
    std::string outcome;
    std::optional<std::string> key;  // of the conversation whose pin it uses
    int pin_use = 0;                 // its number among the turns of that pin
    double tokens = 0;
    double unread = 0;  // what its replica had to read for it; 0 from the first byte on
  };

  [[nodiscard]] static double context(const Pin& pin) {
    return pin.told_context > 0 ? pin.told_context : pin.guessed_context;
  }

  [[nodiscard]] bool expired(const std::string& key, const Pin& pin) const {
    return turns_in_flight(key) == 0 && now - pin.used > time_to_live;
  }

  [[nodiscard]] const Replica& at(int replica) const {
    return replicas_.at(static_cast<std::size_t>(replica));
  }
  [[nodiscard]] Replica& at(int replica) { return replicas_.at(static_cast<std::size_t>(replica)); }

  [[nodiscard]] bool is_up(int replica) const {
    return at(replica).state == PlainState::up || at(replica).state == PlainState::draining;
  }

  // With `with_parent` a sub-agent's turn is a turn of its parent's conversation.
  [[nodiscard]] PlainTurn in_the_name_of(PlainTurn turn) const {
    if (hint == PlainHint::with_parent && turn.key && turn.parent) turn.key = turn.parent;
    return turn;
  }

  // Who may take a turn that is not at home there: draining ones only when nobody else can.
  [[nodiscard]] std::set<int> candidates(const std::set<int>& exclude) const {
    for (const PlainState wanted : {PlainState::up, PlainState::draining}) {
      std::set<int> open;
      for (int r = 0; r < size(); ++r) {
        if (at(r).state == wanted && exclude.count(r) == 0) open.insert(r);
      }
      if (!open.empty()) return open;
    }
    return {};
  }

  [[nodiscard]] bool home_takes(const PlainTurn& turn) const {
    const std::optional<int> home_now = turn.key ? home(*turn.key) : std::nullopt;
    return home_now && is_up(*home_now) && turn.exclude.count(*home_now) == 0;
  }

  [[nodiscard]] std::set<int> least_in_flight(const std::set<int>& among) const {
    int least = std::numeric_limits<int>::max();
    for (const int r : among) least = std::min(least, in_flight(r));
    std::set<int> best;
    for (const int r : among) {
      if (in_flight(r) == least) best.insert(r);
    }
    return best;
  }

  // Everyone that can be the best for some true number of live conversations between the lowest and
  // the highest.
  [[nodiscard]] std::set<int> lowest_score(const std::set<int>& among,
                                           const PlainTurn& turn) const {
    std::set<int> best;
    for (const int r : among) {
      bool beaten = false;
      for (const int other : among) {
        const double mine = score(r, lowest_live(r), turn);
        const double theirs = score(other, highest_live(other), turn);
        if (theirs < mine || (theirs == mine && highest_live(other) < lowest_live(r)))
          beaten = true;
      }
      if (!beaten) best.insert(r);
    }
    return best;
  }

  // Of every replica that is up; where draining ones are compared, of those too.
  [[nodiscard]] bool all_gauges_fresh(PlainState compared) const {
    for (int r = 0; r < size(); ++r) {
      const bool counts = at(r).state == PlainState::up || at(r).state == compared;
      if (counts && (!at(r).gauge || now - at(r).gauge->arrived >= fresh_for)) return false;
    }
    return true;
  }

  // What has left since the reading came no longer counts.
  [[nodiscard]] double gauge(int replica) const {
    const Gauge& reading = *at(replica).gauge;
    const double usage = std::clamp(reading.kv_usage, 0.0, 1.0);
    if (!scale_gauge || reading.in_flight == 0) return usage;
    return usage * std::min(1.0, double(in_flight(replica)) / double(reading.in_flight));
  }

  [[nodiscard]] int turns_in_flight(const std::string& key) const {
    int count = 0;
    for (const auto& [id, turn] : turns_) count += turn.key == key;
    return count;
  }

  [[nodiscard]] bool lives(const std::string& key, const Pin& pin, double window) const {
    return turns_in_flight(key) > 0 || (pin.ended && now - *pin.ended <= window);
  }

  [[nodiscard]] int live(int replica, double window) const {
    int count = 0;
    for (const auto& [key, pin] : pins_) count += home(key) == replica && lives(key, pin, window);
    return count;
  }

  [[nodiscard]] double tokens(int replica, double window) const {
    double sum = 0;
    for (const auto& [key, pin] : pins_) {
      if (home(key) == replica && lives(key, pin, window)) sum += context(pin);
    }
    return sum;
  }

  Turn end(int turn) {
    const Turn ended = turns_.at(turn);
    turns_.erase(turn);
    if (!ended.key || pins_.count(*ended.key) == 0) return ended;
    pins_[*ended.key].used = now;
    pins_[*ended.key].ended = now;
    return ended;
  }

  std::vector<Replica> replicas_;
  std::map<std::string, Pin> pins_;
  std::map<int, Turn> turns_;  // in flight
  int next_turn_ = 0;
  double mean_context_ = 0;
};

}  // namespace limpet_test
