// SPDX-License-Identifier: Apache-2.0
//
// Compiling this file is passing: the shapes and sizes that users and other headers rely on, and
// the ways of writing a router down.
#include <limpet/any.hpp>
#include <limpet/limpet.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>
#include <limpet/testing/laws.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace {

using namespace limpet;

// Plain values ------------------------------------------------------------------------------------

static_assert(std::is_trivially_copyable_v<Decision>);
static_assert(std::is_trivially_copyable_v<ReplicaId> && sizeof(ReplicaId) == 4);
static_assert(std::is_trivially_copyable_v<Home> && sizeof(Home) == 8);
static_assert(std::is_trivially_copyable_v<KeyHash> && sizeof(KeyHash) == 16);
static_assert(std::is_trivially_copyable_v<Turn>);
static_assert(std::is_trivially_copyable_v<ReplicaLoad>);
static_assert(std::is_trivially_copyable_v<Conversation>);
static_assert(sizeof(Conversation) == 32);
static_assert(sizeof(Decision) <= 64 + 8);
// A pin's entry asserts its 64 bytes itself: detail/pin_table.hpp. A scan reads two
// neighbouring lines a replica, of which a turn writes the second.
static_assert(alignof(detail::ReplicaSlot) == 64);
static_assert(offsetof(detail::ReplicaSlot, name_hash) == 0);
static_assert(offsetof(detail::ReplicaSlot, lock) == 64);

// A lease is one turn's slot: moved, never copied.
static_assert(std::is_nothrow_move_constructible_v<Lease>);
static_assert(std::is_nothrow_move_assignable_v<Lease>);
static_assert(std::is_nothrow_default_constructible_v<Lease>);
static_assert(!std::is_copy_constructible_v<Lease>);
static_assert(noexcept(std::declval<Lease&>().finish()));
static_assert(noexcept(std::declval<Lease&>().finish(Usage{})));
static_assert(noexcept(std::declval<Lease&>().first_byte()));
static_assert(noexcept(std::declval<Lease&>().cancel()) && noexcept(std::declval<Lease&>().fail()));

// Leases hold a router's address.
static_assert(!std::is_copy_constructible_v<Router<>> && !std::is_move_constructible_v<Router<>>);

// Constants come out at compile time.
static_assert(to_string(Outcome::client_pinned) == "client_pinned");
static_assert(auto_threshold(32) == 8);
static_assert(!ReplicaId{} && ReplicaId{0, 0});
static_assert(!Key{}.has_value() && Key{""}.has_value());

// Concepts ----------------------------------------------------------------------------------------

static_assert(PinStore<LocalPins> && PinStore<ShardedPins<>> && PinStore<RendezvousPins>);
static_assert(TracksTurns<LocalPins> && TracksTurns<ShardedPins<NullMutex>>);
static_assert(!TracksTurns<RendezvousPins> && FollowsMembership<RendezvousPins>);
static_assert(!FollowsMembership<LocalPins>);
static_assert(LoadScorer<WeightedLoad> && LoadScorer<LeastInFlight> && LoadScorer<RoundRobin> &&
              LoadScorer<PowerOfTwo> && LoadScorer<LeastPendingPrefill> &&
              LoadScorer<TokensTimesBatch>);
static_assert(ExplainsScore<WeightedLoad> && !ExplainsScore<LeastInFlight>);
static_assert(OverflowRule<SpillAbove> && OverflowRule<NeverSpill> && OverflowRule<BoundedLoad> &&
              OverflowRule<MoveWhenFull> && OverflowRule<MoveIfCheaper> &&
              OverflowRule<AdjustableSpill>);
static_assert(MetricsParser<VllmMetrics>);
static_assert(Clock<SteadyClock> && Clock<ManualClock>);

// Near misses.
struct ReturnsFloat {
  float score(const ReplicaLoad&, const ScoreContext&) const noexcept { return 0; }
};
struct MayThrow {
  double score(const ReplicaLoad&, const ScoreContext&) const { return 0; }
};
struct NotConst {
  double score(const ReplicaLoad&, const ScoreContext&) noexcept { return 0; }
};
static_assert(!LoadScorer<ReturnsFloat> && !LoadScorer<MayThrow> && !LoadScorer<NotConst>);
struct OnlyOverloaded {
  bool overloaded(const ReplicaLoad&) const noexcept { return false; }
};
static_assert(!OverflowRule<OnlyOverloaded>);
struct WallClock {
  std::int64_t now() const noexcept { return 0; }
};
static_assert(!Clock<WallClock>);

// Ways to write a router --------------------------------------------------------------------------

// The four primitives over a map, nothing more: the least that a store must be.
class MapPins {
 public:
  std::optional<Home> find(KeyHash key, Instant) const {
    const auto found = pins_.find({key.hi, key.lo});
    return found == pins_.end() ? std::nullopt : std::optional(found->second);
  }
  Home pin(KeyHash key, Home home, Instant) {
    return pins_.try_emplace({key.hi, key.lo}, home).first->second;
  }
  Home repin(KeyHash key, Home expected, Home desired, Instant) {
    Home& pin = pins_.try_emplace({key.hi, key.lo}, desired).first->second;
    if (pin == expected) pin = desired;
    return pin;
  }
  bool unpin(KeyHash key, Home expected) {
    const auto found = pins_.find({key.hi, key.lo});
    if (found == pins_.end() || found->second != expected) return false;
    pins_.erase(found);
    return true;
  }

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, Home> pins_;
};
static_assert(PinStore<MapPins> && !TracksTurns<MapPins>);

template <class Pins, class Scorer, class Overflow, class Parser, class ClockT, class R>
constexpr bool is_router_of = std::is_same_v<R, Router<Pins, Scorer, Overflow, Parser, ClockT>>;

// Every member is instantiated, not only those that a test happens to call.
[[maybe_unused]] void writes_routers() {
  Router defaults;
  static_assert(is_router_of<ShardedPins<std::mutex>, WeightedLoad, SpillAbove, VllmMetrics,
                             SteadyClock, decltype(defaults)>);

  Router three{ShardedPins{{.capacity = 1 << 20}}, WeightedLoad{}, NeverSpill{}};
  static_assert(is_router_of<ShardedPins<std::mutex>, WeightedLoad, NeverSpill, VllmMetrics,
                             SteadyClock, decltype(three)>);

  Router store_alone{LocalPins{}};
  static_assert(is_router_of<LocalPins, WeightedLoad, SpillAbove, VllmMetrics, SteadyClock,
                             decltype(store_alone)>);

  ManualClock clock;
  Router five{RendezvousPins{}, PowerOfTwo{}, BoundedLoad{.epsilon = 0.5}, VllmMetrics{}, clock};
  static_assert(is_router_of<RendezvousPins, PowerOfTwo, BoundedLoad, VllmMetrics, ManualClock,
                             decltype(five)>);

  Router with_options{LocalPins{},   LeastInFlight{}, MoveWhenFull{},
                      VllmMetrics{}, SteadyClock{},   {.parent_hint = ParentHint::independent}};
  Router options_alone{RouterOptions{.affinity = Affinity::off}};
  static_assert(std::is_same_v<decltype(options_alone), Router<>>);

  Router own_store{MapPins{}};
  const Lease lease = own_store.route("conversation-key");
  static_cast<void>(own_store.commit(own_store.plan(Turn{.key = "c"})));
  static_cast<void>(own_store.explain("c"));
  static_cast<void>(own_store.snapshot());
}

// A store of four primitives has no turns to tell idle conversations by.
template <class R>
concept CanRebalance = requires(R& router) { router.rebalance(1); };
static_assert(CanRebalance<Router<>>);
static_assert(!CanRebalance<Router<MapPins>> && !CanRebalance<Router<RendezvousPins>>);

}  // namespace

template class limpet::Router<>;
template class limpet::Router<limpet::LocalPins, limpet::PowerOfTwo, limpet::BoundedLoad>;
template class limpet::Router<limpet::ShardedPins<>, limpet::LeastPendingPrefill>;
template class limpet::ShardedPins<std::mutex>;
template class limpet::ShardedPins<limpet::NullMutex>;
