// SPDX-License-Identifier: Apache-2.0
//
// Event streams of any bytes, the first of which says how they are cut.
//
// Checked: in one chunk, in chunks of one byte and in others, the events are those that a plain
// reader finds, which splits the whole stream into lines first.
#include <limpet/wire/sse.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using limpet::SsePiece;
using limpet::SseSplitter;

void require(bool condition) {
  if (!condition) std::abort();
}

struct Collected {
  std::vector<std::string> events;
  std::string event;

  void data(std::string_view text, SsePiece piece) {
    require(!text.empty());
    require(piece == SsePiece::part || event.empty());
    event += text;
  }
  void end_event() {
    events.push_back(event);
    event.clear();
  }
};

Collected split(std::string_view stream, std::size_t chunk_size) {
  SseSplitter splitter;
  Collected collected;
  for (std::size_t at = 0; at < stream.size(); at += chunk_size) {
    splitter.feed(stream.substr(at, chunk_size), collected);
  }
  return collected;
}

// The lines that have ended.
std::vector<std::string> lines_of(std::string_view stream) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (stream[i] == '\n' && i > 0 && stream[i - 1] == '\r') continue;
    if (stream[i] == '\n' || stream[i] == '\r') {
      lines.push_back(line);
      line.clear();
    } else {
      line += stream[i];
    }
  }
  return lines;
}

std::vector<std::string> plain_events(std::string_view stream) {
  std::vector<std::string> events;
  std::string event;
  bool has_data = false;
  for (const std::string& line : lines_of(stream)) {
    if (line.empty()) {
      if (has_data) events.push_back(event);
      event.clear();
      has_data = false;
    } else if (line.starts_with("data:")) {
      if (has_data) event += '\n';
      event += line.substr(line.starts_with("data: ") ? 6 : 5);
      has_data = true;
    }
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<std::string> expected = plain_events(stream);
  for (const std::size_t chunk_size :
       {stream.size(), std::size_t{1}, std::size_t{1} + data[0] % 32}) {
    require(split(stream, chunk_size).events == expected);
  }
  return 0;
}
