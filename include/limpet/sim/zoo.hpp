// SPDX-License-Identifier: Apache-2.0
//
// The policy zoo: what others do, each in its plainest form and against the same interface, so that
// a rule can be compared before it is believed. Load-only policies first, then those by key, then
// those that guess what is cached. All are models of FrontEnd; none is meant for production.
//
// A policy with a home for conversations says where a turn went relative to it. Costs: O(replicas)
// a turn unless noted. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/sim/prefix_index.hpp>
#include <limpet/sim/random.hpp>
#include <limpet/types.hpp>

namespace limpet::sim::zoo {

[[nodiscard]] inline std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// What all of them count: own turns in flight on each replica.
struct Counting : FrontEndBase {
  void start(std::span<const EngineProfile> fleet) { in_flight.assign(fleet.size(), 0); }
  void finished(std::uint64_t, std::size_t replica, const Usage&, double) { --in_flight[replica]; }

  Choice take(std::size_t replica, Outcome outcome = Outcome::balanced) {
    ++in_flight[replica];
    return {replica, outcome};
  }

  // The replica for which `cost` is lowest; the first of equals after `first`.
  template <class Cost>
  [[nodiscard]] std::size_t cheapest(Cost cost, std::size_t first = 0) const {
    std::size_t best = first % in_flight.size();
    for (std::size_t i = 1; i < in_flight.size(); ++i) {
      const std::size_t replica = (first + i) % in_flight.size();
      if (cost(replica) < cost(best)) best = replica;
    }
    return best;
  }

  std::vector<std::uint32_t> in_flight;
};

// Any replica, each as likely.
struct RandomChoice : Counting {
  Choice choose(const Arrival&, double) { return take(random.below(in_flight.size())); }
  Random random{1};
};

// One after the other.
struct RoundRobinChoice : Counting {
  Choice choose(const Arrival&, double) { return take(next++ % in_flight.size()); }
  std::size_t next = 0;
};

// Least connections (HAProxy `leastconn`, NGINX `least_conn`), ties in turn.
struct LeastInFlightChoice : Counting {
  Choice choose(const Arrival&, double) {
    return take(cheapest([this](std::size_t i) { return in_flight[i]; }, next++));
  }
  std::size_t next = 0;
};

// The less loaded of two drawn at random (Mitzenmacher, "The power of two choices", IEEE TPDS
// 2001).
struct PowerOfTwoChoices : Counting {
  Choice choose(const Arrival&, double) {
    const std::size_t a = random.below(in_flight.size());
    const std::size_t b = random.below(in_flight.size());
    return take(in_flight[b] < in_flight[a] ? b : a);
  }
  Random random{1};
};

// Consistent hashing of the conversation key on a ring with 100 points a replica (Karger et al.,
// STOC 1997): no table, no load. O(log replicas).
struct ConsistentHash : Counting {
  void start(std::span<const EngineProfile> fleet) {
    Counting::start(fleet);
    for (std::size_t i = 0; i < fleet.size(); ++i) {
      for (std::uint64_t point = 0; point < 100; ++point) ring.emplace(mix((i << 32) | point), i);
    }
  }

  Choice choose(const Arrival& turn, double) {
    const auto at = ring.lower_bound(hash_of(turn.conversation));
    return take(at == ring.end() ? ring.begin()->second : at->second, Outcome::sticky);
  }

  std::map<std::uint64_t, std::size_t> ring;
};

// Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018; HAProxy
// `hash-balance-factor`): on along the ring from a replica with more than 1.25 x the mean load.
struct BoundedLoadHash : ConsistentHash {
  Choice choose(const Arrival& turn, double) {
    double total = 1;
    for (const std::uint32_t count : in_flight) total += count;
    const double bound = std::ceil(1.25 * total / static_cast<double>(in_flight.size()));
    auto at = ring.lower_bound(hash_of(turn.conversation));
    for (std::size_t step = 0;; ++step, ++at) {
      if (at == ring.end()) at = ring.begin();
      if (in_flight[at->second] + 1 > bound) continue;
      return take(at->second, step == 0 ? Outcome::sticky : Outcome::spilled);
    }
  }
};

// A hash of the first user message: what a gateway does that is told no session, by the text after
// the shared prompt, a kilobyte of it. Sub-agents and compacted conversations go their own ways.
struct FirstMessageHash : Counting {
  Choice choose(const Arrival& turn, double) {
    const auto blocks = turn.tokens->blocks();
    const std::uint64_t block = (turn.shared_tokens + 256) / turn.tokens->block_tokens();
    const std::uint64_t hash = blocks.empty() ? 0 : blocks[std::min(block, blocks.size() - 1)];
    return take(mix(hash) % in_flight.size(), Outcome::sticky);
  }
};

// Sticky sessions: the first turn goes to the replica with the fewest sessions, the others after it
// for ever (a stick table over `leastconn`, as session routers do). The table is not bounded here.
struct StickyFewestSessions : Counting {
  void start(std::span<const EngineProfile> fleet) {
    Counting::start(fleet);
    sessions.assign(fleet.size(), 0);
  }

  Choice choose(const Arrival& turn, double) {
    const auto [at, first_turn] = home.try_emplace(std::string(turn.conversation));
    if (!first_turn) return take(at->second, Outcome::sticky);
    at->second = cheapest([this](std::size_t i) { return sessions[i]; });
    ++sessions[at->second];
    return take(at->second, Outcome::placed);
  }

  std::unordered_map<std::string, std::size_t> home;
  std::vector<std::uint64_t> sessions;  // ever placed: nobody says when one ends
};

// Longest known prefix unless the load is uneven, else the shortest queue; without a match the
// replica with the smallest tree. (`cache_aware` of SGLang's router and of its successor SMG, with
// the latter's documented defaults: a match of 0.3 of the prompt, imbalance above 64 turns and 1.5
// times.)
struct PrefixAffinity : Counting {
  void start(std::span<const EngineProfile> fleet) {
    Counting::start(fleet);
    index.start(fleet);
  }

  Choice choose(const Arrival& turn, double) {
    const auto [least, most] = std::minmax_element(in_flight.begin(), in_flight.end());
    const bool uneven = *most - *least > 64 && *most > 1.5 * *least;
    std::size_t best = cheapest([this](std::size_t i) { return in_flight[i]; });
    if (!uneven) {
      std::vector<std::uint64_t> matched;
      for (std::size_t i = 0; i < in_flight.size(); ++i) matched.push_back(index.matched(turn, i));
      best = cheapest([&](std::size_t i) { return turn.prompt_tokens - matched[i]; });
      if (static_cast<double>(matched[best]) < 0.3 * static_cast<double>(turn.prompt_tokens)) {
        best = cheapest([this](std::size_t i) { return index.size(i); });
      }
    }
    index.sent(turn, best);
    return take(best);
  }

  PrefixIndex index;
};

// New prefill tokens x batch size (Zhang et al., "Multiplication may be all you need for LLM
// request scheduling", arXiv 2603.15202).
struct TokensTimesBatchSize : PrefixAffinity {
  Choice choose(const Arrival& turn, double) {
    std::vector<double> cost;
    for (std::size_t i = 0; i < in_flight.size(); ++i) {
      const auto fresh = static_cast<double>(turn.prompt_tokens - index.matched(turn, i));
      cost.push_back(fresh * (in_flight[i] + 1));
    }
    const std::size_t best = cheapest([&](std::size_t i) { return cost[i]; });
    index.sent(turn, best);
    return take(best);
  }
};

// Least pending prefill: tokens still to be read there, of the turns before this one and of this
// one (the prefill half of NVIDIA Dynamo's router cost; decode load is left out).
struct LeastPendingPrefillChoice : PrefixAffinity {
  void start(std::span<const EngineProfile> fleet) {
    PrefixAffinity::start(fleet);
    pending.assign(fleet.size(), 0);
  }

  Choice choose(const Arrival& turn, double) {
    std::vector<std::uint64_t> fresh;
    for (std::size_t i = 0; i < in_flight.size(); ++i) {
      fresh.push_back(turn.prompt_tokens - index.matched(turn, i));
    }
    const std::size_t best = cheapest([&](std::size_t i) { return pending[i] + fresh[i]; });
    pending[best] += fresh[best];
    unread[turn.id] = fresh[best];
    index.sent(turn, best);
    return take(best);
  }

  void first_byte(std::uint64_t id, std::size_t replica, double) {
    pending[replica] -= unread[id];
    unread.erase(id);
  }

  std::vector<std::uint64_t> pending;
  std::unordered_map<std::uint64_t, std::uint64_t> unread;
};

static_assert(FrontEnd<RandomChoice> && FrontEnd<RoundRobinChoice> &&
              FrontEnd<LeastInFlightChoice>);
static_assert(FrontEnd<PowerOfTwoChoices> && FrontEnd<ConsistentHash> && FrontEnd<BoundedLoadHash>);
static_assert(FrontEnd<FirstMessageHash> && FrontEnd<StickyFewestSessions>);
static_assert(FrontEnd<PrefixAffinity> && FrontEnd<TokensTimesBatchSize>);
static_assert(FrontEnd<LeastPendingPrefillChoice>);

}  // namespace limpet::sim::zoo
