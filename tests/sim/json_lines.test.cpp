// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/json_lines.hpp>

#include "catch.hpp"

#include <cstdio>
#include <filesystem>

using limpet::sim::Json;
using limpet::sim::read_json_lines;

TEST_CASE("objects, arrays, numbers and strings are read") {
  const Json json = Json::parse(R"( {"a": [1, -2.5e1, {"b": "x\"y\\"}], "c": null, "d": true} )");
  CHECK(json.at("a").items().size() == 3);
  CHECK(json.at("a").items()[1].number() == -25.0);
  CHECK(json.at("a").items()[2].at("b").text() == "x\"y\\");
  CHECK(json.get("c").is_null());
  CHECK(json.get("absent").is_null());
  CHECK(json.at("a").items()[0].count() == 1);
}

TEST_CASE("what is not JSON is refused") {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "{\"a\":1", "nul", "1 2", "\"abc", "[1 2]",
                           "-", "nan", "-inf", "1e999"}) {
    INFO(text);
    CHECK_THROWS_AS(Json::parse(text), std::runtime_error);
  }
  CHECK_THROWS_AS(Json::parse(std::string(100, '[')), std::runtime_error);
  CHECK_THROWS_AS(Json::parse("{}").at("a"), std::runtime_error);
  CHECK_THROWS_AS(Json::parse("[]").number(), std::runtime_error);
  CHECK_THROWS_AS(Json::parse("-1").count(), std::runtime_error);
  CHECK_THROWS_AS(Json::parse("1e300").count(), std::runtime_error);
}

TEST_CASE("an error names the file and the line") {
  const auto path = std::filesystem::temp_directory_path() / "limpet_json_lines_test.jsonl";
  std::ofstream(path) << "{\"a\": 1}\n\n{\"a\": }\n";
  int lines = 0;
  try {
    read_json_lines(path.string(), [&](const Json& json) { lines += json.at("a").number() == 1; });
    FAIL("no exception");
  } catch (const std::runtime_error& error) {
    CHECK_THAT(error.what(), ContainsSubstring(path.string() + ":3: "));
  }
  CHECK(lines == 1);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(read_json_lines(path.string(), [](const Json&) {}), std::runtime_error);
}
