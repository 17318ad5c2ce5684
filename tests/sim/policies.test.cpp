// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/policies.hpp>

#include "catch.hpp"

#include <limpet/sim/profiles.hpp>
#include <limpet/sim/run.hpp>

TEST_CASE("every name on the list makes a front end that serves, and no other name does") {
  using namespace limpet::sim;
  const std::vector<EngineProfile> fleet(2, profiles::a4000_qwen3_4b());
  for (const PolicyName& policy : policy_names) {
    INFO(policy.name);
    std::uint64_t turns = 0;
    CHECK(with_policy(policy.name, [&](auto& front) {
      Simulation simulation(fleet, front);
      LadderSessions sessions(1);
      turns = simulation.run(sessions, {.seats = 3, .seconds = 30}).turns;
    }));
    CHECK(turns > 3);
  }
  CHECK(!with_policy("no such policy", [](auto&) { FAIL("called"); }));
}
