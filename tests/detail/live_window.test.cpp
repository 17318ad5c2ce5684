// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/live_window.hpp>

#include "catch.hpp"

#include <chrono>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;
using limpet::detail::LiveWindow;

TEST_CASE("a window of 640 s has buckets of 10 s") {
  CHECK(LiveWindow::bucket_width(640s) == 10'000'000'000);
}

TEST_CASE("what is active counts until it is taken away, what is idle until its bucket is over") {
  LiveWindow live;
  live.advance(100);
  live.add({50, 2});
  live.add(live.add_idle(100, {7, 1}));
  CHECK(live.conversations() == 3);
  CHECK(live.tokens() == 57);
  live.advance(163);
  CHECK(live.conversations() == 3);
  live.advance(164);  // 64 buckets later
  CHECK(live.conversations() == 2);
  CHECK(live.tokens() == 50);
  live.advance(1'000'000);
  CHECK(live.conversations() == 2);
  live.add({-50, -2});
  CHECK(live.conversations() == 0);
}

TEST_CASE("time does not go back, and what is past the window is not taken away twice") {
  LiveWindow live;
  live.advance(100);
  live.add(live.add_idle(100, {7, 1}));
  live.advance(50);
  CHECK(live.newest() == 100);
  CHECK(live.conversations() == 1);
  live.advance(200);
  live.add(live.add_idle(100, {-7, -1}));
  CHECK(live.conversations() == 0);
  CHECK(live.tokens() == 0);
}

TEST_CASE("a clock that is ahead moves the window along") {
  LiveWindow live;
  live.advance(100);
  live.add(live.add_idle(105, {7, 1}));
  CHECK(live.newest() == 105);
  CHECK(live.conversations() == 1);
}

TEST_CASE("ends and begins of a conversation may be reported in either order") {
  LiveWindow live;
  live.advance(10);
  live.add(live.add_idle(10, {-5, -1}));  // the next turn's begin, first
  CHECK(live.conversations() == 0);       // never below nothing
  live.add(live.add_idle(10, {5, 1}));
  live.add({5, 1});
  CHECK(live.conversations() == 1);
  CHECK(live.tokens() == 5);
}

TEST_CASE("what was used since a bucket is what is active and what ended after it") {
  LiveWindow live;
  live.advance(100);
  live.add({1000, 1});
  live.add(live.add_idle(100, {1, 1}));
  live.add(live.add_idle(101, {20, 1}));
  live.add(live.add_idle(105, {300, 1}));
  CHECK(live.tokens_since(99) == 1321);
  CHECK(live.tokens_since(100) == 1320);
  CHECK(live.tokens_since(104) == 1300);
  CHECK(live.tokens_since(105) == 1000);
  CHECK(live.tokens_since(500) == 1000);
  CHECK(live.tokens_since(INT64_MIN / 2) == 1321);
}

TEST_CASE("clearing forgets everything but the time") {
  LiveWindow live;
  live.advance(10);
  live.add({30, 3});
  live.add(live.add_idle(10, {20, 2}));
  live.clear();
  CHECK(live.conversations() == 0);
  CHECK(live.tokens() == 0);
  CHECK(live.newest() == 10);
}

TEST_CASE("the sums agree with a plain list of ends") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    LiveWindow live;
    std::vector<std::pair<std::int64_t, std::int64_t>> ends;  // bucket, tokens
    std::int64_t now = 0;
    for (int step = 0; step < 1500; ++step) {
      now += static_cast<std::int64_t>(random() % 100 == 0 ? random() % 200 : random() % 3);
      live.advance(now);
      const auto tokens = static_cast<std::int64_t>(random() % 1000);
      live.add(live.add_idle(now, {tokens, 1}));
      ends.emplace_back(now, tokens);
      std::uint32_t conversations = 0;
      std::int64_t sum = 0;
      std::int64_t later = 0;
      const std::int64_t bucket = now - static_cast<std::int64_t>(random() % 100);
      for (const auto& [ended, of_it] : ends) {
        if (ended <= now - 64) continue;
        ++conversations;
        sum += of_it;
        later += ended > bucket ? of_it : 0;
      }
      REQUIRE(live.conversations() == conversations);
      REQUIRE(live.tokens() == static_cast<std::uint64_t>(sum));
      REQUIRE(live.tokens_since(bucket) == static_cast<std::uint64_t>(later));
    }
  }
}
