// SPDX-License-Identifier: Apache-2.0
//
// SglangMetrics: the labels and series that SGLang's own collector prints.
#include <limpet/metrics/sglang.hpp>

#include "catch.hpp"
#include "support/readings.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace {

using limpet::ParseStatus;
using limpet::Reading;
using limpet::SglangMetrics;
using limpet_test::parse;
using limpet_test::Parsed;

const std::optional<double> unknown;

Parsed sglang(std::string_view page) {
  return parse(SglangMetrics{}, page);
}

}  // namespace

TEST_CASE("an SGLang page of one engine is one reading") {
  const Parsed parsed = sglang(R"(# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 3.0
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.28
# TYPE sglang:swa_token_usage gauge
sglang:swa_token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.9
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 420000.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{cache_source="device",model_name="m"} 1.0e+06
sglang:cached_tokens_total{cache_source="host",model_name="m"} 2.0e+05
)");
  REQUIRE(parsed.status == ParseStatus::ok);
  const Reading& reading = parsed.only();
  CHECK(reading.engine.empty());
  CHECK(reading.model == "m");
  CHECK(reading.running == 4.0);
  CHECK(reading.waiting == 3.0);
  CHECK(reading.kv_usage == 0.28);
  CHECK(reading.prompt_tokens == 8128902.0);
  CHECK(reading.prompt_tokens_cached == 1200000.0);
  CHECK(reading.prefix_queries == 8128902.0);
  CHECK(reading.prefix_hits == 1200000.0);
  CHECK(reading.kv_capacity_tokens == 420000.0);
  CHECK(reading.start_time == unknown);
}

TEST_CASE("SGLang's tensor-parallel ranks say the same of one engine") {
  const Parsed parsed = sglang(
      "sglang:num_running_reqs{tp_rank=\"0\"} 4.0\nsglang:num_running_reqs{tp_rank=\"1\"} 4.0\n");
  CHECK(parsed.only().running == 4.0);
}

TEST_CASE("SGLang's data-parallel ranks are engines, and the front end counts for all of them") {
  const Parsed parsed = sglang(
      "sglang:num_running_reqs{dp_rank=\"0\",model_name=\"m\",tp_rank=\"0\"} 2.0\n"
      "sglang:num_running_reqs{dp_rank=\"1\",model_name=\"m\",tp_rank=\"2\"} 6.0\n"
      "sglang:prompt_tokens_total{model_name=\"m\"} 900.0\n");
  REQUIRE(parsed.size() == 3);
  CHECK(parsed.engine("0").running == 2.0);
  CHECK(parsed.engine("1").running == 6.0);
  CHECK(parsed.engine("0").prompt_tokens == unknown);
  CHECK(parsed.engine("").prompt_tokens == 900.0);
  CHECK(parsed.engine("").running == unknown);
}

TEST_CASE("SGLang's priorities are parts of the line without one") {
  const Parsed parsed = sglang(
      "sglang:num_running_reqs{priority=\"\",tp_rank=\"0\"} 14.0\n"
      "sglang:num_running_reqs{priority=\"-1\",tp_rank=\"0\"} 4.0\n"
      "sglang:num_running_reqs{priority=\"0\",tp_rank=\"0\"} 10.0\n");
  CHECK(parsed.only().running == 14.0);
}

TEST_CASE("an SGLang scheduler that is not set up yet has no size") {
  CHECK(sglang("sglang:max_total_num_tokens 0.0\nsglang:num_running_reqs 0.0\n")
            .only()
            .kv_capacity_tokens == unknown);
}

TEST_CASE("before its first cached token SGLang declares the counter only") {
  const Parsed parsed = sglang(
      "sglang:prompt_tokens_total{model_name=\"m\"} 50.0\n# TYPE sglang:cached_tokens_total "
      "counter\n");
  CHECK(parsed.only().prefix_hits == 0.0);
}

TEST_CASE("an SGLang pool reads its own model") {
  const std::string page =
      "sglang:num_running_reqs{model_name=\"a\"} 1.0\nsglang:num_running_reqs{model_name=\"b\"} "
      "2.0\n";
  CHECK(parse(SglangMetrics{.model = "b"}, page).only().running == 2.0);
}
