// SPDX-License-Identifier: Apache-2.0
#include <limpet/lease.hpp>

#include <limpet/scorers/least_pending_prefill.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

#include <stdexcept>
#include <utility>
#include <vector>

using namespace limpet;
using limpet_test::SmallPool;

TEST_CASE("a lease that nobody made holds nothing and ends without effect") {
  Lease none;
  CHECK_FALSE(none);
  CHECK_FALSE(none.held());
  CHECK(none.outcome() == Outcome::refused);
  none.finish();
  none.fail();
}

TEST_CASE("a slot is returned once, by whichever end comes first") {
  SmallPool<> pool(1);
  Lease other = pool.router.route("other");
  Lease lease = pool.router.route("c");
  CHECK(lease.held());
  lease.finish();
  CHECK_FALSE(lease.held());
  CHECK(lease);  // still says where the turn went
  lease.fail();
  lease.cancel();
  lease.finish({.prompt_tokens = 99});
  CHECK(pool.in_flight(0) == 1);
  CHECK(pool.row(0).failed == 0);
  CHECK(pool.pinned("c") == pool.id[0]);  // the late fail() did not unpin it
}

TEST_CASE("a slot is returned by the destructor, also when an exception passes") {
  SmallPool<> pool(1);
  try {
    const Lease lease = pool.router.route("c");
    CHECK(pool.in_flight(0) == 1);
    throw std::runtime_error("the connection broke");
  } catch (const std::runtime_error&) {
  }
  CHECK(pool.in_flight(0) == 0);
  CHECK(pool.pinned("c") == pool.id[0]);
}

TEST_CASE("a moved lease takes its slot along") {
  SmallPool<> pool(1);
  Lease first = pool.router.route("c");
  Lease second = std::move(first);
  CHECK_FALSE(first.held());
  CHECK(second.held());
  CHECK(second.replica() == pool.id[0]);
  first.finish();
  CHECK(pool.in_flight(0) == 1);
  second.finish();
  CHECK(pool.in_flight(0) == 0);
}

TEST_CASE("a lease that another one is assigned to returns its slot first") {
  SmallPool<> pool(2);
  Lease lease = pool.router.route(Turn{.client_pinned = pool.id[0]});
  lease = pool.router.route(Turn{.client_pinned = pool.id[1]});
  CHECK(pool.in_flight(0) == 0);
  CHECK(pool.in_flight(1) == 1);
  Lease& self = lease;
  lease = std::move(self);
  CHECK(lease.held());
  CHECK(pool.in_flight(1) == 1);
}

TEST_CASE("leases live in containers that move them about") {
  SmallPool<> pool(1);
  std::vector<Lease> leases;
  for (int i = 0; i < 100; ++i) leases.push_back(pool.router.route(Turn{}));
  CHECK(pool.in_flight(0) == 100);
  leases.erase(leases.begin() + 10, leases.begin() + 60);
  CHECK(pool.in_flight(0) == 50);
  leases.clear();
  CHECK(pool.in_flight(0) == 0);
}

TEST_CASE("a turn's prompt is pending until its first byte, or its end where that does not come") {
  SmallPool<SpillAbove, LocalPins, LeastPendingPrefill> pool(1);
  const auto pending = [&] { return pool.row(0).pending_prefill_tokens; };
  Lease first = pool.router.route(Turn{.key = "a", .prompt_tokens = 500});
  Lease second = pool.router.route(Turn{.key = "b", .prompt_tokens = 30});
  CHECK(pending() == 530);
  first.first_byte();
  first.first_byte();
  CHECK(pending() == 30);
  Lease moved = std::move(second);
  second.first_byte();  // NOLINT(bugprone-use-after-move): holds nothing
  CHECK(pending() == 30);
  moved.fail();
  moved.first_byte();
  CHECK(pending() == 0);
  CHECK(first.held());
  first.finish();
  CHECK(pending() == 0);
}

TEST_CASE("first bytes that nobody counts change nothing") {
  SmallPool<> pool(1);
  Lease lease = pool.router.route(Turn{.key = "a", .prompt_tokens = 500});
  lease.first_byte();
  CHECK(lease.held());
  CHECK_FALSE(pool.row(0).pending_prefill_tokens.has_value());
  Lease{}.first_byte();
}

TEST_CASE("a failed turn is counted where it failed") {
  SmallPool<> pool(2);
  pool.router.route(Turn{.client_pinned = pool.id[1]}).fail();
  CHECK(pool.row(0).failed == 0);
  CHECK(pool.row(1).failed == 1);
}
