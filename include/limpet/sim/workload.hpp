// SPDX-License-Identifier: Apache-2.0
//
// What the users of a fleet do: sessions of turns, each sent when the answer before it has come and
// the user or the tool has thought (a closed loop: replaying absolute times would change which
// policy wins, since a slow fleet is then sent the same load as a fast one).
//
// A SessionSource hands out sessions one after the other: the published load ladder and synthetic
// coding agents here, recorded ones in replay.hpp. Deterministic for a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <limpet/sim/random.hpp>

namespace limpet::sim {

struct TurnPlan {
  // The prompt begins with the first `kept` tokens of an earlier turn of the session, counting its
  // prompt and then its answer; without one it begins with the session's shared text.
  std::int32_t from = -1;
  std::uint64_t kept = 0;
  std::uint64_t prompt_tokens = 1;
  std::uint64_t output_tokens = 1;
  double think = 0;         // s between the answer before and this turn
  std::uint16_t agent = 0;  // 0: the main line, others: its sub-agents, conversations of their own
};

struct SharedText {  // equal contents are equal tokens, whoever sends them
  std::uint64_t content = 0;
  std::uint64_t tokens = 0;
};

struct Session {
  std::string name;
  std::vector<SharedText> shared;  // tools and system prompt
  std::vector<TurnPlan> turns;
};

template <class S>
concept SessionSource = requires(S source) {
  { source.next() } -> std::same_as<std::optional<Session>>;  // nothing: no more
};

// The published ladder: a coding agent's session of six turns without pauses.
struct LadderOptions {
  std::uint32_t shared = 3'500;     // tokens of the system prompt
  std::uint32_t first_min = 7'150;  // of the first message
  std::uint32_t first_max = 7'450;
  std::uint32_t added = 400;  // by each further turn
  std::uint32_t turns = 6;
  std::uint32_t output_min = 256;
  std::uint32_t output_max = 256;
  double think_mean = 0;  // s, exponential
};

class LadderSessions {
 public:
  explicit LadderSessions(std::uint64_t seed, LadderOptions options = {})
      : options_(options), random_(seed) {}

  [[nodiscard]] std::optional<Session> next() {
    Session session{"ladder-" + std::to_string(number_++), shared(), {}};
    std::uint64_t said = 0;
    for (std::uint32_t i = 0; i < options_.turns; ++i) {
      TurnPlan turn;
      turn.from = static_cast<std::int32_t>(i) - 1;
      turn.kept = said;
      turn.prompt_tokens =
          i == 0 ? options_.shared + random_.between(options_.first_min, options_.first_max)
                 : said + options_.added;
      turn.output_tokens = random_.between(options_.output_min, options_.output_max);
      if (i > 0 && options_.think_mean > 0) {
        turn.think = -options_.think_mean * std::log1p(-random_.uniform());
      }
      said = turn.prompt_tokens + turn.output_tokens;
      session.turns.push_back(turn);
    }
    return session;
  }

  // What all its sessions begin with.
  [[nodiscard]] std::vector<SharedText> shared() const { return {{system_text, options_.shared}}; }

 private:
  static constexpr std::uint64_t system_text = 0x11;

  LadderOptions options_;
  Random random_;
  std::uint64_t number_ = 0;
};

// Synthetic coding agents, drawn from quantiles of 710 real Claude Code sessions with 49,334 turns.
struct AgentOptions {
  double token_scale = 1;  // of every length: a model with a smaller window gets shorter texts
  double think_scale = 1;  // 0: no pauses
  std::uint64_t context_limit = 131'072;  // tokens: a session ends before its prompt outgrows this
  std::uint32_t shared_tools = 12'262;    // tokens, median of the recordings
  std::uint32_t shared_system = 2'773;
};

class AgentSessions {
 public:
  explicit AgentSessions(std::uint64_t seed, AgentOptions options = {})
      : options_(options), random_(seed) {}

  [[nodiscard]] std::optional<Session> next() {
    Session session{"agent-" + std::to_string(number_++),
                    {{0x21, scaled(options_.shared_tools)}, {0x22, scaled(options_.shared_system)}},
                    {}};
    const auto turns = static_cast<std::uint32_t>(turns_.draw(random_));
    std::uint64_t said = session.shared[0].tokens + session.shared[1].tokens;
    for (std::uint32_t i = 0; i < turns; ++i) {
      TurnPlan turn;
      turn.from = static_cast<std::int32_t>(i) - 1;
      turn.kept = i == 0 ? 0 : said;
      turn.prompt_tokens = said + scaled(added_.draw(random_));
      turn.output_tokens = scaled(output_.draw(random_));
      const Quantiles& pause = random_.uniform() < share_of_tools ? after_tool_ : after_human_;
      if (i > 0) turn.think = options_.think_scale * pause.draw(random_);
      if (turn.prompt_tokens + turn.output_tokens > options_.context_limit) {
        if (i > 0) break;
        turn.output_tokens = std::min(turn.output_tokens, options_.context_limit / 2);
        turn.prompt_tokens = options_.context_limit - turn.output_tokens;
      }
      said = turn.prompt_tokens + turn.output_tokens;
      session.turns.push_back(turn);
    }
    return session;
  }

 private:
  static constexpr double share_of_tools = 0.85;

  [[nodiscard]] std::uint64_t scaled(double tokens) const noexcept {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(tokens * options_.token_scale));
  }

  AgentOptions options_;
  Random random_;
  std::uint64_t number_ = 0;
  // The ends, which the recordings' quantiles do not give, are their 0th and about 99th percentile.
  Quantiles turns_{{{0, 3}, {0.10, 7}, {0.25, 18}, {0.50, 45}, {0.75, 94}, {0.90, 156}, {1, 342}}};
  Quantiles added_{{{0, 60}, {0.25, 372}, {0.50, 705}, {0.75, 1'672}, {0.90, 4'064}, {1, 30'000}}};
  Quantiles output_{{{0, 40}, {0.50, 216}, {0.90, 899}, {1, 3'700}}};
  Quantiles after_tool_{{{0, 2}, {0.50, 9}, {0.75, 19}, {0.90, 74}, {0.99, 924}, {1, 2'000}}};
  Quantiles after_human_{{{0, 10}, {0.50, 100}, {0.75, 347}, {0.90, 1'294}, {1, 4'000}}};
};

static_assert(SessionSource<LadderSessions>);
static_assert(SessionSource<AgentSessions>);

}  // namespace limpet::sim
