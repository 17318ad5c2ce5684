// SPDX-License-Identifier: Apache-2.0
//
// What reading a metrics page allocates: nothing, up to 16 engines.
#include "alloc/counting.hpp"

#include <limpet/metrics/sglang.hpp>
#include <limpet/metrics/vllm.hpp>

#include "catch.hpp"

#include <cstddef>
#include <string>

namespace {

std::string page_of(std::size_t engines) {
  std::string page = "# TYPE vllm:num_requests_running gauge\n";
  for (std::size_t i = 0; i < engines; ++i) {
    page += "vllm:num_requests_running{engine=\"" + std::to_string(i) + "\",model_name=\"m\"} 1\n";
  }
  return page;
}

// Reads the page `times` times; the sink counts readings and keeps none.
std::size_t allocations_to_read(const std::string& page, std::size_t expected, int times) {
  std::size_t readings = 0;
  auto count = [&](const limpet::Reading&) { ++readings; };
  const auto seen = limpet_test::allocations_of([&] {
    for (int i = 0; i < times; ++i) {
      (void)limpet::VllmMetrics{}.parse(page, limpet::ReadingSink(count));
    }
  });
  CHECK(readings == expected * static_cast<std::size_t>(times));
  return seen.calls;
}

}  // namespace

TEST_CASE("a page of up to 16 engines is read without allocating") {
  CHECK(allocations_to_read(page_of(1), 1, 10) == 0);
  CHECK(allocations_to_read(page_of(16), 16, 10) == 0);
}

TEST_CASE("a page of many engines allocates a few times, not once a line") {
  CHECK(allocations_to_read(page_of(17), 17, 1) > 0);
  CHECK(allocations_to_read(page_of(1000), 1000, 1) < 40);
}

TEST_CASE("an SGLang page is completed without allocating") {
  const std::string page =
      "sglang:prompt_tokens_total{model_name=\"m\"} 5\nsglang:num_running_reqs 1\n";
  double queries = 0.0;
  auto keep = [&](const limpet::Reading& reading) {
    queries = reading.prefix_queries.value_or(0.0);
  };
  const limpet::SglangMetrics parser;
  const auto seen =
      limpet_test::allocations_of([&] { (void)parser.parse(page, limpet::ReadingSink(keep)); });
  CHECK(queries == 5.0);
  CHECK(seen.calls == 0);
}
