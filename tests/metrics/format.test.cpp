// SPDX-License-Identifier: Apache-2.0
//
// Which figures make sense, and which add up.
#include <limpet/metrics/format.hpp>

#include "catch.hpp"

#include <limits>

using limpet::ReadingField;
using limpet::sensible;

TEST_CASE("a figure that makes no sense is unknown") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double figure :
       {infinity, -infinity, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(figure);
    CHECK_FALSE(sensible(ReadingField::running, figure).has_value());
    CHECK_FALSE(sensible(ReadingField::start_time, figure).has_value());
  }
  CHECK(sensible(ReadingField::running, 0.0) == 0.0);
  CHECK(sensible(ReadingField::prompt_tokens, 0.0) == 0.0);
  CHECK_FALSE(sensible(ReadingField::kv_capacity_tokens, 0.0).has_value());
  CHECK_FALSE(sensible(ReadingField::start_time, 0.0).has_value());
}

TEST_CASE("a share is at most 1, other figures are what they are") {
  CHECK(sensible(ReadingField::kv_usage, 1.5) == 1.0);
  CHECK(sensible(ReadingField::kv_usage, 0.5) == 0.5);
  CHECK(sensible(ReadingField::waiting, 1.5) == 1.5);
}

TEST_CASE("counters add up, gauges, sizes and times do not") {
  static_assert(!limpet::is_counter(ReadingField::running));
  static_assert(!limpet::is_counter(ReadingField::waiting));
  static_assert(!limpet::is_counter(ReadingField::kv_usage));
  static_assert(limpet::is_counter(ReadingField::prefix_queries));
  static_assert(limpet::is_counter(ReadingField::prefix_hits));
  static_assert(limpet::is_counter(ReadingField::prompt_tokens));
  static_assert(limpet::is_counter(ReadingField::prompt_tokens_cached));
  static_assert(!limpet::is_counter(ReadingField::kv_capacity_tokens));
  static_assert(!limpet::is_counter(ReadingField::start_time));
  SUCCEED();
}
