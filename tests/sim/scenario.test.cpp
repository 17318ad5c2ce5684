// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/scenario.hpp>

#include "catch.hpp"

#include <limpet/sim/balancers.hpp>
#include <limpet/sim/profiles.hpp>

#include <filesystem>
#include <fstream>

namespace {

using namespace limpet::sim;

std::vector<Report> played(const Scenario& scenario) {
  VllmBalancer front;
  std::vector<Report> reports;
  play(scenario, front, [&](const Report& report) { reports.push_back(report); });
  return reports;
}

}  // namespace

TEST_CASE("a scenario is played size by size, and its settings arrive") {
  Scenario scenario{.profile = profiles::a4000_qwen3_4b(), .sessions = {2, 5}, .seconds = 40};
  const auto ladder = played(scenario);
  REQUIRE(ladder.size() == 2);
  CHECK(ladder[0].seats == 2);
  CHECK(ladder[1].seats == 5);
  CHECK(ladder[1].seconds == Approx(40));

  scenario.slow = 3;
  CHECK(played(scenario)[1].output_tokens_per_minute < ladder[1].output_tokens_per_minute);
  scenario.slow = 1;
  scenario.think = 20;
  CHECK(played(scenario)[1].turns < ladder[1].turns);

  scenario.workload = "agents";
  scenario.think = 0;
  CHECK(played(scenario)[1].turns > 5);
}

TEST_CASE("recordings are played to their end, and what is no workload is refused") {
  const auto path = std::filesystem::temp_directory_path() / "limpet_scenario_test.jsonl";
  std::ofstream(path)
      << R"({"session": "s", "tools": 10, "system": 5, "turns": [{"in": 100, "out": 10, )"
      << R"("from": -1, "kept": 0, "think": 0}, {"in": 200, "out": 10, "from": 0, )"
      << R"("kept": 64, "think": 900}]})" << "\n";
  Scenario scenario{.workload = "replay=" + path.string(), .profile = profiles::a4000_qwen3_4b()};
  const auto reports = played(scenario);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].turns == 2);
  CHECK(reports[0].session.max > 300);  // pauses are cut at five minutes
  CHECK(reports[0].session.max < 310);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(played(scenario), std::runtime_error);
  scenario.workload = "none";
  CHECK_THROWS_AS(played(scenario), std::invalid_argument);
}
