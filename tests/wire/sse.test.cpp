// SPDX-License-Identifier: Apache-2.0
#include <limpet/wire/sse.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"

using limpet::SsePiece;
using limpet::SseSplitter;

namespace {

struct Collected {
  std::vector<std::string> events;
  std::string unfinished;
  std::size_t whole = 0;

  void data(std::string_view text, SsePiece piece) {
    if (piece == SsePiece::whole) {
      CHECK(unfinished.empty());
      ++whole;
    }
    unfinished += text;
  }
  void end_event() {
    events.push_back(unfinished);
    unfinished.clear();
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

struct Example {
  std::string_view stream;
  std::vector<std::string> events;
};

// From the HTML standard's description of an event stream, and its examples.
const Example examples[] = {
    {"data: one\n\ndata: two\n\n", {"one", "two"}},
    {"data:one\n\n", {"one"}},
    {"data:  two spaces\n\n", {" two spaces"}},
    {"data: YHOO\ndata: +2\ndata: 10\n\n", {"YHOO\n+2\n10"}},
    {"data\n\ndata\ndata\n\ndata:", {}},
    {"data:\n\n", {""}},
    {"data: a\n\n\n\ndata: b\n\n", {"a", "b"}},
    {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n",
     {"first event", "second event"}},
    {"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n", {"73857293", "2153"}},
    {"dat: x\ndatas: y\n data: z\nDATA: w\n\n", {}},
    {"data: a: b\n\n", {"a: b"}},
    {"data: never ended\n", {}},
};

}  // namespace

TEST_CASE("the data of each event come out, and nothing else") {
  for (const Example& example : examples) {
    CAPTURE(example.stream);
    CHECK(split(example.stream, example.stream.size()).events == example.events);
  }
}

TEST_CASE("chunks may end anywhere, and lines may end with LF, CRLF or CR") {
  for (const Example& example : examples) {
    for (const std::string_view line_end : {"\n", "\r\n", "\r"}) {
      std::string stream;
      for (const char c : example.stream) {
        if (c == '\n') {
          stream += line_end;
        } else {
          stream += c;
        }
      }
      for (std::size_t chunk = 1; chunk <= stream.size(); ++chunk) {
        CAPTURE(stream, chunk);
        CHECK(split(stream, chunk).events == example.events);
      }
    }
  }
}

TEST_CASE("an event that lies whole in one chunk is handed on in one piece") {
  CHECK(split("data: one\n\ndata: two\n\n", 100).whole == 2);
  CHECK(split("data: one\r\n\r\n", 100).whole == 1);
  CHECK(split("data: one\ndata: two\n\n", 100).whole == 0);
  CHECK(split("data: one\n\n", 8).whole == 0);
}

TEST_CASE("a long line is handed on as it comes") {
  SseSplitter splitter;
  Collected collected;
  splitter.feed("data: ", collected);
  splitter.feed("abc", collected);
  CHECK(collected.unfinished == "abc");
  splitter.feed("def\n", collected);
  CHECK(collected.unfinished == "abcdef");
  CHECK(collected.events.empty());
  splitter.feed("\n", collected);
  CHECK(collected.events == std::vector<std::string>{"abcdef"});
}
