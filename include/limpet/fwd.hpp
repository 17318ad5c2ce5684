// SPDX-License-Identifier: Apache-2.0
//
// Names without bodies, and the default policies: enough to mention a Lease, a Snapshot or a template
// over Router<P, S, O, M, C> in another header. Naming Router<> itself checks that its policies model
// their concepts, so it needs them whole: include router.hpp.
#pragma once

#include <limpet/concepts.hpp>

#include <mutex>

namespace limpet {

class Fleet;
class KeyHasher;
class Lease;
class LocalPins;
class ManualClock;
class RendezvousPins;
struct BoundedLoad;
struct Explanation;
struct LeastInFlight;
struct LeastPendingPrefill;
struct MoveIfCheaper;
struct MoveWhenFull;
struct NeverSpill;
struct PowerOfTwo;
struct RoundRobin;
struct Snapshot;
struct SpillAbove;
struct SteadyClock;
struct TokensTimesBatch;
struct WeightedLoad;
struct VllmMetrics;

template <class Mutex = std::mutex>
class ShardedPins;

template <PinStore Pins = ShardedPins<>, LoadScorer Scorer = WeightedLoad,
          OverflowRule Overflow = SpillAbove, MetricsParser Parser = VllmMetrics,
          Clock ClockT = SteadyClock>
class Router;

}  // namespace limpet
