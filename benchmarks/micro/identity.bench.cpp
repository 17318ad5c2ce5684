// SPDX-License-Identifier: Apache-2.0
//
// What it costs to tell whose turn a request is: a request of Claude Code's shape, generated, with
// 19 headers and a body of 48 KB (12 tools, three blocks of system prompt, the session at the end).
//
// Floors, in the same process: hashing one session id, and simdjson's own on-demand walk to the
// user id over the same body, which it need not copy. Rival: the same with simdjson's DOM. The
// benchmarks named ratio_* time subject and floor in turns, and report the quotient of their
// fastest rounds. Not measured: receiving and decompressing the body.
#include <benchmark/benchmark.h>

#include <limpet/hash.hpp>
#include <limpet/wire/identity.hpp>

#include <simdjson.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support.hpp"

namespace limpet::bench {
namespace {

constexpr std::string_view session = "4f6c1c1e-9a53-4d0b-8a2e-0f7b6f3c2d10";

using Headers = std::vector<std::pair<std::string_view, std::string_view>>;

Headers claude_code_headers() {
  return {{"Accept", "application/json"},
          {"Content-Type", "application/json"},
          {"User-Agent", "claude-cli/2.1.332 (external, sdk-cli)"},
          {"X-Claude-Code-Session-Id", session},
          {"X-Stainless-Arch", "x64"},
          {"X-Stainless-Lang", "js"},
          {"X-Stainless-OS", "Linux"},
          {"X-Stainless-Package-Version", "0.128.0"},
          {"X-Stainless-Retry-Count", "0"},
          {"X-Stainless-Runtime", "node"},
          {"X-Stainless-Runtime-Version", "v26.12.1"},
          {"X-Stainless-Timeout", "600"},
          {"anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14"},
          {"anthropic-dangerous-direct-browser-access", "true"},
          {"anthropic-version", "2023-06-01"},
          {"x-app", "cli"},
          {"x-claude-code-agent-id", "a00000000feed0002"},
          {"Connection", "keep-alive"},
          {"Accept-Encoding", "gzip, deflate, br, zstd"}};
}

std::string prose(std::size_t size) {
  std::string text;
  while (text.size() < size) text += "The tool reads a file and says \\\"what\\\" it found.\\n";
  return text;
}

std::string tool(int number) {
  std::string properties;
  for (int i = 0; i < 5; ++i) {
    properties += (i == 0 ? "\"" : ",\"") + std::string("parameter_") + std::to_string(i) +
                  R"(":{"type":"string","description":")" + prose(150) + "\"}";
  }
  return R"({"name":"Tool)" + std::to_string(number) + R"(","description":")" + prose(1550) +
         R"(","input_schema":{"type":"object","properties":{)" + properties +
         R"(},"required":["parameter_0"],"additionalProperties":false}})";
}

std::string claude_code_body() {
  std::string tools;
  for (int i = 0; i < 12; ++i) {
    if (i > 0) tools += ',';
    tools += tool(i);
  }
  return R"({"model":"local-model","messages":[{"role":"user","content":[{"type":"text","text":)"
         R"("<system-reminder>)" +
         prose(550) + R"(</system-reminder>"},{"type":"text","text":"fix the build"}]},)" +
         R"({"role":"system","content":[{"type":"text","text":")" + prose(9100) +
         R"(","cache_control":{"type":"ephemeral"}}]}],"system":[{"type":"text","text":)"
         R"("x-anthropic-billing-header: cc_version=2.1;"},{"type":"text","text":")" +
         prose(6800) + R"(","cache_control":{"type":"ephemeral"}}],"tools":[)" + tools +
         R"(],"metadata":{"user_id":"{\"device_id\":\")" + std::string(64, 'a') +
         R"(\",\"account_uuid\":\"\",\"session_id\":\")" + std::string(session) +
         R"(\"}"},"max_tokens":32000,"thinking":{"type":"adaptive"},"stream":true})";
}

const std::string& body() {
  static const std::string text = claude_code_body();
  return text;
}

// The user id, by simdjson's on-demand walk over all members.
class Walk {
 public:
  explicit Walk(const std::string& text) : text_(text) {}

  [[nodiscard]] bool operator()() {
    simdjson::ondemand::document document;
    simdjson::ondemand::object root;
    if (parser_.iterate(text_).get(document) != simdjson::SUCCESS) return false;
    if (document.get_object().get(root) != simdjson::SUCCESS) return false;
    std::string_view user;
    for (auto member : root) {
      std::string_view key;
      if (member.unescaped_key().get(key) != simdjson::SUCCESS) return false;
      if (key == "metadata" &&
          member.value()["user_id"].get_string().get(user) != simdjson::SUCCESS) {
        return false;
      }
    }
    return user.size() > session.size();
  }

 private:
  simdjson::padded_string text_;
  simdjson::ondemand::parser parser_;
};

bool by_headers() {
  static const Headers headers = claude_code_headers();
  benchmark::DoNotOptimize(headers.data());
  return identify(headers, body()).agent == "a00000000feed0002";
}

bool by_body() {
  return identify(Headers{}, body()).source == IdentitySource::claude_code_body;
}

void identity_by_headers(benchmark::State& state) {
  measure(state, by_headers);
}
BENCHMARK(identity_by_headers);

void identity_by_body(benchmark::State& state) {
  measure(state, by_body);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body().size()));
}
BENCHMARK(identity_by_body);

void identity_by_fingerprint(benchmark::State& state) {
  std::string text = body();
  text.replace(text.find("\"metadata\""), 10, "\"metadatA\"");
  measure(state, [&] { return identify(Headers{}, text).source == IdentitySource::fingerprint; });
}
BENCHMARK(identity_by_fingerprint);

void identity_of_title_call(benchmark::State& state) {
  const std::string text = R"({"model":"m","max_tokens":32000,"messages":[{"role":"system",)"
                           R"("content":")" +
                           prose(2000) + R"("},{"role":"user","content":"Make a title:"},)" +
                           R"({"role":"user","content":"fix the build"}],"stream":true})";
  const Headers headers{{"x-session-affinity", "ses_74349d838c228c92efe74350b8"},
                        {"x-session-id", "ses_74349d838c228c92efe74350b8"}};
  measure(state, [&] { return identify(headers, text).kind == RequestKind::side_call; });
}
BENCHMARK(identity_of_title_call);

void floor_simdjson_walk(benchmark::State& state) {
  measure(state, Walk(body()));
}
BENCHMARK(floor_simdjson_walk);

void rival_simdjson_dom(benchmark::State& state) {
  const simdjson::padded_string text(body());
  simdjson::dom::parser parser;
  measure(state, [&] {
    std::string_view user;
    return parser.parse(text)["metadata"]["user_id"].get_string().get(user) == simdjson::SUCCESS &&
           user.size() > session.size();
  });
}
BENCHMARK(rival_simdjson_dom);

// Nanoseconds an operation takes in a round of `count`.
template <class Operation>
double round_of(int count, Operation& operation, bool& right) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) right = operation() && right;
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / count;
}

template <class Subject, class Floor>
void ratio(benchmark::State& state, int count, Subject subject, Floor floor) {
  double subject_best = 1e18;
  double floor_best = 1e18;
  bool right = true;
  for (auto _ : state) {
    subject_best = std::min(subject_best, round_of(count, subject, right));
    floor_best = std::min(floor_best, round_of(count, floor, right));
  }
  if (!right) state.SkipWithError("a wrong result");
  state.counters["subject_ns"] = subject_best;
  state.counters["floor_ns"] = floor_best;
  state.counters["ratio"] = subject_best / floor_best;
}

void ratio_headers_to_hash(benchmark::State& state) {
  std::string key(session);
  const KeyHasher hasher({.k0 = 1, .k1 = 2});
  ratio(state, 500, by_headers, [&] {
    benchmark::DoNotOptimize(key.data());
    benchmark::ClobberMemory();
    const KeyHash hash = hasher(key);
    return hash.hi != hash.lo;
  });
}
BENCHMARK(ratio_headers_to_hash)->Iterations(3000);

void ratio_body_to_walk(benchmark::State& state) {
  ratio(state, 5, by_body, Walk(body()));
}
BENCHMARK(ratio_body_to_walk)->Iterations(2000);

}  // namespace
}  // namespace limpet::bench
