// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/plot.hpp>

#include "catch.hpp"

#include <algorithm>

namespace {

using limpet::sim::Report;

Report report(const char* policy, std::uint32_t seats, double output, double p50, double cached) {
  Report r;
  r.policy = policy;
  r.seats = seats;
  r.output_tokens_per_minute = output;
  r.ttfb.p50 = p50;
  r.ttfb.p95 = 4 * p50;
  r.from_cache = cached;
  return r;
}

const std::vector<Report> reports = {
    report("ours", 4, 8'000, 0.2, 0.85),  report("ours", 8, 13'000, 0.3, 0.86),
    report("ours", 24, 10'000, 20, 0.29), report("theirs", 4, 7'000, 0.4, 0.7),
    report("theirs", 8, 10'000, 3, 0.5),  report("theirs", 24, 10'000, 21, 0.28)};

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

}  // namespace

TEST_CASE("the picture has four panels with one line a policy, and is closed") {
  const std::string svg = limpet::sim::Plot::svg(reports);
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "<polyline ") == 8);
  CHECK(count(svg, "sessions at once") == 4);
  CHECK(count(svg, ">ours<") == 1);
  CHECK(count(svg, "nan") == 0);
  CHECK(count(svg, "inf") == 0);
  CHECK(count(limpet::sim::Plot::svg({}), "nan") == 0);
}

TEST_CASE("advice names the size where the gain is largest, and where caches are too small") {
  CHECK(limpet::sim::advice(reports, "ours", "theirs") ==
        "At 8 sessions at once use ours: +30 % output tokens, median wait 0.30 s instead of 3.00 "
        "s, 86 % of "
        "prompt tokens from cache instead of 50 %. From 24 on the conversations no longer fit the "
        "caches: "
        "add replicas, or let fewer in at once, as limpet-gate does.\n");
  CHECK_THAT(limpet::sim::advice(reports, "theirs", "ours"), ContainsSubstring("little to gain"));
  CHECK(limpet::sim::advice({}, "ours", "theirs") == "Nothing to compare.\n");
}

TEST_CASE("advice names who does better where the caches are too small, and the price") {
  std::vector<Report> with_gate = reports;
  with_gate.push_back(report("gate", 24, 15'000, 0.5, 0.8));
  with_gate.push_back(report("second", 24, 14'000, 0.4, 0.7));
  with_gate.push_back(report("elsewhere", 8, 30'000, 0.1, 0.9));
  CHECK_THAT(limpet::sim::advice(with_gate, "ours", "theirs"),
             EndsWith("From 24 on the conversations no longer fit the caches: add replicas, or use "
                      "gate: +50 % output tokens against ours, median wait 0.50 s instead of 20.00 "
                      "s, 95 % of the turns within 2.0 s instead of 80.0 s.\n"));
}
