// SPDX-License-Identifier: Apache-2.0
//
// Pages come from outside: a parser survives any of them.
// expect: the fourth policy is no MetricsParser
// expect: ParseStatus parse(std::string_view, ReadingSink) const noexcept
#include <limpet/limpet.hpp>

#include <string_view>

struct Nothing {
  limpet::ParseStatus parse(std::string_view, limpet::ReadingSink) const
#ifndef LIMPET_EXPECT_FAIL
      noexcept
#endif
  {
    return limpet::ParseStatus::no_engine;
  }
};

limpet::Router router{limpet::LocalPins{}, limpet::WeightedLoad{}, limpet::SpillAbove{}, Nothing{}};
