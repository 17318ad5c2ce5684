// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/replay.hpp>

#include "catch.hpp"

#include <limpet/sim/balancers.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/run.hpp>

#include "support/shared_data.hpp"

#include <filesystem>
#include <fstream>

namespace {

using namespace limpet::sim;

struct File {
  std::filesystem::path path;
  File(const char* name, const char* text) : path(std::filesystem::temp_directory_path() / name) {
    std::ofstream(path) << text;
  }
  ~File() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE(
    "a recorded session is scaled to the window as a whole, and answers join the next prompt") {
  const File file("limpet_replay_test.jsonl",
                  R"({"session": "s", "tools": 100, "system": 50, "turns": [
{"in": 1000, "out": 100, "from": -1, "kept": 0, "think": 0},
{"in": 1300, "out": 700, "from": 0, "kept": 960, "think": 9000},
{"in": 600, "out": 10, "from": 0, "kept": 512, "think": 4, "agent": 2}]})");
  // One line a session: the example above is folded for reading.
  std::string text;
  std::ifstream in(file.path);
  for (std::string line; std::getline(in, line);) text += line;
  std::ofstream(file.path) << text;

  const auto sessions =
      read_agent_sessions(file.path.string(), {.context_limit = 1'002, .think_limit = 300});
  REQUIRE(sessions.size() == 1);
  const auto& turns = sessions[0].turns;
  REQUIRE(turns.size() == 3);
  CHECK(turns[0].prompt_tokens == 500);  // 2,000 tokens at most, halved
  CHECK(turns[1].prompt_tokens == 650);
  CHECK(turns[1].output_tokens == 350);
  CHECK(turns[1].kept == 550);  // 960 of 1,000 are all whole blocks of 64: the answer follows
  CHECK(turns[1].think == 300);
  CHECK(turns[2].kept == 256);
  CHECK(turns[2].agent == 2);
  CHECK(sessions[0].shared[0].tokens == 50);
}

TEST_CASE("a recording that makes no sense is refused with its line") {
  const auto [turn, words] = GENERATE(table<const char*, const char*>({
      {R"({"in": -5, "out": 1, "from": -1, "kept": 0, "think": 0})", "out of range"},
      {R"({"in": 5, "out": 1e300, "from": -1, "kept": 0, "think": 0})", "out of range"},
      {R"({"in": 5, "out": 1, "from": 1, "kept": 0, "think": 0})", "none of the earlier"},
      {R"({"in": 5, "out": 1, "from": 1e30, "kept": 0, "think": 0})", "none of the earlier"},
      {R"({"in": 5, "out": 1, "from": -9, "kept": 0, "think": 0})", "none of the earlier"},
      {R"({"in": 5, "out": 1, "from": 0, "kept": -64, "think": 0})", "out of range"},
      {R"({"in": 5, "out": 1, "from": 0, "kept": 0, "think": -1})", "a pause is negative"},
      {R"({"in": 5, "out": 1, "from": 0, "kept": 0, "think": nan})", "neither a value nor a num"},
      {R"({"in": 5, "out": 1})", "no member"},
  }));
  const std::string first = R"({"in": 5, "out": 1, "from": -1, "kept": 0, "think": 0})";
  const std::string line =
      R"({"session": "s", "tools": 1, "system": 1, "turns": [)" + first + ", " + turn + "]}\n";
  const File file("limpet_replay_bad_test.jsonl", line.c_str());
  CAPTURE(turn);
  CHECK_THROWS_MATCHES(read_agent_sessions(file.path.string()), std::runtime_error,
                       MessageMatches(ContainsSubstring(":1: ") && ContainsSubstring(words)));
}

TEST_CASE("Mooncake's requests are joined where one holds the last full block of another") {
  const File file(
      "limpet_mooncake_test.jsonl",
      "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n"
      "{\"timestamp\": 500, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [0, 7, "
      "8]}\n"
      "{\"timestamp\": 9000, \"input_length\": 1600, \"output_length\": 0, \"hash_ids\": [0, 1, 3, "
      "4]}\n"
      "{\"timestamp\": 9500, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 9]}\n");
  const auto sessions = read_mooncake_sessions(file.path.string());
  REQUIRE(sessions.size() == 3);
  REQUIRE(sessions[0].turns.size() == 2);
  CHECK(sessions[0].turns[1].kept == 1'024);
  CHECK(sessions[0].turns[1].think == 9.0);
  CHECK(sessions[0].turns[1].output_tokens == 1);
  CHECK(sessions[0].shared.size() == 2);
  CHECK(sessions[0].shared[0].content == sessions[1].shared[0].content);
  CHECK(sessions[0].shared[1].content != sessions[1].shared[1].content);
}

TEST_CASE(
    "the recorded sessions of coding agents are all there and find their own prefixes again") {
  const char* name = "claude_code_sessions.jsonl";
  const auto path = limpet_tests::shared_data_folder() / name;
  if (!std::filesystem::exists(path)) SKIP(limpet_tests::missing_data(name));
  auto sessions = read_agent_sessions(path.string(), {.think_scale = 0});
  CHECK(sessions.size() == 710);
  std::size_t turns = 0;
  for (const Session& session : sessions) turns += session.turns.size();
  CHECK(turns == 49'334);
  // On one replica with room for all of one session, and one session at a time, nothing is read
  // twice but what the sessions themselves changed.
  sessions.resize(5);
  std::uint64_t prompt = 0;
  std::uint64_t kept = 0;
  for (const Session& session : sessions) {
    for (const TurnPlan& turn : session.turns) {
      prompt += turn.prompt_tokens;
      kept += std::min(turn.kept, turn.prompt_tokens);
    }
  }
  VllmBalancerBlind front;
  Simulation simulation({profiles::rtxpro6000_llama31_8b()}, front);
  ReplaySessions source(sessions);
  const Report report = simulation.run(source, {});
  CHECK(report.sessions == 5);
  const double possible = static_cast<double>(kept) / static_cast<double>(prompt);
  CHECK(report.from_cache == Approx(possible).margin(0.02));
}
