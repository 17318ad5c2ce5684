// SPDX-License-Identifier: Apache-2.0
//
// BlockCache: the KV blocks of one engine and which of them a later prompt can reuse.
//
// The rules are those of vLLM's BlockPool (vllm/v1/core/block_pool.py, read in July 2026): a block
// that nobody holds stays findable and waits in the free queue until its memory is needed; the
// queue is in the order of freeing; a request gives its blocks back tail first, so that the end of
// a prompt is lost before its beginning; a block without a hash goes to the front, since nobody can
// hit it. Equal blocks are not merged: two requests that compute one text at once hold two copies,
// and the older copy is the one found. Cost: O(1) a block for everything. Not thread-safe.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <limpet/sim/token_chain.hpp>

namespace limpet::sim {

using BlockId = std::uint32_t;

class BlockCache {
 public:
  explicit BlockCache(std::uint32_t blocks) : blocks_(blocks + std::size_t{1}), end_(blocks) {
    assert(blocks > 0);
    std::size_t slots = 8;
    while (slots < 2 * std::size_t{blocks}) slots *= 2;
    index_.assign(slots, Slot{});
    blocks_[end_].next = blocks_[end_].previous = end_;
    for (BlockId id = 0; id < blocks; ++id) insert_before(end_, id);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return end_; }
  [[nodiscard]] std::uint32_t free() const noexcept {
    return free_;
  }  // held by nobody, cached or not
  [[nodiscard]] std::uint64_t evictions() const noexcept { return evictions_; }
  [[nodiscard]] bool held(BlockId id) const noexcept { return blocks_[id].holders > 0; }

  // The blocks that hold the longest prefix of `chain`, into `found` (which is emptied first).
  // Changes nothing: take them with hold().
  void find(std::span<const BlockHash> chain, std::vector<BlockId>& found) const {
    found.clear();
    for (const BlockHash hash : chain) {
      const BlockId id = index_[slot_of(hash)].id;
      if (id == none) return;
      found.push_back(id);
    }
  }

  // One more holder for each; what was idle leaves the free queue.
  void hold(std::span<const BlockId> ids) noexcept {
    for (const BlockId id : ids) {
      if (blocks_[id].holders++ == 0) unlink(id);
    }
  }

  // The block that has been free for longest, now held by the caller and known by no hash.
  // Requires free() > 0.
  [[nodiscard]] BlockId allocate() noexcept {
    assert(free_ > 0);
    const BlockId id = blocks_[end_].next;
    unlink(id);
    if (blocks_[id].hash != 0) {
      forget(id);
      ++evictions_;
    }
    blocks_[id].holders = 1;
    return id;
  }

  // Makes a held block findable. Requires that it has no hash yet.
  void publish(BlockId id, BlockHash hash) noexcept {
    assert(blocks_[id].holders > 0 && blocks_[id].hash == 0 && hash != 0);
    blocks_[id].hash = hash;
    blocks_[id].younger = none;
    Slot& slot = index_[slot_of(hash)];
    if (slot.id == none) {
      slot = {hash, id};
      return;
    }
    BlockId last = slot.id;
    while (blocks_[last].younger != none) last = blocks_[last].younger;
    blocks_[last].younger = id;
  }

  // One holder fewer for each of a request's blocks, given in prompt order and freed tail first.
  void release(std::span<const BlockId> ids) noexcept {
    BlockId front = blocks_[end_].next;
    for (std::size_t i = ids.size(); i-- > 0;) {
      Block& block = blocks_[ids[i]];
      assert(block.holders > 0);
      if (--block.holders > 0) continue;
      insert_before(block.hash == 0 ? front : end_, ids[i]);
      // On an empty queue the front is the end until the first cached block has been queued.
      if (front == end_ && block.hash != 0) front = ids[i];
    }
  }

  // All hashes are forgotten, as after a restart. Requires that nobody holds a block.
  void clear() noexcept {
    assert(free_ == size());
    for (Slot& slot : index_) slot = {};
    for (BlockId id = 0; id < end_; ++id) blocks_[id].hash = 0;
  }

 private:
  static constexpr BlockId none = ~BlockId{0};

  struct Block {
    BlockHash hash = 0;   // 0: not full, or evicted
    BlockId next = none;  // in the free queue
    BlockId previous = none;
    BlockId younger = none;  // the next copy of the same block
    std::uint32_t holders = 0;
  };

  // An entry of the index: the oldest copy of a block. The hash stands here too, so that a search
  // touches no block; this is where a simulation of large caches spends its time.
  struct Slot {
    BlockHash hash = 0;
    BlockId id = none;
  };

  // Where `hash` is in the index, or the empty slot where it belongs. Linear probing, at most half
  // full.
  [[nodiscard]] std::size_t slot_of(BlockHash hash) const noexcept {
    const std::size_t mask = index_.size() - 1;
    std::size_t slot = hash & mask;
    while (index_[slot].id != none && index_[slot].hash != hash) slot = (slot + 1) & mask;
    return slot;
  }

  void forget(BlockId id) noexcept {
    const std::size_t slot = slot_of(blocks_[id].hash);
    if (index_[slot].id == id) {
      index_[slot].id = blocks_[id].younger;
      if (index_[slot].id == none) close_gap(slot);
    } else {
      BlockId older = index_[slot].id;
      while (blocks_[older].younger != id) older = blocks_[older].younger;
      blocks_[older].younger = blocks_[id].younger;
    }
    blocks_[id].hash = 0;
  }

  // Moves later entries of a probe sequence back, so that no search stops at the emptied slot.
  void close_gap(std::size_t gap) noexcept {
    const std::size_t mask = index_.size() - 1;
    for (std::size_t slot = (gap + 1) & mask; index_[slot].id != none; slot = (slot + 1) & mask) {
      const std::size_t wanted = index_[slot].hash & mask;
      if (((slot - wanted) & mask) < ((slot - gap) & mask)) continue;
      index_[gap] = index_[slot];
      index_[slot].id = none;
      gap = slot;
    }
  }

  void insert_before(BlockId next, BlockId id) noexcept {
    const BlockId previous = blocks_[next].previous;
    blocks_[id].next = next;
    blocks_[id].previous = previous;
    blocks_[previous].next = id;
    blocks_[next].previous = id;
    ++free_;
  }

  void unlink(BlockId id) noexcept {
    blocks_[blocks_[id].previous].next = blocks_[id].next;
    blocks_[blocks_[id].next].previous = blocks_[id].previous;
    --free_;
  }

  std::vector<Block> blocks_;  // and one more: both ends of the free queue
  std::vector<Slot> index_;
  BlockId end_;
  std::uint32_t free_ = 0;
  std::uint64_t evictions_ = 0;
};

}  // namespace limpet::sim
