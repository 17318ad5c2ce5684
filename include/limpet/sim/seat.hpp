// SPDX-License-Identifier: Apache-2.0
//
// Seat: one user at the simulator's table, playing a session turn by turn.
//
// It knows the prompts: a turn begins with what it shares with an earlier one and goes on with text
// of its own. Earlier prompts are kept only as long as a later turn needs them. Moving a seat
// invalidates the views it has given. Cost: a copy of the chain (8 bytes a block) a turn.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <limpet/sim/front_end.hpp>
#include <limpet/sim/random.hpp>
#include <limpet/sim/token_chain.hpp>
#include <limpet/sim/workload.hpp>

namespace limpet::sim {

class Seat {
 public:
  // Requires that the session has turns.
  void begin(Session session, double due) {
    assert(!session.turns.empty());
    session_ = std::move(session);
    began_ = due;
    turn_ = 0;
    own_text_ = 1;
    for (const char c : session_.name) own_text_ = mix(own_text_ ^ static_cast<unsigned char>(c));
    earlier_.assign(session_.turns.size(), TokenChain());
    last_use_.assign(session_.turns.size(), 0);
    for (std::size_t i = 0; i < session_.turns.size(); ++i) {
      const std::int32_t from = session_.turns[i].from;
      if (from >= 0) last_use_[static_cast<std::size_t>(from)] = i;
    }
  }

  // Makes the prompt of the turn that is due, and its answer.
  void compose(std::uint32_t block_tokens) {
    const TurnPlan& turn = plan();
    shared_tokens_ = 0;
    TokenChain chain(block_tokens);
    if (turn.from >= 0) {
      const TokenChain& earlier = earlier_[static_cast<std::size_t>(turn.from)];
      const std::uint64_t kept = std::min({turn.kept, earlier.tokens(), turn.prompt_tokens});
      chain = kept == earlier.tokens() ? earlier : earlier.prefix(kept);
    }
    for (const SharedText& text : session_.shared) {
      const std::uint64_t taken = std::min(text.tokens, turn.prompt_tokens - shared_tokens_);
      if (turn.from < 0) chain.append(text.content, taken);
      shared_tokens_ += taken;
    }
    chain.append(mix(own_text_ ^ (2 * turn_)), turn.prompt_tokens - chain.tokens());
    chain.append(mix(own_text_ ^ (2 * turn_ + 1)), turn.output_tokens);
    for (std::size_t i = 0; i < turn_; ++i) {
      if (last_use_[i] == turn_) earlier_[i] = TokenChain();
    }
    tokens_ = std::move(chain);
    if (last_use_[turn_] > turn_) earlier_[turn_] = tokens_;
    main_ = session_.name;
    conversation_ = turn.agent == 0 ? main_ : main_ + "#" + std::to_string(turn.agent);
  }

  void turn_id(std::uint64_t id) noexcept { id_ = id; }

  [[nodiscard]] Arrival arrival() const noexcept {
    const TurnPlan& turn = plan();
    return {id_,
            conversation_,
            turn.agent == 0 ? std::string_view{} : std::string_view{main_},
            turn.prompt_tokens,
            shared_tokens_,
            &tokens_};
  }

  // Goes on to the next turn; false: the session is over.
  [[nodiscard]] bool next_turn() noexcept { return ++turn_ < session_.turns.size(); }

  [[nodiscard]] const TurnPlan& plan() const noexcept { return session_.turns[turn_]; }
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  [[nodiscard]] const TokenChain& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::uint32_t turn_number() const noexcept {
    return static_cast<std::uint32_t>(turn_);
  }
  [[nodiscard]] double began() const noexcept { return began_; }

 private:
  Session session_;
  double began_ = 0;
  std::size_t turn_ = 0;
  std::uint64_t id_ = 0;        // of the turn that is due
  std::uint64_t own_text_ = 0;  // what is only this session's
  std::uint64_t shared_tokens_ = 0;
  TokenChain tokens_;  // of the turn that is due
  std::vector<TokenChain> earlier_;
  std::vector<std::size_t> last_use_;  // of each turn, the last later turn that begins with it
  std::string main_;
  std::string conversation_;
};

}  // namespace limpet::sim
