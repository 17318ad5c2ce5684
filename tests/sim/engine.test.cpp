// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/engine.hpp>

#include "catch.hpp"

#include "plain_engine.hpp"

#include <map>
#include <string>

namespace {

using limpet::sim::Engine;
using limpet::sim::EngineProfile;
using limpet::sim::Random;
using limpet::sim::TokenChain;

struct Log {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> first;
  std::vector<std::uint64_t> finished;
  void first_token(std::uint64_t id, std::uint64_t cached) { first.emplace_back(id, cached); }
  void finished_one(std::uint64_t id) { finished.push_back(id); }
};

struct Sink {
  Log& log;
  void first_token(std::uint64_t id, std::uint64_t cached) { log.first_token(id, cached); }
  void finished(std::uint64_t id) { log.finished_one(id); }
};

// Blocks of 4 tokens, 8 of them unless told otherwise.
EngineProfile small(std::uint64_t kv_tokens = 32) {
  EngineProfile profile;
  profile.name = "small";
  profile.kv_tokens = kv_tokens;
  profile.block_tokens = 4;
  profile.max_num_seqs = 4;
  profile.max_num_batched_tokens = 64;
  profile.step = {.per_token = 1.0};
  return profile;
}

limpet::sim::Request request(std::uint64_t id, std::uint64_t content, std::uint64_t prompt,
                             std::uint64_t output) {
  TokenChain tokens(4);
  tokens.append(content, prompt + output);
  return {id, std::move(tokens), prompt, output};
}

// One step; returns its length, which small() makes the number of tokens it computed.
double step(Engine& engine, Log& log) {
  const double seconds = engine.begin_step();
  Sink sink{log};
  engine.end_step(sink);
  return seconds;
}

void run_dry(Engine& engine, Log& log) {
  while (engine.has_work()) step(engine, log);
}

}  // namespace

TEST_CASE("a prompt repeated is found again up to its last full block before the last token") {
  // 12 tokens are three full blocks; the last token must be computed, so two can be reused.
  for (const auto& [prompt, reused] : {std::pair{12, 8}, {13, 12}, {15, 12}, {16, 12}, {17, 16}}) {
    Engine engine(small());
    Log log;
    engine.submit(request(1, 7, static_cast<std::uint64_t>(prompt), 1));
    run_dry(engine, log);
    engine.submit(request(2, 7, static_cast<std::uint64_t>(prompt), 1));
    CHECK(step(engine, log) == prompt - reused);
    CHECK(log.first.back() == std::pair<std::uint64_t, std::uint64_t>{2, reused});
  }
}

TEST_CASE("the blocks of an answer are reused by the next turn, all but its last token's") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 7, 8, 5));  // 13 tokens known, 12 computed: three full blocks
  run_dry(engine, log);
  engine.submit(request(2, 7, 16, 1));
  run_dry(engine, log);
  CHECK(log.first.back().second == 12);
}

TEST_CASE("blocks can be hit by a request admitted in the very step that computes them") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 7, 9, 1));
  engine.submit(request(2, 7, 9, 1));
  CHECK(step(engine, log) == 9 + 1);
  CHECK(log.first == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 0}, {2, 8}});
}

TEST_CASE("a prompt longer than the budget is computed in chunks, and decodes go first") {
  auto profile = small(64);
  profile.max_num_batched_tokens = 10;
  Engine engine(profile);
  Log log;
  engine.submit(request(1, 1, 4, 9));
  CHECK(step(engine, log) == 4);
  engine.submit(request(2, 2, 25, 2));
  CHECK(step(engine, log) == 1 + 9);  // one decode token, the rest of the budget for the prompt
  CHECK(step(engine, log) == 1 + 9);
  CHECK(log.first.size() == 1);
  CHECK(step(engine, log) == 1 + 7);
  CHECK(log.first.size() == 2);
}

TEST_CASE(
    "a request waits until blocks for its whole prompt are free, and those behind it wait too") {
  Engine engine(small());  // 8 blocks
  Log log;
  engine.submit(request(1, 1, 20, 4));  // 5 blocks, a sixth with the first token of the answer
  step(engine, log);
  engine.submit(request(2, 2, 16, 2));  // needs 4, 3 are free
  engine.submit(request(3, 3, 4, 2));   // would fit
  step(engine, log);
  CHECK(engine.running() == 1);
  CHECK(engine.waiting() == 2);
  run_dry(engine, log);
  CHECK(log.first == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 0}, {2, 0}, {3, 0}});
}

TEST_CASE("blocks shared with a running request cost an admission nothing, idle ones count") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 1, 24, 4));  // 6 blocks of 8, and one more for the answer
  step(engine, log);
  engine.submit(request(2, 1, 25, 2));  // 7 blocks, 6 of them shared
  step(engine, log);
  CHECK(engine.running() == 2);

  Engine idle(small());
  Log other;
  idle.submit(request(1, 1, 17, 1));
  run_dry(idle, other);               // 4 full blocks idle, all 8 free
  idle.submit(request(2, 2, 16, 3));  // holds 4, soon 5
  step(idle, other);
  idle.submit(request(3, 1, 17, 1));  // 4 idle hits and one new block: 5 of the 4 that are free
  step(idle, other);
  CHECK(idle.running() == 1);
  CHECK(idle.waiting() == 1);
}

TEST_CASE("no more than max_num_seqs run") {
  Engine engine(small(256));
  Log log;
  for (std::uint64_t id = 1; id <= 6; ++id) engine.submit(request(id, id, 4, 3));
  step(engine, log);
  CHECK(engine.running() == 4);
  CHECK(engine.counters().waiting == 2);
}

TEST_CASE("a running request without a block preempts the last one, which starts again first") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 1, 16, 8));
  engine.submit(request(2, 2, 15, 8));
  engine.submit(request(3, 3, 4, 10));
  step(engine, log);  // 4 + 4 blocks: full, the third must wait
  CHECK(engine.running() == 2);
  step(engine, log);  // the first needs a fifth block: the second gives its four back
  CHECK(engine.running() == 1);
  CHECK(engine.waiting() == 2);
  CHECK(engine.counters().preemptions == 1);
  run_dry(engine, log);
  CHECK(log.finished == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(log.first.size() == 3);  // nobody is given a first token twice
}

TEST_CASE("of idle blocks the tail of the conversation that ended first is lost first") {
  // Two conversations of 3 full blocks and an open one, 8 blocks in all; a third takes 3 blocks:
  // the two that nobody can hit, then the tail of the first conversation.
  for (const auto& [asked, kept] : {std::pair{1, 8}, {2, 12}}) {
    Engine engine(small());
    Log log;
    for (const std::uint64_t content : {1u, 2u}) {
      engine.submit(request(content, content, 12, 2));
      run_dry(engine, log);
    }
    engine.submit(request(3, 3, 12, 1));
    run_dry(engine, log);
    engine.submit(request(4, static_cast<std::uint64_t>(asked), 13, 1));
    step(engine, log);
    CHECK(log.first.back().second == static_cast<std::uint64_t>(kept));
  }
}

TEST_CASE("gauges show the end of the last step, and idle cached blocks count as free") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 1, 8, 3));
  CHECK(engine.counters().waiting == 0);
  (void)engine.begin_step();
  CHECK(engine.counters().running == 0);
  Sink sink{log};
  engine.end_step(sink);
  CHECK(engine.counters().running == 1);
  CHECK(engine.counters().kv_usage == 0.25);
  run_dry(engine, log);
  CHECK(engine.counters().running == 0);
  CHECK(engine.counters().kv_usage == 0.0);
  CHECK(engine.counters().prompt_tokens == 8);
  CHECK(engine.counters().generation_tokens == 3);
}

TEST_CASE("an aborted request gives its blocks back, which can still be hit") {
  auto profile = small(64);
  profile.max_num_batched_tokens = 8;
  Engine engine(profile);
  Log log;
  engine.submit(request(1, 7, 24, 4));
  step(engine, log);
  step(engine, log);  // 16 of its 24 tokens are computed: four full blocks
  CHECK(engine.abort(1));
  CHECK_FALSE(engine.abort(1));
  CHECK_FALSE(engine.has_work());
  CHECK(engine.cache().free() == 16);
  CHECK(engine.counters().running == 0);  // at once: no step will come to say so
  CHECK(engine.counters().prompt_tokens == 0);
  engine.submit(request(2, 7, 24, 1));
  run_dry(engine, log);
  CHECK(log.first == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 16}});
}

TEST_CASE("a request aborted in the middle of a step gets nothing of it, the others all") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 1, 8, 3));
  engine.submit(request(2, 2, 8, 1));
  CHECK(engine.begin_step() == 16);
  CHECK(engine.abort(1));
  engine.submit(request(3, 3, 4, 1));  // may take the slot that has become free
  Sink sink{log};
  engine.end_step(sink);
  CHECK(log.first == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 0}});
  CHECK(log.finished == std::vector<std::uint64_t>{2});
  CHECK(engine.counters().generation_tokens == 1);
  run_dry(engine, log);
  CHECK(log.finished == std::vector<std::uint64_t>{2, 3});
  CHECK(engine.cache().free() == engine.cache().size());
}

TEST_CASE("with the one that is aborted waiting, the next is served as if it had never come") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 1, 20, 4));
  step(engine, log);
  engine.submit(request(2, 2, 16, 2));  // no room for it, nor for whoever stands behind it
  engine.submit(request(3, 3, 4, 2));
  step(engine, log);
  CHECK(engine.abort(2));
  step(engine, log);
  CHECK(log.first.back() == std::pair<std::uint64_t, std::uint64_t>{3, 0});
}

TEST_CASE("a prefix cache is reset only when nobody holds a block of it") {
  Engine engine(small());
  Log log;
  engine.submit(request(1, 7, 12, 2));
  step(engine, log);
  CHECK_FALSE(engine.reset_prefix_cache());
  run_dry(engine, log);
  CHECK(engine.reset_prefix_cache());
  engine.submit(request(2, 7, 12, 1));
  run_dry(engine, log);
  CHECK(log.first.back().second == 0);
}

TEST_CASE("random histories run step for step as on the plain model") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u);
  INFO("seed " << seed);
  Random random(seed);
  const std::uint32_t block = random.between(1, 5);
  const std::uint32_t blocks = random.between(12, 60);
  EngineProfile profile;
  profile.block_tokens = block;
  profile.kv_tokens = std::uint64_t{blocks} * block;
  profile.max_num_seqs = random.between(1, 6);
  profile.max_num_batched_tokens = random.between(3, 40);
  // The length of a step tells what was in it: tokens, pairs and contexts in different digits.
  profile.step = {.per_token = 1e-3, .per_pair = 1.0, .per_context = 1e6};
  Engine engine(profile);
  plain::Engine model(blocks, block, profile.max_num_seqs, profile.max_num_batched_tokens);

  // Texts are grown from earlier ones, so that prefixes are shared in every possible way.
  struct Story {
    TokenChain chain;
    plain::Text text;
  };
  std::vector<Story> stories;
  std::uint64_t next_id = 0;
  std::uint64_t next_content = 1;
  std::uint64_t finished = 0;
  std::uint64_t aborted = 0;
  for (int turn = 0; turn < 400; ++turn) {
    while (random.uniform() < 0.3) {
      Story story{TokenChain(block), {}};
      if (!stories.empty() && random.uniform() < 0.8) {
        const Story& earlier = stories[random.below(stories.size())];
        const auto kept = random.below(earlier.text.size() + 1) / block * block;
        story.chain = earlier.chain.prefix(kept);
        story.text.assign(earlier.text.begin(), earlier.text.begin() + static_cast<long>(kept));
      }
      const std::uint64_t limit = profile.kv_tokens;
      while (story.text.size() < 2 || random.uniform() < 0.5) {
        const std::uint64_t n = random.below(3 * block) + 1;
        story.chain.append(next_content, n);
        for (std::uint64_t i = 0; i < n; ++i) {
          story.text.push_back(static_cast<int>(next_content * 1000 + i));
        }
        ++next_content;
      }
      if (story.text.size() > limit) continue;
      const std::uint64_t output =
          random.below(std::min<std::uint64_t>(story.text.size() - 1, 12)) + 1;
      const std::uint64_t prompt = story.text.size() - output;
      engine.submit({next_id, story.chain, prompt, output});
      model.submit({next_id, story.text, prompt, 0, 0, {}, false});
      ++next_id;
      stories.push_back(std::move(story));
    }
    while (next_id > 0 && random.uniform() < 0.1) {  // of the last ones some are in flight
      const std::uint64_t id = next_id - 1 - random.below(std::min<std::uint64_t>(next_id, 8));
      const bool was_there = engine.abort(id);
      REQUIRE(was_there == model.abort(id));
      aborted += was_there ? 1 : 0;
    }
    REQUIRE(engine.has_work() == model.has_work());
    if (!engine.has_work()) continue;
    Log log;
    const double seconds = step(engine, log);
    const plain::Step expected = model.step();
    double tokens = 0;
    for (const auto& [id, n] : expected.tokens) tokens += static_cast<double>(n);
    CHECK(seconds == Approx(1e-3 * tokens + static_cast<double>(expected.pairs_twice) / 2 +
                            1e6 * static_cast<double>(expected.decode_context))
                         .epsilon(1e-12));
    REQUIRE(log.first.size() == expected.first.size());
    for (std::size_t i = 0; i < log.first.size(); ++i) {
      CHECK(log.first[i].first == expected.first[i].first);
      CHECK(log.first[i].second == expected.first[i].second);
    }
    CHECK(log.finished == expected.finished);
    CHECK(engine.running() == model.running());
    CHECK(engine.waiting() == model.waiting());
    CHECK(engine.cache().free() == model.free_blocks());
    CHECK(engine.counters().preemptions == model.preemptions);
    CHECK(engine.counters().prefix_queries == model.queries);
    CHECK(engine.counters().prefix_hits == model.hits);
    finished += log.finished.size();
  }
  CHECK(finished > 20);
  CHECK(aborted > 3);

  for (std::uint64_t id = 0; id < next_id; ++id) engine.abort(id);
  CHECK_FALSE(engine.has_work());
  CHECK(engine.cache().free() == engine.cache().size());
  CHECK(engine.counters().kv_usage == 0.0);
}
