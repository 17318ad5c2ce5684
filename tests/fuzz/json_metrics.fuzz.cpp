// SPDX-License-Identifier: Apache-2.0
//
// JSON of any bytes as a page of metrics: the laws of MetricsParser for JsonMetrics, where the page
// is one engine and where it is a list of them. A page with space behind it reads the same.
#include <limpet/metrics/json.hpp>

#include "readings.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using readings::parse;
using readings::Parsed;
using readings::require;
using readings::same;

const limpet::JsonMetrics one_engine({.engine = "/name",
                                      .model = "/model/id",
                                      .running = "/running",
                                      .kv_usage = "/kv~1usage",
                                      .prefix_hits = "/hits/0"});
const limpet::JsonMetrics sglang_loads({.engines = "/loads",
                                        .engine = "/dp_rank",
                                        .running = "/num_running_reqs",
                                        .waiting = "/num_waiting_reqs",
                                        .kv_usage = "/token_usage"});

void check(const limpet::JsonMetrics& parser, std::string_view page, std::size_t cut) {
  const Parsed parsed = parse(parser, page);
  require(same(parsed, parse(parser, page)));
  static_cast<void>(parse(parser, page.substr(0, cut)));
  require(same(parsed, parse(parser, std::string(page) + " \n")));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view page(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = size == 0 ? 0 : (size * 31 + data[0] + data[size - 1]) % size;
  check(one_engine, page, cut);
  check(sglang_loads, page, cut);
  return 0;
}
