// SPDX-License-Identifier: Apache-2.0
//
// Recorded sessions as a workload: coding agents' traces and Mooncake's conversation trace.
//
// Closed loop: the recorded pauses are kept, the recorded times are not (workload.hpp says why).
// Sessions longer than the model's window are shortened in proportion. Reading needs the file once,
// then everything is in memory: some 100 bytes a turn. Throws std::runtime_error on a bad file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <limpet/sim/json_lines.hpp>
#include <limpet/sim/workload.hpp>

namespace limpet::sim {

struct ReplayOptions {
  std::uint64_t context_limit =
      131'072;             // tokens: longer sessions are scaled down to it as a whole
  double token_scale = 1;  // of all lengths, before that
  double think_scale = 1;  // 0: no pauses
  double think_limit = std::numeric_limits<double>::infinity();  // s: people go home
};

// Agent sessions, one a line: {"session": name, "tools": tokens, "system": tokens, "turns": [{"in",
// "out": tokens, "from": index of the earlier turn whose prompt this one begins with or -1, "kept":
// tokens of that, "think": s, "agent": number, if not of the main line}]}. A prompt that keeps all
// of an earlier one is taken to go on with that one's answer.
[[nodiscard]] inline std::vector<Session> read_agent_sessions(const std::string& path,
                                                              const ReplayOptions& options = {}) {
  std::vector<Session> sessions;
  read_json_lines(path, [&](const Json& line) {
    double longest = 1;
    for (const Json& turn : line.at("turns").items()) {
      longest = std::max(longest, turn.at("in").number() + turn.at("out").number());
    }
    const double scale =
        std::min(options.token_scale, static_cast<double>(options.context_limit - 2) / longest);
    const auto scaled = [scale](const Json& tokens) {
      return std::max<std::uint64_t>(
          1, static_cast<std::uint64_t>(static_cast<double>(tokens.count()) * scale));
    };
    Session session{line.at("session").text(),
                    {{0x31, scaled(line.at("tools"))}, {0x32, scaled(line.at("system"))}},
                    {}};
    const std::vector<Json>& turns = line.at("turns").items();
    for (const Json& recorded : turns) {
      TurnPlan turn;
      turn.prompt_tokens = scaled(recorded.at("in"));
      turn.output_tokens = scaled(recorded.at("out"));
      const double pause = recorded.at("think").number();
      if (pause < 0) throw std::runtime_error("a pause is negative");
      turn.think = std::min(pause * options.think_scale, options.think_limit);
      if (!recorded.get("agent").is_null()) {
        turn.agent = static_cast<std::uint16_t>(recorded.get("agent").count());
      }
      const double begins_with = recorded.at("from").number();
      if (!(begins_with >= -1 && begins_with < static_cast<double>(session.turns.size()))) {
        throw std::runtime_error("a turn begins with none of the earlier ones");
      }
      turn.from = static_cast<std::int32_t>(begins_with);
      if (turn.from >= 0) {
        const auto from = static_cast<std::size_t>(turn.from);
        const auto kept = static_cast<double>(recorded.at("kept").count());
        constexpr double block = 64;  // kept tokens are recorded in whole blocks
        const TurnPlan& earlier = session.turns[from];
        turn.kept = kept + block > turns[from].at("in").number()
                        ? earlier.prompt_tokens + earlier.output_tokens
                        : static_cast<std::uint64_t>(kept * scale);
      }
      session.turns.push_back(turn);
    }
    sessions.push_back(std::move(session));
  });
  return sessions;
}

// Mooncake's trace (kvcache-ai/Mooncake, FAST25-release), one request a line: {"timestamp": ms,
// "input_length", "output_length", "hash_ids": of blocks of 512 tokens}. Requests are joined to
// sessions by what they share: one that holds the last full block of an earlier one continues it;
// the first block, which all requests of that trace share, tells nothing. The time between them,
// which includes the service that nobody recorded, counts as the pause.
[[nodiscard]] inline std::vector<Session> read_mooncake_sessions(
    const std::string& path, const ReplayOptions& options = {}) {
  constexpr std::uint64_t block = 512;
  struct Last {
    double at;
    std::vector<std::uint64_t> ids;
  };
  std::vector<Session> sessions;
  std::vector<Last> last;                           // request of each session
  std::map<std::uint64_t, std::size_t> session_of;  // by the last full block of its last request
  read_json_lines(path, [&](const Json& line) {
    TurnPlan turn;
    turn.prompt_tokens = std::min(line.at("input_length").count(), options.context_limit - 2);
    turn.output_tokens = std::max<std::uint64_t>(1, line.at("output_length").count());
    turn.output_tokens = std::min(turn.output_tokens, options.context_limit - turn.prompt_tokens);
    const double at = line.at("timestamp").number() / 1e3;
    std::vector<std::uint64_t> ids;
    for (const Json& id : line.at("hash_ids").items()) ids.push_back(id.count());
    const std::size_t full = std::min<std::size_t>(turn.prompt_tokens / block, ids.size());
    std::size_t session = sessions.size();
    for (std::size_t i = full; i-- > 1 && session == sessions.size();) {
      if (const auto known = session_of.find(ids[i]); known != session_of.end()) {
        session = known->second;
      }
    }
    if (session == sessions.size()) {
      Session fresh{"mooncake-" + std::to_string(session), {}, {}};
      for (std::size_t i = 0; i < full; ++i) fresh.shared.push_back({(ids[i] << 8) | 0x41, block});
      sessions.push_back(std::move(fresh));
      last.emplace_back();
    } else {
      const Last& before = last[session];
      const auto [ours, theirs] =
          std::mismatch(ids.begin(), ids.end(), before.ids.begin(), before.ids.end());
      turn.from = static_cast<std::int32_t>(sessions[session].turns.size()) - 1;
      turn.kept =
          std::min(static_cast<std::uint64_t>(ours - ids.begin()) * block, turn.prompt_tokens);
      turn.think = std::min((at - before.at) * options.think_scale, options.think_limit);
    }
    if (full > 1) session_of[ids[full - 1]] = session;
    sessions[session].turns.push_back(turn);
    last[session] = {at, std::move(ids)};
  });
  return sessions;
}

// Hands out sessions that are already there, each once, in their order.
class ReplaySessions {
 public:
  explicit ReplaySessions(std::vector<Session> sessions) : sessions_(std::move(sessions)) {}

  [[nodiscard]] std::optional<Session> next() {
    if (next_ == sessions_.size()) return std::nullopt;
    return sessions_[next_++];
  }

 private:
  std::vector<Session> sessions_;
  std::size_t next_ = 0;
};

static_assert(SessionSource<ReplaySessions>);

}  // namespace limpet::sim
