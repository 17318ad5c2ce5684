// SPDX-License-Identifier: Apache-2.0
//
// What the compiler says when a policy misses its concept narrowly (a float for a double, a missing
// noexcept): what to write, in place of a list of constructors that do not fit.
//
// Router has a deduction guide that only such arguments reach; it asks for a Router of a NearMiss,
// whose assertions are the messages. Where template arguments are spelt out, compilers name the
// concept and the expression themselves. Costs nothing where all is well.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/fwd.hpp>

#include <concepts>
#include <type_traits>

namespace limpet {

struct RouterOptions;

namespace detail {

template <class Pins, class Scorer = WeightedLoad, class Overflow = SpillAbove,
          class Parser = VllmMetrics, class ClockT = SteadyClock, class Options = RouterOptions>
struct NearMiss {
  static_assert(PinStore<Pins>,
                "the first policy is no PinStore; it needs: std::optional<Home> find(KeyHash, "
                "Instant) const; Home pin(KeyHash, Home, Instant); Home repin(KeyHash, Home "
                "expected, Home desired, Instant); bool unpin(KeyHash, Home expected); pin and "
                "repin return the winner");
  static_assert(LoadScorer<Scorer>,
                "the second policy is no LoadScorer; it needs: double score(const ReplicaLoad&, "
                "const ScoreContext&) const noexcept");
  static_assert(OverflowRule<Overflow>,
                "the third policy is no OverflowRule; it needs: bool overloaded(const "
                "ReplicaLoad&) const noexcept; Verdict decide(const OverflowView&) const noexcept");
  static_assert(MetricsParser<Parser>,
                "the fourth policy is no MetricsParser; it needs: ParseStatus "
                "parse(std::string_view, ReadingSink) const noexcept");
  static_assert(Clock<ClockT>,
                "the fifth policy is no Clock; it needs: Instant now() const noexcept");
};

template <class Pins, class Scorer = WeightedLoad, class Overflow = SpillAbove,
          class Parser = VllmMetrics, class ClockT = SteadyClock, class Options = RouterOptions>
inline constexpr bool is_near_miss =
    !std::same_as<Pins, RouterOptions> &&  // Router{options}: no policy at all
    !(PinStore<Pins> && LoadScorer<Scorer> && OverflowRule<Overflow> && MetricsParser<Parser> &&
      Clock<ClockT>);

// No type where all is well. Not a requires-clause, which clang 14 would look at too late.
template <class... Arguments>
using NearMissOf = std::enable_if_t<is_near_miss<Arguments...>, NearMiss<Arguments...>>;

}  // namespace detail

}  // namespace limpet
