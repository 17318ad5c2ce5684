// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/prefill_share.hpp>

#include "catch.hpp"

#include <atomic>
#include <cstdint>
#include <type_traits>

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

TEST_CASE("a share of nothing counts for nothing") {
  std::atomic<std::uint64_t> pending = 3;
  PrefillShare(pending, 0).drop();
  PrefillShare().drop();
  CHECK(pending == 3);
}

static_assert(std::is_trivially_copyable_v<PrefillShare>);
