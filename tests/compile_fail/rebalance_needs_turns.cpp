// SPDX-License-Identifier: Apache-2.0
//
// A store that does not follow turns cannot say which conversations are idle.
// expect: TracksTurns
#include <limpet/limpet.hpp>
#include <limpet/pins/rendezvous.hpp>

#ifdef LIMPET_EXPECT_FAIL
using Pins = limpet::RendezvousPins;
#else
using Pins = limpet::LocalPins;
#endif

std::size_t even_out(limpet::Router<Pins>& router) {
  return router.rebalance(100);
}
