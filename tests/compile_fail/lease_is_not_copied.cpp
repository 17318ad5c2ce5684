// SPDX-License-Identifier: Apache-2.0
//
// A lease is one slot, returned once: it is moved, never copied.
// expect: deleted
#include <limpet/limpet.hpp>

#include <utility>

limpet::Lease hand_over(limpet::Lease& lease) {
#ifdef LIMPET_EXPECT_FAIL
  return limpet::Lease(lease);
#else
  return limpet::Lease(std::move(lease));
#endif
}
