// SPDX-License-Identifier: Apache-2.0
#include <limpet/wire/prefix.hpp>

#include "catch.hpp"
#include "support/shared_data.hpp"

#include <string>

using limpet::prefix_chain;

namespace {

// Whether `next` begins with all of `previous`.
bool grows(const std::string& previous, const std::string& next) {
  const auto before = prefix_chain(previous);
  const auto after = prefix_chain(next);
  REQUIRE_FALSE(before.empty());
  return after.size() >= before.size() && after[before.size() - 1] == before.back();
}

std::string chat(const std::string& messages, const std::string& more = "") {
  return R"({"model":"m","messages":[)" + messages + "]" + more + "}";
}

const std::string asks = R"({"role":"user","content":"Read the file."})";
const std::string answers = R"({"role":"assistant","content":"It says \"7\"."})";
const std::string goes_on = R"({"role":"user","content":"And now?"})";

}  // namespace

TEST_CASE("a prompt that has grown begins with the previous one") {
  CHECK(grows(chat(asks), chat(asks + "," + answers + "," + goes_on)));
  CHECK(prefix_chain(chat(asks)).size() == 2);
  CHECK(prefix_chain(chat(asks + "," + answers + "," + goes_on)).size() == 4);
}

TEST_CASE("an edited, reordered or shortened history does not") {
  const std::string long_one = chat(asks + "," + answers + "," + goes_on);
  CHECK_FALSE(grows(long_one, chat(asks + "," + goes_on + "," + answers)));
  CHECK_FALSE(grows(long_one, chat(R"({"role":"user","content":"Summary of all that."})")));
  CHECK_FALSE(grows(chat(asks), chat(R"({"role":"user","content":"Read the files."})")));
  CHECK_FALSE(grows(chat(asks), chat(R"({"role":"system","content":"Read the file."})")));
}

TEST_CASE("what stands before the messages counts, wherever it stands in the body") {
  const std::string tools = R"(,"tools":[{"name":"ls"}])";
  CHECK(grows(chat(asks, tools),
              R"({"tools":[{"name":"ls"}],"messages":[)" + asks + "," + answers + "]}"));
  CHECK_FALSE(grows(chat(asks, tools), chat(asks, R"(,"tools":[{"name":"cat"}])")));
  CHECK_FALSE(grows(chat(asks, R"(,"system":"a")"), chat(asks, R"(,"system":"b")")));
  CHECK_FALSE(
      grows(chat(asks, R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"}])"),
            chat(asks, R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: 2"}])")));
}

TEST_CASE("what does not reach the engine does not count") {
  const std::string blocks =
      R"({ "role" : "user", "content" : [ {"type":"text", "text":"Read the file.", "cache_control":{"type":"ephemeral"}} ] })";
  CHECK(grows(chat(asks), chat(blocks + "," + answers)));
  CHECK(grows(chat(blocks), chat(asks + "," + answers)));
}

TEST_CASE("a tool's result is part of the prompt") {
  const auto result = [](const std::string& content) {
    return chat(
        asks +
        R"(,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":")" +
        content + R"("}]})");
  };
  CHECK(grows(result("7"), result("7")));
  CHECK_FALSE(grows(result("7"), result("8")));
}

TEST_CASE("the Responses API's input and instructions are read as messages and system are") {
  const std::string first =
      R"({"instructions":"Be brief.","input":[{"role":"user","content":"hi"}]})";
  const std::string next =
      R"({"instructions":"Be brief.","input":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]})";
  CHECK(grows(first, next));
  CHECK(prefix_chain(R"({"input":"hi"})").size() == 2);
}

TEST_CASE("a body that says only what is new, or cannot be read, is unknown") {
  CHECK(prefix_chain(R"({"input":"hi","previous_response_id":"resp_1"})").empty());
  CHECK(prefix_chain(R"({"prompt":"once upon"})").empty());
  CHECK(prefix_chain("").empty());
  CHECK(prefix_chain("[1,2]").empty());
  CHECK(prefix_chain(R"({"messages":[{"role":"user")").empty());
  CHECK(prefix_chain(std::string(100000, '[')).empty());
}

TEST_CASE("real agents' second turns begin with their first, and other conversations' do not") {
  // A capture is {"method":..,"target":..,"headers":..,"body":{..}}, the body last.
  const auto body_of = [](const std::string& capture) {
    const std::size_t at = capture.find("\"body\":") + 7;
    return capture.substr(at, capture.rfind('}') - at);
  };
  const auto chain_of = [&](const std::string& name) {
    const auto capture = limpet_tests::shared_data("agent_requests/" + name + ".json");
    return capture ? prefix_chain(body_of(*capture)) : std::vector<std::uint64_t>{};
  };
  if (!limpet_tests::shared_data("agent_requests/codex_turn1.json")) {
    SKIP(limpet_tests::missing_data("agent_requests/codex_turn1.json"));
  }
  for (const std::string client : {"claude_code", "claude_code_subagent", "codex", "opencode"}) {
    CAPTURE(client);
    const auto first = chain_of(client + "_turn1");
    const auto second = chain_of(client + "_turn2");
    REQUIRE(first.size() >= 3);
    REQUIRE(second.size() > first.size());
    CHECK(second[first.size() - 1] == first.back());
  }
  CHECK(chain_of("claude_code_turn1")[0] != chain_of("claude_code_subagent_turn1")[0]);
}
