// SPDX-License-Identifier: Apache-2.0
//
// The sessions that replay.cpp plays: read from a recording, or generated. sessions.py is its twin:
// equal files and equal seeds give equal sessions.
//
// A recording has one session a line, e.g.
//   {"session": "a", "turns": [{"at": 0, "in": 900, "out": 80, "from": -1, "kept": 0, "think": 0,
//    "api": 2.1}, {"at": 9.5, "in": 1200, "out": 70, "from": 0, "kept": 896, "think": 7.4, ...}]}
// where `from` is the earlier turn with which the prompt shares its first `kept` tokens (-1: none),
// `think` the seconds since the answer before, `api` the seconds the turn took, and `agent` the
// number of a sub-agent (absent: the main line). Other members are ignored.
#pragma once

#include <limpet/sim/json_lines.hpp>
#include <limpet/sim/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace replay {

constexpr std::int32_t none = -1;

struct Turn {
  std::int32_t from = none;  // the earlier turn whose prompt this one continues
  std::uint64_t kept = 0;    // tokens that both prompts begin with
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::int64_t think_ms = 0;          // since the answer before it in its conversation
  std::int64_t service_ms = 0;        // from being sent to being answered
  std::size_t conversation = 0;       // of Session::keys
  std::int32_t after = none;          // a conversation's first turn is sent `delay_ms` after the
  std::int64_t delay_ms = 0;          // sending of this one; none: with the session
  std::int32_t next = none;           // of the same conversation
  std::vector<std::int32_t> begun{};  // turns whose `after` is this one
};

// The main line and its sub-agents are conversations of their own.
struct Session {
  std::string name;
  std::vector<std::string> keys{};
  std::vector<Turn> turns{};

  // The index of that agent's key; 0 is the main line.
  [[nodiscard]] std::size_t conversation(std::uint64_t agent) {
    const std::string key = agent == 0 ? name : name + "/agent-" + std::to_string(agent);
    const auto found = std::find(keys.begin(), keys.end(), key);
    const auto index = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) keys.push_back(key);
    return index;
  }

  // Effects: fills in what follows from the order of the turns.
  void link() {
    std::map<std::size_t, std::int32_t> last;  // turn of each conversation
    for (std::int32_t i = 0; i < std::ssize(turns); ++i) {
      Turn& turn = turns[static_cast<std::size_t>(i)];
      if (const auto before = last.find(turn.conversation); before != last.end()) {
        turns[static_cast<std::size_t>(before->second)].next = i;
        turn.after = none;
      } else if (turn.after != none) {
        turns[static_cast<std::size_t>(turn.after)].begun.push_back(i);
      }
      last[turn.conversation] = i;
    }
  }
};

namespace detail {

using limpet::sim::Json;

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

[[nodiscard]] inline std::int64_t whole(const Json& object, const std::string& name) {
  const double number = object.at(name).number();
  require(std::floor(number) == number && std::abs(number) <= 1e12, name + " is no whole number");
  return static_cast<std::int64_t>(number);
}

[[nodiscard]] inline std::uint64_t tokens(const Json& object, const std::string& name) {
  const std::int64_t number = whole(object, name);
  require(number >= 0, name + " is negative");
  return static_cast<std::uint64_t>(number);
}

[[nodiscard]] inline std::int64_t milliseconds(const Json& object, const std::string& name) {
  const double seconds = object.at(name).number();
  require(seconds >= 0 && seconds <= 1e9, name + " is no time in seconds");
  return static_cast<std::int64_t>(std::floor(seconds * 1000 + 0.5));
}

[[nodiscard]] inline Turn read_turn(const Json& json, Session& session) {
  Turn turn{.kept = tokens(json, "kept"),
            .prompt_tokens = tokens(json, "in"),
            .output_tokens = tokens(json, "out"),
            .think_ms = milliseconds(json, "think"),
            .service_ms = milliseconds(json, "api")};
  turn.conversation = session.conversation(json.get("agent").is_null() ? 0 : tokens(json, "agent"));
  const std::int64_t from = whole(json, "from");
  require(from >= none && from < std::ssize(session.turns), "from is no earlier turn");
  turn.from = static_cast<std::int32_t>(from);
  const std::uint64_t most =
      from == none ? 0
                   : std::min(turn.prompt_tokens,
                              session.turns[static_cast<std::size_t>(from)].prompt_tokens);
  require(turn.kept <= most, "kept is more than both prompts can share");
  return turn;
}

[[nodiscard]] inline Session read_session(const Json& json) {
  Session session{.name = json.at("session").text()};
  (void)session.conversation(0);
  std::int64_t at = 0;
  for (const Json& turn : json.at("turns").items()) {
    try {
      const std::int64_t before = std::exchange(at, milliseconds(turn, "at"));
      require(at >= before, "at goes back");
      session.turns.push_back(read_turn(turn, session));
      session.turns.back().after = static_cast<std::int32_t>(std::ssize(session.turns) - 2);
      session.turns.back().delay_ms = at - before;
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("turn " + std::to_string(session.turns.size()) + ": " +
                               error.what());
    }
  }
  require(!session.turns.empty(), "the session has no turns");
  session.link();
  return session;
}

}  // namespace detail

// Throws: std::runtime_error that names file and line.
[[nodiscard]] inline std::vector<Session> read_sessions(const std::string& path) {
  std::vector<Session> sessions;
  std::set<std::string> names;
  limpet::sim::read_json_lines(path, [&](const limpet::sim::Json& line) {
    sessions.push_back(detail::read_session(line));
    detail::require(names.insert(sessions.back().name).second, "two sessions have this name");
  });
  if (sessions.empty()) throw std::runtime_error(path + ": holds no session");
  return sessions;
}

// Coding agents, drawn from quantiles of 710 recorded Claude Code sessions with 49,334 turns.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::vector<Session> sessions(std::size_t count) {
    std::vector<Session> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      all[i].name = "generated-" + std::to_string(i);
      const std::uint64_t turns = whole(turns_);
      add_conversation(all[i], 0, turns, shared_tokens + whole(first_message_));
      if (uniform() < share_with_agents) add_agents(all[i]);
      all[i].link();
    }
    return all;
  }

 private:
  using Quantiles = limpet::sim::Quantiles;

  static constexpr std::uint64_t shared_tokens = 15'035;  // tools and system text
  static constexpr std::uint64_t agent_tokens = 10'200;   // a sub-agent's first prompt
  static constexpr std::uint64_t context_limit = 180'000;
  static constexpr std::uint64_t block = 64;  // tokens; prefixes are shared in whole ones
  static constexpr double share_with_agents = 0.025;
  static constexpr double share_after_tool = 0.85;

  void add_conversation(Session& session, std::uint64_t agent, std::uint64_t turns,
                        std::uint64_t first_prompt) {
    const std::size_t conversation = session.conversation(agent);
    for (std::uint64_t i = 0; i < turns; ++i) {
      Turn turn{.prompt_tokens = first_prompt, .conversation = conversation};
      if (i > 0) {
        const Turn& before = session.turns.back();
        turn.from = static_cast<std::int32_t>(std::ssize(session.turns) - 1);
        turn.kept = before.prompt_tokens / block * block;
        turn.prompt_tokens = turn.kept + whole(added_);  // the answer before is part of it
        if (turn.prompt_tokens > context_limit) {        // the client sums up and starts over
          turn.kept = std::min(turn.kept, shared_tokens / block * block);
          turn.prompt_tokens = first_prompt;
        }
        turn.think_ms =
            milliseconds((uniform() < share_after_tool ? after_tool_ : after_human_).at(uniform()));
      }
      turn.output_tokens = whole(output_);
      turn.service_ms = milliseconds((1.8 + static_cast<double>(turn.output_tokens) / 60.0) *
                                     spread_.at(uniform()));
      session.turns.push_back(turn);
    }
  }

  void add_agents(Session& session) {
    const std::size_t main_line = session.turns.size();
    const std::uint64_t agents = 1 + below(7);
    for (std::uint64_t agent = 1; agent <= agents; ++agent) {
      const std::size_t first = session.turns.size();
      add_conversation(session, agent, whole(agent_turns_), agent_tokens);
      session.turns[first].after = static_cast<std::int32_t>(below(main_line));
      session.turns[first].delay_ms = milliseconds(after_human_.at(uniform()));
    }
  }

  // splitmix64: the same numbers in C++ and Python.
  [[nodiscard]] double uniform() noexcept {
    const std::uint64_t mixed = limpet::sim::mix(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return static_cast<double>(mixed >> 11) * 0x1.0p-53;
  }
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(bound));
  }
  [[nodiscard]] std::uint64_t whole(const Quantiles& quantiles) noexcept {
    return static_cast<std::uint64_t>(quantiles.at(uniform()));
  }
  [[nodiscard]] static std::int64_t milliseconds(double seconds) noexcept {
    return static_cast<std::int64_t>(std::floor(seconds * 1000 + 0.5));
  }

  std::uint64_t state_;
  Quantiles turns_{{{0, 3}, {0.1, 7}, {0.25, 18}, {0.5, 46}, {0.75, 94}, {0.9, 160}, {1, 560}}};
  Quantiles agent_turns_{{{0, 2}, {0.1, 5}, {0.5, 11}, {0.9, 17}, {1, 24}}};
  Quantiles first_message_{{{0, 240}, {0.1, 1'460}, {0.5, 7'270}, {0.75, 89'400}, {1, 150'000}}};
  Quantiles added_{{{0, 60}, {0.25, 372}, {0.5, 704}, {0.75, 1'660}, {0.9, 3'910}, {1, 30'000}}};
  Quantiles output_{{{0, 40}, {0.5, 216}, {0.9, 898}, {0.99, 3'687}, {1, 8'000}}};
  Quantiles after_tool_{{{0, 2}, {0.5, 9}, {0.75, 19}, {0.9, 72}, {0.99, 916}, {1, 20'000}}};
  Quantiles after_human_{
      {{0, 5}, {0.5, 93}, {0.75, 334}, {0.9, 1'247}, {0.99, 6'661}, {1, 72'000}}};
  Quantiles spread_{{{0, 0.3}, {0.1, 0.54}, {0.5, 1.02}, {0.9, 1.47}, {1, 3}}};  // of service time
};

}  // namespace replay
