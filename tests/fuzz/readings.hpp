// SPDX-License-Identifier: Apache-2.0
//
// What every metrics parser owes on a page of any bytes: nothing unless the status is ok, figures
// that are finite and in their range, names that lie on the page.
#pragma once

#include <limpet/concepts.hpp>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace readings {

using limpet::ParseStatus;
using limpet::Reading;

inline void require(bool condition) {
  if (!condition) std::abort();
}

struct Parsed {
  ParseStatus status;
  std::vector<Reading> readings;
};

inline void check_figure(std::optional<double> figure) {
  require(!figure || (std::isfinite(*figure) && *figure >= 0.0));
}

inline void check_name(std::string_view name, std::string_view page) {
  const std::less_equal<const char*> before;
  require(name.empty() || (before(page.data(), name.data()) &&
                           before(name.data() + name.size(), page.data() + page.size())));
}

inline void check_reading(const Reading& reading, std::string_view page) {
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

inline bool same(const Parsed& a, const Parsed& b) {
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

}  // namespace readings
