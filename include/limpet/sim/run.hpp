// SPDX-License-Identifier: Apache-2.0
//
// Simulation: a fleet, a front end before it and users who send turns, on one simulated clock.
//
// Users are seats: each plays one session of a SessionSource after the other. A run can be repeated
// with another load on the same engines, whose caches and gauges are then as the last run left
// them: the steps of a ladder follow each other. Deterministic: same options, same front end, same
// report. Cost: a few hundred ns a scheduled sequence and step, 100-200 ns a prompt block. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <limpet/sim/coordinator.hpp>
#include <limpet/sim/engine.hpp>
#include <limpet/sim/event_queue.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/sim/meter.hpp>
#include <limpet/sim/metrics_page.hpp>
#include <limpet/sim/random.hpp>
#include <limpet/sim/report.hpp>
#include <limpet/sim/seat.hpp>
#include <limpet/sim/token_chain.hpp>
#include <limpet/sim/workload.hpp>
#include <limpet/types.hpp>

namespace limpet::sim {

struct SimulationOptions {
  double scrape_interval = 2.0;  // s between two readings of the metrics page
  // How far a replica's speed strays, as a share: each replica runs for 10 s at a speed of its own,
  // drawn from 1 +- wander. Real machines do, and equal replicas in lockstep flatter some policies.
  double wander = 0;
  std::uint64_t seed = 1;  // of that, and of what strays in a profile
};

struct Load {
  std::uint32_t seats = 1;                                   // sessions at once
  double seconds = std::numeric_limits<double>::infinity();  // then no new turn begins
  double stagger = 0.004;  // s between the first turns of two seats
};

template <FrontEnd F>
class Simulation {
 public:
  // Requires a fleet with one block size. The front end must outlive the simulation.
  Simulation(const std::vector<EngineProfile>& fleet, F& front, SimulationOptions options = {})
      : front_(front),
        options_(options),

        meter_(fleet.size()) {
    assert(!fleet.empty());
    engines_.reserve(fleet.size());
    for (const EngineProfile& profile : fleet) {
      assert(profile.block_tokens == fleet.front().block_tokens);
      engines_.emplace_back(profile);
    }
    front_.start(fleet);
    if constexpr (F::reads_pages) events_.schedule(0.0, {Event::Kind::scrape});
  }

  // As if every engine had served that text before the run began: its prefix is cached.
  void warm(const std::vector<SharedText>& texts) {
    struct Nobody {
      void first_token(std::uint64_t, std::uint64_t) noexcept {}
      void finished(std::uint64_t) noexcept {}
    };
    TokenChain tokens(engines_.front().profile().block_tokens);
    for (const SharedText& text : texts) tokens.append(text.content, text.tokens);
    const std::uint64_t prompt = tokens.tokens();
    tokens.append(0, 1);
    for (Engine& engine : engines_) {
      engine.submit({0, tokens, prompt, 1});
      while (engine.has_work()) {
        (void)engine.begin_step();
        engine.end_step(Nobody{});
      }
    }
  }

  // Runs that load until its last turn has ended. Figures per time are for load.seconds, or for the
  // whole of a run that ends by itself; the turns are to be had one by one from turns().
  template <SessionSource Source>
  [[nodiscard]] Report run(Source& source, const Load& load) {
    begin_ = events_.now();
    stop_ = begin_ + load.seconds;
    first_id_ += turns_.size();
    turns_.clear();
    durations_.clear();
    seats_.clear();
    seats_.reserve(load.seats);
    const Totals before = meter_.read(engines_, begin_);
    std::optional<Totals> at_stop;
    for (std::uint32_t i = 0; i < load.seats; ++i) {
      seats_.emplace_back();
      take_session(source, i, begin_ + load.stagger * i);
    }
    while (active_ > 0) {
      if (!at_stop && events_.next_at() >= stop_) at_stop = meter_.read(engines_, stop_);
      handle(events_.pop(), source);
    }
    Report report = summarize(turns_, load.seats);
    report.sessions = durations_.size();
    report.session = Quantity::of(durations_);
    add_totals(report, before, at_stop.value_or(meter_.read(engines_, events_.now())));
    return report;
  }

  // Of the last run, in the order sent.
  [[nodiscard]] const std::vector<TurnRecord>& turns() const noexcept { return turns_; }
  [[nodiscard]] std::span<const Engine> engines() const noexcept { return engines_; }
  [[nodiscard]] double now() const noexcept { return events_.now(); }

 private:
  struct Event {
    enum class Kind : std::uint8_t { turn, choice, arrival, step_end, scrape, counts, wake };
    Kind kind;
    std::uint32_t index = 0;  // of a seat or an engine
  };

  struct Sink {
    Simulation& simulation;
    std::uint32_t replica;
    void first_token(std::uint64_t id, std::uint64_t cached) {
      simulation.first_byte(id, replica, cached);
    }
    void finished(std::uint64_t id) { simulation.ended_.push_back(id); }
  };

  template <class Source>
  void handle(const Event& event, Source& source) {
    switch (event.kind) {
      case Event::Kind::turn:
        return send_turn(event.index);
      case Event::Kind::choice:
        return choose(event.index);
      case Event::Kind::arrival:
        return arrive(event.index);
      case Event::Kind::step_end:
        return end_step(event.index, source);
      case Event::Kind::scrape:
        front_.scraped(MetricsPage::render(engines_, 0.0), events_.now());
        return events_.schedule(events_.now() + options_.scrape_interval, event);
      case Event::Kind::counts:
        return broadcast_counts();
      case Event::Kind::wake:
        return release_held();
    }
  }

  // Gives the seat its next session, due at that time; without one the seat stays empty.
  template <class Source>
  void take_session(Source& source, std::uint32_t seat, double due) {
    std::optional<Session> session = source.next();
    if (!session) return;
    seats_[seat].begin(std::move(*session), due);
    ++active_;
    events_.schedule(due, {Event::Kind::turn, seat});
  }

  void send_turn(std::uint32_t index) {
    const double now = events_.now();
    if (now >= stop_) {  // the time is up: the seat is left
      --active_;
      return;
    }
    Seat& seat = seats_[index];
    seat.compose(engines_.front().profile().block_tokens);
    TurnRecord record;
    record.session = seat.session().name;
    record.seat = index;
    record.turn = seat.turn_number();
    record.sent = now - begin_;
    record.prompt_tokens = seat.plan().prompt_tokens;
    record.output_tokens = seat.plan().output_tokens;
    seat.turn_id(first_id_ + turns_.size());
    turns_.push_back(std::move(record));
    // A balancer inside the server sees the request only when it has been received and tokenised.
    if constexpr (F::inside_server) {
      events_.schedule(now + front_end_time(index), {Event::Kind::choice, index});
    } else {
      choose(index);
    }
  }

  void choose(std::uint32_t index) {
    const Arrival turn = seats_[index].arrival();
    const Choice choice = front_.choose(turn, events_.now());
    if (choice.replica != Choice::nowhere) dispatch(turn.id, choice);
    release_held();
  }

  void dispatch(std::uint64_t id, const Choice& choice) {
    assert(choice.replica < engines_.size());
    TurnRecord& record = turns_[id - first_id_];
    record.replica = static_cast<std::uint32_t>(choice.replica);
    record.outcome = choice.outcome;
    const double on_the_way = F::inside_server ? 0.0 : front_end_time(record.seat);
    events_.schedule(events_.now() + on_the_way, {Event::Kind::arrival, record.seat});
  }

  void arrive(std::uint32_t index) {
    const Seat& seat = seats_[index];
    const std::uint64_t id = seat.arrival().id;
    const std::uint32_t replica = turns_[id - first_id_].replica;
    engines_[replica].submit(
        {id, seat.tokens(), seat.plan().prompt_tokens, seat.plan().output_tokens});
    begin_step(replica);
  }

  // One front end serves the whole fleet, so the profile of the first replica says how.
  [[nodiscard]] double front_end_time(std::uint32_t seat) const noexcept {
    const EngineProfile& profile = engines_.front().profile();
    const std::uint64_t turn = seats_[seat].arrival().id;
    return profile.front_end * (1.0 + profile.front_end_spread * strayed(~turn));
  }

  // In [-1, 1), by the run's seed.
  [[nodiscard]] double strayed(std::uint64_t what) const noexcept {
    const std::uint64_t drawn = mix(options_.seed ^ mix(what));
    return 2.0 * static_cast<double>(drawn >> 11) * 0x1.0p-53 - 1.0;
  }

  void begin_step(std::uint32_t index) {
    Engine& engine = engines_[index];
    if (engine.stepping() || !engine.has_work()) return;
    meter_.begins(index, events_.now());
    events_.schedule(events_.now() + engine.begin_step() * pace(index),
                     {Event::Kind::step_end, index});
  }

  [[nodiscard]] double pace(std::uint32_t index) const noexcept {
    const auto stretch = static_cast<std::uint64_t>(events_.now() / 10.0);
    return 1.0 + options_.wander * strayed(stretch * 4'096 + index);
  }

  template <class Source>
  void end_step(std::uint32_t index, Source& source) {
    ended_.clear();
    engines_[index].end_step(Sink{*this, index});
    if (!engines_[index].has_work()) meter_.ends(index, events_.now());
    if constexpr (F::listens_to_counts) {
      if (coordinator_.hear(engines_, events_.now())) {
        events_.schedule(coordinator_.due(), {Event::Kind::counts});
      }
    }
    for (const std::uint64_t id : ended_) end_turn(id, index, source);
    begin_step(index);
  }

  void first_byte(std::uint64_t id, std::uint32_t replica, std::uint64_t cached) {
    TurnRecord& record = turns_[id - first_id_];
    record.first = events_.now() - begin_;
    record.cached_tokens = cached;
    front_.first_byte(id, replica, events_.now());
  }

  template <class Source>
  void end_turn(std::uint64_t id, std::uint32_t replica, Source& source) {
    const double now = events_.now();
    TurnRecord& record = turns_[id - first_id_];
    record.end = now - begin_;
    const Usage usage{record.prompt_tokens, record.cached_tokens, record.output_tokens};
    front_.finished(id, replica, usage, now);
    Seat& seat = seats_[record.seat];
    if (seat.next_turn()) {
      events_.schedule(now + seat.plan().think, {Event::Kind::turn, record.seat});
    } else {
      durations_.push_back(now - seat.began());
      --active_;
      if (now < stop_) take_session(source, record.seat, now);
    }
    release_held();
  }

  // Lets a front end that holds turns send those that may leave now.
  void release_held() {
    if constexpr (HoldingFrontEnd<F>) {
      front_.released(events_.now(),
                      [this](std::uint64_t id, Choice choice) { dispatch(id, choice); });
      const double at = std::max(front_.wake_at(), events_.now());
      if (at < std::numeric_limits<double>::infinity() && at != woken_at_) {
        woken_at_ = at;
        events_.schedule(at, {Event::Kind::wake});
      }
    }
  }

  void broadcast_counts() {
    const double now = events_.now();
    if (!coordinator_.is_due(now)) return;
    front_.counted(coordinator_.send(now), now);
    events_.schedule(coordinator_.due(), {Event::Kind::counts});
  }

  F& front_;
  SimulationOptions options_;
  std::vector<Engine> engines_;
  EventQueue<Event> events_;
  std::vector<Seat> seats_;
  std::vector<TurnRecord> turns_;
  std::uint64_t first_id_ = 0;        // of turns_
  std::vector<double> durations_;     // of completed sessions
  std::vector<std::uint64_t> ended_;  // in the step that is ending
  Meter meter_;
  Coordinator coordinator_;
  double woken_at_ = -1;
  double begin_ = 0;
  double stop_ = 0;
  std::uint32_t active_ = 0;  // seats with a turn due or in flight
};

}  // namespace limpet::sim
