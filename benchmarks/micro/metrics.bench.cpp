// SPDX-License-Identifier: Apache-2.0
//
// What a scrape costs to read: VllmMetrics over a generated page of 80 KB with two engines, in the
// proportions of vLLM 0.32's (a sixth comments, most else histograms, two config lines of 1 KB).
//
// The floor is one memchr pass over the same lines: nobody can read a page for less than finding
// where its lines end. Not measured: fetching the page. Both check what they counted.
#include "vllm_page.hpp"

#include <benchmark/benchmark.h>

#include <limpet/metrics/vllm.hpp>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace {

using limpet::bench::vllm_page;

void find_line_ends(benchmark::State& state) {
  const std::string_view text = vllm_page();
  std::size_t lines = 0;
  for (auto _ : state) {
    lines = 0;
    for (const char *at = text.data(), *end = at + text.size(); at != end; ++lines) {
      const auto left = static_cast<std::size_t>(end - at);
      at = static_cast<const char*>(std::memchr(at, '\n', left)) + 1;
    }
    benchmark::DoNotOptimize(lines);
  }
  if (lines < 800) state.SkipWithError("the page has fewer lines than a real one");
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void read_vllm_page(benchmark::State& state) {
  const std::string_view text = vllm_page();
  const limpet::VllmMetrics parser;
  double running = 0.0;
  double capacity = 0.0;
  auto sink = [&](const limpet::Reading& reading) {
    running += reading.running.value_or(-1e9);
    capacity += reading.kv_capacity_tokens.value_or(-1e9);
  };
  for (auto _ : state) {
    running = capacity = 0.0;
    benchmark::DoNotOptimize(parser.parse(text, limpet::ReadingSink(sink)));
  }
  if (running != 56.0 || capacity != 65'536.0) state.SkipWithError("wrong figures");
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

BENCHMARK(find_line_ends);
BENCHMARK(read_vllm_page);

}  // namespace
