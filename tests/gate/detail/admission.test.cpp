// SPDX-License-Identifier: Apache-2.0
//
// Random histories of the gate's rule beside a slow plain model of it, and its promises checked on
// every event: 100,000 of them, with aborts, replicas that go and come back, and parallel turns.
#include <limpet/gate/detail/admission.hpp>

#include "catch.hpp"
#include "support/plain_gate.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace {

using namespace limpet;
using limpet::detail::Admission;
using limpet::detail::Admitted;
using limpet_test::PlainGate;

Instant at(long ms) {
  return Instant{std::chrono::milliseconds(ms)};
}

struct Running {  // a turn that was let in
  std::uint64_t id;
  std::uint64_t key;
  std::uint64_t stay;
  std::uint64_t prompt;
};

struct Waiting {
  std::uint64_t key;
  std::uint64_t prompt;
  long counted_from;  // ns
};

class History {
 public:
  History(std::uint64_t seed, GateOptions options, limpet_test::PlainGateOptions plain,
          bool parallel_turns)
      : options_(options),
        random_(seed),
        parallel_turns_(parallel_turns),
        gate_(options_),
        model_(plain) {
    for (std::uint16_t i = 0; i < replicas; ++i) see(i, ReplicaState::up);
  }

  void step() {
    now_ += static_cast<long>(below(10) == 0 ? below(9'000) : below(400));
    expire();
    const std::uint64_t what = below(100);
    if (what < 45) {
      enter();
    } else if (what < 80) {
      leave();
    } else if (what < 88) {
      abandon();
    } else if (what < 90) {
      const auto state = std::array{ReplicaState::up, ReplicaState::draining, ReplicaState::down};
      see(static_cast<std::uint16_t>(below(replicas)), state[below(state.size())]);
    } else if (what < 92) {
      for (std::uint16_t i = 0; i < replicas; ++i) see(i, ReplicaState::up);
    }
    pump();
    check();
  }

  // Every turn ends, all replicas come back: nobody may be left waiting.
  void end() {
    for (std::uint16_t i = 0; i < replicas; ++i) see(i, ReplicaState::up);
    for (int round = 0; round < 100'000 && (!running_.empty() || !waiting_.empty()); ++round) {
      const Instant next = gate_.wake_at(at(pumped_));
      if (running_.empty() && next == Instant::max()) FAIL("turns wait for nothing");
      if (running_.empty()) {
        now_ = std::max<long>(
            now_, std::chrono::ceil<std::chrono::milliseconds>(next.time_since_epoch()).count());
      }
      expire();
      leave();
      pump();
    }
    CHECK(waiting_.empty());
    CHECK(running_.empty());
  }

  std::uint64_t refused = 0;
  std::uint64_t waited = 0;
  std::uint64_t over_capacity_alone = 0;

 private:
  static constexpr std::uint16_t replicas = 3;

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  void see(std::uint16_t slot, ReplicaState state) {
    states_[slot] = state;
    gate_.places().forget();
    for (std::uint16_t i = 0; i < replicas; ++i) {
      gate_.places().see(
          {.replica = {i, 0}, .state = states_[i], .kv_capacity_tokens = capacity(i)});
    }
    gate_.places().settle();
    const bool any_up = std::count(states_.begin(), states_.end(), ReplicaState::up) > 0;
    for (std::uint16_t i = 0; i < replicas; ++i) {
      const bool serves = states_[i] <= ReplicaState::draining;
      model_.replica_is({i, static_cast<double>(capacity(i)), serves,
                         any_up ? states_[i] == ReplicaState::up : serves});
    }
  }

  static std::uint64_t capacity(std::uint16_t slot) { return slot == 2 ? 20'000 : 32'000; }

  void enter() {
    const std::uint64_t key = 1 + below(40);
    if (!parallel_turns_ && busy(key)) return;
    const std::uint64_t prompt = below(9) == 0 ? 0 : 1'000 + below(12'000);
    const std::uint64_t id = ++last_id_;
    const auto known = homes_.find(key);
    const int home = known == homes_.end() || below(20) == 0 ? -1 : known->second;
    const int preferred = home >= 0 ? home : static_cast<int>(below(replicas));
    const detail::Waiter turn{.id = id,
                              .key = {key, key},
                              .prompt_tokens = prompt,
                              .home = name(home),
                              .since = at(now_)};
    const PlainGate::Waits plain{id, key, static_cast<double>(prompt), home, now_};
    auto in = gate_.pass(turn, at(now_));
    compare(in, model_.pass(plain, now_));
    if (!in) {
      pump();
      REQUIRE(gate_.may_overtake(at(now_)) == model_.may_overtake(now_));
      if (gate_.may_overtake(at(now_))) {
        in = gate_.admit(turn, name(preferred), at(now_));
        compare(in, model_.admit(plain, preferred, now_));
        if (in) let_in(*in, {key, prompt, now_}, !busy(key));
      }
    } else {
      let_in(*in, {key, prompt, now_}, false);
    }
    if (in) return;
    gate_.wait(turn);
    model_.wait(plain);
    waiting_[id] = {key, prompt, now_ * PlainGate::ns_a_ms - model_.carried_for(key)};
  }

  void leave() {
    if (running_.empty()) return;
    const std::size_t i = below(running_.size());
    const Running turn = running_[i];
    running_.erase(running_.begin() + static_cast<long>(i));
    const detail::Waiter asked{
        .id = turn.id, .key = {turn.key, turn.key}, .prompt_tokens = turn.prompt};
    const std::uint64_t how = below(10);
    if (how == 0) {
      gate_.leave(asked, turn.stay, std::nullopt, false, at(now_));
      model_.leave(turn.key, turn.stay, static_cast<double>(turn.prompt), 0, -1, now_);
      return;
    }
    Usage said{how == 1 ? 0 : std::max<std::uint64_t>(1'000, turn.prompt), std::nullopt, 0};
    if (how > 1) said.completion_tokens = below(600);
    gate_.leave(asked, turn.stay, said, false, at(now_));
    model_.leave(turn.key, turn.stay, static_cast<double>(turn.prompt),
                 static_cast<double>(said.prompt_tokens),
                 static_cast<double>(said.completion_tokens), now_);
  }

  void abandon() {
    if (waiting_.empty()) return;
    auto one = waiting_.begin();
    std::advance(one, static_cast<long>(below(waiting_.size())));
    REQUIRE(gate_.abandon(one->first));
    model_.abandon(one->first);
    waiting_.erase(one);
  }

  void expire() {
    const auto gone = gate_.expire(at(now_));
    REQUIRE(gone == model_.expire(now_));
    refused += gone.size();
    for (const std::uint64_t id : gone) REQUIRE(waiting_.erase(id) == 1);
  }

  void pump() {
    std::vector<Admitted> admitted;
    gate_.pump(at(now_), admitted);
    pumped_ = now_;
    const auto expected = model_.pump(now_);
    REQUIRE(admitted.size() == expected.size());
    for (std::size_t i = 0; i < admitted.size(); ++i) {
      compare(admitted[i], expected[i]);
      const auto turn = waiting_.find(admitted[i].id);
      REQUIRE(turn != waiting_.end());
      const Waiting was = turn->second;
      waiting_.erase(turn);
      ++waited;
      let_in(admitted[i], was, !busy(was.key));
    }
  }

  void let_in(const Admitted& in, const Waiting& turn, bool newly_inside) {
    // Nobody who waited max_wait was behind one that waited less, what was carried over included.
    // (Turns of a conversation that is inside go with it.)
    if (newly_inside) {
      for (const auto& [id, other] : waiting_) {
        const bool earlier = other.counted_from < turn.counted_from && other.key != turn.key;
        CHECK((!earlier ||
               now_ * PlainGate::ns_a_ms - other.counted_from < options_.max_wait.count()));
      }
    }
    running_.push_back({in.id, turn.key, in.stay, turn.prompt});
    homes_[turn.key] = in.replica.slot;
  }

  void check() {
    const auto& places = gate_.places();
    REQUIRE(gate_.queue().size() == waiting_.size());
    REQUIRE(places.residents().size() == model_.inside.size());
    REQUIRE(places.idle().size() == model_.idle_order.size());
    for (std::uint16_t i = 0; i < replicas; ++i) {
      const detail::Place& place = places.all()[i];
      REQUIRE(static_cast<double>(place.used) == model_.filled(i));
      REQUIRE(static_cast<int>(place.residents) == model_.count(i));
      const bool within = static_cast<double>(place.used) + model_.o.shared <=
                          options_.theta * static_cast<double>(place.capacity);
      over_capacity_alone += within ? 0 : 1;
      // A conversation with several turns may outgrow its place while one of them runs.
      CHECK((within || place.residents <= 1 || parallel_turns_));
    }
  }

  bool busy(std::uint64_t key) const {
    for (const Running& turn : running_) {
      if (turn.key == key) return true;
    }
    for (const auto& [id, turn] : waiting_) {
      if (turn.key == key) return true;
    }
    return false;
  }

  static ReplicaId name(int slot) {
    return slot < 0 ? ReplicaId{} : ReplicaId{static_cast<std::uint16_t>(slot), 0};
  }

  static void compare(const std::optional<Admitted>& got,
                      const std::optional<PlainGate::In>& want) {
    REQUIRE(got.has_value() == want.has_value());
    if (got) compare(*got, *want);
  }
  static void compare(const Admitted& got, const PlainGate::In& want) {
    REQUIRE(got.id == want.id);
    REQUIRE(got.replica == name(want.replica));
    REQUIRE(got.stay == want.stay);
  }

  const GateOptions options_;
  std::mt19937_64 random_;
  bool parallel_turns_;
  Admission gate_;
  PlainGate model_;
  std::array<ReplicaState, replicas> states_{};
  long now_ = 1'000;
  long pumped_ = 0;
  std::uint64_t last_id_ = 0;
  std::vector<Running> running_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::map<std::uint64_t, int> homes_;
};

}  // namespace

TEST_CASE("100,000 events: the gate and its plain model agree, and its promises hold") {
  const bool parallel_turns = GENERATE(false, true);
  std::uint64_t waited = 0;
  std::uint64_t refused = 0;
  std::uint64_t alone = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed, parallel_turns);
    const bool strict = seed % 2 == 0;
    const GateOptions options{.theta = seed % 3 == 0 ? 0.8 : 0.95,
                              .max_wait = std::chrono::milliseconds(strict ? 3'000 : 30'000),
                              .min_turns = static_cast<std::uint32_t>(1 + seed % 3),
                              .grace = std::chrono::milliseconds(seed % 4 == 0 ? 0 : 2'000),
                              .deadline = std::chrono::seconds(seed % 5 == 0 ? 15 : 90),
                              .shared_prefix_tokens = 500};
    History history(seed, options,
                    {options.theta, strict ? 3'000 : 30'000, seed % 4 == 0 ? 0 : 2'000,
                     seed % 5 == 0 ? 15'000 : 90'000, options.min_turns, 500},
                    parallel_turns);
    for (int i = 0; i < 5'000; ++i) history.step();
    history.end();
    waited += history.waited;
    refused += history.refused;
    alone += history.over_capacity_alone;
  }
  // The histories go where it matters: turns wait, deadlines come, one alone outgrows a cache.
  CHECK(waited > 4'000);
  CHECK(refused > 20);
  CHECK((alone > 20 || !parallel_turns));
}
