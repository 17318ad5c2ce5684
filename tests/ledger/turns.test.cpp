// SPDX-License-Identifier: Apache-2.0
//
// The classes of finished turns, each row of the table by hand: 16-token blocks, thresholds as documented.
#include <limpet/ledger/turns.hpp>

#include "catch.hpp"

#include <array>
#include <stdexcept>

using namespace limpet;

namespace {

constexpr Home home_a{{0, 0}, 1};
constexpr Home home_b{{1, 0}, 1};

Decision turn(Outcome outcome, Home home, ReplicaId replica) {
  Decision decision;
  decision.key = {1, 2};
  decision.has_key = true;
  decision.outcome = outcome;
  decision.home = home;
  decision.replica = replica;
  return decision;
}

Usage said(std::uint64_t prompt, std::uint64_t cached, std::uint64_t completion = 0) {
  return {.prompt_tokens = prompt, .cached_tokens = cached, .completion_tokens = completion};
}

// A ledger whose one conversation has had a first turn of 1,000 tokens, output included: 992 of them in whole blocks.
struct AfterFirstTurn {
  AfterFirstTurn() {
    first = ledger.record(turn(Outcome::placed, home_a, home_a.replica), said(900, 0, 100));
  }

  Ledger ledger;
  RecordedTurn first;
};

ClassTotal total(const Ledger& ledger, TurnClass turn_class) {
  return ledger.totals()[static_cast<std::size_t>(turn_class)];
}

}  // namespace

TEST_CASE("a conversation's first turn is cold and costs nothing that a hit would have saved") {
  AfterFirstTurn given;
  CHECK(given.first.turn_class == TurnClass::cold);
  CHECK(given.first.reusable_tokens == 0);
  CHECK(total(given.ledger, TurnClass::cold) == ClassTotal{.turns = 1, .computed_tokens = 0});
}

TEST_CASE("a turn with less than 256 reusable tokens is cold") {
  Ledger ledger;
  (void)ledger.record(turn(Outcome::placed, home_a, home_a.replica),
                      said(250, 0, 21));  // 271: 16 whole blocks = 256
  CHECK(ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(400, 0)).turn_class ==
        TurnClass::lost);
  Ledger smaller;
  (void)smaller.record(turn(Outcome::placed, home_a, home_a.replica),
                       said(250, 0, 5));  // 255: 15 blocks = 240
  CHECK(smaller.record(turn(Outcome::sticky, home_a, home_a.replica), said(400, 0)).turn_class ==
        TurnClass::cold);
}

TEST_CASE("nine tenths of what home had read is a hit, a token less is not") {
  AfterFirstTurn given;
  SECTION("892.8 tokens are nine tenths of 992") {
    const RecordedTurn turn_two =
        given.ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 893));
    CHECK(turn_two.turn_class == TurnClass::hit);
    CHECK(turn_two.reusable_tokens == 992);
    CHECK(turn_two.computed_tokens == 99);
  }
  SECTION("892 are less") {
    CHECK(given.ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 892))
              .turn_class == TurnClass::partial);
  }
}

TEST_CASE("a turn that went home and found less than a tenth was lost by the engine") {
  AfterFirstTurn given;
  SECTION("99.2 tokens are a tenth of 992") {
    const RecordedTurn turn_two =
        given.ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 99));
    CHECK(turn_two.turn_class == TurnClass::lost);
    CHECK(turn_two.computed_tokens == 893);
    CHECK(total(given.ledger, TurnClass::lost) == ClassTotal{.turns = 1, .computed_tokens = 893});
  }
  SECTION("100 are more") {
    CHECK(given.ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 100))
              .turn_class == TurnClass::partial);
  }
}

TEST_CASE("a turn that did not go home and found too little was misrouted") {
  AfterFirstTurn given;
  SECTION("spilled") {
    const RecordedTurn spilled =
        given.ledger.record(turn(Outcome::spilled, home_a, home_b.replica), said(1300, 0));
    CHECK(spilled.turn_class == TurnClass::misrouted);
    CHECK(spilled.computed_tokens == 992);
  }
  SECTION("moved: the new home had read nothing, the old one had") {
    Decision moved = turn(Outcome::moved, home_b, home_b.replica);
    moved.previous = home_a;
    CHECK(given.ledger.record(moved, said(1300, 320)).turn_class == TurnClass::misrouted);
    const RecordedTurn next =
        given.ledger.record(turn(Outcome::sticky, home_b, home_b.replica), said(1700, 1296));
    CHECK(next.reusable_tokens == 1296);  // 1,300 in whole blocks
    CHECK(next.turn_class == TurnClass::hit);
  }
  SECTION("pinned elsewhere by the client") {
    CHECK(given.ledger.record(turn(Outcome::client_pinned, home_a, home_b.replica), said(1300, 0))
              .turn_class == TurnClass::misrouted);
  }
  SECTION("but a spilled turn that found its prefix all the same is a hit") {
    CHECK(given.ledger.record(turn(Outcome::spilled, home_a, home_b.replica), said(1300, 992))
              .turn_class == TurnClass::hit);
  }
}

TEST_CASE("what a spilled turn read elsewhere does not count as read at home") {
  AfterFirstTurn given;
  (void)given.ledger.record(turn(Outcome::spilled, home_a, home_b.replica), said(2000, 0, 100));
  CHECK(given.ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(2500, 992))
            .reusable_tokens == 992);
}

TEST_CASE("the last token of a prompt is never reusable") {
  Ledger ledger;
  (void)ledger.record(turn(Outcome::placed, home_a, home_a.replica), said(1024, 0));
  CHECK(ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1024, 1008))
            .reusable_tokens == 1008);
}

TEST_CASE(
    "a prompt that no longer begins with the previous one has diverged, where both are known") {
  Ledger ledger;
  const std::array<std::uint64_t, 2> first{11, 22};
  const std::array<std::uint64_t, 3> grown{11, 22, 33};
  const std::array<std::uint64_t, 3> edited{11, 99, 33};
  const std::array<std::uint64_t, 1> compacted{11};
  (void)ledger.record(turn(Outcome::placed, home_a, home_a.replica), said(1000, 0), first);
  SECTION("grown: lost") {
    CHECK(ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 0), grown)
              .turn_class == TurnClass::lost);
  }
  SECTION("edited") {
    CHECK(ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 0), edited)
              .turn_class == TurnClass::diverged);
  }
  SECTION("compacted") {
    CHECK(ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(900, 0), compacted)
              .turn_class == TurnClass::diverged);
  }
  SECTION("unknown: lost") {
    CHECK(ledger.record(turn(Outcome::sticky, home_a, home_a.replica), said(1300, 0)).turn_class ==
          TurnClass::lost);
  }
}

TEST_CASE("an engine that said nothing leaves a turn unmeasured, and its cost unknown") {
  AfterFirstTurn given;
  const RecordedTurn silent =
      given.ledger.record(turn(Outcome::sticky, home_a, home_a.replica), {.prompt_tokens = 1300});
  CHECK(silent.turn_class == TurnClass::unmeasured);
  CHECK(silent.computed_tokens == 0);
}

TEST_CASE("a restart of home leaves nothing to reuse") {
  AfterFirstTurn given;
  const Home restarted{home_a.replica, 2};
  CHECK(given.ledger.record(turn(Outcome::placed, restarted, home_a.replica), said(1300, 0))
            .turn_class == TurnClass::cold);
}

TEST_CASE("totals are kept for the replica that served the turn, and for the pool") {
  AfterFirstTurn given;
  (void)given.ledger.record(turn(Outcome::spilled, home_a, home_b.replica), said(1300, 0));
  const auto misrouted = static_cast<std::size_t>(TurnClass::misrouted);
  CHECK(given.ledger.totals(home_b.replica)[misrouted] ==
        ClassTotal{.turns = 1, .computed_tokens = 992});
  CHECK(given.ledger.totals(home_a.replica)[misrouted] == ClassTotal{});
  CHECK(given.ledger.totals()[misrouted] == ClassTotal{.turns = 1, .computed_tokens = 992});
}

TEST_CASE("the least recently recorded conversation is forgotten first") {
  Ledger ledger({.capacity = 2});
  const auto record = [&](std::uint64_t key) {
    Decision decision = turn(Outcome::sticky, home_a, home_a.replica);
    decision.key = {key, key};
    return ledger.record(decision, said(1000, 0));
  };
  (void)record(1);
  (void)record(2);
  (void)record(1);
  (void)record(3);
  CHECK(ledger.conversations() == 2);
  CHECK(record(1).turn_class == TurnClass::lost);
  CHECK(record(2).turn_class == TurnClass::cold);
}

TEST_CASE("ledger options that make no sense are refused by name and value") {
  CHECK_THROWS_WITH(Ledger({.block_tokens = 0}), ContainsSubstring("block_tokens = 0"));
  CHECK_THROWS_WITH(Ledger({.hit_at_least = 1.5}), ContainsSubstring("hit_at_least = 1.5"));
  CHECK_THROWS_WITH(Ledger({.lost_below = 0.95}), ContainsSubstring("lost_below = 0.95"));
  CHECK_THROWS_AS(Ledger({.capacity = 0}), std::invalid_argument);
}
