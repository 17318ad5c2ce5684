// SPDX-License-Identifier: Apache-2.0
//
// Names without bodies, and the default policies: enough to mention a Router or a Lease in another
// header.
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
struct MoveWhenFull;
struct NeverSpill;
struct PowerOfTwo;
struct RoundRobin;
struct Snapshot;
struct SpillAbove;
struct SteadyClock;
struct WeightedLoad;
struct VllmMetrics;

template <class Mutex = std::mutex>
class ShardedPins;

template <PinStore Pins = ShardedPins<>, LoadScorer Scorer = WeightedLoad,
          OverflowRule Overflow = SpillAbove, MetricsParser Parser = VllmMetrics,
          Clock ClockT = SteadyClock>
class Router;

}  // namespace limpet
