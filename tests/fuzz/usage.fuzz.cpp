// SPDX-License-Identifier: Apache-2.0
//
// Answers of any bytes, the first of which says how they are cut.
//
// Checked: where an answer is cut changes neither usage nor failure; counts are whole numbers that
// a request can have; a scanner that was copied in the middle goes on alike.
#include <limpet/wire/usage.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using limpet::UsageScanner;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view answer(reinterpret_cast<const char*>(data) + 1, size - 1);
  UsageScanner whole;
  whole.feed(answer);

  std::uint32_t random = data[0] * 2654435761u + 1;
  UsageScanner pieces;
  for (std::size_t at = 0; at < answer.size();) {
    random = random * 1664525u + 1013904223u;
    const std::size_t length = 1 + (random >> 24) % (1 + data[0] % 64);
    UsageScanner copy = pieces;
    copy.feed(answer.substr(at, length));
    pieces = copy;
    at += length;
  }
  require(pieces.usage() == whole.usage());
  require(pieces.failed() == whole.failed());
  require(limpet::parse_usage(answer) == whole.usage());

  if (const auto usage = whole.usage()) {
    constexpr std::uint64_t largest = std::uint64_t{1} << 53;
    require(usage->prompt_tokens <= 3 * largest);
    require(usage->completion_tokens <= largest);
    require(usage->cached_tokens.value_or(0) <= largest);
  }
  return 0;
}
