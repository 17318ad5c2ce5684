// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/zoo.hpp>

#include "catch.hpp"

#include <limpet/sim/profiles.hpp>
#include <limpet/sim/run.hpp>

#include <array>
#include <set>
#include <string>

namespace {

using namespace limpet::sim;

const std::vector<EngineProfile> four(4, profiles::a4000_qwen3_4b());

struct Prompt {
  std::string key;
  TokenChain tokens{16};
  std::uint64_t prompt = 0;
  std::uint64_t id = 0;

  Prompt(std::string name, std::uint64_t shared, std::uint64_t own, std::uint64_t length)
      : key(std::move(name)), prompt(shared + length) {
    tokens.append(7, shared);
    tokens.append(own, length + 10);
  }
  [[nodiscard]] Arrival arrival(std::uint64_t shared = 0) const {
    return {id, key, {}, prompt, shared, &tokens};
  }
};

template <class Policy>
Policy started() {
  Policy policy;
  policy.start(four);
  return policy;
}

}  // namespace

TEST_CASE("load-only policies spread a burst by what they count") {
  const Prompt prompt("k", 0, 1, 100);
  auto least = started<zoo::LeastInFlightChoice>();
  for (int i = 0; i < 10; ++i) (void)least.choose(prompt.arrival(), 0);
  CHECK(*std::max_element(least.in_flight.begin(), least.in_flight.end()) == 3);
  CHECK(*std::min_element(least.in_flight.begin(), least.in_flight.end()) == 2);

  auto round = started<zoo::RoundRobinChoice>();
  for (std::size_t i = 0; i < 8; ++i) CHECK(round.choose(prompt.arrival(), 0).replica == i % 4);

  auto two = started<zoo::PowerOfTwoChoices>();
  auto any = started<zoo::RandomChoice>();
  for (int i = 0; i < 400; ++i) {
    (void)two.choose(prompt.arrival(), 0);
    (void)any.choose(prompt.arrival(), 0);
  }
  const auto spread = [](const auto& counts) {
    return *std::max_element(counts.begin(), counts.end()) -
           *std::min_element(counts.begin(), counts.end());
  };
  CHECK(spread(two.in_flight) <= 6);
  CHECK(spread(any.in_flight) > spread(two.in_flight));
}

TEST_CASE("hashing sends a key to one replica, and bounded loads move it on when that is full") {
  auto plain = started<zoo::ConsistentHash>();
  auto bounded = started<zoo::BoundedLoadHash>();
  const Prompt prompt("conversation", 0, 1, 100);
  std::set<std::size_t> plain_replicas;
  for (int i = 0; i < 8; ++i) {
    plain_replicas.insert(plain.choose(prompt.arrival(), 0).replica);
    (void)bounded.choose(prompt.arrival(), 0);
    // ceil(1.25 x turns / 4) is the most that any may have.
    const auto bound = static_cast<std::uint32_t>(std::ceil(1.25 * (i + 1) / 4.0));
    CHECK(*std::max_element(bounded.in_flight.begin(), bounded.in_flight.end()) <= bound);
  }
  CHECK(plain_replicas.size() == 1);

  std::array<int, 4> keys{};
  for (int i = 0; i < 4'000; ++i) {
    ++keys[plain.choose(Prompt("key" + std::to_string(i), 0, 1, 16).arrival(), 0).replica];
  }
  for (const int count : keys) CHECK(count == Approx(1'000).epsilon(0.3));
}

TEST_CASE("the hash of the first message knows a conversation without a key") {
  auto policy = started<zoo::FirstMessageHash>();
  const Prompt first("a", 3'500, 1, 7'000);
  const Prompt later("another key", 3'500, 1, 9'000);
  CHECK(policy.choose(first.arrival(3'500), 0).replica ==
        policy.choose(later.arrival(3'500), 0).replica);
  std::set<std::size_t> replicas;
  for (std::uint64_t i = 2; i < 40; ++i) {
    replicas.insert(policy.choose(Prompt("a", 3'500, i, 7'000).arrival(3'500), 0).replica);
  }
  CHECK(replicas.size() == 4);
}

TEST_CASE("sticky sessions stay, and new ones go where the fewest are") {
  auto policy = started<zoo::StickyFewestSessions>();
  std::array<std::size_t, 8> homes{};
  for (std::size_t i = 0; i < 8; ++i) {
    homes[i] = policy.choose(Prompt(std::to_string(i), 0, i, 100).arrival(), 0).replica;
  }
  CHECK(policy.sessions == std::vector<std::uint64_t>{2, 2, 2, 2});
  for (std::size_t i = 0; i < 8; ++i) {
    const Choice again = policy.choose(Prompt(std::to_string(i), 0, i, 100).arrival(), 0);
    CHECK(again.replica == homes[i]);
    CHECK(again.outcome == limpet::Outcome::sticky);
  }
}

TEST_CASE("prefix affinity follows what it sent, until the load is uneven") {
  auto policy = started<zoo::PrefixAffinity>();
  const Prompt mine("a", 0, 1, 1'000);
  const std::size_t home = policy.choose(mine.arrival(), 0).replica;
  for (int i = 0; i < 64; ++i) CHECK(policy.choose(mine.arrival(), 0).replica == home);
  // 65 there and none elsewhere: more than 64 apart.
  CHECK(policy.choose(mine.arrival(), 0).replica != home);
}

TEST_CASE("tokens times batch weighs what is cached against what is running") {
  auto policy = started<zoo::TokensTimesBatchSize>();
  const Prompt mine("a", 0, 1, 1'600);
  const std::size_t home = policy.choose(mine.arrival(), 0).replica;
  Prompt longer("a", 0, 1, 2'000);
  // 400 new tokens at home against 2,000 elsewhere: home up to a batch of 5, 400 x 5 = 2,000 x 1.
  for (int i = 0; i < 4; ++i) ++policy.in_flight[home];
  CHECK(policy.choose(Prompt("b", 0, 2, 2'000).arrival(), 0).replica != home);
  policy.in_flight.assign(4, 0);
  policy.in_flight[home] = 3;
  CHECK(policy.choose(longer.arrival(), 0).replica == home);
  policy.in_flight.assign(4, 0);
  policy.in_flight[home] = 9;
  longer = Prompt("a", 0, 1, 3'600);  // 1,600 new x 10 against 3,600 x 1
  CHECK(policy.choose(longer.arrival(), 0).replica != home);
}

TEST_CASE("pending prefill is what was sent and has not answered yet") {
  auto policy = started<zoo::LeastPendingPrefillChoice>();
  std::set<std::size_t> replicas;
  for (std::uint64_t i = 0; i < 4; ++i) {
    Prompt prompt("k", 0, 10 + i, 1'000);
    prompt.id = i;
    replicas.insert(policy.choose(prompt.arrival(), 0).replica);
  }
  CHECK(replicas.size() == 4);
  CHECK(policy.pending == std::vector<std::uint64_t>{1'000, 1'000, 1'000, 1'000});
  policy.first_byte(2, 2, 1.0);
  Prompt next("k", 0, 99, 500);
  next.id = 4;
  CHECK(policy.choose(next.arrival(), 1).replica == 2);
}

TEMPLATE_TEST_CASE("every policy of the zoo serves a ladder to its end", "", zoo::RandomChoice,
                   zoo::RoundRobinChoice, zoo::LeastInFlightChoice, zoo::PowerOfTwoChoices,
                   zoo::ConsistentHash, zoo::BoundedLoadHash, zoo::FirstMessageHash,
                   zoo::StickyFewestSessions, zoo::PrefixAffinity, zoo::TokensTimesBatchSize,
                   zoo::LeastPendingPrefillChoice) {
  TestType policy;
  Simulation simulation(four, policy);
  LadderSessions sessions(1);
  const Report report = simulation.run(sessions, {.seats = 8, .seconds = 60});
  CHECK(report.turns > 10);  // one that follows the shared prompt puts all on one replica
  for (const std::uint32_t count : policy.in_flight) CHECK(count == 0);
}
