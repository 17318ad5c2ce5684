// SPDX-License-Identifier: Apache-2.0
//
// The floor of every routing benchmark: hashing a session id, which no table of pins can do without.
#include "support.hpp"

#include <limpet/hash.hpp>

namespace limpet::bench {
namespace {

void floor_hash(benchmark::State& state) {
  Visits visits(session_ids(state.range(0)), state);
  const KeyHasher hasher;
  measure(state, [&] {
    const KeyHash hash = hasher(visits.next());
    return hash.hi != hash.lo;
  });
}

BENCHMARK(floor_hash)->ArgName("keys")->Arg(8 * Ki)->Arg(1 * Mi);
BENCHMARK(floor_hash)
    ->Name("threads_floor_hash")
    ->ArgName("keys")
    ->Arg(8 * Ki)
    ->Arg(1 * Mi)
    ->ThreadRange(1, 16)
    ->UseRealTime();

}  // namespace
}  // namespace limpet::bench
