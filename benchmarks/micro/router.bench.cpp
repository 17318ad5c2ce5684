// SPDX-License-Identifier: Apache-2.0
//
// What a turn costs: sticky, first, spilled, without a conversation; route and finish together, with
// the machine's clock, as a server pays for them. And a scrape, from page to loads.
//
// Each checks the outcome of every turn. Floor: floor_hash. Rival: naive_find over the same keys,
// which knows no loads, no time and no counts. Not measured: sending the request; other work between
// two turns, which would push the router out of the nearer caches.
#include "support.hpp"
#include "vllm_page.hpp"

#include <limpet/limpet.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace limpet::bench {
namespace {

[[nodiscard]] std::unique_ptr<Router<>> make_router(std::size_t capacity, std::int64_t replicas) {
  auto router = std::make_unique<Router<>>(ShardedPins<>{{.capacity = capacity}});
  for (std::int64_t i = 0; i < replicas; ++i)
    router->add_replica({.name = "gpu" + std::to_string(i), .max_num_seqs = 256});
  return router;
}

void finish(Lease& lease) {
  lease.finish({.prompt_tokens = 9'000, .completion_tokens = 200});
}

// A router that knows these sessions. A quarter of room more than they need, since keys fall on
// shards unevenly.
[[nodiscard]] Router<>& router_with(const std::vector<std::string>& sessions,
                                    std::int64_t replicas) {
  const std::size_t capacity = sessions.size() + sessions.size() / 4;
  return made_once<Router<>>(static_cast<std::int64_t>(capacity) * 4096 + replicas, [&] {
    auto router = make_router(capacity, replicas);
    for (const std::string& session : sessions) {
      Lease lease = router->route(session);
      finish(lease);
    }
    return router;
  });
}

void sticky_turn(benchmark::State& state) {
  const auto& sessions = session_ids(state.range(0));
  Router<>& router = router_with(sessions, state.range(1));
  Visits visits(sessions, state);
  measure(state, [&] {
    Lease lease = router.route(visits.next());
    finish(lease);
    return lease.outcome() == Outcome::sticky;
  });
}

// Of conversations that are always new to a store that is always full, so each evicts one.
void first_turn(benchmark::State& state) {
  const auto& sessions = session_ids(64 * Ki);
  const auto router = make_router(8 * Ki, state.range(0));
  std::size_t at = 0;
  const auto next = [&]() -> const std::string& { return sessions[at++ % sessions.size()]; };
  const auto turn = [&] {
    Lease lease = router->route(next());
    finish(lease);
    return lease.outcome() == Outcome::placed;
  };
  for (std::int64_t i = 0; i < 16 * Ki; ++i) turn();
  measure(state, turn);
  if (router->snapshot().evicted == 0) state.SkipWithError("nothing was evicted");
}

void spilled_turn(benchmark::State& state) {
  const auto router = make_router(8 * Ki, state.range(0));
  const std::string session = session_ids(8 * Ki).front();
  std::vector<Lease> at_home;
  for (int i = 0; i < 256 / 4; ++i) at_home.push_back(router->route(session));
  measure(state, [&] {
    Lease lease = router->route(session);
    finish(lease);
    return lease.outcome() == Outcome::spilled;
  });
}

void balanced_turn(benchmark::State& state) {
  const auto router = make_router(8 * Ki, state.range(0));
  measure(state, [&] {
    Lease lease = router->route(Turn{});
    finish(lease);
    return lease.outcome() == Outcome::balanced;
  });
}

void observe(benchmark::State& state) {
  Router<> router;
  for (const char* engine : {"0", "1"})
    router.add_replica({.name = engine, .endpoint = "http://gpu", .engine = engine});
  measure(state, [&] { return router.observe("http://gpu", vllm_page()) == ParseStatus::ok; });
  if (router.snapshot().replicas[1].kv_capacity_tokens != 32'768.0)
    state.SkipWithError("the page was not understood");
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(vllm_page().size()));
}

BENCHMARK(sticky_turn)->ArgNames({"pins", "replicas"})->Args({8 * Ki, 8})->Args({1 * Mi, 8});
BENCHMARK(first_turn)->ArgName("replicas")->Arg(4)->Arg(64)->Arg(1024);
BENCHMARK(spilled_turn)->ArgName("replicas")->Arg(8)->Arg(64);
BENCHMARK(balanced_turn)->ArgName("replicas")->Arg(8)->Arg(64);
BENCHMARK(observe);

// One conversation for all threads, and many: of one cache's size and of none's.
BENCHMARK(sticky_turn)
    ->Name("threads_sticky_turn")
    ->ArgNames({"pins", "replicas"})
    ->Args({1, 8})
    ->Args({8 * Ki, 8})
    ->Args({8 * Ki, 64})
    ->Args({1 * Mi, 64})
    ->ThreadRange(1, 16)
    ->UseRealTime();

}  // namespace
}  // namespace limpet::bench
