// SPDX-License-Identifier: Apache-2.0
//
// Learnt: what the gate learns of a pool by what its engines say: how large contexts and answers
// are, what all prompts share, how many turns a stay has, how long reading and pauses take.
//
// Slow means, and quantiles of the last few; O(1) a turn but for a sort of 16 or 64 numbers now and
// then. Not thread-safe: the gate locks.
#pragma once

#include <limpet/gate/options.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace limpet::detail {

class Learnt {
 public:
  explicit Learnt(const GateOptions& options) : options_(options), grace_(options.grace) {}

  // How long a resident keeps its place between two turns: half as long again as nine of ten pauses
  // took, and at most options.grace. Those that outlast it are not seen to end, so what is learnt
  // leans to short ones; the half is there to let it grow. That is for a conversation of the usual
  // size: a larger one takes longer to be read again, so it is worth its place for longer, in
  // proportion. `own_tokens`: what it counts for.
  [[nodiscard]] Duration grace_of(std::uint64_t own_tokens) const noexcept {
    if (context_ == 0.0) return grace_;
    const double larger =
        std::max(1.0, static_cast<double>(own_tokens) / static_cast<double>(own(context_)));
    const double grace = larger * static_cast<double>(grace_.count());
    const bool fits = grace < static_cast<double>(Duration::max().count());
    return fits ? Duration(static_cast<Duration::rep>(grace)) : Duration::max();
  }

  // Turns that a stay has, usually.
  [[nodiscard]] double stay_turns() const noexcept { return stay_turns_; }

  [[nodiscard]] std::uint64_t shared() const noexcept {
    return options_.shared_prefix_tokens.value_or(learnt_shared_);
  }

  // What a turn's conversation counts for by the turn's end. `tokens` of the prompt; 0: unknown.
  [[nodiscard]] std::uint64_t need_of(std::uint64_t tokens) const noexcept {
    return own((tokens != 0 ? static_cast<double>(tokens) : context_) + answer_);
  }

  // What the engine may have said of a turn of which it said nothing.
  [[nodiscard]] Usage guess(std::uint64_t prompt_tokens) const noexcept {
    const auto answer = static_cast<std::uint64_t>(answer_);
    if (prompt_tokens != 0) return {prompt_tokens, std::nullopt, answer};
    return {std::max<std::uint64_t>(1, static_cast<std::uint64_t>(context_)), std::nullopt, 0};
  }

  [[nodiscard]] std::uint64_t own(double tokens) const noexcept {
    return static_cast<std::uint64_t>(std::max(1.0, tokens - static_cast<double>(shared())));
  }

  // Tokens that a conversation grows by from turn to turn.
  [[nodiscard]] std::uint64_t growth() const noexcept {
    return static_cast<std::uint64_t>(growth_);
  }

  // How long nobody has to make way on a replica after one has come in there: twice what a history
  // takes to be read (a stay's first turn against the others), so that at least half of its time is
  // left to those inside; at most a fifth of max_wait, or that could not be kept.
  [[nodiscard]] Duration respite() const noexcept {
    if (first_turn_ == 0.0 || later_turn_ == 0.0) return {};
    const double reading = std::max(0.0, first_turn_ - later_turn_);
    return std::min(Duration(static_cast<Duration::rep>(2.0 * reading)), options_.max_wait / 5);
  }

  // Learns from what the engine said of a turn; `before` is the conversation's context until then,
  // 0 where that is not known; `first_ever`: nobody had seen the conversation.
  void learn(const Usage& usage, std::uint64_t before, bool first_ever) {
    if (usage.prompt_tokens == 0) return;
    const std::uint64_t context = usage.prompt_tokens + usage.completion_tokens;
    follow(context_, static_cast<double>(context));
    follow(answer_, static_cast<double>(usage.completion_tokens));
    if (before != 0 && context > before) follow(growth_, static_cast<double>(context - before));
    if (first_ever && usage.cached_tokens && !options_.shared_prefix_tokens) {
      reused_[reused_next_++ % reused_.size()] = *usage.cached_tokens;
      auto seen = reused_;
      const auto end = seen.begin() + known(reused_next_, seen.size());
      std::sort(seen.begin(), end);
      learnt_shared_ = *(seen.begin() + (end - seen.begin() - 1) / 2);
    }
  }

  void learn_stay(std::uint32_t turns) noexcept {
    if (turns > 0) follow(stay_turns_, static_cast<double>(turns));
  }

  void learn_turn(Duration took, bool first_of_stay) noexcept {
    follow(first_of_stay ? first_turn_ : later_turn_, static_cast<double>(took.count()));
  }

  void learn_pause(Duration pause) {
    pauses_[pauses_seen_++ % pauses_.size()] = pause;
    if (pauses_seen_ % 16 != 0) return;
    auto last = pauses_;
    const auto end = last.begin() + known(pauses_seen_, last.size());
    const auto ninth = last.begin() + (end - last.begin()) * 9 / 10;
    std::nth_element(last.begin(), ninth, end);
    grace_ = std::min(options_.grace, *ninth + *ninth / 2 + std::chrono::milliseconds(100));
  }

 private:
  static void follow(double& mean, double value) noexcept {
    mean += mean == 0.0 ? value : (value - mean) / 16.0;
  }

  [[nodiscard]] static std::ptrdiff_t known(std::size_t seen, std::size_t kept) noexcept {
    return static_cast<std::ptrdiff_t>(std::min(seen, kept));
  }

  const GateOptions& options_;
  Duration grace_;
  std::array<Duration, 64> pauses_{};  // the last ones
  std::size_t pauses_seen_ = 0;
  double context_ = 0;  // tokens, a slow mean of what the engines told, as the next two
  double answer_ = 0;
  double growth_ = 0;
  double stay_turns_ = 0;
  double first_turn_ = 0;  // ns, as the next
  double later_turn_ = 0;
  std::uint64_t learnt_shared_ = 0;
  std::array<std::uint64_t, 16> reused_{};  // tokens, of the last first turns
  std::size_t reused_next_ = 0;
};

}  // namespace limpet::detail
