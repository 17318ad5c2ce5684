// SPDX-License-Identifier: Apache-2.0
//
// What it costs to read usage off a stream that passes by: chat streams of vLLM's shape, generated,
// 1,000 events of 210 bytes, fed event by event as they arrive, or in network reads of 16 KB.
//
// The floor is one memchr pass over the lines of the same stream; the rival parses every event with
// simdjson. Each checks the figures. `continuous` has usage in every event, which is the slowest a
// stream can be. Not measured: copying the stream on.
#include <benchmark/benchmark.h>

#include <limpet/wire/usage.hpp>

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

namespace limpet::bench {
namespace {

constexpr int tokens = 1000;

std::string event(int token, std::string_view usage) {
  return R"(data: {"id":"chatcmpl-983e0a22b4096726","object":"chat.completion.chunk","created":)"
         R"(1795998065,"model":"tiny","choices":[{"index":0,"delta":{"content":" word)" +
         std::to_string(token) + R"("},"logprobs":null,"finish_reason":null,"token_ids":null}])" +
         std::string(usage) + "}\n\n";
}

std::vector<std::string> stream_of(bool continuous) {
  std::vector<std::string> events;
  for (int i = 1; i <= tokens; ++i) {
    events.push_back(event(i, continuous ? R"(,"usage":{"prompt_tokens":1793,"total_tokens":)" +
                                               std::to_string(1793 + i) +
                                               R"(,"completion_tokens":)" + std::to_string(i) + "}"
                                         : std::string()));
  }
  events.push_back(R"(data: {"id":"chatcmpl-983e0a22b4096726","choices":[],"usage":)"
                   R"({"prompt_tokens":1793,"total_tokens":2793,"completion_tokens":1000,)"
                   R"("prompt_tokens_details":{"cached_tokens":1792}}})"
                   "\n\n");
  events.push_back("data: [DONE]\n\n");
  return events;
}

std::string joined(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& event : events) text += event;
  return text;
}

bool right(const UsageScanner& scanner) {
  return scanner.usage() ==
         Usage{.prompt_tokens = 1793, .cached_tokens = 1792, .completion_tokens = tokens};
}

void scan(benchmark::State& state, const std::vector<std::string>& chunks) {
  measure(state, [&] {
    UsageScanner scanner;
    for (const std::string& chunk : chunks) scanner.feed(chunk);
    return right(scanner);
  });
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(joined(chunks).size()));
}

void usage_by_event(benchmark::State& state) {
  scan(state, stream_of(false));
}
BENCHMARK(usage_by_event);

void usage_by_16_kb(benchmark::State& state) {
  const std::string text = joined(stream_of(false));
  std::vector<std::string> chunks;
  for (std::size_t at = 0; at < text.size(); at += 16384) chunks.push_back(text.substr(at, 16384));
  scan(state, chunks);
}
BENCHMARK(usage_by_16_kb);

void usage_continuous(benchmark::State& state) {
  scan(state, stream_of(true));
}
BENCHMARK(usage_continuous);

// One answer of the responses kind: the request's instructions of 400 KB come back with it.
void usage_of_long_body(benchmark::State& state) {
  const std::string text = R"({"instructions":")" + std::string(400'000, 'x') +
                           R"(","usage":{"input_tokens":1793,"input_tokens_details":)"
                           R"({"cached_tokens":1792},"output_tokens":1000}})";
  scan(state, {text});
}
BENCHMARK(usage_of_long_body);

void floor_memchr_lines(benchmark::State& state) {
  const std::string text = joined(stream_of(false));
  measure(state, [&] {
    std::size_t lines = 0;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
      at = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at))) + 1;
      ++lines;
    }
    return lines == 2 * (tokens + 2);
  });
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(floor_memchr_lines);

void rival_parse_every_event(benchmark::State& state) {
  std::vector<simdjson::padded_string> documents;
  for (const std::string& event : stream_of(false)) {
    if (event.starts_with("data: {")) documents.emplace_back(event.substr(6));
  }
  simdjson::ondemand::parser parser;
  std::size_t size = 0;
  for (const auto& document : documents) size += document.size();
  measure(state, [&] {
    std::uint64_t made = 0;
    for (const auto& text : documents) {
      simdjson::ondemand::document document;
      std::uint64_t said = 0;
      if (parser.iterate(text).get(document) != simdjson::SUCCESS) return false;
      if (document["usage"]["completion_tokens"].get_uint64().get(said) == simdjson::SUCCESS) {
        made = said;
      }
    }
    return made == tokens;
  });
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
}
BENCHMARK(rival_parse_every_event);

}  // namespace
}  // namespace limpet::bench
