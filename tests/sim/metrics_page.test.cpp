// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/metrics_page.hpp>

#include "catch.hpp"

#include <limpet/metrics/vllm.hpp>
#include <limpet/sim/balancers.hpp>
#include <limpet/sim/run.hpp>

#include "support/shared_data.hpp"

#include <set>
#include <sstream>

namespace {

using namespace limpet::sim;

EngineProfile tiny() {
  EngineProfile profile;
  profile.name = "tiny";
  profile.kv_tokens = 1'024 * 32;
  profile.block_tokens = 32;
  profile.step = {.per_token = 1e-3, .fixed = 1e-3};
  return profile;
}

// "name{labels}" of a sample line, with the values of its labels left out.
std::string shape(const std::string& line) {
  std::string result;
  bool quoted = false;
  for (const char c : line.substr(0, line.rfind(' '))) {
    if (c == '"') quoted = !quoted;
    if (!quoted) result += c;
  }
  return result;
}

}  // namespace

TEST_CASE("the router's parser reads from the page what the engines' counters say") {
  VllmBalancer balancer;
  Simulation simulation({tiny(), tiny()}, balancer);
  LadderSessions sessions(1);
  (void)simulation.run(sessions, {.seats = 3, .seconds = 20});
  const std::string page = MetricsPage::render(simulation.engines(), 1.5e9);
  std::size_t read = 0;
  auto check = [&](const limpet::Reading& reading) {
    CHECK(reading.engine == std::to_string(read));
    CHECK(reading.model == "tiny");
    const EngineCounters& counters = simulation.engines()[read].counters();
    CHECK(reading.running == counters.running);
    CHECK(reading.waiting == counters.waiting);
    CHECK(reading.kv_usage == counters.kv_usage);
    CHECK(reading.prefix_queries == static_cast<double>(counters.prefix_queries));
    CHECK(reading.prefix_hits == static_cast<double>(counters.prefix_hits));
    CHECK(reading.prompt_tokens == static_cast<double>(counters.prompt_tokens));
    CHECK(reading.prompt_tokens_cached == static_cast<double>(counters.prompt_tokens_cached));
    CHECK(reading.kv_capacity_tokens == 32'768.0);
    CHECK(reading.start_time == 1.5e9);
    CHECK(counters.prefix_hits > 0);
    ++read;
  };
  CHECK(limpet::VllmMetrics{}.parse(page, limpet::ReadingSink(check)) == limpet::ParseStatus::ok);
  CHECK(read == 2);
}

TEST_CASE("every line of the page stands, values apart, on a real vLLM's page") {
  const char* file = "vllm_0.32/metrics/metrics_dp2_asc1_under_load.txt";
  const auto real = limpet_tests::shared_data(file);
  if (!real) SKIP(limpet_tests::missing_data(file));
  std::set<std::string> lines;
  std::set<std::string> shapes;
  std::istringstream real_lines(*real);
  for (std::string line; std::getline(real_lines, line);) {
    line.starts_with('#') ? lines.insert(line) : shapes.insert(shape(line));
  }
  const std::vector<Engine> engines(2, Engine(tiny()));
  std::istringstream our_lines(MetricsPage::render(engines, 1.79599928346e+09));
  for (std::string line; std::getline(our_lines, line);) {
    INFO(line);
    if (line.starts_with('#')) {
      CHECK(lines.contains(line));
    } else if (!line.starts_with("vllm:cache_config_info")) {  // the real one has more labels
      CHECK(shapes.contains(shape(line)));
    }
  }
}
