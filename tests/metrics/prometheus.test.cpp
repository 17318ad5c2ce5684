// SPDX-License-Identifier: Apache-2.0
//
// Lines of the exposition formats, one by one: what is taken from them and what is refused.
#include <limpet/metrics/prometheus.hpp>

#include "catch.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Line {
  bool is_sample = false;
  std::string name;
  double value = 0.0;
  Labels labels;
};

Line sample(std::string_view line) {
  Line out;
  const auto parsed = limpet::prometheus::parse_sample(line);
  if (parsed) {
    out.is_sample = true;
    out.name = parsed.name;
    out.value = parsed.value;
  }
  limpet::prometheus::LineReader labels(parsed.labels);
  for (limpet::prometheus::Label label; labels.take_label(label);) {
    if (label.has_value) out.labels.emplace_back(label.name, label.value);
  }
  return out;
}

bool is_sample(std::string_view line) {
  return sample(line).is_sample;
}

std::vector<std::pair<std::string, bool>> lines_of(std::string_view page) {
  std::vector<std::pair<std::string, bool>> lines;
  CHECK(limpet::prometheus::for_each_line(page, [&](std::string_view line, bool is_terminated) {
    lines.emplace_back(line, is_terminated);
    return true;
  }));
  return lines;
}

}  // namespace

TEST_CASE("a page is its lines, with LF or CRLF, and the last may be open") {
  using Lines = std::vector<std::pair<std::string, bool>>;
  CHECK(lines_of("").empty());
  CHECK(lines_of("a 1\n") == Lines{{"a 1", true}});
  CHECK(lines_of("a 1\r\n\r\nb 2") == Lines{{"a 1", true}, {"", true}, {"b 2", false}});
  CHECK(lines_of("\n\n") == Lines{{"", true}, {"", true}});
  CHECK(lines_of("\r") == Lines{{"", false}});
}

TEST_CASE("numbers are written in many ways") {
  using limpet::prometheus::parse_number;
  CHECK(parse_number("28") == 28.0);
  CHECK(parse_number("28.0") == 28.0);
  CHECK(parse_number("+28.5") == 28.5);
  CHECK(parse_number("-3") == -3.0);
  CHECK(parse_number(".5") == 0.5);
  CHECK(parse_number("1.79599794582e+09") == 1795997945.82);
  CHECK(parse_number("6.5e+010") == 65'000'000'000.0);
  CHECK(parse_number("1E-3") == 0.001);
  CHECK(parse_number("+Inf") == std::numeric_limits<double>::infinity());
  CHECK(parse_number("-inf") == -std::numeric_limits<double>::infinity());
  REQUIRE(parse_number("NaN").has_value());
  CHECK(std::isnan(*parse_number("NaN")));
  CHECK(std::isnan(*parse_number("nan")));
}

TEST_CASE("a number that no double holds is there, but NaN") {
  REQUIRE(limpet::prometheus::parse_number("1e999").has_value());
  CHECK(std::isnan(*limpet::prometheus::parse_number("1e999")));
}

TEST_CASE("what is no number is nothing") {
  for (const char* text : {"", "+", "-", "+-1", "--1", "1e", "1e+", "1.0x", "1,0", "0x10", "N",
                           "Na", "In", "None", "nan(1)", "1 2", "e5", "."}) {
    CAPTURE(text);
    CHECK_FALSE(limpet::prometheus::parse_number(text).has_value());
  }
}

TEST_CASE("a sample has a name, a value and perhaps labels") {
  CHECK(sample("up 1").name == "up");
  CHECK(sample("up 1").value == 1.0);
  CHECK(sample("up 1").labels.empty());
  CHECK(sample("up{} 1").is_sample);
  const Line line = sample(R"(vllm:num_requests_running{engine="0",model_name="tiny"} 28.0)");
  CHECK(line.name == "vllm:num_requests_running");
  CHECK(line.value == 28.0);
  CHECK(line.labels == Labels{{"engine", "0"}, {"model_name", "tiny"}});
}

TEST_CASE("blanks may stand between the parts of a sample, and a comma after the last label") {
  const Line line = sample("\t up { a = \"1\" ,\tb=\"2\", }  7 \t");
  CHECK(line.name == "up");
  CHECK(line.value == 7.0);
  CHECK(line.labels == Labels{{"a", "1"}, {"b", "2"}});
}

TEST_CASE("a label value may hold what elsewhere ends one") {
  const Line line = sample(R"(up{a="}",b="x,y=\"z\"",c="\\",d="# {",e=""} 7)");
  CHECK(line.value == 7.0);
  CHECK(line.labels ==
        Labels{{"a", "}"}, {"b", R"(x,y=\"z\")"}, {"c", R"(\\)"}, {"d", "# {"}, {"e", ""}});
}

TEST_CASE("an escaped label value stands for what it means") {
  using limpet::prometheus::stands_for;
  CHECK(stands_for("tiny", "tiny"));
  CHECK_FALSE(stands_for("tiny", "tin"));
  CHECK_FALSE(stands_for("tin", "tiny"));
  CHECK(stands_for(R"(C:\\models\\\"x\")", R"(C:\models\"x")"));
  CHECK(stands_for(R"(a\nb)", "a\nb"));
  CHECK_FALSE(stands_for(R"(a\\b)", R"(a\\b)"));
  CHECK(stands_for("", ""));
}

TEST_CASE("a third column is a timestamp") {
  CHECK(sample("up 7 1395066363000").value == 7.0);
  CHECK(sample("up{a=\"1\"} 7 1395066363.5").value == 7.0);
  CHECK(sample("up 7 -1").value == 7.0);
}

TEST_CASE("an exemplar follows the sample and keeps its labels to itself") {
  const Line line = sample(R"(x_total{a="1"} 7 # {trace_id="}\"",b="2"} 0.5 1520879607.789)");
  CHECK(line.value == 7.0);
  CHECK(line.labels == Labels{{"a", "1"}});
  CHECK(sample("x_total 7 1520879607 # {} 1").value == 7.0);
}

TEST_CASE("a metric may be named in quotes, among its labels") {
  const Line line = sample(R"({"my.metric",a="1","b.c"="2"} 7)");
  CHECK(line.name == "my.metric");
  CHECK(line.value == 7.0);
  CHECK(line.labels == Labels{{"a", "1"}, {"b.c", "2"}});
}

TEST_CASE("a line that breaks the format is no sample") {
  for (const char* line : {"",
                           " ",
                           "up",
                           "up ",
                           "up{",
                           "up{a",
                           "up{a=",
                           "up{a=\"",
                           "up{a=\"1",
                           "up{a=\"1\"",
                           "up{a=\"1\",",
                           "up{a=\"1\"}",
                           "up{a=\"1\"} ",
                           "up{a=\"1\" b=\"2\"} 1",
                           "up{a=1} 1",
                           "up{=\"1\"} 1",
                           "up{,} 1",
                           "up{a=\"\\",
                           "up{a=\"1\"}} 1",
                           "up-1",
                           "1up 1",
                           "{} 1",
                           "{a=\"1\"} 1",
                           "up{\"b\"} 1",
                           "{\"a\",\"b\"} 1",
                           "up 1 2 3",
                           "up 1 x",
                           "up x",
                           "up 1 #",
                           "up 1 # {",
                           "up 1 # {}",
                           "up 1 # {} x",
                           "up 1 # {} 1 2 3",
                           "up 1 # {\"x\"} 1",
                           "<html>",
                           "# comment",
                           "\x80 1",
                           "up 1 # 2"}) {
    CAPTURE(line);
    CHECK_FALSE(is_sample(line));
  }
}

TEST_CASE("a TYPE comment declares a family, others do not") {
  using limpet::prometheus::parse_type;
  REQUIRE(parse_type("# TYPE up gauge"));
  CHECK(parse_type("# TYPE up gauge").name == "up");
  CHECK(parse_type("# TYPE up gauge").type == "gauge");
  CHECK(parse_type("  #\tTYPE  a:b  counter ").name == "a:b");
  CHECK(parse_type("# TYPE \"my.metric\" counter").name == "my.metric");
  for (const char* line : {"", "# HELP up gauge", "# TYPE up", "# TYPE", "# TYPE up a gauge",
                           "# TYPES up gauge", "# EOF", "up 1", "# TYPE 1 gauge"}) {
    CAPTURE(line);
    CHECK_FALSE(parse_type(line));
  }
}

TEST_CASE("a last line without newline is whole if nothing can be missing from it") {
  using limpet::prometheus::is_whole;
  for (const char* line :
       {"", "  ", "up 1", "up{a=\"1\"} 1.5", "up NaN", "up 1 1395066363000", "# EOF",
        "# TYPE up gauge", "# TYPE up histogram", "x 7 # {a=\"b\"} 1"}) {
    CAPTURE(line);
    CHECK(is_whole(line));
  }
  for (const char* line :
       {"u", "up", "up ", "up{a=\"1\"} ", "up 1.", "up 1e", "up 1e+", "up Na", "#", "# ", "# E",
        "# EO", "# TYPE up", "# TYPE up gau", "# HELP up It is up.", "x 7 # {a=\"b\"}"}) {
    CAPTURE(line);
    CHECK_FALSE(is_whole(line));
  }
}
