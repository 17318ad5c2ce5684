// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/live_server.hpp>

#include "catch.hpp"

#include <limpet/metrics/vllm.hpp>

#include <map>
#include <numeric>

namespace {

using limpet::sim::EngineProfile;
using limpet::sim::LiveServer;
using limpet::sim::Progress;
using limpet::sim::Random;

constexpr std::uint32_t any = LiveServer::any_rank;

// A step takes a second a token, and nothing else takes time.
EngineProfile plain(std::uint64_t kv_tokens = 400) {
  EngineProfile profile;
  profile.name = "plain";
  profile.kv_tokens = kv_tokens;
  profile.block_tokens = 4;
  profile.max_num_seqs = 4;
  profile.max_num_batched_tokens = 64;
  profile.step = {.per_token = 1.0};
  return profile;
}

std::vector<std::uint32_t> text(std::uint32_t first, std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<Progress> progress(LiveServer& server, double until) {
  std::vector<Progress> seen;
  server.advance(until, [&](const Progress& one) { seen.push_back(one); });
  return seen;
}

std::size_t free_blocks(const LiveServer& server) {
  std::size_t blocks = 0;
  for (const auto& engine : server.engines()) blocks += engine.cache().free();
  return blocks;
}

}  // namespace

TEST_CASE("a request's tokens come when its steps end") {
  LiveServer server(plain(), 1);
  server.submit(7, text(0, 12), 10, any, 5.0);
  CHECK(server.next_at() == 5.0);
  CHECK(progress(server, 14.9).empty());
  CHECK(server.next_at() == 15.0);
  const auto first = progress(server, 15.0);
  REQUIRE(first.size() == 1);
  CHECK(first[0].id == 7);
  CHECK(first[0].generated == 1);
  CHECK(first[0].cached == 0);
  CHECK_FALSE(first[0].finished);
  const auto second = progress(server, 16.0);
  REQUIRE(second.size() == 1);
  CHECK(second[0].generated == 2);
  CHECK(second[0].finished);
  CHECK(server.in_flight() == 0);
  CHECK(server.next_at() == std::numeric_limits<double>::infinity());
}

TEST_CASE("requests share the blocks that their tokens share, answers included") {
  LiveServer server(plain(), 1);
  auto tokens = text(0, 20);
  server.submit(1, tokens, 18, any, 0.0);
  (void)progress(server, 100.0);
  for (const auto& [differs_at, cached] : {std::pair{100, 16}, {17, 16}, {15, 12}, {3, 0}}) {
    auto next = text(0, 30);
    if (differs_at < 30) next[static_cast<std::size_t>(differs_at)] = 999;
    LiveServer other = server;
    other.submit(2, next, 29, any, 100.0);
    CHECK(progress(other, 200.0).at(0).cached == static_cast<std::uint64_t>(cached));
  }
}

TEST_CASE("the front end's time passes before a request reaches its rank") {
  auto profile = plain();
  profile.front_end = 3.0;
  LiveServer server(profile, 1);
  server.submit(1, text(0, 5), 4, any, 1.0);
  CHECK(server.next_at() == 4.0);
  CHECK(progress(server, 8.0).size() == 1);
}

TEST_CASE("a named rank is used; the balancer goes round the others, as vLLM's does") {
  LiveServer server(plain(), 2);
  std::map<std::uint64_t, std::uint32_t> rank;
  double now = 0;
  for (std::uint64_t id = 0; id < 8; ++id) {
    server.submit(id, text(static_cast<std::uint32_t>(100 * id), 5), 4, id < 4 ? 1 : any, now);
    for (const Progress& one : progress(server, now += 10)) rank[one.id] = one.rank;
  }
  for (std::uint64_t id = 0; id < 4; ++id) CHECK(rank[id] == 1);
  for (std::uint64_t id = 5; id < 8; ++id) CHECK(rank[id] != rank[id - 1]);
}

TEST_CASE("the balancer counts the turns of those that named a rank") {
  LiveServer server(plain(), 2);
  server.submit(1, text(0, 60), 50, 0, 0.0);
  server.submit(2, text(100, 60), 50, 0, 0.0);
  std::map<std::uint64_t, std::uint32_t> rank;
  server.submit(3, text(200, 5), 4, any, 0.01);
  server.submit(4, text(300, 5), 4, any, 0.01);
  for (const Progress& one : progress(server, 300.0)) rank[one.id] = one.rank;
  CHECK(rank[3] == 1);
  CHECK(rank[4] == 1);
}

TEST_CASE("the balancer of before sees nothing and goes round, whoever is busy") {
  LiveServer server(plain(), 2, limpet::sim::VllmBalancerBlind{});
  server.submit(1, text(0, 40), 8, 0, 0.0);  // named: it does not count
  for (std::uint64_t id = 2; id <= 5; ++id) server.submit(id, text(100, 12), 8, any, 0.0);
  std::map<std::uint64_t, std::uint32_t> rank;
  for (const Progress& one : progress(server, 1000.0)) rank[one.id] = one.rank;
  CHECK(rank == std::map<std::uint64_t, std::uint32_t>{{1, 0}, {2, 0}, {3, 1}, {4, 0}, {5, 1}});
}

TEST_CASE("an abort is forgotten by the engine and by the balancer, wherever the request is") {
  auto profile = plain();
  profile.front_end = 1.0;
  LiveServer server(profile, 2);
  server.submit(1, text(0, 30), 20, 0, 0.0);
  CHECK(server.abort(1, 0.5));  // on the way
  CHECK_FALSE(server.abort(1, 0.5));
  CHECK(progress(server, 50.0).empty());
  server.submit(2, text(0, 30), 20, 0, 50.0);
  (void)progress(server, 55.0);
  CHECK(free_blocks(server) == 2 * 100 - 5);
  CHECK(server.abort(2, 55.0));  // in its prefill
  CHECK(free_blocks(server) == 2 * 100);
  CHECK(progress(server, 90.0).empty());
  CHECK(server.in_flight() == 0);
  // The gauges say so, and the next two requests see two idle ranks.
  CHECK(server.engines()[0].counters().running == 0);
  std::map<std::uint64_t, std::uint32_t> rank;
  server.submit(3, text(400, 5), 4, any, 90.0);
  server.submit(4, text(500, 5), 4, any, 90.0);
  for (const Progress& one : progress(server, 120.0)) rank[one.id] = one.rank;
  CHECK(rank[3] != rank[4]);
}

TEST_CASE("a late caller is told the same as a punctual one") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  INFO("seed " << seed);
  struct Call {
    double at;
    std::uint64_t id;
    std::vector<std::uint32_t> tokens;  // empty: an abort
    std::uint64_t prompt;
    std::uint32_t rank;
  };
  Random random(seed);
  std::vector<Call> calls;
  double now = 0;
  for (std::uint64_t id = 0; id < 60; ++id) {
    now += random.uniform() * 30;
    const auto first = static_cast<std::uint32_t>(random.below(3) * 1000);
    const std::size_t size = 2 + random.below(80);
    const std::uint32_t rank = random.below(2) == 0 ? any : random.between(0, 2);
    calls.push_back({now, id, text(first, size), 1 + random.below(size - 1), rank});
    if (random.below(4) == 0) calls.push_back({now, id - random.below(id + 1), {}, 0, 0});
  }
  std::vector<std::vector<Progress>> told(2);
  std::vector<std::string> pages;
  for (const bool late : {false, true}) {
    auto profile = plain(240);
    profile.front_end = 2.0;
    profile.front_end_spread = 0.5;
    LiveServer server(profile, 3);
    auto& seen = told[late ? 1 : 0];
    const auto keep = [&](const Progress& one) { seen.push_back(one); };
    for (const Call& call : calls) {
      // The late one is only told what had to happen before: an abort needs to know what is left.
      if (!late || call.tokens.empty()) {
        while (server.next_at() <= call.at) server.advance(server.next_at(), keep);
      }
      if (call.tokens.empty()) {
        server.abort(call.id, call.at);
      } else {
        server.submit(call.id, call.tokens, call.prompt, call.rank, call.at);
      }
    }
    server.advance(now + 10'000, keep);
    CHECK(server.in_flight() == 0);
    CHECK(free_blocks(server) == 3 * 60);
    pages.push_back(server.metrics(0));
  }
  REQUIRE(told[0].size() == told[1].size());
  for (std::size_t i = 0; i < told[0].size(); ++i) {
    CHECK(told[0][i].id == told[1][i].id);
    CHECK(told[0][i].rank == told[1][i].rank);
    CHECK(told[0][i].generated == told[1][i].generated);
    CHECK(told[0][i].cached == told[1][i].cached);
  }
  CHECK(told[0].size() > 500);
  CHECK(pages[0] == pages[1]);
}

TEST_CASE("a rank that hangs says nothing, the other goes on; then it goes on where it stood") {
  LiveServer server(plain(), 2);
  server.submit(1, text(0, 12), 10, 0, 0.0);
  server.submit(2, text(100, 12), 10, 1, 0.0);
  (void)progress(server, 1.0);
  server.hang(0, true, 1.0);
  server.submit(3, text(200, 6), 4, 0, 2.0);
  for (const Progress& one : progress(server, 500.0)) CHECK(one.id == 2);
  CHECK(server.engines()[0].counters().running == 0);  // as its last step, that is none, said
  CHECK(server.in_flight() == 2);
  CHECK(server.abort(3, 500.0));
  server.hang(0, false, 500.0);
  const auto after = progress(server, 600.0);
  REQUIRE(after.size() == 2);
  CHECK(after[0].id == 1);
  CHECK(after[1].finished);

  server.hang(1, true, 600.0);  // while idle
  server.submit(4, text(300, 6), 4, 1, 600.0);
  CHECK(progress(server, 700.0).empty());
  server.hang(1, false, 700.0);
  CHECK(progress(server, 800.0).size() == 2);
}

TEST_CASE("a slow server takes so much longer from its next step on") {
  LiveServer server(plain(), 1);
  server.submit(1, text(0, 12), 10, any, 0.0);
  (void)progress(server, 0.0);
  server.slow(3.0);
  CHECK(progress(server, 10.0).size() == 1);
  CHECK(server.next_at() == 13.0);
}

TEST_CASE("hits are counted once a request, and the page says what has been served") {
  auto profile = plain();
  profile.hit_counting = limpet::sim::HitCounting::each_lookup;
  LiveServer server(profile, 2);
  server.submit(1, text(0, 30), 25, 1, 0.0);
  (void)progress(server, 100.0);
  server.submit(2, text(0, 30), 25, 1, 100.0);
  (void)progress(server, 200.0);
  std::vector<double> hits;
  std::vector<double> prompt_tokens;
  auto read = [&](const limpet::Reading& reading) {
    hits.push_back(reading.prefix_hits.value_or(-1));
    prompt_tokens.push_back(reading.prompt_tokens.value_or(-1));
  };
  CHECK(limpet::VllmMetrics{}.parse(server.metrics(9), limpet::ReadingSink(read)) ==
        limpet::ParseStatus::ok);
  CHECK(hits == std::vector<double>{0, 24});
  CHECK(prompt_tokens == std::vector<double>{0, 50});
}
