// SPDX-License-Identifier: Apache-2.0
//
// JsonMetrics: figures by JSON pointer, one engine or an array of them.
#include <limpet/metrics/json.hpp>

#include "catch.hpp"
#include "support/readings.hpp"

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using limpet::JsonMetrics;
using limpet::ParseStatus;
using limpet_test::parse;
using limpet_test::Parsed;

const std::optional<double> unknown;

// SGLang's /v1/loads.
const JsonMetrics& loads() {
  static const JsonMetrics parser{{.engines = "/loads",
                                   .engine = "/dp_rank",
                                   .running = "/num_running_reqs",
                                   .waiting = "/num_waiting_reqs",
                                   .kv_usage = "/token_usage",
                                   .kv_capacity_tokens = "/max_total_num_tokens"}};
  return parser;
}

constexpr std::string_view two_ranks = R"({
  "timestamp": "2024-01-15T10:30:00+00:00", "version": "0.4.0", "dp_rank_count": 2,
  "loads": [
    {"dp_rank": 0, "num_running_reqs": 5, "num_waiting_reqs": 2, "token_usage": 0.05,
     "max_total_num_tokens": 100000},
    {"dp_rank": 1, "num_running_reqs": 7, "num_waiting_reqs": 0, "token_usage": 0.25,
     "max_total_num_tokens": 0}
  ],
  "aggregate": {"total_running_reqs": 12}
})";

}  // namespace

TEST_CASE("an array of engines is a reading each") {
  const Parsed parsed = parse(loads(), two_ranks);
  REQUIRE(parsed.status == ParseStatus::ok);
  REQUIRE(parsed.size() == 2);
  CHECK(parsed.readings[0].engine == "0");
  CHECK(parsed.readings[0].running == 5.0);
  CHECK(parsed.readings[0].waiting == 2.0);
  CHECK(parsed.readings[0].kv_usage == 0.05);
  CHECK(parsed.readings[0].kv_capacity_tokens == 100000.0);
  CHECK(parsed.readings[1].engine == "1");
  CHECK(parsed.readings[1].running == 7.0);
  CHECK(parsed.readings[1].kv_usage == 0.25);
  CHECK(parsed.readings[1].kv_capacity_tokens == unknown);  // not set up yet
  CHECK(parsed.readings[1].prefix_hits == unknown);
}

TEST_CASE("names lie on the page") {
  const std::string page = R"({"e":[{"id":"b","m":"org/x","n":1},{"id":"a b","n":2},{"n":3}]})";
  const Parsed parsed =
      parse(JsonMetrics{{.engines = "/e", .engine = "/id", .model = "/m", .running = "/n"}}, page);
  REQUIRE(parsed.size() == 3);
  CHECK(parsed.readings[0].engine == "b");
  CHECK(parsed.readings[0].model == "org/x");
  CHECK(parsed.readings[1].engine == "a b");
  CHECK(parsed.readings[1].model.empty());
  CHECK(parsed.readings[2].engine.empty());
  for (const auto& reading : parsed.readings) {
    if (reading.engine.empty()) continue;
    CHECK(reading.engine.data() >= page.data());
    CHECK(reading.engine.data() + reading.engine.size() <= page.data() + page.size());
  }
}

TEST_CASE("a page of names that it spells otherwise takes time in its length, not its square") {
  std::string page = R"({"loads": [)";
  constexpr std::size_t engines = 100'000;  // in quadratic time: many minutes
  for (std::size_t i = 0; i < engines; ++i) {
    page += R"({"dp_rank": "\u0061\u0062", "num_running_reqs": 1},)";
  }
  page.back() = ']';
  const Parsed parsed = parse(loads(), page + "}");
  REQUIRE(parsed.readings.size() == engines);
  CHECK(parsed.readings.back().engine.empty());
  CHECK(parsed.readings.back().running == 1.0);
}

TEST_CASE("a page without an array is one engine, and pointers go as deep as they need") {
  const Parsed parsed =
      parse(JsonMetrics{{.running = "/stats/0/busy", .waiting = "/a~1b/~0", .start_time = "/t"}},
            R"({"stats":[{"busy":3}],"a/b":{"~":4},"t":1.5e9})");
  REQUIRE(parsed.size() == 1);
  CHECK(parsed.only().engine.empty());
  CHECK(parsed.only().running == 3.0);
  CHECK(parsed.only().waiting == 4.0);
  CHECK(parsed.only().start_time == 1.5e9);
}

TEST_CASE("what is no number, or makes no sense, is unknown") {
  for (const char* value : {"null", "true", "\"5\"", "[]", "{}", "-5"}) {
    CAPTURE(value);
    const std::string page = "{\"a\":" + std::string(value) + ",\"b\":1}";
    const Parsed parsed = parse(JsonMetrics{{.running = "/a", .waiting = "/b"}}, page);
    CHECK(parsed.only().running == unknown);
    CHECK(parsed.only().waiting == 1.0);
  }
}

TEST_CASE("a page that names none of the figures holds no engine") {
  CHECK(parse(loads(), R"({"loads": []})").status == ParseStatus::no_engine);
  CHECK(parse(loads(), R"({"loads": {}})").status == ParseStatus::no_engine);
  CHECK(parse(loads(), R"({"loads": [1, null, [], {}]})").status == ParseStatus::no_engine);
  CHECK(parse(loads(), "{}").status == ParseStatus::no_engine);
  CHECK(parse(loads(), "3").status == ParseStatus::no_engine);
}

TEST_CASE("a JSON page cut anywhere changes nothing") {
  for (std::size_t cut = 0; cut < two_ranks.size(); ++cut) {
    const Parsed parsed = parse(loads(), two_ranks.substr(0, cut));
    REQUIRE(parsed.status == ParseStatus::malformed);
    REQUIRE(parsed.readings.empty());
  }
}

TEST_CASE("other texts are malformed") {
  for (const char* page : {"", " ", "up 1\n", "{\"loads\": [NaN]}", "{} {}", "\xff", "{'a': 1}"}) {
    CAPTURE(page);
    CHECK(parse(loads(), page).status == ParseStatus::malformed);
  }
  CHECK(parse(loads(), std::string_view()).status == ParseStatus::malformed);
  const std::string deep(100'000, '[');
  CHECK(parse(loads(), deep).status == ParseStatus::malformed);
}

TEST_CASE("a pointer that is none, and a parser of nothing, are refused by name") {
  CHECK_THROWS_MATCHES((JsonMetrics{{.running = "num_running"}}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("running is \"num_running\"")));
  CHECK_THROWS_MATCHES((JsonMetrics{{.engines = "loads", .running = "/n"}}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("engines")));
  CHECK_THROWS_AS((JsonMetrics{{.engines = "/loads"}}), std::invalid_argument);
}
