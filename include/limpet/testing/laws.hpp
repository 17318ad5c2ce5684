// SPDX-License-Identifier: Apache-2.0
//
// The laws of concepts.hpp as checks for policies of your own, in whatever test framework you use:
// each returns the violations it found as text, so an empty list is passing.
//
//   for (const std::string& violation : check_scorer_laws(MyScorer{})) ADD_FAILURE() << violation;
//
// Random cases come from the seed alone, and each violation names the case. A check finds what is
// wrong, it cannot prove that all is right. Costs milliseconds, except check_parser_laws, which
// parses some megabytes. Not thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/testing/detail/cases.hpp>
#include <limpet/testing/detail/pin_store_check.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet::testing {

using Violations = std::vector<std::string>;

// monotone
template <Clock C>
[[nodiscard]] Violations check_clock_laws(const C& clock) {
  Instant before = clock.now();
  for (int i = 0; i < 10'000; ++i) {
    const Instant now = clock.now();
    if (now < before) return {"monotone: call " + std::to_string(i) + " returned an earlier time"};
    before = now;
  }
  return {};
}

// pure, ordered, monotone; and the terms of a scorer that explains itself add up to its score.
template <LoadScorer S>
[[nodiscard]] Violations check_scorer_laws(const S& scorer, std::uint64_t seed = 1) {
  Violations found;
  const detail::Cases cases(seed);
  std::vector<double> scores;
  for (const auto& [load, context] : cases.scores) {
    const std::string which =
        "case " + std::to_string(scores.size()) + " of seed " + std::to_string(seed) + ": ";
    const double score = scorer.score(load, context);
    scores.push_back(score);
    if (std::isnan(score)) found.push_back("ordered: " + which + "the score is NaN");
    ReplicaLoad busier = load;
    ++busier.in_flight;
    if (scorer.score(busier, context) < score) {
      found.push_back("monotone: " + which + "one more turn in flight lowers the score");
    }
    if constexpr (ExplainsScore<S>) {
      double sum = 0.0;
      bool explained = false;
      for (const ScoreTerm& term : scorer.terms(load, context)) {
        sum += term.value;
        explained = explained || term.name != nullptr;
      }
      if (explained && std::abs(sum - score) > 1e-9 * std::max(1.0, std::abs(score))) {
        found.push_back("explained: " + which + "the terms do not add up to the score");
      }
    }
  }
  // Again, backwards: what a state remembers of the calls before differs.
  for (std::size_t i = scores.size(); i-- > 0;) {
    const double again = scorer.score(cases.scores[i].first, cases.scores[i].second);
    if (again != scores[i] && !(std::isnan(again) && std::isnan(scores[i]))) {
      found.push_back("pure: case " + std::to_string(i) + " of seed " + std::to_string(seed) +
                      ": equal arguments, another score");
    }
  }
  return found;
}

// pure, monotone, in the pool. Cheap first is the router's to hold.
template <OverflowRule O>
[[nodiscard]] Violations check_overflow_laws(const O& rule, std::uint64_t seed = 1) {
  Violations found;
  const detail::Cases cases(seed);
  std::vector<std::pair<bool, Verdict>> answers;
  const auto answer = [&](const detail::Pool& pool) {
    const bool overloaded = rule.overloaded(pool.home);
    return std::pair(overloaded, overloaded ? rule.decide(pool.view()) : Verdict::stay);
  };
  for (const detail::Pool& pool : cases.pools) {
    const std::string which =
        "case " + std::to_string(answers.size()) + " of seed " + std::to_string(seed) + ": ";
    answers.push_back(answer(pool));
    const auto [overloaded, verdict] = answers.back();
    ReplicaLoad busier = pool.home;
    ++busier.in_flight;
    if (overloaded && !rule.overloaded(busier)) {
      found.push_back("monotone: " + which + "one more turn in flight, and home is not overloaded");
    }
    if (verdict.target && !pool.holds(verdict.target)) {
      found.push_back("in the pool: " + which + "the target is not one of the others");
    }
  }
  for (std::size_t i = answers.size(); i-- > 0;) {
    if (answer(cases.pools[i]) != answers[i]) {
      found.push_back("pure: case " + std::to_string(i) + " of seed " + std::to_string(seed) +
                      ": equal arguments, another answer");
    }
  }
  return found;
}

// total, all or none, pure. `pages` are pages of your engine, which must parse; the checks cut and
// scramble them.
template <MetricsParser P>
[[nodiscard]] Violations check_parser_laws(const P& parser, std::span<const std::string_view> pages,
                                           std::uint64_t seed = 1) {
  Violations found;
  const auto check = [&](std::string_view page, const std::string& which) {
    const detail::Parsed first = detail::parse(parser, page);
    if (first.status != ParseStatus::ok && !first.readings.empty()) {
      found.push_back("all or none: " + which + " is " + std::string(to_string(first.status)) +
                      ", yet a reading was delivered");
    }
    if (first.status == ParseStatus::ok && first.readings.empty()) {
      found.push_back("all or none: " + which + " is ok, yet no reading was delivered");
    }
    if (detail::parse(parser, page) != first) {
      found.push_back("pure: " + which + " gives other readings the second time");
    }
    return first.status;
  };

  detail::Random random(seed);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::string which = "page " + std::to_string(i);
    if (check(pages[i], which) != ParseStatus::ok) found.push_back(which + " does not parse");
    for (std::size_t cut = 0; cut < pages[i].size(); cut += 1 + pages[i].size() / 997) {
      check(pages[i].substr(0, cut), which + " cut after " + std::to_string(cut) + " bytes");
    }
    for (int n = 0; n < 500; ++n) {
      check(detail::scrambled(pages[i], random),
            which + " scrambled, " + std::to_string(n) + " of seed " + std::to_string(seed));
    }
  }
  for (int n = 0; n < 500; ++n) {
    check(detail::random_bytes(random() % 300, random),
          "random bytes, " + std::to_string(n) + " of seed " + std::to_string(seed));
  }
  for (const char filler : {'\0', '\n', ' ', '#', '{', '"', '\\', 'a', '9', '\xff'}) {
    check(std::string(1 << 18, filler),
          "a page of 256 Ki bytes " + std::to_string(static_cast<unsigned char>(filler)));
  }
  return found;
}

// first pin wins, compare and swap, conditional unpin, found; of a store that tracks turns also what
// its operations find and swap.
//
// Requires: the store is empty, holds at least 12 pins, and a pin lives for a second and longer. One
// that FollowsMembership may choose homes by itself, as RendezvousPins does: each write must then
// return what find() finds, one of the members.
template <PinStore Pins>
[[nodiscard]] Violations check_pin_store_laws(Pins& empty_store, std::uint64_t seed = 1) {
  return detail::PinStoreCheck<Pins>(empty_store, seed).run();
}

}  // namespace limpet::testing
