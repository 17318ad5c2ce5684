// SPDX-License-Identifier: Apache-2.0
#include <limpet/ledger/timeline.hpp>

#include "catch.hpp"

#include <chrono>

using namespace limpet;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr ReplicaId a{0, 0};
constexpr ReplicaId b{1, 0};

Instant at(Duration since) {
  return Instant{} + std::chrono::hours(5) + since;
}

}  // namespace

TEST_CASE("prompt tokens are split into read from cache and computed, second by second") {
  Timeline timeline;
  timeline.record(a, {.prompt_tokens = 1000, .cached_tokens = 900}, at(milliseconds(100)));
  timeline.record(a, {.prompt_tokens = 500, .cached_tokens = 0}, at(milliseconds(900)));
  timeline.record(b, {.prompt_tokens = 70, .cached_tokens = 60}, at(seconds(2)));

  const auto pool = timeline.series(at(seconds(2)), 3);
  REQUIRE(pool.size() == 3);
  CHECK(pool[0] == PromptTokens{.cached = 900, .computed = 600});
  CHECK(pool[1] == PromptTokens{});
  CHECK(pool[2] == PromptTokens{.cached = 60, .computed = 10});
  CHECK(timeline.series(b, at(seconds(2)), 3)[0] == PromptTokens{});
  CHECK(timeline.last_hour(at(seconds(2))) == PromptTokens{.cached = 960, .computed = 610});
  CHECK(timeline.last_hour(a, at(seconds(2))).cached_share() == Approx(0.6));
}

TEST_CASE("a prompt that the engine did not measure counts as computed") {
  Timeline timeline;
  timeline.record(a, {.prompt_tokens = 1000}, at(seconds(0)));
  CHECK(timeline.last_hour(at(seconds(0))) == PromptTokens{.cached = 0, .computed = 1000});
}

TEST_CASE("an engine that claims more cached than prompt is not believed") {
  Timeline timeline;
  timeline.record(a, {.prompt_tokens = 10, .cached_tokens = 50}, at(seconds(0)));
  CHECK(timeline.last_hour(at(seconds(0))) == PromptTokens{.cached = 10, .computed = 0});
}

TEST_CASE("a step leaves the ring after an hour") {
  Timeline timeline;
  timeline.record(a, {.prompt_tokens = 5, .cached_tokens = 5}, at(seconds(0)));
  CHECK(timeline.last_hour(at(seconds(3599))).cached == 5);
  CHECK(timeline.last_hour(at(seconds(3600))).cached == 0);
  timeline.record(a, {.prompt_tokens = 7, .cached_tokens = 7},
                  at(seconds(3600)));  // takes the old step's place
  CHECK(timeline.last_hour(at(seconds(3600))).cached == 7);
  timeline.record(a, {.prompt_tokens = 9, .cached_tokens = 9},
                  at(seconds(0)));  // an hour late: dropped
  CHECK(timeline.last_hour(at(seconds(3600))).cached == 7);
}

TEST_CASE("a series asks for any number of steps and gets an hour at most") {
  const Timeline timeline;
  CHECK(timeline.series(at(seconds(0)), 10).size() == 10);
  CHECK(timeline.series(at(seconds(0)), 100000).size() == 3600);
  CHECK(timeline.series(a, at(seconds(0)), 0).empty());
  CHECK(timeline.last_hour(a, at(seconds(0))).cached_share() == 0.0);
}
