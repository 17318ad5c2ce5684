// SPDX-License-Identifier: Apache-2.0
//
// TokenChain: a prompt as a prefix cache sees it, without the tokens.
//
// An engine caches whole blocks and knows a block by a hash of its tokens and of all blocks before
// it (vLLM: hash_block_tokens). Here text has no tokens, only an identity: `append(content, n)`
// adds the first n tokens of the text `content`. Equal appends give equal chains, so two
// conversations share exactly the blocks that their common beginning fills. Cost: O(blocks added),
// 8 bytes a block.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <limpet/sim/random.hpp>

namespace limpet::sim {

using BlockHash = std::uint64_t;  // of one full block and everything before it; never 0

class TokenChain {
 public:
  explicit TokenChain(std::uint32_t block_tokens = 16) noexcept : block_tokens_(block_tokens) {
    assert(block_tokens > 0);
  }

  // Appends the first `count` tokens of `content`: a second append of one content starts it again.
  void append(std::uint64_t content, std::uint64_t count) {
    std::uint64_t offset = 0;
    while (offset < count) {
      const std::uint64_t room = block_tokens_ - tokens_ % block_tokens_;
      const std::uint64_t taken = std::min(room, count - offset);
      open_ = mix(open_ ^ mix(content ^ mix((offset << 16) | taken)));
      offset += taken;
      tokens_ += taken;
      if (taken == room) close_block();
    }
  }

  // The part of this chain that another prompt shares when the two agree in their first `count`
  // tokens: whole blocks only, since a block with one different token is a different block.
  [[nodiscard]] TokenChain prefix(std::uint64_t count) const {
    assert(count <= tokens_);
    TokenChain shared(block_tokens_);
    const auto blocks = static_cast<std::ptrdiff_t>(count / block_tokens_);
    shared.blocks_.assign(blocks_.begin(), blocks_.begin() + blocks);
    shared.tokens_ = static_cast<std::uint64_t>(blocks) * block_tokens_;
    return shared;
  }

  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::uint32_t block_tokens() const noexcept { return block_tokens_; }
  [[nodiscard]] std::span<const BlockHash> blocks() const noexcept { return blocks_; }

 private:
  void close_block() {
    const BlockHash parent = blocks_.empty() ? 0 : blocks_.back();
    const BlockHash hash = mix(parent ^ mix(open_));
    blocks_.push_back(hash == 0 ? 1 : hash);
    open_ = 0;
  }

  std::vector<BlockHash> blocks_;
  std::uint64_t tokens_ = 0;
  std::uint64_t open_ = 0;  // what the unfilled last block holds so far
  std::uint32_t block_tokens_;
};

}  // namespace limpet::sim
