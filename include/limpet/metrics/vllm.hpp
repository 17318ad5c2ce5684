// SPDX-License-Identifier: Apache-2.0
//
// VllmMetrics: the metrics page of a vLLM server, from 0.8 on.
//
// Set `model` where several models answer behind one page, so that each pool reads its own; empty
// takes every engine on the page. Names are those of vLLM 0.32 first, then the gpu_ ones of before
// 0.10. kv_usage counts blocks in use: an idle engine shows 0 however much it holds in its cache.
// Cost: see engines.hpp. Thread-safe. Source: pages recorded from vLLM 0.32, and its
// vllm/v1/metrics/loggers.py and rust/src/metrics.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/metrics/engines.hpp>
#include <limpet/metrics/format.hpp>

#include <string>
#include <string_view>

namespace limpet {

struct VllmMetrics {
  std::string model;  // as vLLM labels it: the first --served-model-name

  [[nodiscard]] ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept {
    static constexpr EngineSeries series[] = {
        {"num_requests_running", ReadingField::running},
        {"num_requests_waiting", ReadingField::waiting},
        {"kv_cache_usage_perc", ReadingField::kv_usage},
        {"gpu_cache_usage_perc", ReadingField::kv_usage, 1},
        {"prefix_cache_queries_total", ReadingField::prefix_queries},
        {"gpu_prefix_cache_queries_total", ReadingField::prefix_queries, 1},
        {"prefix_cache_hits_total", ReadingField::prefix_hits},
        {"gpu_prefix_cache_hits_total", ReadingField::prefix_hits, 1},
        {"prompt_tokens_total", ReadingField::prompt_tokens},
        {"prompt_tokens_cached_total", ReadingField::prompt_tokens_cached},
        {"prompt_tokens_created", ReadingField::start_time},
        {"prefix_cache_queries_created", ReadingField::start_time, 1},
    };
    static constexpr EngineFormat format = {
        .prefix = "vllm",
        .series = series,
        .engine_label = "engine",
        .model_label = "model_name",
        .process_start = "process_start_time_seconds",
        .cache = {.name = "cache_config_info",
                  .tokens = "kv_cache_size_tokens",
                  .blocks = "num_gpu_blocks",
                  .block_size = "block_size"},
    };
    return read_engines(page, format, model, sink);
  }
};

static_assert(MetricsParser<VllmMetrics>);

}  // namespace limpet
