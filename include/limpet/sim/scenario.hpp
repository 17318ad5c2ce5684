// SPDX-License-Identifier: Apache-2.0
//
// Scenario: a fleet, a workload and some sizes as plain settings, for tools that are told them.
//
// What examples/simulate.cpp and limpet.sim offer. Code that knows its fleet and its sessions uses
// Simulation itself (run.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/sim/replay.hpp>
#include <limpet/sim/run.hpp>
#include <limpet/sim/workload.hpp>

namespace limpet::sim {

struct Scenario {
  std::string workload = "ladder";  // ladder, agents, replay=FILE, mooncake=FILE
  EngineProfile profile{};
  std::uint32_t replicas = 4;
  double slow = 1.0;  // the last replica's steps take so much longer
  // Sessions at once, one run each, on the same engines one after the other. Empty: 4 8 16 24 32,
  // or 64 for recordings.
  std::vector<std::uint32_t> sessions{};
  double seconds = 180;  // of each run; recordings are played to their end
  double think = -1;  // ladder: mean pause in s; others: scale of the pauses; negative: as it comes
  double wander = 0.1;  // see SimulationOptions, as the next two
  double scrape = 2.0;
  std::uint64_t seed = 1;
};

// Plays the scenario before `front` and calls done(report) after each size. Throws
// std::invalid_argument for a workload that there is not, std::runtime_error for a bad recording.
template <FrontEnd F, class Done>
void play(const Scenario& scenario, F& front, Done&& done) {
  const std::string& workload = scenario.workload;
  const bool ladder = workload == "ladder";
  const bool agents = workload == "agents";
  const bool recorded = workload.starts_with("replay=") || workload.starts_with("mooncake=");
  if (!ladder && !agents && !recorded) throw std::invalid_argument("no workload " + workload);

  // A conversation may fill half a cache: with longer ones there is nothing to route.
  const std::uint64_t window = scenario.profile.kv_tokens / 2;
  const double think_scale = scenario.think < 0 ? 1.0 : scenario.think;
  LadderSessions ladder_sessions(scenario.seed, {.think_mean = std::max(0.0, scenario.think)});
  AgentSessions agent_sessions(scenario.seed,
                               {.think_scale = think_scale, .context_limit = window});
  std::vector<Session> sessions;
  if (recorded) {
    const ReplayOptions options{.context_limit = std::min<std::uint64_t>(131'072, window),
                                .think_scale = think_scale,
                                .think_limit = 300};
    const std::string file = workload.substr(workload.find('=') + 1);
    sessions = workload.starts_with("replay=") ? read_agent_sessions(file, options)
                                               : read_mooncake_sessions(file, options);
  }

  std::vector<EngineProfile> fleet(scenario.replicas, scenario.profile);
  fleet.back().slowdown *= scenario.slow;
  Simulation simulation(
      fleet, front,
      {.scrape_interval = scenario.scrape, .wander = scenario.wander, .seed = scenario.seed});
  std::vector<std::uint32_t> sizes = scenario.sessions;
  if (sizes.empty()) {
    sizes =
        recorded ? std::vector<std::uint32_t>{64} : std::vector<std::uint32_t>{4, 8, 16, 24, 32};
  }
  for (const std::uint32_t seats : sizes) {
    if (ladder) {
      done(simulation.run(ladder_sessions, {.seats = seats, .seconds = scenario.seconds}));
    } else if (agents) {
      done(simulation.run(
          agent_sessions,
          {.seats = seats, .seconds = scenario.seconds, .stagger = scenario.seconds / 4 / seats}));
    } else {
      ReplaySessions source(sessions);
      done(simulation.run(source, {.seats = seats, .stagger = 1.0}));
    }
  }
}

}  // namespace limpet::sim
