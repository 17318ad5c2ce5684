// SPDX-License-Identifier: Apache-2.0
//
// The smallest program of a stranger: exit code 0 when the router it found routes.
#include <limpet/limpet.hpp>

#ifdef CONSUMER_FMT
#include <limpet/fmt.hpp>
#endif

int main() {
  limpet::Router router;
  router.add_replica({.name = "gpu0"});
  auto lease = router.route("conversation-key");
  return lease.outcome() == limpet::Outcome::placed ? 0 : 1;
}
