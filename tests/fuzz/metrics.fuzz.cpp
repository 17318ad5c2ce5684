// SPDX-License-Identifier: Apache-2.0
//
// Metrics pages of any bytes: the laws of MetricsParser for the three parsers of Prometheus text.
//
// Checked: the sink sees nothing unless the status is ok; equal pages give equal readings; figures
// are finite and in their range; names lie on the page; a page with one more line of another series
// reads the same; and a page that lost its end is survived.
#include <limpet/metrics/llamacpp.hpp>
#include <limpet/metrics/sglang.hpp>
#include <limpet/metrics/vllm.hpp>

#include "readings.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using limpet::ParseStatus;
using readings::parse;
using readings::Parsed;
using readings::require;
using readings::same;

template <class Parser>
void check(const Parser& parser, std::string_view page, std::size_t cut) {
  const Parsed parsed = parse(parser, page);
  require(same(parsed, parse(parser, page)));
  static_cast<void>(parse(parser, page.substr(0, cut)));

  const bool is_whole = page.empty() || page.ends_with('\n');
  const std::string longer = "up{job=\"}\"} 1\n" + std::string(page) + (is_whole ? "" : "\n");
  const Parsed with_more = parse(parser, longer);
  if (parsed.status != ParseStatus::malformed) require(same(parsed, with_more));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view page(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = size == 0 ? 0 : (size * 31 + data[0] + data[size - 1]) % size;
  check(limpet::VllmMetrics{}, page, cut);
  check(limpet::VllmMetrics{.model = "tiny"}, page, cut);
  check(limpet::SglangMetrics{}, page, cut);
  check(limpet::LlamaCppMetrics{}, page, cut);
  return 0;
}
