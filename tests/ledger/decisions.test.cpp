// SPDX-License-Identifier: Apache-2.0
//
// What a record holds, line by line. That it replays to the same decisions is shown where it is
// replayed, in tests/python.
#include <limpet/ledger/decisions.hpp>

#include "catch.hpp"

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace limpet;
using std::chrono::milliseconds;

namespace {

using ManualRouter = Router<ShardedPins<>, WeightedLoad, SpillAbove, VllmMetrics, ManualClock>;

struct Recording {
  ManualClock clock;
  ManualClock real{Instant{} + std::chrono::seconds(5)};
  ManualRouter router{ShardedPins{}, WeightedLoad{}, SpillAbove{}, VllmMetrics{}, clock};
  std::vector<std::string> lines;
  Recorder<ManualRouter, ManualClock> recorder{
      router, clock, [this](std::string_view line) { lines.emplace_back(line); }, real};
};

}  // namespace

TEST_CASE("a record tells what the router was told, and what it decided") {
  Recording recording;
  auto& recorder = recording.recorder;
  const ReplicaId a =
      recorder.add_replica({.name = "a", .endpoint = "http://a", .max_num_seqs = 32});
  recorder.add_replica({.name = "quoted \"b\"\n", .rank = 1, .engine = "1"});
  recording.real.advance(milliseconds(3));
  CHECK(
      recorder.observe("http://a", "vllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.1\n") ==
      ParseStatus::ok);
  const std::array excluded{a};
  auto turn =
      recorder.route({.key = KeyHash{0x1, 0xabc}, .exclude = excluded, .prompt_tokens = 900});
  auto keyless = recorder.route({});
  recording.real.advance(milliseconds(1));
  turn.finish({.prompt_tokens = 900, .cached_tokens = 0, .completion_tokens = 12});
  turn.fail();  // returned already: nothing to write
  keyless.fail();
  recorder.drain(a);
  recorder.set_affinity(Affinity::off);

  const std::vector<std::string> expected = {
      R"({"record":"limpet decisions","version":1,"epoch":5,"affinity":"on"})",
      R"({"t":0,"do":"add","name":"a","endpoint":"http://a","max_num_seqs":32})",
      R"({"t":0,"do":"add","name":"quoted \"b\"\u000a","endpoint":"quoted \"b\"\u000a","rank":1,"engine":"1"})",
      R"({"t":3000000,"do":"observe","endpoint":"http://a","readings":[{"engine":"","running":2,"kv_usage":0.1}]})",
      R"({"t":3000000,"do":"route","lease":1,"key":"00000000000000010000000000000abc","exclude":["a"],)"
      R"("prompt_tokens":900,"outcome":"placed","replica":"quoted \"b\"\u000a","home":"quoted \"b\"\u000a"})",
      R"({"t":3000000,"do":"route","lease":2,"outcome":"balanced","replica":"a"})",
      R"({"t":4000000,"do":"finish","lease":1,"prompt":900,"completion":12,"cached":0})",
      R"({"t":4000000,"do":"fail","lease":2})",
      R"({"t":4000000,"do":"drain","name":"a"})",
      R"({"t":4000000,"do":"affinity","value":"off"})",
  };
  REQUIRE(recording.lines.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(recording.lines[i] == expected[i] + "\n");
}

TEST_CASE("a key's text is not in the record, and a lease that is dropped ends as cancelled") {
  Recording recording;
  recording.recorder.add_replica({.name = "a"});
  {
    const auto lease = recording.recorder.route({.key = "secret-session"});
  }
  REQUIRE(recording.lines.size() == 4);
  CHECK(recording.lines[2].find("secret") == std::string::npos);
  CHECK(recording.lines[3] == "{\"t\":0,\"do\":\"cancel\",\"lease\":1}\n");
}

TEST_CASE("threads that share a recorder write whole lines in the order of the decisions") {
  Recording recording;
  recording.recorder.add_replica({.name = "a"});
  recording.recorder.add_replica({.name = "b"});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&recording, thread] {
      for (int i = 0; i < 200; ++i) {
        const std::string key = std::to_string(thread) + "-" + std::to_string(i % 7);
        auto lease = recording.recorder.route({.key = key});
        lease.finish();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(recording.lines.size() == 3 + 2 * 800);
  std::uint64_t next = 1;
  for (const std::string& line : recording.lines) {
    const std::string number = "\"do\":\"route\",\"lease\":" + std::to_string(next) + ",";
    if (line.find("\"do\":\"route\"") != std::string::npos) {
      CHECK(line.find(number) != std::string::npos);
      ++next;
    }
    CHECK(line.back() == '\n');
  }
  CHECK(next == 801);
}
