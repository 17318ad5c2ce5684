// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/calibrate.hpp>

#include "catch.hpp"

#include <limpet/sim/profiles.hpp>

#include <filesystem>
#include <fstream>

namespace {

using namespace limpet::sim;

// What a user would send to an idle server: a long prompt, its next turn, short ones, several at
// once.
std::vector<Measured> handful() {
  std::vector<Measured> requests;
  const auto add = [&](double at, std::uint64_t prompt, std::uint64_t output,
                       std::string session = {}) {
    Measured m;
    m.sent = at;
    m.prompt_tokens = prompt;
    m.output_tokens = output;
    m.session = std::move(session);
    requests.push_back(m);
  };
  add(0, 8'000, 128, "a");
  add(30, 8'200, 128, "a");
  add(60, 64, 64);
  add(90, 1'000, 1);
  add(120, 20'000, 32);
  for (int i = 0; i < 16; ++i) add(160, 500, 128);
  for (int i = 0; i < 4; ++i) add(220, 6'000, 128);
  return requests;
}

}  // namespace

TEST_CASE("a profile is found again from a handful of its own measurements") {
  EngineProfile truth = profiles::rtx4090_llama31_8b();
  std::vector<Measured> measured = handful();
  const auto timings = replay(truth, measured);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    measured[i].first = timings[i].first;
    measured[i].end = timings[i].end;
  }
  EngineProfile start = truth;
  start.step = {.weights = 0.01,
                .per_token = 3e-4,
                .per_pair = 1e-9,
                .per_context = 5e-7,
                .per_sequence = 1e-4,
                .fixed = 3e-3};
  start.front_end = 0.01;
  CHECK(misfit(start, measured) > 0.3);
  const EngineProfile fitted = calibrate(start, measured);
  CHECK(misfit(fitted, measured) < 0.02);
  CHECK(fitted.step.per_token == Approx(truth.step.per_token).epsilon(0.10));
  CHECK(fitted.step.weights + fitted.step.fixed ==
        Approx(truth.step.weights + truth.step.fixed).epsilon(0.10));
  CHECK(fitted.front_end == Approx(truth.front_end).epsilon(0.30));
  CHECK(fitted.kv_tokens == truth.kv_tokens);
}

TEST_CASE("what is zero in the profile to start from stays zero") {
  const EngineProfile truth = profiles::rtx4090_llama31_8b();
  std::vector<Measured> measured = handful();
  for (Measured& m : measured) {
    m.first = m.sent + 1;
    m.end = m.sent + 2;
  }
  EngineProfile start = truth;
  start.step.per_pair = 0;
  start.front_end = 0;
  const EngineProfile fitted = calibrate(start, measured, {.replays = 50});
  CHECK(fitted.step.per_pair == 0);
  CHECK(fitted.front_end == 0);
}

TEST_CASE("a recording's first turns share what they found, later turns their session") {
  std::vector<Measured> measured(3);
  measured[0] = {0, 1, 2, 1'000, 480, 20, "a"};
  measured[1] = {1, 2, 3, 1'000, 480, 20, "b"};
  measured[2] = {9, 10, 11, 1'100, 1'008, 20, "a"};
  const RecordedPrompts prompts = recorded_prompts(measured, 16);
  CHECK(prompts.shared_tokens == 480);
  const auto& a = prompts.chains[0].blocks();
  const auto& b = prompts.chains[1].blocks();
  const auto& next = prompts.chains[2].blocks();
  CHECK(a[29] == b[29]);
  CHECK(a[30] != b[30]);
  CHECK(a[62] == next[62]);  // 1,020 tokens: 63 full blocks
  CHECK(prompts.chains[2].tokens() == 1'120);
}

TEST_CASE("measurements are read from lines of JSON, sorted by the time sent") {
  const auto path = std::filesystem::temp_directory_path() / "limpet_calibrate_test.jsonl";
  std::ofstream(path)
      << R"({"at": 5, "first": 5.5, "end": 6, "prompt": 100, "output": 3})" << "\n"
      << R"({"session": "x", "at": 1, "first": 1.5, "end": 2, "prompt": 10, "cached": 4, "output": 2})"
      << "\n";
  const auto measured = read_measurements(path.string());
  std::filesystem::remove(path);
  REQUIRE(measured.size() == 2);
  CHECK(measured[0].session == "x");
  CHECK(measured[0].cached_tokens == 4);
  CHECK(measured[1].prompt_tokens == 100);
  CHECK(measured[1].first == 5.5);
}
