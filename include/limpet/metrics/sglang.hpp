// SPDX-License-Identifier: Apache-2.0
//
// SglangMetrics: the metrics page of an SGLang server (--enable-metrics).
//
// An engine is a data-parallel rank (label dp_rank). SGLang counts tokens in its front end, when a
// request ends and for all ranks together: with several, the counters are a reading of their own.
// kv_usage excludes what the radix cache could evict, as vLLM's does. cache_hit_rate is not used:
// it is reset to 0 with every decode report. SGLang tells no start time.
// Cost: see engines.hpp. Thread-safe. Source: SGLang's srt/observability/metrics_collector.py
// (srt/metrics/collector.py before 2026) and docs/references/production_metrics.md.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/metrics/engines.hpp>
#include <limpet/metrics/format.hpp>

#include <string>
#include <string_view>

namespace limpet {

struct SglangMetrics {
  std::string model;  // --served-model-name; empty: every engine on the page

  [[nodiscard]] ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept {
    static constexpr EngineSeries series[] = {
        {"num_running_reqs", ReadingField::running},
        {"num_queue_reqs", ReadingField::waiting},
        {"token_usage", ReadingField::kv_usage},
        {"prompt_tokens_total", ReadingField::prompt_tokens},
        {"cached_tokens_total", ReadingField::prompt_tokens_cached},
        {"max_total_num_tokens", ReadingField::kv_capacity_tokens},
    };
    static constexpr EngineFormat format = {
        .prefix = "sglang",
        .series = series,
        .engine_label = "dp_rank",
        .model_label = "model_name",
    };
    // Every prompt token is looked up in the radix cache, so these two are also the prefix figures.
    auto complete = [sink](const Reading& page_says) {
      Reading reading = page_says;
      reading.prefix_queries = reading.prompt_tokens;
      reading.prefix_hits = reading.prompt_tokens_cached;
      sink(reading);
    };
    return read_engines(page, format, model, ReadingSink(complete));
  }
};

static_assert(MetricsParser<SglangMetrics>);

}  // namespace limpet
