// SPDX-License-Identifier: Apache-2.0
//
// What a parser makes of a page, as values that a test can look at.
#pragma once

#include <limpet/concepts.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace limpet_test {

struct Parsed {
  limpet::ParseStatus status = limpet::ParseStatus::ok;
  std::vector<limpet::Reading> readings;  // refer to the page

  [[nodiscard]] std::size_t size() const { return readings.size(); }

  // The only reading. Throws std::out_of_range where there is none.
  [[nodiscard]] const limpet::Reading& only() const {
    return readings.size() == 1 ? readings.front() : readings.at(readings.size());
  }

  // The first reading of that engine. Throws std::out_of_range where there is none.
  [[nodiscard]] const limpet::Reading& engine(std::string_view name) const {
    for (const limpet::Reading& reading : readings)
      if (reading.engine == name) return reading;
    return readings.at(readings.size());
  }
};

template <limpet::MetricsParser Parser>
[[nodiscard]] Parsed parse(const Parser& parser, std::string_view page) {
  Parsed parsed;
  auto keep = [&](const limpet::Reading& reading) { parsed.readings.push_back(reading); };
  parsed.status = parser.parse(page, limpet::ReadingSink(keep));
  return parsed;
}

[[nodiscard]] inline bool same(const limpet::Reading& a, const limpet::Reading& b) {
  return a.engine == b.engine && a.model == b.model && a.running == b.running &&
         a.waiting == b.waiting && a.kv_usage == b.kv_usage &&
         a.prefix_queries == b.prefix_queries && a.prefix_hits == b.prefix_hits &&
         a.prompt_tokens == b.prompt_tokens && a.prompt_tokens_cached == b.prompt_tokens_cached &&
         a.kv_capacity_tokens == b.kv_capacity_tokens && a.start_time == b.start_time;
}

[[nodiscard]] inline bool same(const Parsed& a, const Parsed& b) {
  if (a.status != b.status || a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a.readings[i], b.readings[i])) return false;
  return true;
}

}  // namespace limpet_test
