// SPDX-License-Identifier: Apache-2.0
//
// What the engine says a request cost: prompt tokens, those of them read from its cache, and tokens
// made.
//
// parse_usage(body) for an answer in one piece, UsageScanner for one that passes by, in chunks cut
// anywhere: a whole body or a stream of server-sent events, of chat/completions, completions,
// responses or messages, told apart by themselves. A stream's later figures replace earlier ones,
// field by field. Unknown is not zero: a count that the engine did not say is absent. Memory is
// about 300 bytes, whatever passes; nothing allocates or throws. Cost: an event that cannot hold
// usage is searched at 2 GB/s or so, the others are lexed. One answer each; not thread-safe.
#pragma once

#include <limpet/types.hpp>
#include <limpet/wire/detail/usage_json.hpp>
#include <limpet/wire/sse.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace limpet {

class UsageScanner {
 public:
  void feed(std::string_view chunk) noexcept {
    if (format_ == Format::unknown) chunk = recognise(chunk);
    if (format_ == Format::body) {
      json_.feed(chunk);
    } else if (format_ == Format::events) {
      Events sink{json_};
      splitter_.feed(chunk, sink);
    }
  }

  // What has been said so far; nothing before the prompt's length is known. An answer that was cut
  // off has what it said until then.
  [[nodiscard]] std::optional<Usage> usage() const noexcept {
    const detail::UsageCounts& said = json_.counts();
    Usage usage;
    if (said.prompt_tokens) {
      usage.prompt_tokens = *said.prompt_tokens;
    } else if (said.input_tokens) {  // messages: what the cache gave or took is counted beside it
      usage.prompt_tokens = *said.input_tokens + said.cache_read_input_tokens.value_or(0) +
                            said.cache_creation_input_tokens.value_or(0);
    } else {
      return std::nullopt;
    }
    usage.cached_tokens = said.cached_tokens ? said.cached_tokens : said.cache_read_input_tokens;
    usage.completion_tokens =
        said.completion_tokens ? *said.completion_tokens : said.output_tokens.value_or(0);
    return usage;
  }

  // The engine reported an error: in place of an answer, or in the middle of a stream that began
  // with status 200.
  [[nodiscard]] bool failed() const noexcept { return json_.failed(); }

 private:
  enum class Format : std::uint8_t { unknown, body, events };

  // Takes the data of events. An event that came in one piece is only lexed if a name that matters
  // stands in it; in a piece of one, the name could be cut.
  struct Events {
    detail::UsageJson& json;

    void data(std::string_view text, SsePiece piece) noexcept {
      if (piece == SsePiece::part || names_usage_or_error(text)) json.feed(text);
    }
    void end_event() noexcept { json.end_document(); }
  };

  // By the first byte that is no space: events begin with a field name or a colon, a body with a
  // bracket.
  [[nodiscard]] std::string_view recognise(std::string_view chunk) noexcept {
    constexpr std::string_view spaces_and_byte_order_mark = " \t\r\n\xEF\xBB\xBF";
    const std::size_t first = chunk.find_first_not_of(spaces_and_byte_order_mark);
    if (first == chunk.npos) return {};
    chunk.remove_prefix(first);
    format_ = chunk.front() == '{' || chunk.front() == '[' ? Format::body : Format::events;
    return chunk;
  }

  // Looks for "usage" and "error", quotes included, seven characters at a time (Horspool 1980).
  [[nodiscard]] static bool names_usage_or_error(std::string_view text) noexcept {
    constexpr std::size_t length = 7;
    static constexpr std::string_view names[] = {"\"usage\"", "\"error\""};
    static constexpr auto steps = [] {
      std::array<std::uint8_t, 256> table{};
      table.fill(length);
      for (const std::string_view name : names) {
        for (std::size_t i = 0; i + 1 < length; ++i) {
          std::uint8_t& step = table[static_cast<unsigned char>(name[i])];
          if (length - 1 - i < step) step = static_cast<std::uint8_t>(length - 1 - i);
        }
      }
      return table;
    }();
    for (std::size_t last = length - 1; last < text.size();
         last += steps[static_cast<unsigned char>(text[last])]) {
      if (text[last] != '"') continue;
      const char* const found = text.data() + last - (length - 1);
      for (const std::string_view name : names) {
        if (std::memcmp(found, name.data(), length) == 0) return true;
      }
    }
    return false;
  }

  detail::UsageJson json_;
  SseSplitter splitter_;
  Format format_ = Format::unknown;
};

// The usage of an answer in one piece, body or stream; nothing where it says none.
[[nodiscard]] inline std::optional<Usage> parse_usage(std::string_view answer) noexcept {
  UsageScanner scanner;
  scanner.feed(answer);
  return scanner.usage();
}

}  // namespace limpet
