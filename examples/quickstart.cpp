// SPDX-License-Identifier: Apache-2.0
//
// Three turns of one conversation: the first is placed, the others go home. This is the code of
// README.md; server.cpp shows it in a server.
#include <limpet/limpet.hpp>

#include <iostream>

int main() {
  limpet::Router router;  // ShardedPins, WeightedLoad, SpillAbove, VllmMetrics, SteadyClock
  router.add_replica({.name = "gpu0", .endpoint = "http://10.0.0.1:8000", .max_num_seqs = 32});
  router.add_replica({.name = "gpu1", .endpoint = "http://10.0.0.2:8000", .max_num_seqs = 32});
  router.observe("http://10.0.0.1:8000", "vllm:num_requests_running 3\n");  // what /metrics said

  for (int turn = 1; turn <= 3; ++turn) {
    auto lease = router.route("conversation-key");  // picks a replica, pins, takes a slot
    const auto replica = router.options(lease.replica());
    std::cout << to_string(lease.outcome()) << ": send to " << replica->endpoint << '\n';
    lease.finish({.prompt_tokens = 11'043, .cached_tokens = 10'752, .completion_tokens = 256});
  }  // finish(), cancel() or fail() give the slot back; the destructor does what none of them did
}
