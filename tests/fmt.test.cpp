// SPDX-License-Identifier: Apache-2.0
//
// What people read: words, one-line decisions, and the two tables. The expected texts are written
// by hand from the loads that each case sets up.
#include <limpet/fmt.hpp>

#include <limpet/clock.hpp>
#include <limpet/metrics/vllm.hpp>
#include <limpet/overflow/spill_above.hpp>
#include <limpet/pins/local.hpp>
#include <limpet/router.hpp>
#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/weighted.hpp>

#include "catch.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace {

using namespace limpet;
using namespace std::chrono_literals;

// Three replicas, a threshold of one turn, gauges five seconds old.
struct Pool {
  ManualClock clock;
  Router<LocalPins, WeightedLoad, SpillAbove, VllmMetrics, ManualClock> router{
      LocalPins{}, WeightedLoad{.kv_usage_weight = 8, .live_weight = 1}, SpillAbove{1},
      VllmMetrics{}, clock};
  ReplicaId gpu0 = router.add_replica({.name = "gpu0"});
  ReplicaId gpu1 = router.add_replica({.name = "gpu1"});
  ReplicaId gpu2 = router.add_replica({.name = "gpu2"});

  void read(const char* endpoint, const char* kv_usage) {
    const std::string page = std::string("vllm:num_requests_running 2\n") +
                             "vllm:num_requests_waiting 1\n" + "vllm:kv_cache_usage_perc " +
                             kv_usage + "\nvllm:prefix_cache_queries_total 200\n" +
                             "vllm:prefix_cache_hits_total 150\n";
    REQUIRE(router.observe(endpoint, page) == ParseStatus::ok);
  }
};

}  // namespace

TEST_CASE("words take the format spec of a string") {
  CHECK(fmt::format("{}", Outcome::client_pinned) == "client_pinned");
  CHECK(fmt::format("[{:>8}]", Outcome::sticky) == "[  sticky]");
  CHECK(fmt::format("{}", Reason::home_overloaded) == "home is overloaded");
  CHECK(fmt::format("{}", ReplicaState::draining) == "draining");
  CHECK(fmt::format("{}", Standing::excluded) == "excluded");
  CHECK(fmt::format("{}", ParseStatus::no_engine) == "no_engine");
}

TEST_CASE("an id is its slot and version, or none") {
  CHECK(fmt::format("{}", ReplicaId{3, 1}) == "#3.1");
  CHECK(fmt::format("{}", ReplicaId{}) == "none");
}

TEST_CASE("a decision is one line") {
  const Decision sticky{.home = {{1, 0}, 0},
                        .replica = {1, 0},
                        .outcome = Outcome::sticky,
                        .reason = Reason::home_has_room,
                        .in_flight_seen = 2};
  CHECK(fmt::format("{}", sticky) == "sticky to #1.0, 2 in flight: home has room");

  Decision spilled = sticky;
  spilled.replica = {0, 4};
  spilled.outcome = Outcome::spilled;
  spilled.reason = Reason::home_overloaded;
  CHECK(fmt::format("{}", spilled) ==
        "spilled to #0.4, 2 in flight, home #1.0: home is overloaded");

  const Decision moved{.home = {{2, 0}, 0},
                       .previous = {{1, 0}, 0},
                       .replica = {2, 0},
                       .outcome = Outcome::moved,
                       .reason = Reason::home_down};
  CHECK(fmt::format("{}", moved) == "moved to #2.0, 0 in flight, was #1.0: home is down");
  CHECK(fmt::format("{}", Decision{}) == "refused: no replica can take the turn");
}

TEST_CASE("an explanation without readings leaves the gauges unknown") {
  Pool pool;
  const Lease first = pool.router.route("first");
  REQUIRE(first);
  const Lease other = pool.router.route("other");
  pool.router.set_down(pool.gpu0);
  const ReplicaId busy = first.replica() == pool.gpu0 ? other.replica() : first.replica();
  pool.router.set_down(busy == pool.gpu1 ? pool.gpu2 : pool.gpu1);

  const std::string text = fmt::format("{}", pool.router.explain("new"));
  CHECK_THAT(text, StartsWith("placed to gpu" + std::to_string(busy.slot) +
                              ": no pin: first turn, expired or evicted; gauges not all fresh"));
  CHECK_THAT(text, ContainsSubstring("is down"));
  CHECK_THAT(text, !ContainsSubstring("0.00 "));
}

TEST_CASE("an explanation shows each replica's load, its score by term and why") {
  Pool pool;
  pool.router.set_down(pool.gpu0);
  pool.router.set_down(pool.gpu2);
  Lease home = pool.router.route("conversation");  // gpu1 is all there is
  REQUIRE(home.replica() == pool.gpu1);
  pool.router.set_up(pool.gpu0);
  pool.router.set_up(pool.gpu2);
  pool.router.drain(pool.gpu2);
  pool.read("gpu0", "0.25");
  pool.read("gpu1", "0.5");
  pool.read("gpu2", "0.125");
  pool.clock.advance(5s);

  SECTION("a spill: home is over its threshold of one turn") {
    CHECK(fmt::format("{}", pool.router.explain("conversation")) ==
          "spilled to gpu0: home is overloaded\n"
          "    replica  state     in flight  live    kv    age  score  = in_flight  + kv_usage  + "
          "live_conversations  why\n"
          "->  gpu0     up                0     0  0.25  5.0 s  2.000        0.000       2.000     "
          "            0.000  home is overloaded\n"
          "    gpu1     up                1     1  0.50  5.0 s  6.000        1.000       4.000     "
          "            1.000  home, but overloaded\n"
          "    gpu2     draining          0     0  0.12  5.0 s      -            -           -     "
          "                -  draining: takes nothing new");
  }
  SECTION("sticky: home comes first, whatever the scores") {
    home.finish();
    const std::string text = fmt::format("{}", pool.router.explain("conversation"));
    CHECK_THAT(text, StartsWith("sticky to gpu1: home has room\n"));
    CHECK_THAT(text, ContainsSubstring("home comes first"));
    CHECK_THAT(text, ContainsSubstring("\n->  gpu1 "));
  }
  SECTION("excluded: home failed this turn") {
    const std::vector<ReplicaId> failed{pool.gpu1};
    const std::string text =
        fmt::format("{}", pool.router.explain(Turn{.key = "conversation", .exclude = failed}));
    CHECK_THAT(text, StartsWith("spilled to gpu0: home is excluded for this turn\n"));
    CHECK_THAT(text, ContainsSubstring("excluded for this turn\n"));
  }
  SECTION("placed: a higher score loses") {
    const std::string text = fmt::format("{}", pool.router.explain("new"));
    CHECK_THAT(text, StartsWith("placed to gpu0: no pin"));
    CHECK_THAT(text, ContainsSubstring("  higher score\n"));
  }
  SECTION("the client named a replica") {
    const std::string text =
        fmt::format("{}", pool.router.explain(Turn{.client_pinned = pool.gpu1}));
    CHECK_THAT(text, StartsWith("client_pinned to gpu1: the client named the replica\n"));
    CHECK_THAT(text, ContainsSubstring("the client named another"));
  }
  SECTION("refused: nobody is left") {
    pool.router.set_down(pool.gpu0);
    pool.router.set_down(pool.gpu1);
    pool.router.set_down(pool.gpu2);
    const std::string text = fmt::format("{}", pool.router.explain("conversation"));
    CHECK_THAT(text, StartsWith("refused: no replica can take the turn"));
    CHECK_THAT(text, !ContainsSubstring("->"));
  }
}

TEST_CASE("a scorer that gives no terms gets no columns for them") {
  Router<LocalPins, LeastInFlight, SpillAbove, VllmMetrics, ManualClock> router;
  (void)router.add_replica({.name = "only"});
  CHECK(fmt::format("{}", router.explain("conversation")) ==
        "placed to only: no pin: first turn, expired or evicted; gauges not all fresh, so not "
        "scored\n"
        "    replica  state  in flight  live  kv  age  score  why\n"
        "->  only     up             0     0   -    -  0.000  no pin: first turn, expired or "
        "evicted");
}

TEST_CASE("a snapshot is a table; what is not known is a dash") {
  Pool pool;
  pool.router.set_down(pool.gpu1);
  pool.router.set_down(pool.gpu2);
  Lease placed = pool.router.route("conversation");
  placed.finish();
  Lease sticky = pool.router.route("conversation");
  pool.read("gpu0", "0.5");
  pool.clock.advance(1500ms);
  CHECK(fmt::format("{}", pool.router.snapshot()) ==
        "replica  state  in flight  live  pins  placed  sticky  spilled in  spilled out  moved  "
        "balanced  client  failed  running  waiting    kv    hits    age\n"
        "gpu0     up             1     1     1       1       1           0            0      0     "
        "    0       0       0        2        1  0.50  75.0 %  1.5 s\n"
        "gpu1     down           0     0     0       0       0           0            0      0     "
        "    0       0       0        -        -     -       -      -\n"
        "gpu2     down           0     0     0       0       0           0            0      0     "
        "    0       0       0        -        -     -       -      -\n"
        "refused 0, unrouted 0; pins unpinned 0, evicted 0, expired 0; pages read 1, bad 0; "
        "affinity on");
}

TEST_CASE("what is to be read has a column where it is counted") {
  Snapshot snapshot;
  snapshot.replicas = {{.name = "gpu0", .in_flight = 2, .pending_prefill_tokens = 12'345},
                       {.name = "gpu1", .pending_prefill_tokens = 0}};
  const std::string text = fmt::format("{}", snapshot);
  CHECK_THAT(text, StartsWith("replica  state  in flight  to read  live"));
  CHECK_THAT(text, ContainsSubstring("\ngpu0     up             2    12345     0"));
  CHECK_THAT(text, ContainsSubstring("\ngpu1     up             0        0     0"));
}

TEST_CASE("a move that a rule named is not explained by the score") {
  const Explanation explanation{
      .decision = {.replica = {1, 0}, .outcome = Outcome::moved, .reason = Reason::home_overloaded},
      .gauges_fresh = true,
      .replicas = {{.name = "gpu0", .load = {.replica = {0, 0}}, .score = 0.5},
                   {.name = "gpu1",
                    .load = {.replica = {1, 0}},
                    .standing = Standing::chosen,
                    .score = 1.0}}};
  CHECK_THAT(fmt::format("{}", explanation), ContainsSubstring("the overflow rule named another"));
}

TEST_CASE("columns line up under names that are not ASCII") {
  Snapshot snapshot;
  snapshot.replicas = {{.name = "größe"}, {.name = "gpu10"}};
  const std::string text = fmt::format("{}", snapshot);
  CHECK_THAT(text, ContainsSubstring("\ngröße    up"));
  CHECK_THAT(text, ContainsSubstring("\ngpu10    up"));
}
