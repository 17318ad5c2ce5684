// SPDX-License-Identifier: Apache-2.0
//
// A metrics page of 80 KB with two engines, in the proportions of vLLM 0.32's: a sixth of the lines
// comments, most others of histograms, two config lines of 1 KB. Made once.
#pragma once

#include <string>
#include <string_view>

namespace limpet::bench {

inline void add_family(std::string& page, std::string_view name, std::string_view type,
                       std::string_view labels, std::string_view value) {
  page.append("# HELP ").append(name).append(" What an operator would want to know of it.\n");
  page.append("# TYPE ").append(name).append(" ").append(type).append("\n");
  for (const char* engine : {"0", "1"}) {
    page.append(name).append("{engine=\"").append(engine).append("\",model_name=\"tiny\"");
    page.append(labels).append("} ").append(value).append("\n");
  }
}

inline void add_histogram(std::string& page, std::string_view name) {
  page.append("# HELP ").append(name).append(" Histogram of what takes time, in seconds.\n");
  page.append("# TYPE ").append(name).append(" histogram\n");
  for (const char* engine : {"0", "1"}) {
    std::string labels = std::string("engine=\"") + engine + "\"";
    for (int bucket = 1; bucket <= 18; ++bucket) {
      page.append(name).append("_bucket{").append(labels).append(",le=\"");
      page.append(std::to_string(bucket * 5)).append(".0\",model_name=\"tiny\"} 42.0\n");
    }
    page.append(name).append("_count{").append(labels).append(",model_name=\"tiny\"} 42.0\n");
    page.append(name).append("_sum{").append(labels).append(",model_name=\"tiny\"} 89.0778041\n");
  }
}

inline std::string make_vllm_page() {
  std::string page =
      "# HELP process_start_time_seconds Start time of the process.\n"
      "# TYPE process_start_time_seconds gauge\n"
      "process_start_time_seconds 1.79599928346e+09\n";
  add_family(page, "vllm:num_requests_running", "gauge", "", "28.0");
  add_family(page, "vllm:num_requests_waiting", "gauge", "", "12.0");
  add_family(page, "vllm:num_requests_waiting_by_reason", "gauge", ",reason=\"capacity\"", "12.0");
  add_family(page, "vllm:kv_cache_usage_perc", "gauge", "", "0.26588465298142716");
  for (const char* name :
       {"prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries",
        "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits", "num_preemptions",
        "prompt_tokens", "prompt_tokens_cached", "generation_tokens"}) {
    add_family(page, std::string("vllm:") + name + "_total", "counter", "", "8737.0");
    add_family(page, std::string("vllm:") + name + "_created", "gauge", "", "1.7959994495e+09");
  }
  page.append("# TYPE vllm:cache_config_info gauge\n");
  for (const char* engine : {"0", "1"}) {
    page.append("vllm:cache_config_info{block_size=\"32\",engine=\"").append(engine).append("\"");
    for (int i = 0; i < 30; ++i) {
      page.append(",some_setting_number_").append(std::to_string(i)).append("=\"None\"");
    }
    page.append(",kv_cache_size_tokens=\"32768\",num_gpu_blocks=\"2048\"} 1.0\n");
  }
  for (int i = 0; page.size() < 80'000; ++i) {
    const std::string name = "vllm:request_stage_" + std::to_string(i) + "_time_seconds";
    add_histogram(page, name);
    add_family(page, name + "_created", "gauge", "", "1.79599944957e+09");
    add_family(page, "vllm:request_kind_" + std::to_string(i) + "_total", "counter", "", "56.0");
  }
  return page;
}

inline const std::string& vllm_page() {
  static const std::string text = make_vllm_page();
  return text;
}

}  // namespace limpet::bench
