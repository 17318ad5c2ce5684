// SPDX-License-Identifier: Apache-2.0
//
// The /metrics page that a vLLM server with these engines behind it would print.
//
// Series, labels, order and number format are those of vLLM 0.32.0 (Prometheus text, Python
// client); what the simulator does not know (histograms, process and HTTP statistics) is left out.
// It exists so that a router in the simulator reads its gauges through its real parser, late and as
// text. Cost: some 4 KB and a few microseconds for each engine.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <limpet/sim/engine.hpp>

namespace limpet::sim {

class MetricsPage {
 public:
  // `started` is the wall-clock start of the server, s since 1970.
  [[nodiscard]] static std::string render(std::span<const Engine> engines, double started) {
    MetricsPage page(engines);
    page.head("process_start_time_seconds",
              "Start time of the process since unix epoch in seconds.", "gauge");
    page.text_ += "process_start_time_seconds ";
    page.number(started);
    page.text_ += '\n';
    page.family("num_requests_running", "Number of requests in model execution batches.", "gauge",
                [](const EngineCounters& c) { return double{1} * c.running; });
    page.family("num_requests_waiting", "Number of requests waiting to be processed.", "gauge",
                [](const EngineCounters& c) { return double{1} * c.waiting; });
    page.family("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", "gauge",
                [](const EngineCounters& c) { return c.kv_usage; });
    page.counter("prefix_cache_queries",
                 "Prefix cache queries, in terms of number of queried tokens.",
                 &EngineCounters::prefix_queries);
    page.counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
                 &EngineCounters::prefix_hits);
    page.counter("num_preemptions", "Cumulative number of preemption from the engine.",
                 &EngineCounters::preemptions);
    page.counter("prompt_tokens", "Number of prefill tokens processed.",
                 &EngineCounters::prompt_tokens);
    page.counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).",
                 &EngineCounters::prompt_tokens_cached);
    page.counter("generation_tokens", "Number of generation tokens processed.",
                 &EngineCounters::generation_tokens);
    page.cache_config();
    return std::move(page.text_);
  }

 private:
  explicit MetricsPage(std::span<const Engine> engines) : engines_(engines) {}

  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_.append("# HELP ").append(name).append(" ").append(help);
    text_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
  }

  template <class Value>
  void family(std::string_view name, std::string_view help, std::string_view type, Value value) {
    const std::string full = "vllm:" + std::string(name);
    head(full, help, type);
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      text_ += full;
      text_ += "{engine=\"" + std::to_string(i) + "\",model_name=\"" + engines_[i].profile().name +
               "\"} ";
      number(value(engines_[i].counters()));
      text_ += '\n';
    }
  }

  void counter(std::string_view name, std::string_view help,
               std::uint64_t EngineCounters::* field) {
    family(std::string(name) + "_total", help, "counter",
           [field](const EngineCounters& c) { return static_cast<double>(c.*field); });
  }

  // num_gpu_blocks is the sum over the engines, printed for each, as the real one does.
  void cache_config() {
    head("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
    std::uint64_t blocks = 0;
    for (const Engine& engine : engines_) blocks += engine.cache().size();
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      const EngineProfile& profile = engines_[i].profile();
      const std::uint64_t tokens = std::uint64_t{engines_[i].cache().size()} * profile.block_tokens;
      text_ += "vllm:cache_config_info{block_size=\"" + std::to_string(profile.block_tokens) +
               "\",enable_prefix_caching=\"True\",engine=\"" + std::to_string(i) +
               "\",kv_cache_size_tokens=\"" + std::to_string(tokens) + "\",num_gpu_blocks=\"" +
               std::to_string(blocks) + "\"} 1.0\n";
    }
  }

  // As Python's repr: whole numbers with ".0", others with the fewest digits that tell them apart.
  void number(double value) {
    char digits[32];
    const bool whole = value == static_cast<double>(static_cast<std::int64_t>(value));
    const auto end =
        whole ? std::to_chars(digits, digits + sizeof digits, static_cast<std::int64_t>(value))
              : std::to_chars(digits, digits + sizeof digits, value);
    text_.append(digits, end.ptr);
    if (whole) text_ += ".0";
  }

  std::span<const Engine> engines_;
  std::string text_;
};

}  // namespace limpet::sim
