// SPDX-License-Identifier: Apache-2.0
//
// Plays sessions through one router in virtual time, for replay.cpp. replay.py does the same.
//
// A closed loop: a turn is sent when the answer before it has come and the recorded pause is over.
// It takes the time it took when it was recorded, wherever it is sent: what is compared is
// placement, not speed (include/limpet/sim has engines for that). A replica remembers every prompt
// it was ever sent, an answer counts as read only as part of the next prompt, and different
// sessions share nothing.
#pragma once

#include "sessions.hpp"

#include <limpet/limpet.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

namespace replay {

struct Settings {
  std::uint32_t replicas = 8;
  std::uint32_t concurrent = 0;      // sessions at a time; 0: 16 a replica
  std::int64_t ramp_ms = 3'600'000;  // over which the first of them start, evenly spread
  std::uint32_t max_num_seqs = 32;   // of each replica
  std::int64_t idle_ttl_s = 0;       // of the pins; 0: for ever, as the replicas remember
  std::uint64_t seed = 1;

  [[nodiscard]] std::uint32_t sessions_at_a_time() const noexcept {
    return concurrent == 0 ? 16 * replicas : concurrent;
  }
};

// What came of a run. Times are in ms and sums are whole numbers, so that C++ and Python agree to
// the last digit.
struct Tally {
  std::uint64_t turns = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t reused_tokens = 0;  // of those, read before by the replica that got the turn
  std::uint64_t later_turns = 0;    // turns that are not their conversation's first
  std::uint64_t at_home = 0;        // of those, sent to where the conversation was placed
  std::uint64_t spills = 0;
  std::uint64_t placed_again = 0;  // later turns that found no pin, or were moved
  std::int64_t end_ms = 0;
  std::vector<std::uint64_t> met;           // [n]: turns sent while n others were in flight
  std::vector<std::uint64_t> in_flight_ms;  // of each replica: turns in flight x time
  std::uint64_t fullest_in_flight_ms = 0;   // of whichever was the fullest
  std::uint64_t spread_in_flight_ms = 0;    // of the fullest, were they always spread evenly
  std::uint64_t fingerprint = 0xcbf29ce484222325ULL;  // of every replica and outcome, in order

  [[nodiscard]] std::uint64_t fleet_in_flight_ms() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t replica : in_flight_ms) sum += replica;
    return sum;
  }

  // Of the others in flight when a turn was sent.
  [[nodiscard]] std::size_t most_met() const noexcept { return met.empty() ? 0 : met.size() - 1; }
  [[nodiscard]] std::size_t median_met() const noexcept {
    std::size_t others = 0;
    for (std::uint64_t seen = 0; others < most_met(); ++others) {
      seen += met[others];
      if (2 * seen >= turns) break;
    }
    return others;
  }
};

// What each replica has read of one session's prompts.
class ReadPrompts {
 public:
  ReadPrompts(const Session& session, std::size_t replicas)
      : session_(&session), longest_(replicas) {}

  // The tokens of the turn's prompt that the replica has read: the longest prefix shared with any
  // prompt it was sent. Two prompts share what every step between them along `from` keeps.
  [[nodiscard]] std::uint64_t reusable(std::int32_t turn, std::size_t replica) const {
    const std::vector<std::uint64_t>& longest = longest_[replica];
    if (longest.empty()) return 0;
    std::uint64_t shared = at(turn).prompt_tokens;
    std::uint64_t most = std::min(shared, longest[index(turn)]);
    while (at(turn).from != none && most < shared) {
      shared = std::min(shared, at(turn).kept);
      turn = at(turn).from;
      most = std::max(most, std::min(shared, longest[index(turn)]));
    }
    return most;
  }

  // The replica reads the turn's prompt, and with it the beginnings of those that it continues.
  void read(std::int32_t turn, std::size_t replica) {
    std::vector<std::uint64_t>& longest = longest_[replica];
    longest.resize(session_->turns.size());
    std::uint64_t shared = at(turn).prompt_tokens;
    longest[index(turn)] = shared;
    while (at(turn).from != none) {
      shared = std::min(shared, at(turn).kept);
      turn = at(turn).from;
      if (longest[index(turn)] >= shared) return;
      longest[index(turn)] = shared;
    }
  }

 private:
  [[nodiscard]] static std::size_t index(std::int32_t turn) noexcept {
    return static_cast<std::size_t>(turn);
  }
  [[nodiscard]] const Turn& at(std::int32_t turn) const { return session_->turns[index(turn)]; }

  const Session* session_;
  // Of each replica that was sent any: the prefix of each prompt that it has read.
  std::vector<std::vector<std::uint64_t>> longest_;
};

// Ask: fills in what the policy under test tells the router of a turn.
template <class Router, class Ask>
class Playback {
 public:
  Playback(const std::vector<Session>& sessions, const Settings& settings, Router& router,
           limpet::ManualClock clock, Ask ask)
      : sessions_(sessions),
        router_(router),
        clock_(std::move(clock)),
        ask_(std::move(ask)),
        running_(sessions.size()),
        in_flight_(settings.replicas) {
    tally_.in_flight_ms.resize(settings.replicas);
    for (std::uint32_t i = 0; i < settings.replicas; ++i) {
      replicas_.push_back(router_.add_replica(
          {.name = "replica" + std::to_string(i), .max_num_seqs = settings.max_num_seqs}));
    }
    const std::int64_t first = settings.sessions_at_a_time();
    for (std::int64_t i = 0; i < first; ++i) begin_session(settings.ramp_ms * i / first);
  }

  // Calls progress(turns sent so far) now and then.
  template <class Progress>
  [[nodiscard]] Tally run(Progress progress) {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      pass_time(event.at);
      if (event.what == What::send) {
        send(event);
        if (tally_.turns % 1024 == 0) progress(tally_.turns);
      } else {
        answer(event);
      }
    }
    tally_.end_ms = now_;
    return tally_;
  }

 private:
  enum class What : std::uint8_t { send, answer };

  struct Event {
    std::int64_t at;  // ms
    std::uint64_t order;
    What what;
    std::size_t session;
    std::int32_t turn;

    // Events of one moment happen in the order in which they were foreseen.
    [[nodiscard]] bool operator>(const Event& other) const noexcept {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };

  struct Running {
    std::optional<ReadPrompts> read;
    std::vector<std::optional<std::size_t>> homes;  // of each conversation
    std::vector<limpet::Lease> leases;              // of each turn
    std::size_t answered = 0;
  };

  void begin_session(std::int64_t at) {
    if (next_session_ == sessions_.size()) return;
    const Session& session = sessions_[next_session_];
    Running& running = running_[next_session_];
    running.read.emplace(session, replicas_.size());
    running.homes.resize(session.keys.size());
    running.leases.resize(session.turns.size());
    foresee(at, What::send, next_session_++, 0);
  }

  void foresee(std::int64_t at, What what, std::size_t session, std::int32_t turn) {
    events_.push({at, order_++, what, session, turn});
  }

  void pass_time(std::int64_t until) {
    const auto passed = static_cast<std::uint64_t>(until - now_);
    std::uint32_t fullest = 0;
    for (std::size_t i = 0; i < in_flight_.size(); ++i) {
      tally_.in_flight_ms[i] += in_flight_[i] * passed;
      fullest = std::max(fullest, in_flight_[i]);
    }
    tally_.fullest_in_flight_ms += fullest * passed;
    tally_.spread_in_flight_ms += (others_ + in_flight_.size() - 1) / in_flight_.size() * passed;
    now_ = until;
    clock_.advance_to(limpet::Instant{std::chrono::milliseconds(now_)});
  }

  void send(const Event& event) {
    const Session& session = sessions_[event.session];
    const Turn& turn = session.turns[static_cast<std::size_t>(event.turn)];
    Running& running = running_[event.session];

    limpet::Turn asked{.key = session.keys[turn.conversation], .prompt_tokens = turn.prompt_tokens};
    if (turn.conversation != 0) asked.parent = session.name;
    ask_(asked, replicas_);
    limpet::Lease lease = router_.route(asked);
    const std::size_t replica = lease.replica().slot;

    count(lease, turn, running.homes[turn.conversation]);
    tally_.reused_tokens += running.read->reusable(event.turn, replica);
    running.read->read(event.turn, replica);
    tally_.met.resize(std::max(tally_.met.size(), others_ + 1));
    ++tally_.met[others_++];
    ++in_flight_[replica];
    running.leases[static_cast<std::size_t>(event.turn)] = std::move(lease);
    foresee(now_ + turn.service_ms, What::answer, event.session, event.turn);
    for (const std::int32_t begun : turn.begun) {
      const std::int64_t delay = session.turns[static_cast<std::size_t>(begun)].delay_ms;
      foresee(now_ + delay, What::send, event.session, begun);
    }
  }

  void count(const limpet::Lease& lease, const Turn& turn, std::optional<std::size_t>& home) {
    const std::size_t replica = lease.replica().slot;
    const limpet::Outcome outcome = lease.outcome();
    const bool pinned_anew =
        outcome == limpet::Outcome::placed || outcome == limpet::Outcome::moved;
    ++tally_.turns;
    tally_.prompt_tokens += turn.prompt_tokens;
    if (outcome == limpet::Outcome::spilled) ++tally_.spills;
    if (home) {
      ++tally_.later_turns;
      if (*home == replica) ++tally_.at_home;
      if (pinned_anew) ++tally_.placed_again;
    }
    if (!home || pinned_anew) home = replica;
    const auto said = static_cast<std::uint64_t>(replica << 4U) | static_cast<unsigned>(outcome);
    tally_.fingerprint = (tally_.fingerprint ^ said) * 0x100000001b3ULL;  // FNV-1a
  }

  void answer(const Event& event) {
    const Session& session = sessions_[event.session];
    const Turn& turn = session.turns[static_cast<std::size_t>(event.turn)];
    Running& running = running_[event.session];
    limpet::Lease lease = std::move(running.leases[static_cast<std::size_t>(event.turn)]);
    --others_;
    --in_flight_[lease.replica().slot];
    lease.finish({.prompt_tokens = turn.prompt_tokens, .completion_tokens = turn.output_tokens});
    if (turn.next != none) {
      const std::int64_t pause = session.turns[static_cast<std::size_t>(turn.next)].think_ms;
      foresee(now_ + pause, What::send, event.session, turn.next);
    }
    if (++running.answered == session.turns.size()) {
      running = {};
      begin_session(now_);
    }
  }

  const std::vector<Session>& sessions_;
  Router& router_;
  limpet::ManualClock clock_;
  Ask ask_;
  std::vector<limpet::ReplicaId> replicas_;
  std::vector<Running> running_;
  std::vector<std::uint32_t> in_flight_;  // of each replica
  std::size_t others_ = 0;                // in flight in all
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::size_t next_session_ = 0;
  std::int64_t now_ = 0;
  Tally tally_;
};

}  // namespace replay
