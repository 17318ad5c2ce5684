// SPDX-License-Identifier: Apache-2.0
#include <limpet/explanation.hpp>

#include <limpet/scorers/least_in_flight.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

#include <chrono>
#include <string>
#include <vector>

using namespace limpet;
using namespace std::chrono_literals;
using limpet_test::SmallPool;

TEST_CASE("an explanation says for every replica why it was or was not chosen") {
  SmallPool<> pool(5);
  pool.settle("c", 0);
  pool.router.drain(pool.id[1]);
  pool.router.set_down(pool.id[2]);
  const Lease busy[] = {pool.router.route("c"), pool.router.route("c"),
                        pool.router.route(Turn{.client_pinned = pool.id[4]})};
  const ReplicaId exclude[] = {pool.id[4]};
  const Explanation why = pool.router.explain(Turn{.key = "c", .exclude = exclude});
  CHECK(why.decision.outcome == Outcome::spilled);
  CHECK(why.decision.replica == pool.id[3]);
  REQUIRE(why.replicas.size() == 5);
  CHECK(why.replicas[0].standing == Standing::eligible);
  CHECK(why.replicas[1].standing == Standing::draining);
  CHECK(why.replicas[2].standing == Standing::down);
  CHECK(why.replicas[3].standing == Standing::chosen);
  CHECK(why.replicas[4].standing == Standing::excluded);
  CHECK(why.replicas[0].home);
  CHECK(why.replicas[0].overloaded);
  CHECK_FALSE(why.replicas[3].home);
  CHECK_FALSE(why.replicas[3].overloaded);
  CHECK(why.replicas[0].load.in_flight == 2);
  CHECK(why.replicas[0].load.live_conversations == 1);
  CHECK(why.replicas[0].name == "gpu0");
}

TEST_CASE("an explanation shows scores, their terms and the age of the gauge") {
  SmallPool<> pool(2, {}, {}, LocalPins{}, limpet_test::with_gauge);
  pool.settle("live", 1);
  const Lease turn = pool.router.route(Turn{.client_pinned = pool.id[1]});
  CHECK(pool.router.observe("gpu1", "0.25") == ParseStatus::ok);
  pool.clock.advance(4s);
  Explanation why = pool.router.explain("new");
  CHECK_FALSE(why.gauges_fresh);
  CHECK(why.replicas[1].score == Approx(1 + 1));
  CHECK(why.replicas[1].reading_age == Approx(4.0));
  CHECK_FALSE(why.replicas[0].reading_age.has_value());

  CHECK(pool.router.observe("gpu0", "0") == ParseStatus::ok);
  why = pool.router.explain("new");
  CHECK(why.gauges_fresh);
  CHECK(why.replicas[1].score == Approx(1 + 8 * 0.25 + 1));
  CHECK(why.replicas[1].terms[1].value == Approx(2.0));
  CHECK(why.replicas[0].score == Approx(0.0));
  CHECK(why.replicas[0].standing == Standing::chosen);
}

TEST_CASE("the home that a placement or a move leaves is shown as home") {
  SmallPool<> pool(2);
  pool.settle("c", 1);
  pool.router.set_down(pool.id[1]);
  const Explanation moved = pool.router.explain("c");
  CHECK(moved.decision.outcome == Outcome::moved);
  CHECK(moved.replicas[1].home);
  CHECK_FALSE(moved.replicas[0].home);
}

TEST_CASE("a scorer that does not explain itself has a score and no terms") {
  SmallPool<SpillAbove, LocalPins, LeastInFlight> pool(1);
  const Lease turn = pool.router.route(Turn{});
  const Explanation why = pool.router.explain("c");
  CHECK(why.replicas[0].score == 1.0);
  CHECK(why.replicas[0].terms[0].name == nullptr);
}

TEST_CASE("refused and unrouted turns are explained, too") {
  SmallPool<> pool(1);
  pool.router.set_affinity(Affinity::off);
  CHECK(pool.router.explain("c").decision.outcome == Outcome::unrouted);
  CHECK(pool.router.explain("c").replicas[0].standing == Standing::eligible);
  pool.router.set_down(pool.id[0]);
  CHECK(pool.router.explain("c").decision.outcome == Outcome::refused);
  CHECK(pool.router.explain("c").replicas[0].standing == Standing::down);
  CHECK(SmallPool<>(0).router.explain("c").replicas.empty());
}

TEST_CASE("every standing has a name for people") {
  CHECK(to_string(Standing::chosen) == "chosen");
  CHECK(to_string(Standing::eligible) == "eligible");
  CHECK(to_string(Standing::excluded) == "excluded");
  CHECK(to_string(Standing::draining) == "draining");
  CHECK(to_string(Standing::down) == "down");
}
