// SPDX-License-Identifier: Apache-2.0
#include <limpet/wire/usage.hpp>

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "support/shared_data.hpp"

using limpet::parse_usage;
using limpet::Usage;
using limpet::UsageScanner;

namespace {

using Cached = std::optional<std::uint64_t>;

Usage usage(std::uint64_t prompt, Cached cached, std::uint64_t completion) {
  return {.prompt_tokens = prompt, .cached_tokens = cached, .completion_tokens = completion};
}

// The body of a recorded answer: what stands after the first blank line behind the status line.
std::string body_of(const std::string& recording) {
  const std::size_t status = recording.find("--- HTTP ");
  REQUIRE(status != std::string::npos);
  const std::size_t headers_end = recording.find("\n}\n\n", status);
  REQUIRE(headers_end != std::string::npos);
  return recording.substr(headers_end + 4);
}

std::optional<Usage> in_two(const std::string& answer, std::size_t cut) {
  UsageScanner scanner;
  scanner.feed(std::string_view(answer).substr(0, cut));
  scanner.feed(std::string_view(answer).substr(cut));
  return scanner.usage();
}

std::optional<Usage> byte_by_byte(const std::string& answer) {
  UsageScanner scanner;
  for (const char& c : answer) scanner.feed({&c, 1});
  return scanner.usage();
}

std::string event(const std::string& json) {
  return "data: " + json + "\n\n";
}

}  // namespace

TEST_CASE("a chat or completions answer names prompt, cached and completion tokens") {
  CHECK(parse_usage(R"({"choices":[],"usage":{"prompt_tokens":1793,"total_tokens":1801,)"
                    R"("completion_tokens":8,"prompt_tokens_details":{"cached_tokens":1792}}})") ==
        usage(1793, 1792, 8));
}

TEST_CASE("cached tokens that the engine did not say are unknown, not zero") {
  CHECK(parse_usage(R"({"usage":{"prompt_tokens":7,"completion_tokens":2}})") ==
        usage(7, std::nullopt, 2));
  CHECK(parse_usage(R"({"usage":{"prompt_tokens":7,"completion_tokens":2,)"
                    R"("prompt_tokens_details":null}})") == usage(7, std::nullopt, 2));
  CHECK(parse_usage(R"({"usage":{"prompt_tokens":7,"completion_tokens":2,)"
                    R"("prompt_tokens_details":{"cached_tokens":null}}})") ==
        usage(7, std::nullopt, 2));
  CHECK(parse_usage(R"({"usage":{"prompt_tokens":7,"completion_tokens":2,)"
                    R"("prompt_tokens_details":{"cached_tokens":0}}})") == usage(7, 0, 2));
}

TEST_CASE("an answer that says no prompt length has no usage") {
  CHECK_FALSE(parse_usage("").has_value());
  CHECK_FALSE(parse_usage(R"({"choices":[]})").has_value());
  CHECK_FALSE(parse_usage(R"({"usage":null})").has_value());
  CHECK_FALSE(parse_usage(R"({"usage":{}})").has_value());
  CHECK_FALSE(parse_usage(R"({"usage":{"completion_tokens":3}})").has_value());
  CHECK_FALSE(parse_usage("event: ping\n\n").has_value());
}

TEST_CASE("a responses answer names input, cached and output tokens") {
  CHECK(parse_usage(R"({"object":"response","usage":{"input_tokens":1790,)"
                    R"("input_tokens_details":{"cached_tokens":1664,"cached_tokens_per_turn":[]},)"
                    R"("output_tokens":8}})") == usage(1790, 1664, 8));
}

TEST_CASE("a responses stream says it in response.completed") {
  const std::string stream =
      "event: response.created\n" + event(R"({"response":{"usage":null,"tools":[]},"type":"x"})") +
      "event: response.completed\n" +
      event(R"({"response":{"usage":{"input_tokens":10,"input_tokens_details":)"
            R"({"cached_tokens":4},"output_tokens":3}},"type":"response.completed"})");
  CHECK(parse_usage(stream) == usage(10, 4, 3));
}

TEST_CASE("a messages answer counts the prompt as input, cache read and cache creation together") {
  CHECK(parse_usage(R"({"type":"message","usage":{"input_tokens":1,"output_tokens":8,)"
                    R"("cache_creation_input_tokens":20,"cache_read_input_tokens":1792}})") ==
        usage(1813, 1792, 8));
  CHECK(parse_usage(R"({"type":"message","usage":{"input_tokens":5,"output_tokens":8}})") ==
        usage(5, std::nullopt, 8));
}

TEST_CASE("in a messages stream the last message_delta wins, field by field") {
  const std::string start =
      event(R"({"type":"message_start","message":{"usage":{"input_tokens":1793,)"
            R"("output_tokens":0}}})");
  CHECK(parse_usage(start) == usage(1793, std::nullopt, 0));
  CHECK(parse_usage(start + event(R"({"type":"message_delta","usage":{"input_tokens":1,)"
                                  R"("output_tokens":8,"cache_creation_input_tokens":0,)"
                                  R"("cache_read_input_tokens":1792}})")) == usage(1793, 1792, 8));
  // A delta that speaks of the output alone leaves the prompt as message_start gave it.
  CHECK(parse_usage(event(R"({"type":"message_start","message":{"usage":{"input_tokens":3,)"
                          R"("cache_read_input_tokens":90,"output_tokens":1}}})") +
                    event(R"({"type":"message_delta","usage":{"output_tokens":25}})")) ==
        usage(93, 90, 25));
}

TEST_CASE("a chat stream says it in a last chunk without choices") {
  const std::string stream = event(R"({"choices":[{"delta":{"content":"a"}}]})") +
                             event(R"({"choices":[{"delta":{"content":"b"}}],"usage":null})") +
                             event(R"({"choices":[],"usage":{"prompt_tokens":9,)"
                                   R"("completion_tokens":2,)"
                                   R"("prompt_tokens_details":{"cached_tokens":8}}})") +
                             event("[DONE]");
  CHECK(parse_usage(stream) == usage(9, 8, 2));
}

TEST_CASE("with continuous usage the figures grow and the details of one chunk are kept") {
  const auto chunk = [](int made) {
    return event(R"({"choices":[{}],"usage":{"prompt_tokens":9,"completion_tokens":)" +
                 std::to_string(made) + "}}");
  };
  const std::string last =
      event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,)"
            R"("prompt_tokens_details":{"cached_tokens":8}}})");
  CHECK(parse_usage(chunk(1) + chunk(2)) == usage(9, std::nullopt, 2));  // cut off
  CHECK(parse_usage(chunk(1) + chunk(2) + chunk(3) + last) == usage(9, 8, 3));
  CHECK(parse_usage(last + chunk(3)) == usage(9, 8, 3));
}

TEST_CASE("only usage where engines put it counts") {
  const std::string real = R"("usage":{"prompt_tokens":5,"completion_tokens":1})";
  const std::string_view decoys[] = {
      R"("choices":[{"usage":{"prompt_tokens":77}}],)",
      R"("tools":[{"parameters":{"usage":{"prompt_tokens":77}}}],)",
      R"("metadata":{"usage":{"prompt_tokens":77}},)",
      R"("text":"\"usage\":{\"prompt_tokens\":77}",)",
      R"("text":"\\","a":"usage","b":{"prompt_tokens":77},)",
      R"("response":{"metadata":{"usage":{"prompt_tokens":77}}},)",
      R"("prompt_tokens":77,)",
      R"("x":{"a":[[{"b":"}]"}]]},)",
  };
  for (const std::string_view decoy : decoys) {
    CAPTURE(decoy);
    const std::string before = "{" + std::string(decoy) + real + "}";
    CHECK(parse_usage(before) == usage(5, std::nullopt, 1));
    CHECK(byte_by_byte(before) == usage(5, std::nullopt, 1));
    std::string after = "{" + real + "," + std::string(decoy);
    after.back() = '}';
    CHECK(parse_usage(after) == usage(5, std::nullopt, 1));
    CHECK(parse_usage(event(before)) == usage(5, std::nullopt, 1));
  }
}

TEST_CASE("a figure that is no whole number says nothing") {
  for (const std::string_view figure :
       {"-5", "1.5", "1e3", "\"5\"", "null", "true", "99999999999999999999999", "[5]", "{}"}) {
    CAPTURE(figure);
    const std::string body = R"({"usage":{"prompt_tokens":6,"completion_tokens":1,)"
                             R"("prompt_tokens_details":{"cached_tokens":)" +
                             std::string(figure) + "}}}";
    CHECK(parse_usage(body) == usage(6, std::nullopt, 1));
    CHECK(byte_by_byte(body) == usage(6, std::nullopt, 1));
  }
}

TEST_CASE("spaces and line breaks inside a body do not matter") {
  CHECK(parse_usage("\r\n {\r\n \"usage\" : {\n\t"
                    "\"prompt_tokens\" : 5 ,\n\"completion_tokens\":1\n}\n}") ==
        usage(5, std::nullopt, 1));
}

TEST_CASE("an error is reported wherever engines put it") {
  const auto failed = [](std::string_view answer) {
    UsageScanner scanner;
    scanner.feed(answer);
    return scanner.failed();
  };
  CHECK(failed(R"({"error":{"message":"no","code":404}})"));
  CHECK(failed("data: {\"choices\":[]}\n\ndata: {\"error\": {\"code\": 500}}\n\ndata: [DONE]\n\n"));
  CHECK(failed("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n"));
  CHECK(failed("data: {\"response\":{\"error\":{\"code\":\"x\"}}}\n\n"));
  CHECK(failed(R"({"error":"not found"})"));
  CHECK_FALSE(failed(R"({"error":null,"usage":{"prompt_tokens":1}})"));
  CHECK_FALSE(failed("data: {\"response\":{\"error\":null}}\n\n"));
  CHECK_FALSE(failed(R"({"choices":[{"error":{"a":1}}],"text":"error"})"));
}

TEST_CASE("a stream that fails half-way keeps what it said before") {
  const std::string stream =
      event(R"({"choices":[{}],"usage":{"prompt_tokens":9,"completion_tokens":4}})") +
      event(R"({"error":{"message":"EngineCore died","code":500}})") + event("[DONE]");
  UsageScanner scanner;
  scanner.feed(stream);
  CHECK(scanner.failed());
  CHECK(scanner.usage() == usage(9, std::nullopt, 4));
}

TEST_CASE("comments, other fields and split data lines are read as the standard says") {
  CHECK(parse_usage(": ping\n\nid: 7\nretry: 10\ndata: {\"usage\":\ndata: {\"prompt_tokens\":5,\n"
                    "data: \"completion_tokens\":1}}\n\n: bye\n") == usage(5, std::nullopt, 1));
  CHECK(parse_usage("\xEF\xBB\xBF"
                    "data:{\"usage\":{\"prompt_tokens\":5}}\r\r") == usage(5, std::nullopt, 0));
  CHECK(parse_usage("database: {\"usage\":{\"prompt_tokens\":5}}\n\n") == std::nullopt);
}

TEST_CASE("an unfinished event does not spoil the next") {
  CHECK(parse_usage("data: {\"a\":[{\"b\":\"\n\ndata: {\"usage\":{\"prompt_tokens\":5}}\n\n") ==
        usage(5, std::nullopt, 0));
}

TEST_CASE("a member without a name takes none from the member before") {
  UsageScanner scanner;
  scanner.feed(R"({"usage":{"prompt_tokens":5,:7},"error":null,:"x"})");
  CHECK(scanner.usage() == usage(5, std::nullopt, 0));
  CHECK_FALSE(scanner.failed());
}

TEST_CASE("a copied scanner goes on by itself in the middle of a number") {
  UsageScanner first;
  first.feed(R"({"usage":{"prompt_tokens":12)");
  UsageScanner second = first;
  first.feed("0}}");
  second.feed("5}}");
  CHECK(first.usage() == usage(120, std::nullopt, 0));
  CHECK(second.usage() == usage(125, std::nullopt, 0));
}

TEST_CASE("the scanner is small and holds nothing back, however long a line") {
  STATIC_REQUIRE(sizeof(UsageScanner) <= 320);
  UsageScanner scanner;
  scanner.feed("data: {\"response\":{\"instructions\":\"");
  const std::string filler(1 << 16, 'x');
  for (int i = 0; i < 512; ++i) scanner.feed(filler);
  scanner.feed("\",\"usage\":{\"input_tokens\":4,\"output_tokens\":2}}}\n\n");
  CHECK(scanner.usage() == usage(4, std::nullopt, 2));
}

TEST_CASE("real answers of vLLM 0.32 say what can be read off them") {
  struct Recording {
    std::string_view file;
    Usage usage;
  };
  const Recording recordings[] = {
      {"chat_warm_single.txt", usage(1793, 1792, 8)},
      {"chat_stream_warm_single.txt", usage(1793, 1792, 8)},
      {"completions_warm_single.txt", usage(1770, 1664, 8)},
      {"messages_warm_single.txt", usage(1793, 1792, 8)},
      {"messages_stream_single.txt", usage(1793, 1792, 8)},
      {"responses_warm_single.txt", usage(1790, 1664, 8)},
      {"responses_stream_single.txt", usage(1790, 1664, 8)},
  };
  for (const Recording& recording : recordings) {
    const std::string file = "vllm_0.32/responses/" + std::string(recording.file);
    const auto text = limpet_tests::shared_data(file);
    if (!text) SKIP(limpet_tests::missing_data(file));
    CAPTURE(file);
    const std::string body = body_of(*text);
    CHECK(parse_usage(body) == recording.usage);
    CHECK(byte_by_byte(body) == recording.usage);
    std::size_t wrong = 0;
    for (std::size_t cut = 0; cut <= body.size(); ++cut) {
      if (in_two(body, cut) != recording.usage) ++wrong;
    }
    CHECK(wrong == 0);

    UsageScanner scanner;
    scanner.feed(body);
    CHECK_FALSE(scanner.failed());
  }
}

TEST_CASE("a real error answer is no usage but a failure") {
  const std::string file = "vllm_0.32/responses/chat_unknown_model_single.txt";
  const auto text = limpet_tests::shared_data(file);
  if (!text) SKIP(limpet_tests::missing_data(file));
  UsageScanner scanner;
  scanner.feed(body_of(*text));
  CHECK(scanner.failed());
  CHECK_FALSE(scanner.usage().has_value());
}

TEST_CASE("where a stream is cut changes nothing, with any line ends and any number of cuts") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string lines[] = {
      ": comment",
      "event: x",
      "data: {\"choices\":[{\"delta\":{\"content\":\"\\\\\\\"usage\\\"\"}}]}",
      "data: {\"usage\":{\"prompt_tokens\":31,\"completion_tokens\":4,\"prompt_tokens_details\":"
      "{\"cached_tokens\":16}}}",
      "data: {\"message\":{\"usage\":{\"input_tokens\":9}}}",
      "data:",
      "data",
      "",
      "data: {\"error\":{\"code\":500}}",
      "data: {\"usage\":{\"completion_tokens\":77}",
      "data: \xF0\x9F\x90\x9A \\",
      "id: \"usage\"",
      "data: [DONE]"};
  const std::string ends[] = {"\n", "\r\n", "\r"};
  for (int round = 0; round < 2000; ++round) {
    std::string stream = "data: {}\n\n";
    for (int i = 0; i < 12; ++i) {
      stream += lines[random() % std::size(lines)] + ends[random() % 3];
      if (random() % 2 == 0) stream += ends[random() % 3];
    }
    UsageScanner whole;
    whole.feed(stream);
    UsageScanner pieces;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t size = 1 + random() % 40;
      pieces.feed(std::string_view(stream).substr(at, size));
      at += size;
    }
    CAPTURE(stream);
    REQUIRE(pieces.usage() == whole.usage());
    REQUIRE(pieces.failed() == whole.failed());
  }
}
