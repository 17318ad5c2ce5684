// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/prefill_share.hpp>

#include "catch.hpp"

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

using limpet::detail::PrefillShare;

TEST_CASE("a share counts from when it is made until it is dropped, once") {
  std::atomic<std::uint64_t> pending = 100;
  PrefillShare share(pending, 40);
  CHECK(pending == 140);
  share.drop();
  CHECK(pending == 100);
  share.drop();
  CHECK(pending == 100);
}

TEST_CASE("a share that nobody dropped goes with its owner") {
  std::atomic<std::uint64_t> pending = 0;
  {
    const PrefillShare share(pending, 40);
    const PrefillShare nothing(pending, 0);
    CHECK(pending == 40);
  }
  CHECK(pending == 0);
  PrefillShare().drop();
}

TEST_CASE("a moved share counts once, one that is assigned to drops its own first") {
  std::atomic<std::uint64_t> pending = 0;
  PrefillShare first(pending, 40);
  PrefillShare second(std::move(first));
  PrefillShare third(pending, 7);
  CHECK(pending == 47);
  third = std::move(second);
  CHECK(pending == 40);
  PrefillShare& self = third;
  third = std::move(self);
  CHECK(pending == 40);
  std::vector<PrefillShare> shares;
  shares.push_back(std::move(third));
  for (int i = 0; i < 20; ++i) shares.emplace_back(pending, 1U);
  CHECK(pending == 60);
  shares.clear();
  CHECK(pending == 0);
}
