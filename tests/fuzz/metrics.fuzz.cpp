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

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using limpet::ParseStatus;
using limpet::Reading;

void require(bool condition) {
  if (!condition) std::abort();
}

struct Parsed {
  ParseStatus status;
  std::vector<Reading> readings;
};

void check_figure(std::optional<double> figure) {
  require(!figure || (std::isfinite(*figure) && *figure >= 0.0));
}

void check_name(std::string_view name, std::string_view page) {
  const std::less_equal<const char*> before;
  require(name.empty() || (before(page.data(), name.data()) &&
                           before(name.data() + name.size(), page.data() + page.size())));
}

void check_reading(const Reading& reading, std::string_view page) {
  check_name(reading.engine, page);
  check_name(reading.model, page);
  for (const auto figure :
       {reading.running, reading.waiting, reading.kv_usage, reading.prefix_queries,
        reading.prefix_hits, reading.prompt_tokens, reading.prompt_tokens_cached,
        reading.kv_capacity_tokens, reading.start_time}) {
    check_figure(figure);
  }
  require(reading.kv_usage.value_or(0.0) <= 1.0);
}

template <class Parser>
Parsed parse(const Parser& parser, std::string_view page) {
  Parsed parsed{};
  auto keep = [&](const Reading& reading) { parsed.readings.push_back(reading); };
  parsed.status = parser.parse(page, limpet::ReadingSink(keep));
  require((parsed.status == ParseStatus::ok) == !parsed.readings.empty());
  for (const Reading& reading : parsed.readings) check_reading(reading, page);
  return parsed;
}

bool same(const Parsed& a, const Parsed& b) {
  if (a.status != b.status || a.readings.size() != b.readings.size()) return false;
  for (std::size_t i = 0; i < a.readings.size(); ++i) {
    const Reading& x = a.readings[i];
    const Reading& y = b.readings[i];
    if (x.engine != y.engine || x.model != y.model || x.running != y.running ||
        x.waiting != y.waiting || x.kv_usage != y.kv_usage ||
        x.prefix_queries != y.prefix_queries || x.prefix_hits != y.prefix_hits ||
        x.prompt_tokens != y.prompt_tokens || x.prompt_tokens_cached != y.prompt_tokens_cached ||
        x.kv_capacity_tokens != y.kv_capacity_tokens || x.start_time != y.start_time) {
      return false;
    }
  }
  return true;
}

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
