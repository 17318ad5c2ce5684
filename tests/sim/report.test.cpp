// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/report.hpp>

#include "catch.hpp"

using namespace limpet::sim;

TEST_CASE("quantiles are the sorted list's element floor(p n)") {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Quantity q = Quantity::of(values);
  CHECK(q.p50 == 51);
  CHECK(q.p95 == 96);
  CHECK(q.p99 == 100);
  CHECK(q.mean == 50.5);
  CHECK(q.max == 100);
  CHECK(Quantity::of({}).p95 == 0);
  CHECK(Quantity::of({7.0}).p99 == 7.0);
}

TEST_CASE("Jain's index is 1 for equal shares and 1/n when one has all") {
  CHECK(jain_index({5, 5, 5, 5}) == Approx(1.0));
  CHECK(jain_index({8, 0, 0, 0}) == Approx(0.25));
  CHECK(jain_index({3, 1}) == Approx(16.0 / 20.0));
  CHECK(jain_index({}) == 1.0);
}

TEST_CASE("turns are summed up: stayed home is of those that had one, hits are by tokens") {
  using limpet::Outcome;
  const auto turn = [](std::uint32_t seat, std::uint32_t number, Outcome outcome, double wait,
                       std::uint64_t cached) {
    return TurnRecord{"s", seat, number, 0, outcome, 10.0, 10.0 + wait, 20.0, 100, cached, 50};
  };
  const Report report =
      summarize({turn(0, 0, Outcome::placed, 4.0, 0), turn(0, 1, Outcome::sticky, 1.0, 80),
                 turn(0, 2, Outcome::spilled, 3.0, 0), turn(1, 0, Outcome::placed, 2.0, 40),
                 turn(1, 1, Outcome::sticky, 1.0, 80), turn(1, 2, Outcome::moved, 5.0, 0)},
                2);
  CHECK(report.turns == 6);
  CHECK(report.stayed_home == 0.5);
  CHECK(report.spilled == 1);
  CHECK(report.moved == 1);
  CHECK(report.from_cache == Approx(200.0 / 600.0));
  CHECK(report.ttfb.mean == Approx(16.0 / 6.0));
  CHECK(report.ttfb_first.mean == Approx(3.0));
  CHECK(report.jain == Approx(1.0));
}

TEST_CASE("the JSON of a report is one object with all columns") {
  Report report;
  report.policy = "p";
  report.seats = 4;
  report.ttfb.p50 = 0.25;
  const std::string json = to_json(report);
  CHECK(json.starts_with("{\"policy\": \"p\", \"seats\": 4,"));
  CHECK_THAT(json, ContainsSubstring("\"ttfb_p50\": 0.25"));
  CHECK(json.ends_with("\"jain\": 1}"));
}
