// SPDX-License-Identifier: Apache-2.0
//
// LlamaCppMetrics: the metrics page of llama.cpp's llama-server (--metrics). One engine, no labels.
//
// llama.cpp's prompt_tokens_total leaves out the tokens it reused, and only newer servers count
// those (prompt_tokens_cached_total): with both, a reading holds the sum and the share found;
// without, prompt_tokens is what was computed and the prefix figures are unknown. kv_usage is known
// of servers before May 2025 only; the start time is in a header (Process-Start-Time-Unix), not on
// the page. Cost: see engines.hpp. Thread-safe. Source: llama.cpp's tools/server (README.md,
// server_task_result_metrics::to_metrics), pull requests 13660 and 22879.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/metrics/engines.hpp>
#include <limpet/metrics/format.hpp>

#include <string_view>

namespace limpet {

struct LlamaCppMetrics {
  [[nodiscard]] ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept {
    static constexpr EngineSeries series[] = {
        {"requests_processing", ReadingField::running},
        {"requests_deferred", ReadingField::waiting},
        {"kv_cache_usage_ratio", ReadingField::kv_usage},
        {"prompt_tokens_total", ReadingField::prompt_tokens},
        {"prompt_tokens_cached_total", ReadingField::prompt_tokens_cached},
    };
    static constexpr EngineFormat format = {.prefix = "llamacpp", .series = series};
    auto complete = [sink](const Reading& page_says) {
      Reading reading = page_says;
      if (reading.prompt_tokens && reading.prompt_tokens_cached) {
        *reading.prompt_tokens += *reading.prompt_tokens_cached;
        reading.prefix_queries = reading.prompt_tokens;
        reading.prefix_hits = reading.prompt_tokens_cached;
      }
      sink(reading);
    };
    return read_engines(page, format, {}, ReadingSink(complete));
  }
};

static_assert(MetricsParser<LlamaCppMetrics>);

}  // namespace limpet
