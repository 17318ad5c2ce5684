// SPDX-License-Identifier: Apache-2.0
//
// Policies behind one type each, chosen at run time, and AnyRouter, the Router<> of those.
//
// Use it where a configuration file or another language picks the policies, so that one
// instantiation serves every choice; where they are known at compile time, Router<> is faster. Each
// class models the concept of what it holds and adds a virtual call an operation, and one
// allocation when it is made. Decisions equal those of the Router<> of the same policies
// (tests/any.test.cpp). As thread-safe as what is inside.
#pragma once

#include <limpet/clock.hpp>
#include <limpet/concepts.hpp>
#include <limpet/detail/any_pins.hpp>
#include <limpet/metrics/vllm.hpp>
#include <limpet/overflow/spill_above.hpp>
#include <limpet/router.hpp>
#include <limpet/scorers/weighted.hpp>

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

namespace limpet {

class AnyScorer {
 public:
  // What is inside is not known where a router is compiled, so AnyRouter always counts prefill.
  static constexpr bool needs_prefill = true;

  AnyScorer() : AnyScorer(WeightedLoad{}) {}

  template <class Scorer>
    requires(!std::same_as<Scorer, AnyScorer> && LoadScorer<Scorer>)
  explicit AnyScorer(Scorer scorer)
      : scorer_(std::make_unique<const Model<Scorer>>(std::move(scorer))) {}

  [[nodiscard]] double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept {
    return scorer_->score(load, context);
  }

  // Returns: no terms where the scorer does not explain itself.
  [[nodiscard]] ScoreTerms terms(const ReplicaLoad& load, const ScoreContext& context) const {
    return scorer_->terms(load, context);
  }

  // Throws: as the scorer's own validate(), if it has one.
  void validate() const { scorer_->validate(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual double score(const ReplicaLoad&, const ScoreContext&) const noexcept = 0;
    virtual ScoreTerms terms(const ReplicaLoad&, const ScoreContext&) const = 0;
    virtual void validate() const = 0;
  };

  template <LoadScorer Scorer>
  struct Model final : Interface {
    explicit Model(Scorer inside) : scorer(std::move(inside)) {}

    double score(const ReplicaLoad& load, const ScoreContext& context) const noexcept override {
      return scorer.score(load, context);
    }
    ScoreTerms terms(const ReplicaLoad& load, const ScoreContext& context) const override {
      if constexpr (ExplainsScore<Scorer>) return scorer.terms(load, context);
      return {};
    }
    void validate() const override { detail::validate(scorer); }

    Scorer scorer;
  };

  std::unique_ptr<const Interface> scorer_;
};

class AnyOverflow {
 public:
  static constexpr bool needs_prefill = true;

  AnyOverflow() : AnyOverflow(SpillAbove{}) {}

  template <class Rule>
    requires(!std::same_as<Rule, AnyOverflow> && OverflowRule<Rule>)
  explicit AnyOverflow(Rule rule) : rule_(std::make_unique<const Model<Rule>>(std::move(rule))) {}

  [[nodiscard]] bool overloaded(const ReplicaLoad& home) const noexcept {
    return rule_->overloaded(home);
  }
  [[nodiscard]] Verdict decide(const OverflowView& view) const noexcept {
    return rule_->decide(view);
  }
  void validate() const { rule_->validate(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual bool overloaded(const ReplicaLoad&) const noexcept = 0;
    virtual Verdict decide(const OverflowView&) const noexcept = 0;
    virtual void validate() const = 0;
  };

  template <OverflowRule Rule>
  struct Model final : Interface {
    explicit Model(Rule inside) : rule(std::move(inside)) {}

    bool overloaded(const ReplicaLoad& home) const noexcept override {
      return rule.overloaded(home);
    }
    Verdict decide(const OverflowView& view) const noexcept override { return rule.decide(view); }
    void validate() const override { detail::validate(rule); }

    Rule rule;
  };

  std::unique_ptr<const Interface> rule_;
};

class AnyMetricsParser {
 public:
  AnyMetricsParser() : AnyMetricsParser(VllmMetrics{}) {}

  template <class Parser>
    requires(!std::same_as<Parser, AnyMetricsParser> && MetricsParser<Parser>)
  explicit AnyMetricsParser(Parser parser)
      : parser_(std::make_unique<const Model<Parser>>(std::move(parser))) {}

  [[nodiscard]] ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept {
    return parser_->parse(page, sink);
  }
  void validate() const { parser_->validate(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual ParseStatus parse(std::string_view, ReadingSink) const noexcept = 0;
    virtual void validate() const = 0;
  };

  template <MetricsParser Parser>
  struct Model final : Interface {
    explicit Model(Parser inside) : parser(std::move(inside)) {}

    ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept override {
      return parser.parse(page, sink);
    }
    void validate() const override { detail::validate(parser); }

    Parser parser;
  };

  std::unique_ptr<const Interface> parser_;
};

class AnyClock {
 public:
  AnyClock() : AnyClock(SteadyClock{}) {}

  template <class ClockT>
    requires(!std::same_as<ClockT, AnyClock> && Clock<ClockT>)
  explicit AnyClock(ClockT clock)
      : clock_(std::make_unique<const Model<ClockT>>(std::move(clock))) {}

  [[nodiscard]] Instant now() const noexcept { return clock_->now(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual Instant now() const noexcept = 0;
  };

  template <Clock ClockT>
  struct Model final : Interface {
    explicit Model(ClockT inside) : clock(std::move(inside)) {}
    Instant now() const noexcept override { return clock.now(); }
    ClockT clock;
  };

  std::unique_ptr<const Interface> clock_;
};

static_assert(ExplainsScore<AnyScorer>);
static_assert(OverflowRule<AnyOverflow>);
static_assert(MetricsParser<AnyMetricsParser>);
static_assert(Clock<AnyClock>);

using AnyRouter = Router<AnyPins, AnyScorer, AnyOverflow, AnyMetricsParser, AnyClock>;

}  // namespace limpet
