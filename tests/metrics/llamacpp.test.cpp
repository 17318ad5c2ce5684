// SPDX-License-Identifier: Apache-2.0
//
// LlamaCppMetrics: pages as llama-server prints them, before and after it counted cached tokens.
#include <limpet/metrics/llamacpp.hpp>

#include "catch.hpp"
#include "support/readings.hpp"

#include <optional>

namespace {

using limpet::LlamaCppMetrics;
using limpet::ParseStatus;
using limpet::Reading;
using limpet_test::parse;
using limpet_test::Parsed;

const std::optional<double> unknown;

}  // namespace

TEST_CASE("a llama.cpp page is one reading without labels") {
  const Parsed parsed =
      parse(LlamaCppMetrics{},
            R"(# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 19345
# HELP llamacpp:prompt_tokens_seconds Average prompt throughput in tokens/s.
# TYPE llamacpp:prompt_tokens_seconds gauge
llamacpp:prompt_tokens_seconds 1234.5
# HELP llamacpp:kv_cache_usage_ratio KV-cache usage. 1 means 100 percent usage.
# TYPE llamacpp:kv_cache_usage_ratio gauge
llamacpp:kv_cache_usage_ratio 0.35
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 4
)");
  REQUIRE(parsed.status == ParseStatus::ok);
  const Reading& reading = parsed.only();
  CHECK(reading.engine.empty());
  CHECK(reading.model.empty());
  CHECK(reading.running == 2.0);
  CHECK(reading.waiting == 4.0);
  CHECK(reading.kv_usage == 0.35);
  CHECK(reading.prompt_tokens == 19345.0);
  CHECK(reading.prompt_tokens_cached == unknown);
  CHECK(reading.prefix_queries == unknown);
  CHECK(reading.kv_capacity_tokens == unknown);
  CHECK(reading.start_time == unknown);
}

TEST_CASE("llama.cpp leaves cached tokens out of the prompt tokens, a reading does not") {
  const Parsed parsed = parse(LlamaCppMetrics{},
                              "llamacpp:prompt_tokens_total 100\n"
                              "llamacpp:prompt_tokens_cached_total 900\n"
                              "llamacpp:requests_processing 1\n");
  CHECK(parsed.only().prompt_tokens == 1000.0);
  CHECK(parsed.only().prompt_tokens_cached == 900.0);
  CHECK(parsed.only().prefix_queries == 1000.0);
  CHECK(parsed.only().prefix_hits == 900.0);
  CHECK(parsed.only().kv_usage == unknown);
}
