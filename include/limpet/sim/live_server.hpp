// SPDX-License-Identifier: Apache-2.0
//
// LiveServer: a vLLM server of one or more data-parallel ranks, driven by a caller's clock: what a
// process that answers real requests needs, where run.hpp plays a whole workload.
//
// Prompts are real tokens here, so requests share exactly the blocks that their texts share. A
// request passes the front end, is given a rank by vLLM's own balancer unless it names one, and
// then waits and runs as in engine.hpp. Submit and abort when it happens, call advance() at
// next_at(): a call that comes late changes when the caller hears of something, never what happens.
// Deterministic. O(log n) an event; a prompt costs some ns a token. Not thread-safe.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <limpet/sim/balancers.hpp>
#include <limpet/sim/coordinator.hpp>
#include <limpet/sim/engine.hpp>
#include <limpet/sim/event_queue.hpp>
#include <limpet/sim/metrics_page.hpp>
#include <limpet/sim/random.hpp>
#include <limpet/sim/token_chain.hpp>

namespace limpet::sim {

// How far a request has come.
struct Progress {
  std::uint64_t id = 0;
  std::uint32_t rank = 0;
  std::uint64_t generated = 0;  // tokens of the answer so far
  std::uint64_t cached = 0;     // prompt tokens that were found in the cache
  bool finished = false;
};

class LiveServer {
 public:
  static constexpr std::uint32_t any_rank = ~std::uint32_t{0};

  // vLLM's own, in one of its historical forms (balancers.hpp).
  using Balancer = std::variant<VllmBalancer, VllmBalancer4w, VllmBalancerBlind>;

  // Counts prefix hits as vLLM does since July 2026, whatever the profile says. Requires ranks > 0
  // and a cache of at least one block.
  LiveServer(EngineProfile profile, std::uint32_t ranks, Balancer balancer = VllmBalancer{})
      : states_(ranks),
        balancer_(std::move(balancer)),
        capacity_(profile.kv_tokens / profile.block_tokens * profile.block_tokens) {
    profile.hit_counting = HitCounting::each_request;
    const std::vector<EngineProfile> fleet(ranks, profile);
    for (const EngineProfile& each : fleet) engines_.emplace_back(each);
    std::visit([&](auto& each) { each.start(fleet); }, balancer_);
  }

  // `tokens` are those of the prompt and then those of the answer it will get. Requires an id that
  // is not in flight, 0 < prompt_tokens < tokens.size() <= capacity(), and times that never go back.
  void submit(std::uint64_t id, std::span<const std::uint32_t> tokens, std::uint64_t prompt_tokens,
              std::uint32_t rank, double now) {
    assert(0 < prompt_tokens && prompt_tokens < tokens.size() && tokens.size() <= capacity_);
    const EngineProfile& profile = engines_.front().profile();
    TokenChain chain(profile.block_tokens);
    for (const std::uint32_t token : tokens) chain.append(token, 1);
    requests_[id] = {.tokens = std::move(chain),
                     .prompt_tokens = prompt_tokens,
                     .output_tokens = tokens.size() - prompt_tokens,
                     .rank = rank};
    const double strays = 2.0 * static_cast<double>(mix(~id) >> 11) * 0x1.0p-53 - 1.0;
    const double front_end = profile.front_end * (1.0 + profile.front_end_spread * strays);
    schedule(now + front_end, {Event::Kind::arrival, 0, id});
  }

  // Nobody waits for the answer any more. False: no such request is in flight.
  bool abort(std::uint64_t id, double now) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return false;
    const std::uint32_t rank = found->second.rank;
    const bool arrived = found->second.arrived;
    requests_.erase(found);
    if (!arrived) return true;
    engines_[rank].abort(id);
    ended(id, rank, now);
    report_counts(std::max(now, events_.now()));
    return true;
  }

  // Lets happen what is due until then, and calls told(Progress) for each token, in order; it must
  // not call back. The last call for a request has `finished`.
  template <class Told>
  void advance(double until, Told&& told) {
    while (next_at() <= until) {
      const Event event = events_.pop();
      switch (event.kind) {
        case Event::Kind::arrival:
          arrive(event.id);
          break;
        case Event::Kind::step_end:
          end_step(event.rank, told);
          break;
        case Event::Kind::counts:
          broadcast_counts();
          break;
      }
    }
  }

  // When something is due next; infinity: never, unless something is submitted.
  [[nodiscard]] double next_at() const noexcept {
    return events_.empty() ? std::numeric_limits<double>::infinity() : events_.next_at();
  }

  // Every step takes `factor` times as long, from each rank's next one on. Requires factor > 0.
  void slow(double factor) noexcept { slowdown_ = factor; }

  // A rank that hangs ends no step: its gauges stay as they were, and nothing comes from it.
  void hang(std::uint32_t rank, bool hangs, double now) {
    State& state = states_[rank];
    state.hangs = hangs;
    if (hangs) return;
    if (std::exchange(state.held, false)) {
      schedule(now, {Event::Kind::step_end, rank, 0});
    } else {
      begin_step(rank, std::max(now, events_.now()));
    }
  }

  // Forgets the cached prefixes of every rank on which no request holds a block. Returns: all were.
  bool reset_prefix_cache() noexcept {
    bool all = true;
    for (Engine& engine : engines_) all &= engine.reset_prefix_cache();
    return all;
  }

  // `started`: when the server started, s since 1970.
  [[nodiscard]] std::string metrics(double started) const {
    return MetricsPage::render(engines_, started);
  }

  [[nodiscard]] std::span<const Engine> engines() const noexcept { return engines_; }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }  // tokens, of a rank
  [[nodiscard]] std::size_t in_flight() const noexcept { return requests_.size(); }
  [[nodiscard]] bool in_flight(std::uint64_t id) const { return requests_.contains(id); }

 private:
  struct Event {
    enum class Kind : std::uint8_t { arrival, step_end, counts };
    Kind kind;
    std::uint32_t rank;
    std::uint64_t id;
  };

  struct InFlight {
    TokenChain tokens{};
    std::uint64_t prompt_tokens = 0;
    std::uint64_t output_tokens = 0;
    std::uint32_t rank = any_rank;
    std::uint64_t cached = 0;
    bool arrived = false;  // at its engine, which then has the tokens
  };

  struct State {
    bool hangs = false;
    bool held = false;  // a step would have ended meanwhile
  };

  template <class Told>
  struct Sink {
    LiveServer& server;
    std::uint32_t rank;
    Told& told;

    void first_token(std::uint64_t id, std::uint64_t cached) {
      server.requests_.at(id).cached = cached;
    }
    void token(std::uint64_t id, std::uint64_t generated) {
      const InFlight& request = server.requests_.at(id);
      told(Progress{id, rank, generated, request.cached, generated == request.output_tokens});
    }
    void finished(std::uint64_t id) {
      server.requests_.erase(id);
      server.ended(id, rank, server.events_.now());
    }
  };

  void arrive(std::uint64_t id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;  // aborted on the way
    InFlight& request = found->second;
    if (request.rank == any_rank) {
      const auto choose = [&](auto& each) { return each.choose({}, events_.now()).replica; };
      request.rank = static_cast<std::uint32_t>(std::visit(choose, balancer_));
    } else if (auto* const counting = std::get_if<VllmBalancer>(&balancer_)) {
      ++counting->in_flight[request.rank];  // the others know only what engines report
    }
    request.arrived = true;
    engines_[request.rank].submit(
        {id, std::move(request.tokens), request.prompt_tokens, request.output_tokens});
    begin_step(request.rank, events_.now());
  }

  void begin_step(std::uint32_t rank, double now) {
    Engine& engine = engines_[rank];
    if (states_[rank].hangs || engine.stepping() || !engine.has_work()) return;
    schedule(now + engine.begin_step() * slowdown_, {Event::Kind::step_end, rank, 0});
  }

  template <class Told>
  void end_step(std::uint32_t rank, Told& told) {
    if (states_[rank].hangs) {
      states_[rank].held = true;
      return;
    }
    engines_[rank].end_step(Sink<Told>{*this, rank, told});
    report_counts(events_.now());
    begin_step(rank, events_.now());
  }

  // Through vLLM's coordinator, which there is only where there is something to balance.
  void report_counts(double now) {
    if (engines_.size() > 1 && coordinator_.hear(engines_, now)) {
      schedule(coordinator_.due(), {Event::Kind::counts, 0, 0});
    }
  }

  void broadcast_counts() {
    const double now = events_.now();
    if (!coordinator_.is_due(now)) return;
    const auto counts = coordinator_.send(now);
    std::visit(
        [&](auto& each) {
          if constexpr (std::remove_cvref_t<decltype(each)>::listens_to_counts) {
            each.counted(counts, now);
          }
        },
        balancer_);
    schedule(coordinator_.due(), {Event::Kind::counts, 0, 0});
  }

  void ended(std::uint64_t id, std::uint32_t rank, double now) {
    std::visit([&](auto& each) { each.finished(id, rank, {}, now); }, balancer_);
  }

  void schedule(double at, Event event) { events_.schedule(std::max(at, events_.now()), event); }

  std::vector<Engine> engines_;
  std::vector<State> states_;
  std::unordered_map<std::uint64_t, InFlight> requests_;
  EventQueue<Event> events_;
  Balancer balancer_;
  Coordinator coordinator_;
  std::uint64_t capacity_;
  double slowdown_ = 1.0;
};

}  // namespace limpet::sim
