// SPDX-License-Identifier: Apache-2.0
//
// Random histories: the router beside the slow plain model of the decision table. After every step
// the outcome, the replica, each pin and each count must agree.
#include <limpet/router.hpp>

#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/pins/local.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>

#include "catch.hpp"
#include "support/plain_router.hpp"
#include "support/sanitized.hpp"
#include "support/test_policies.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace limpet;
using namespace limpet_test;

template <class Pins, class Scorer = WeightedLoad, class Overflow = SpillAbove>
class History {
 public:
  using Subject = Router<Pins, Scorer, Overflow, NumberPage, ManualClock>;

  History(std::uint64_t seed, Pins pins, RouterOptions options, std::uint32_t threshold)
      : random_(seed),
        router_(std::move(pins), scorer(seed), overflow(threshold), NumberPage{}, clock_, options) {
    for (int i = 0; i < 24; ++i) keys_.push_back("conversation " + std::to_string(i));
    model_.spill_threshold = threshold;
    model_.move_if_cheaper = std::is_same_v<Overflow, MoveIfCheaper>;
    if (std::is_same_v<Scorer, LeastPendingPrefill>)
      model_.scorer = PlainScorer::least_pending_prefill;
    if (std::is_same_v<Scorer, TokensTimesBatch>) model_.scorer = PlainScorer::tokens_times_batch;
    model_.kv_weight = weights(seed).kv_usage_weight;
    model_.live_weight = weights(seed).live_weight;
    model_.hint = options.parent_hint == ParentHint::prefer_parent ? PlainHint::prefer_parent
                  : options.parent_hint == ParentHint::with_parent ? PlainHint::with_parent
                                                                   : PlainHint::independent;
  }

  void run(int steps) {
    for (step_ = 0; step_ < steps; ++step_) {
      const int what = below(100);
      CAPTURE(step_, what);
      if (what < 43) {
        route();
      } else if (what < 55) {
        first_byte();
      } else if (what < 75) {
        end_a_turn();
      } else if (what < 86) {
        pass_time();
      } else if (what < 91) {
        observe();
      } else if (what < 97) {
        change_membership();
      } else if (what < 99) {
        rebalance();
      } else {
        toggle_affinity();
      }
      compare();
    }
    while (!turns_.empty()) end_turn(turns_.size() - 1);
    compare();
    for (const ReplicaSnapshot& row : router_.snapshot().replicas) CHECK(row.in_flight == 0);
  }

  // How often each outcome came up, so that a test can say that its histories reach all rows.
  std::map<std::string, int> seen;

 private:
  // The defaults, and with the gauge, in turn.
  static WeightedLoad weights(std::uint64_t seed) {
    return seed % 2 == 0 ? WeightedLoad{} : with_gauge;
  }

  static Scorer scorer(std::uint64_t seed) {
    if constexpr (std::is_same_v<Scorer, WeightedLoad>) return weights(seed);
    return {};
  }

  static Overflow overflow(std::uint32_t threshold) {
    if constexpr (std::is_same_v<Overflow, SpillAbove>) return {threshold};
    return {};
  }

  struct RunningTurn {
    Lease lease;
    int model = 0;
  };

  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }
  bool one_in(int n) { return below(n) == 0; }
  const std::string& some_key() {
    return keys_[static_cast<std::size_t>(below(static_cast<int>(keys_.size())))];
  }

  void add_replica() {
    // Some names come back after their replica was removed.
    const std::string name = "gpu" + std::to_string(below(9));
    if (router_.find(name)) return;
    const std::uint32_t seqs = static_cast<std::uint32_t>(4 * below(6));
    ids_.push_back(router_.add_replica({.name = name, .max_num_seqs = seqs}));
    names_.push_back(name);
    model_.add_replica(name, seqs);
  }

  int model_of(ReplicaId id) const {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] == id) return static_cast<int>(i);
    }
    return -1;
  }

  ReplicaId some_id() {
    return ids_[static_cast<std::size_t>(below(static_cast<int>(ids_.size())))];
  }

  void route() {
    PlainTurn plain;
    const std::string key = some_key();
    const std::string parent = some_key();
    if (!one_in(8)) plain.key = key;
    if (one_in(4)) plain.parent = parent;
    if (one_in(3)) plain.prompt_tokens = 1 + below(20000);
    plain.side_call = one_in(10);
    std::vector<ReplicaId> exclude;
    if (!ids_.empty()) {
      if (one_in(10)) plain.client_pinned = model_of(some_id());
      while (one_in(4)) exclude.push_back(some_id());
    }
    for (const ReplicaId id : exclude) plain.exclude.insert(model_of(id));

    Turn turn{.exclude = exclude,
              .prompt_tokens = static_cast<std::uint64_t>(plain.prompt_tokens),
              .side_call = plain.side_call};
    if (plain.key) turn.key = key;
    if (plain.parent) turn.parent = parent;
    if (plain.client_pinned)
      turn.client_pinned = ids_[static_cast<std::size_t>(*plain.client_pinned)];

    const PlainAnswer expected = model_.decide(plain);
    const Decision planned = router_.plan(turn);
    const Explanation explanation = router_.explain(turn);
    REQUIRE(explanation.decision == planned);
    const bool from_plan = one_in(3);
    Lease lease = from_plan ? router_.commit(planned) : router_.route(turn);
    const int chosen = model_of(lease.replica());
    const bool agree = to_string(lease.outcome()) == expected.outcome &&
                       lease.held() == !expected.replicas.empty() &&
                       (expected.replicas.empty() ? !lease : expected.replicas.count(chosen) == 1);
    if (!agree) {
      CAPTURE(plain.key.value_or("none"), plain.parent.value_or("none"), plain.side_call,
              plain.exclude, to_string(lease.outcome()), to_string(lease.decision().reason), chosen,
              expected.outcome, expected.replicas, both_sides(explanation, plain));
      FAIL("router and model decide differently");
    }
    REQUIRE(lease.decision() == planned);
    ++seen[expected.outcome];
    if (expected.replicas.empty()) return;
    turns_.push_back({std::move(lease), model_.take(plain, expected.outcome, chosen, from_plan)});
  }

  // What each side knew of every replica, for the report of a failure.
  std::string both_sides(const Explanation& explanation, const PlainTurn& turn) const {
    std::ostringstream text;
    for (const ExplainedReplica& row : explanation.replicas) {
      const int at = model_of(row.load.replica);
      text << '\n'
           << at << ' ' << row.name << ' ' << to_string(row.load.state) << " router: in flight "
           << row.load.in_flight << " live " << row.load.live_conversations << " gauge "
           << row.load.kv_usage << " score " << row.score << "; model: in flight "
           << model_.in_flight(at) << " live " << model_.lowest_live(at) << ".."
           << model_.highest_live(at) << " score "
           << model_.score(at, model_.lowest_live(at), turn);
    }
    return text.str();
  }

  void first_byte() {
    if (turns_.empty()) return;
    RunningTurn& turn = turns_[static_cast<std::size_t>(below(static_cast<int>(turns_.size())))];
    turn.lease.first_byte();
    model_.first_byte(turn.model);
  }

  void end_a_turn() {
    if (!turns_.empty()) end_turn(static_cast<std::size_t>(below(static_cast<int>(turns_.size()))));
  }

  void end_turn(std::size_t at) {
    RunningTurn turn = std::move(turns_[at]);
    turns_.erase(turns_.begin() + static_cast<std::ptrdiff_t>(at));
    switch (below(5)) {
      case 0:
        turn.lease.finish();
        model_.finish(turn.model);
        break;
      case 1: {
        const Usage usage{.prompt_tokens = static_cast<std::uint64_t>(1 + below(30000)),
                          .completion_tokens = static_cast<std::uint64_t>(below(500))};
        turn.lease.finish(usage);
        model_.finish(turn.model,
                      static_cast<double>(usage.prompt_tokens + usage.completion_tokens));
        break;
      }
      case 2:
        turn.lease.cancel();
        model_.cancel(turn.model);
        break;
      case 3:
        turn.lease.fail();
        model_.fail(turn.model);
        break;
      default:  // its destructor
        model_.cancel(turn.model);
    }
  }

  void pass_time() {
    using namespace std::chrono;
    // Odd lengths: no event falls on the border of a window.
    static constexpr std::int64_t longest_ms[] = {3,       1'501,   9'007,    20'011,
                                                  120'017, 700'001, 2'000'003};
    const std::int64_t longest = longest_ms[one_in(3) ? below(7) : below(4)];
    const Duration step = nanoseconds(
        1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(longest * 1'000'000)));
    clock_.advance(step);
    elapsed_ += step;
    model_.now = static_cast<double>(elapsed_.count()) * 1e-9;
  }

  void observe() {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (one_in(6) || router_.state(ids_[i]) == ReplicaState::removed) continue;
      const int eighths = below(10);  // above 1 now and then: clamped
      CHECK(router_.observe(names_[i], std::to_string(eighths / 8.0)) == ParseStatus::ok);
      model_.observe(static_cast<int>(i), eighths / 8.0);
      CHECK(router_.observe(names_[i], "no number") == ParseStatus::malformed);
    }
  }

  void change_membership() {
    if (ids_.empty() || one_in(4)) return add_replica();
    const ReplicaId id = some_id();
    const int at = model_of(id);
    const bool known = model_.state(at) != PlainState::removed;
    switch (below(7)) {
      case 0:
        CHECK(router_.drain(id) == known);
        if (known) model_.set_state(at, PlainState::draining);
        break;
      case 1:
        CHECK(router_.set_down(id) == known);
        if (known) model_.set_state(at, PlainState::down);
        break;
      case 2:
        CHECK(router_.restarted(id) == known);
        if (known) model_.restarted(at);
        break;
      case 3:
        if (!one_in(3)) return;
        CHECK(router_.remove(id) == known);
        model_.set_state(at, PlainState::removed);
        break;
      default:
        CHECK(router_.set_up(id) == known);
        if (known) model_.set_state(at, PlainState::up);
    }
  }

  void rebalance() {
    const std::size_t limit = static_cast<std::size_t>(below(5));
    const std::vector<std::string> idle = model_.idle_for(300);
    std::map<std::string, std::optional<int>> before;
    for (const std::string& key : keys_) before[key] = model_.home(key);

    const std::size_t moved = router_.rebalance(limit);
    CHECK(moved <= limit);
    std::size_t differ = 0;
    for (const auto& [key, home] : before) {
      const std::optional<int> now = pinned(key);
      if (now == home) continue;
      ++differ;
      REQUIRE(now.has_value());
      CHECK(std::count(idle.begin(), idle.end(), key) == 1);
      CHECK(model_.state(*now) != PlainState::down);
      model_.repin(key, *now);
    }
    CHECK(differ == moved);
  }

  void toggle_affinity() {
    // Off for one step in a hundred: it is compared, not explored.
    router_.set_affinity(Affinity::off);
    model_.affinity = false;
    route();
    router_.set_affinity(Affinity::on);
    model_.affinity = true;
  }

  // A side call plans nothing anew, so its plan shows the pin as it is.
  std::optional<int> pinned(const std::string& key) const {
    const Decision side = router_.plan(Turn{.key = key, .side_call = true});
    return side.home.replica ? std::optional(model_of(side.home.replica)) : std::nullopt;
  }

  void compare() { REQUIRE(difference() == ""); }

  // One text instead of an assertion a figure: there are a million of them.
  std::string difference() {
    std::ostringstream text;
    for (const std::string& key : keys_) {
      const std::optional<int> is = pinned(key);
      const std::optional<int> should = model_.home(key);
      if (is != should)
        text << key << " is pinned to " << is.value_or(-1) << ", not " << should.value_or(-1)
             << '\n';
    }
    for (const ReplicaSnapshot& row : router_.snapshot().replicas) {
      const int at = model_of(row.id);
      const auto check = [&](const char* what, double is, double lowest, double highest) {
        if (is < lowest || is > highest) {
          text << row.name << ": " << what << " is " << is << ", not " << lowest << ".." << highest
               << '\n';
        }
      };
      const auto state = static_cast<double>(model_.state(at));
      check("state", static_cast<double>(row.state), state, state);
      check("in_flight", row.in_flight, model_.in_flight(at), model_.in_flight(at));
      check("in_flight_tokens", static_cast<double>(row.in_flight_tokens),
            model_.in_flight_tokens(at), model_.in_flight_tokens(at));
      if (row.pending_prefill_tokens) {
        check("pending_prefill_tokens", static_cast<double>(*row.pending_prefill_tokens),
              model_.pending_prefill(at), model_.pending_prefill(at));
      }
      check("pins", row.pins, model_.pins(at), model_.pins(at));
      check("live_conversations", row.live_conversations, model_.lowest_live(at),
            model_.highest_live(at));
      check("live_tokens", static_cast<double>(row.live_tokens), model_.lowest_tokens(at),
            model_.highest_tokens(at));
    }
    return text.str();
  }

  std::mt19937_64 random_;
  ManualClock clock_;
  Subject router_;
  PlainRouter model_;
  std::vector<std::string> keys_;
  std::vector<ReplicaId> ids_;  // of every replica that ever was, in the order of the model's
  std::vector<std::string> names_;
  std::vector<RunningTurn> turns_;
  Duration elapsed_{};
  int step_ = 0;
};

}  // namespace

TEST_CASE("the router agrees with the plain model of the decision table, history after history") {
  std::map<std::string, int> seen;
  const auto run = [&]<class Scorer = WeightedLoad, class Overflow = SpillAbove>(
                       auto pins, std::uint64_t seed, ParentHint hint, std::uint32_t threshold) {
    CAPTURE(seed, threshold, static_cast<int>(hint));
    History<decltype(pins), Scorer, Overflow> history(
        seed, std::move(pins), RouterOptions{.parent_hint = hint}, threshold);
    history.run(limpet_tests::sanitized ? 150 : 600);
    for (const auto& [outcome, times] : history.seen) seen[outcome] += times;
  };
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    for (const auto hint :
         {ParentHint::prefer_parent, ParentHint::independent, ParentHint::with_parent}) {
      for (const std::uint32_t threshold : {0U, 2U, 5U})
        run(ShardedPins<>{}, seed, hint, threshold);
    }
    run(LocalPins{}, seed + 100, ParentHint::prefer_parent, 0);
    run.template operator()<LeastPendingPrefill>(LocalPins{}, seed + 200, ParentHint::prefer_parent,
                                                 2);
    run.template operator()<WeightedLoad, MoveIfCheaper>(LocalPins{}, seed + 500,
                                                         ParentHint::prefer_parent, 0);
    run.template operator()<TokensTimesBatch>(ShardedPins<>{}, seed + 300,
                                              ParentHint::prefer_parent, 0);
    run.template operator()<LeastPendingPrefill>(ShardedPins<>{}, seed + 400,
                                                 ParentHint::with_parent, 5);
  }
  // No row of the table may be left out.
  for (const char* outcome : {"placed", "sticky", "spilled", "moved", "balanced", "client_pinned",
                              "refused", "unrouted"}) {
    CAPTURE(outcome);
    CHECK(seen[outcome] > 20);
  }
}
