// SPDX-License-Identifier: Apache-2.0
#include <limpet/concepts.hpp>

#include "catch.hpp"
#include "support/pool_view.hpp"

#include <cstdint>
#include <vector>

using namespace limpet;

TEST_CASE("a verdict may name its target and is otherwise the same") {
  CHECK(Verdict::stay.action == Verdict::Action::stay);
  CHECK_FALSE(Verdict::spill.target);
  CHECK(Verdict::move.to({3, 1}) == Verdict{Verdict::Action::move, {3, 1}});
  CHECK(Verdict::move.to({3, 1}) != Verdict::move);
  CHECK(Verdict{} == Verdict::stay);
}

TEST_CASE("an overflow view shows home, the others in order, and what is known of the turn") {
  const ReplicaLoad home{.replica = {0, 0}, .in_flight = 9};
  const std::vector<ReplicaLoad> others = {{.replica = {4, 0}}, {.replica = {2, 0}}};
  OverflowView view = limpet_test::pool_view(home, others);
  view.prompt_tokens = 11;
  CHECK(view.home().in_flight == 9);
  CHECK(view.size() == 2);
  CHECK(view.prompt_tokens == 11);
  CHECK(view.context_tokens == 0);
  std::vector<std::uint16_t> seen;
  view.for_each_other([&](const ReplicaLoad& other) { seen.push_back(other.replica.slot); });
  CHECK(seen == std::vector<std::uint16_t>{4, 2});
}

TEST_CASE("a sink hands each reading to its callable") {
  std::vector<double> running;
  auto keep = [&](const Reading& reading) { running.push_back(*reading.running); };
  const ReadingSink sink(keep);
  sink(Reading{.running = 2.0});
  const ReadingSink copy = sink;
  copy(Reading{.running = 3.0});
  CHECK(running == std::vector<double>{2.0, 3.0});
}

TEST_CASE("every parse status has a name for people") {
  CHECK(to_string(ParseStatus::ok) == "ok");
  CHECK(to_string(ParseStatus::malformed) == "malformed");
  CHECK(to_string(ParseStatus::no_engine) == "no_engine");
  CHECK(to_string(ParseStatus::out_of_memory) == "out_of_memory");
}

TEST_CASE("a ticket is void until a store hands one out") {
  CHECK_FALSE(PinTicket{}.has_value());
  CHECK(PinTicket{0, 1}.has_value());
  CHECK(PinTicket{0, 1} != PinTicket{0, 2});
}
