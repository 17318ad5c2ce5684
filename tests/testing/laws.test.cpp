// SPDX-License-Identifier: Apache-2.0
#include <limpet/testing/laws.hpp>

#include <limpet/any.hpp>
#include <limpet/limpet.hpp>
#include <limpet/metrics/llamacpp.hpp>
#include <limpet/metrics/sglang.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>

#include "catch.hpp"
#include "support/test_policies.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace limpet;
using namespace limpet::testing;
using limpet_test::FourPrimitives;
using limpet_test::NumberPage;

// Whether some violation names this law, which is what its text begins with.
bool names(const Violations& violations, std::string_view law) {
  return std::any_of(violations.begin(), violations.end(),
                     [&](const std::string& text) { return text.starts_with(law); });
}

}  // namespace

TEST_CASE("the clocks of the library hold the laws of clocks") {
  CHECK(check_clock_laws(SteadyClock{}) == Violations{});
  CHECK(check_clock_laws(ManualClock{}) == Violations{});
}

TEST_CASE("a clock that goes back is caught") {
  struct Pendulum {
    mutable std::int64_t calls = 0;
    Instant now() const noexcept { return Instant{Duration{++calls % 100}}; }
  };
  CHECK(names(check_clock_laws(Pendulum{}), "monotone"));
}

TEST_CASE("the scorers of the library hold the laws of scorers") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    CHECK(check_scorer_laws(WeightedLoad{}, seed) == Violations{});
    CHECK(check_scorer_laws(WeightedLoad{.scale_gauge = false}, seed) == Violations{});
    CHECK(check_scorer_laws(WeightedLoad{0.0, 0.0, 0.0}, seed) == Violations{});
    CHECK(check_scorer_laws(LeastInFlight{}, seed) == Violations{});
    CHECK(check_scorer_laws(RoundRobin{}, seed) == Violations{});
    CHECK(check_scorer_laws(PowerOfTwo{}, seed) == Violations{});
    CHECK(check_scorer_laws(LeastPendingPrefill{}, seed) == Violations{});
    CHECK(check_scorer_laws(TokensTimesBatch{}, seed) == Violations{});
    CHECK(check_scorer_laws(AnyScorer(PowerOfTwo{}), seed) == Violations{});
    CHECK(check_scorer_laws(AnyScorer(WeightedLoad{}), seed) == Violations{});
  }
}

TEST_CASE("a scorer that breaks a law is caught") {
  struct CountsCalls {
    mutable int calls = 0;
    double score(const ReplicaLoad&, const ScoreContext&) const noexcept { return ++calls; }
  };
  CHECK(names(check_scorer_laws(CountsCalls{}), "pure"));

  struct DividesByCapacity {
    double score(const ReplicaLoad& load, const ScoreContext&) const noexcept {
      return static_cast<double>(load.live_tokens) / static_cast<double>(load.kv_capacity_tokens);
    }
  };
  CHECK(names(check_scorer_laws(DividesByCapacity{}), "ordered"));

  struct HigherIsBetter {
    double score(const ReplicaLoad& load, const ScoreContext&) const noexcept {
      return -static_cast<double>(load.in_flight);
    }
  };
  CHECK(names(check_scorer_laws(HigherIsBetter{}), "monotone"));
  CHECK_FALSE(names(check_scorer_laws(HigherIsBetter{}), "pure"));

  struct ExplainsAnother {
    double score(const ReplicaLoad& load, const ScoreContext&) const noexcept {
      return load.in_flight;
    }
    ScoreTerms terms(const ReplicaLoad& load, const ScoreContext&) const {
      return {{{"in_flight", 2.0 * load.in_flight}}};
    }
  };
  CHECK(names(check_scorer_laws(ExplainsAnother{}), "explained"));
}

TEST_CASE("the overflow rules of the library hold the laws of overflow rules") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    CHECK(check_overflow_laws(NeverSpill{}, seed) == Violations{});
    CHECK(check_overflow_laws(SpillAbove{}, seed) == Violations{});
    CHECK(check_overflow_laws(SpillAbove{8}, seed) == Violations{});
    CHECK(check_overflow_laws(AdjustableSpill{8}, seed) == Violations{});
    CHECK(check_overflow_laws(BoundedLoad{}, seed) == Violations{});
    CHECK(check_overflow_laws(MoveWhenFull{}, seed) == Violations{});
    CHECK(check_overflow_laws(MoveWhenFull{.full = 0.5, .room = 0.5, .threshold = 3}, seed) ==
          Violations{});
    CHECK(check_overflow_laws(MoveIfCheaper{}, seed) == Violations{});
    CHECK(check_overflow_laws(MoveIfCheaper{.margin = 1.0, .floor_tokens = 0}, seed) ==
          Violations{});
    CHECK(check_overflow_laws(AnyOverflow(MoveWhenFull{}), seed) == Violations{});
  }
}

TEST_CASE("an overflow rule that breaks a law is caught") {
  struct CountsCalls {
    mutable int calls = 0;
    bool overloaded(const ReplicaLoad&) const noexcept { return ++calls % 3 == 0; }
    Verdict decide(const OverflowView&) const noexcept { return Verdict::spill; }
  };
  CHECK(names(check_overflow_laws(CountsCalls{}), "pure"));

  struct OddCounts {
    bool overloaded(const ReplicaLoad& home) const noexcept { return home.in_flight % 2 == 1; }
    Verdict decide(const OverflowView&) const noexcept { return Verdict::spill; }
  };
  CHECK(names(check_overflow_laws(OddCounts{}), "monotone"));

  struct SendsHome {
    bool overloaded(const ReplicaLoad&) const noexcept { return true; }
    Verdict decide(const OverflowView& view) const noexcept {
      return Verdict::move.to(view.home().replica);
    }
  };
  CHECK(names(check_overflow_laws(SendsHome{}), "in the pool"));
}

namespace {

constexpr std::string_view vllm_page =
    "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
    "# TYPE vllm:num_requests_running gauge\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 3.0\n"
    "vllm:num_requests_running{engine=\"1\",model_name=\"tiny\"} 1.0\n"
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0\n"
    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.25\n"
    "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"tiny\"} 1.5e-02\n"
    "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"tiny\"} 1.2e+06\n"
    "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 900000\n";
constexpr std::string_view sglang_page =
    "sglang:num_running_reqs{model_name=\"tiny\"} 3.0\n"
    "sglang:num_queue_reqs{model_name=\"tiny\"} 1.0\n"
    "sglang:token_usage{model_name=\"tiny\"} 0.5\n";
constexpr std::string_view llamacpp_page =
    "llamacpp:requests_processing 3\n"
    "llamacpp:requests_deferred 1\n"
    "llamacpp:kv_cache_usage_ratio 0.5\n";

template <class Parser>
Violations check_on(const Parser& parser, std::string_view page, std::uint64_t seed = 1) {
  const std::string_view pages[] = {page};
  return check_parser_laws(parser, pages, seed);
}

}  // namespace

TEST_CASE("the metrics parsers of the library hold the laws of parsers") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    CHECK(check_on(VllmMetrics{}, vllm_page, seed) == Violations{});
    CHECK(check_on(SglangMetrics{}, sglang_page, seed) == Violations{});
    CHECK(check_on(LlamaCppMetrics{}, llamacpp_page, seed) == Violations{});
    CHECK(check_on(AnyMetricsParser(VllmMetrics{}), vllm_page, seed) == Violations{});
    CHECK(check_on(NumberPage{}, "0.25", seed) == Violations{});
  }
}

TEST_CASE("a metrics parser that breaks a law is caught") {
  // Delivers a reading a line as it goes, and finds out too late that the page is cut.
  struct Eager {
    ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept {
      for (std::size_t at = 0; at < page.size();) {
        const std::size_t end = page.find('\n', at);
        if (end == std::string_view::npos) return ParseStatus::malformed;
        sink(Reading{.running = 1.0});
        at = end + 1;
      }
      return page.empty() ? ParseStatus::no_engine : ParseStatus::ok;
    }
  };
  CHECK(names(check_on(Eager{}, vllm_page), "all or none"));

  struct SaysOk {
    ParseStatus parse(std::string_view, ReadingSink) const noexcept { return ParseStatus::ok; }
  };
  CHECK(names(check_on(SaysOk{}, vllm_page), "all or none"));

  struct CountsPages {
    mutable double pages = 0.0;
    ParseStatus parse(std::string_view, ReadingSink sink) const noexcept {
      sink(Reading{.running = ++pages});
      return ParseStatus::ok;
    }
  };
  CHECK(names(check_on(CountsPages{}, vllm_page), "pure"));

  CHECK(names(check_on(NumberPage{}, vllm_page), "page 0 does not parse"));
}

TEST_CASE("the pin stores of the library hold the laws of pin stores") {
  const auto check = [](auto store, std::uint64_t seed) {
    CHECK(check_pin_store_laws(store, seed) == Violations{});
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    check(LocalPins{}, seed);
    check(LocalPins{{.capacity = 12}}, seed);
    check(ShardedPins<>{}, seed);
    check(ShardedPins<NullMutex>{{.capacity = 64, .shards = 4}}, seed);
    check(RendezvousPins{}, seed);
    check(FourPrimitives{}, seed);
    check(AnyPins(LocalPins{}), seed);
    check(AnyPins(RendezvousPins{}), seed);
  }
}

namespace {

enum class Fault { last_pin_wins, ignores_expected, always_unpins, forgets, mixes_up_keys };

// The four primitives with one fault.
template <Fault fault>
class FaultyPins {
 public:
  std::optional<Home> find(KeyHash key, Instant now) const {
    if (fault == Fault::forgets && ++finds_ % 50 == 0) return std::nullopt;
    return pins_.find(folded(key), now);
  }
  Home pin(KeyHash key, Home home, Instant now) {
    key = folded(key);
    if (fault == Fault::last_pin_wins) {
      if (const auto before = pins_.find(key, now)) return pins_.repin(key, *before, home, now);
    }
    return pins_.pin(key, home, now);
  }
  Home repin(KeyHash key, Home expected, Home desired, Instant now) {
    key = folded(key);
    const auto before = pins_.find(key, now);
    if (fault == Fault::ignores_expected && before) expected = *before;
    return pins_.repin(key, expected, desired, now);
  }
  bool unpin(KeyHash key, Home expected) {
    key = folded(key);
    const auto before = pins_.find(key, Instant{});
    if (fault == Fault::always_unpins && before) expected = *before;
    return pins_.unpin(key, expected);
  }

 private:
  static KeyHash folded(KeyHash key) {
    return fault == Fault::mixes_up_keys ? KeyHash{0, key.lo} : key;
  }

  FourPrimitives pins_;
  mutable int finds_ = 0;
};

template <Fault fault>
Violations check_faulty() {
  FaultyPins<fault> store;
  return check_pin_store_laws(store);
}

}  // namespace

TEST_CASE("a pin store that breaks a law is caught") {
  CHECK(names(check_faulty<Fault::last_pin_wins>(), "first pin wins"));
  CHECK(names(check_faulty<Fault::ignores_expected>(), "compare and swap"));
  CHECK(names(check_faulty<Fault::always_unpins>(), "conditional unpin"));
  CHECK(names(check_faulty<Fault::forgets>(), "found"));
  CHECK(names(check_faulty<Fault::mixes_up_keys>(), "found"));
}

TEST_CASE("a store whose turns disagree with its pins is caught") {
  // Tracks turns, but opens them at another home than find() says.
  struct TwoMinds : LocalPins {
    std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) {
      auto opened = LocalPins::open_turn(key, now, tokens);
      if (opened) ++opened->before.home.generation;
      return opened;
    }
  };
  static_assert(TracksTurns<TwoMinds>);
  TwoMinds store;
  CHECK(names(check_pin_store_laws(store), "open_turn"));
}

TEST_CASE("a store that chooses homes must stay with its choice") {
  struct Fickle : RendezvousPins {
    Home pin(KeyHash, Home home, Instant) const noexcept { return home; }
  };
  static_assert(FollowsMembership<Fickle>);
  Fickle store;
  CHECK(names(check_pin_store_laws(store), "first pin wins"));
}
