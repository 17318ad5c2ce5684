// SPDX-License-Identifier: Apache-2.0
//
// PrefixIndex: a front end's guess of what each replica has cached, from the prompts it sent there.
//
// What prefix-aware routers keep (a radix tree or hashes of blocks), bounded by the cache's size,
// and as wrong as theirs about what the engine evicts. Two generations of a hash set stand for
// least recently used: what was not seen during a whole generation is forgotten. O(blocks) a
// prompt.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/front_end.hpp>
#include <limpet/sim/token_chain.hpp>

namespace limpet::sim {

class PrefixIndex {
 public:
  void start(std::span<const EngineProfile> fleet) {
    for (const EngineProfile& profile : fleet) {
      known_.emplace_back();
      known_.back().limit = profile.kv_tokens / profile.block_tokens / 2 + 1;
    }
  }

  // Tokens at the beginning of the prompt that the replica is believed to have.
  [[nodiscard]] std::uint64_t matched(const Arrival& turn, std::size_t replica) const {
    const std::span<const BlockHash> blocks = prompt_blocks(turn);
    const auto end = std::find_if(blocks.begin(), blocks.end(), [&](BlockHash hash) {
      return !known_[replica].recent.contains(hash) && !known_[replica].older.contains(hash);
    });
    return static_cast<std::uint64_t>(end - blocks.begin()) * turn.tokens->block_tokens();
  }

  // The prompt is sent there, so it will be cached there.
  void sent(const Arrival& turn, std::size_t replica) {
    Known& known = known_[replica];
    for (const BlockHash hash : prompt_blocks(turn)) {
      known.recent.insert(hash);
      if (known.recent.size() >= known.limit) known.older = std::exchange(known.recent, {});
    }
  }

  [[nodiscard]] std::size_t size(std::size_t replica) const noexcept {
    return known_[replica].recent.size() + known_[replica].older.size();
  }

 private:
  struct Known {
    std::unordered_set<BlockHash> recent;
    std::unordered_set<BlockHash> older;
    std::size_t limit = 1;
  };

  // What a front end can see of the chain: the prompt, not the answer.
  [[nodiscard]] static std::span<const BlockHash> prompt_blocks(const Arrival& turn) {
    return turn.tokens->blocks().first(turn.prompt_tokens / turn.tokens->block_tokens());
  }

  std::vector<Known> known_;
};

}  // namespace limpet::sim
