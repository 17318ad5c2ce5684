// SPDX-License-Identifier: Apache-2.0
//
// A clock tells the library's own kind of time, not a number of anything.
// expect: the fifth policy is no Clock
// expect: Instant now() const noexcept
#include <limpet/limpet.hpp>

struct Ticks {
#ifdef LIMPET_EXPECT_FAIL
  long now() const noexcept { return 0; }
#else
  limpet::Instant now() const noexcept { return {}; }
#endif
};

limpet::Router router{limpet::LocalPins{}, limpet::WeightedLoad{}, limpet::SpillAbove{},
                      limpet::VllmMetrics{}, Ticks{}};
