// SPDX-License-Identifier: Apache-2.0
//
// A store's writes return the winner, which is what makes two first turns agree.
// expect: the first policy is no PinStore
// expect: pin and repin return the winner
#include <limpet/limpet.hpp>

#include <optional>

struct OneHome {
  std::optional<limpet::Home> find(limpet::KeyHash, limpet::Instant) const { return home; }
#ifdef LIMPET_EXPECT_FAIL
  void pin(limpet::KeyHash, limpet::Home to, limpet::Instant) { home = to; }
#else
  limpet::Home pin(limpet::KeyHash, limpet::Home to, limpet::Instant) { return home = to; }
#endif
  limpet::Home repin(limpet::KeyHash, limpet::Home, limpet::Home to, limpet::Instant) {
    return home = to;
  }
  bool unpin(limpet::KeyHash, limpet::Home) { return false; }

  limpet::Home home;
};

limpet::Router router{OneHome{}};
