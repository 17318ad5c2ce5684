// SPDX-License-Identifier: Apache-2.0
//
// Engine: one vLLM-like replica, step by step. To follow a request, read downwards: submit() queues
// it, begin_step() schedules (continue() what runs, admit() what waits), end_step() hands out
// tokens.
//
// Rules of vLLM's V1 scheduler (vllm/v1/core/sched/scheduler.py, read in July 2026): running
// requests first, in order; then the waiting ones, first come first served, each only if blocks for
// its *whole* prompt are free; a running request that gets no block preempts the last of the
// running list. Not modelled: priorities, speculative decoding, the one-step lag of asynchronous
// scheduling. Cost: O(running) a step, O(blocks of the prompt) a request. Not thread-safe. Time is
// the caller's.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include <limpet/sim/block_cache.hpp>
#include <limpet/sim/engine_profile.hpp>
#include <limpet/sim/step_time.hpp>
#include <limpet/sim/token_chain.hpp>

namespace limpet::sim {

struct Request {
  std::uint64_t id = 0;
  TokenChain tokens;  // of the prompt and of the answer it will get
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 1;  // at least one
};

// What /metrics shows, as of the last step that ended.
struct EngineCounters {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  double kv_usage = 0;
  std::uint64_t prefix_queries = 0;  // tokens looked up, a preempted request's second time apart
  std::uint64_t prefix_hits = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t prompt_tokens_cached = 0;
  std::uint64_t generation_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t finished = 0;
  std::uint64_t steps = 0;
};

class Engine {
 public:
  explicit Engine(EngineProfile profile)
      : profile_(std::move(profile)),
        cache_(static_cast<std::uint32_t>(profile_.kv_tokens / profile_.block_tokens)) {}

  // The request waits for the next step that has room. Requires that it fits the cache at all.
  void submit(Request request) {
    assert(request.output_tokens > 0 && request.prompt_tokens > 0);
    assert(request.tokens.tokens() == request.prompt_tokens + request.output_tokens);
    assert(request.tokens.tokens() <= std::uint64_t{cache_.size()} * profile_.block_tokens);
    std::uint32_t slot = static_cast<std::uint32_t>(sequences_.size());
    if (free_slots_.empty()) {
      sequences_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    Sequence& sequence = sequences_[slot];
    sequence.request = std::move(request);
    sequence.generated = sequence.computed = 0;
    sequence.cached = not_admitted;
    sequence.preempted = false;
    waiting_.push_back(slot);
  }

  // Schedules one step; returns the seconds it takes. Call end_step() when they are over. Requires
  // has_work() and no step under way. (With nothing to do it could not end; see has_work().)
  [[nodiscard]] double begin_step() {
    assert(!stepping_ && has_work());
    scheduled_.clear();
    StepWork work;
    std::uint64_t budget = profile_.max_num_batched_tokens;
    if (continue_running(budget, work)) admit_waiting(budget, work);
    assert(!scheduled_.empty());
    stepping_ = true;
    return profile_.step(work) * profile_.slowdown;
  }

  // The step is over: every request whose known tokens are all computed gets its next one. Calls
  // sink.first_token(request id, cached prompt tokens) and sink.finished(request id), in order, and
  // sink.token(request id, tokens so far) where it has one; it must not call back into the engine.
  template <class Sink>
  void end_step(Sink&& sink) {
    assert(stepping_);
    stepping_ = false;
    bool any_finished = false;
    for (const auto& [slot, tokens] : scheduled_) {
      Sequence& sequence = sequences_[slot];
      sequence.computed += tokens;
      if (sequence.computed < sequence.known()) continue;
      ++sequence.generated;
      ++totals_.generation_tokens;
      if (sequence.generated == 1) {
        totals_.prompt_tokens += sequence.request.prompt_tokens;
        totals_.prompt_tokens_cached += sequence.cached;
        sink.first_token(sequence.request.id, sequence.cached);
      }
      if constexpr (requires { sink.token(sequence.request.id, sequence.generated); }) {
        sink.token(sequence.request.id, sequence.generated);
      }
      any_finished |= sequence.done();
    }
    if (any_finished) retire(sink);
    ++totals_.steps;
    publish();
  }

  // Nobody waits for the answer any more: the request leaves the queue or the batch, and gets nothing
  // of the step under way, whose length stays. Its blocks can still be hit. False: no such request.
  bool abort(std::uint64_t id) {
    const auto leaves = [&](auto& list) {
      const auto found = std::find_if(list.begin(), list.end(), [&](std::uint32_t slot) {
        return sequences_[slot].request.id == id;
      });
      if (found == list.end()) return false;
      std::erase_if(scheduled_, [&](const auto& part) { return part.first == *found; });
      release(sequences_[*found]);
      free_slots_.push_back(*found);
      list.erase(found);
      return true;
    };
    if (!leaves(running_) && !leaves(waiting_)) return false;
    if (!stepping_) publish();
    return true;
  }

  // Forgets every cached prefix. False, and nothing happens, while a request holds blocks.
  bool reset_prefix_cache() noexcept {
    if (cache_.free() < cache_.size()) return false;
    cache_.clear();
    return true;
  }

  [[nodiscard]] bool has_work() const noexcept { return !running_.empty() || !waiting_.empty(); }
  [[nodiscard]] bool stepping() const noexcept { return stepping_; }
  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  [[nodiscard]] const EngineCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const EngineProfile& profile() const noexcept { return profile_; }
  [[nodiscard]] const BlockCache& cache() const noexcept { return cache_; }

 private:
  static constexpr std::uint64_t not_admitted = ~std::uint64_t{0};

  struct Sequence {
    Request request;
    std::vector<BlockId> blocks;  // held, in prompt order
    std::size_t published = 0;    // of them, those that other prompts can hit
    std::uint64_t computed = 0;   // tokens whose KV is in the blocks
    std::uint64_t generated = 0;
    std::uint64_t cached = not_admitted;  // prompt tokens found at the first admission
    bool preempted = false;

    [[nodiscard]] std::uint64_t known() const noexcept { return request.prompt_tokens + generated; }
    [[nodiscard]] bool done() const noexcept { return generated == request.output_tokens; }
  };

  // Gives each running request its remaining prefill chunk or one decode token. Returns whether
  // nobody was preempted: a step that preempts admits nobody.
  bool continue_running(std::uint64_t& budget, StepWork& work) {
    bool undisturbed = true;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      const std::uint32_t slot = running_[i];
      const std::uint64_t wanted =
          std::min(sequences_[slot].known() - sequences_[slot].computed, budget);
      while (i < running_.size() && !grow(slot, wanted)) {
        preempt_last();
        undisturbed = false;
      }
      if (i == running_.size()) break;  // it was the last one itself
      schedule(slot, wanted, work);
      budget -= wanted;
    }
    return undisturbed;
  }

  // First come, first served: the first that cannot be admitted stops the admission.
  void admit_waiting(std::uint64_t& budget, StepWork& work) {
    while (!waiting_.empty() && budget > 0 && running_.size() < profile_.max_num_seqs) {
      const std::uint32_t slot = waiting_.front();
      Sequence& sequence = sequences_[slot];
      // At least one token must be computed, or there would be nothing to sample from.
      const std::uint64_t reusable = (sequence.known() - 1) / profile_.block_tokens;
      cache_.find(sequence.request.tokens.blocks().first(reusable), hits_);
      const std::uint64_t hit_tokens = hits_.size() * std::uint64_t{profile_.block_tokens};
      const auto idle = static_cast<std::size_t>(std::count_if(
          hits_.begin(), hits_.end(), [this](BlockId id) { return !cache_.held(id); }));
      const bool fits = blocks_for(sequence.known()) - hits_.size() + idle <= cache_.free();
      if (!sequence.preempted && (fits || profile_.hit_counting == HitCounting::each_lookup)) {
        totals_.prefix_queries += sequence.known();
        totals_.prefix_hits += hit_tokens;
      }
      if (!fits) return;

      cache_.hold(hits_);
      sequence.blocks = hits_;
      sequence.published = hits_.size();
      sequence.computed = hit_tokens;
      if (!sequence.preempted) sequence.cached = hit_tokens;
      const std::uint64_t wanted = std::min(sequence.known() - hit_tokens, budget);
      [[maybe_unused]] const bool grown = grow(slot, wanted);
      assert(grown);
      waiting_.pop_front();
      running_.push_back(slot);
      schedule(slot, wanted, work);
      budget -= wanted;
    }
  }

  // Holds blocks for `tokens` more and publishes those that they fill: from now on, before the step
  // has even run, other prompts can hit them. Changes nothing and returns false if not all are to
  // be had.
  [[nodiscard]] bool grow(std::uint32_t slot, std::uint64_t tokens) {
    Sequence& sequence = sequences_[slot];
    const std::uint64_t needed = blocks_for(sequence.computed + tokens);
    if (needed > sequence.blocks.size() + cache_.free()) return false;
    while (sequence.blocks.size() < needed) sequence.blocks.push_back(cache_.allocate());
    const std::span<const BlockHash> hashes = sequence.request.tokens.blocks();
    const std::uint64_t full = (sequence.computed + tokens) / profile_.block_tokens;
    for (; sequence.published < full; ++sequence.published) {
      cache_.publish(sequence.blocks[sequence.published], hashes[sequence.published]);
    }
    return true;
  }

  void schedule(std::uint32_t slot, std::uint64_t tokens, StepWork& work) {
    const Sequence& sequence = sequences_[slot];
    scheduled_.emplace_back(slot, tokens);
    work.tokens += tokens;
    ++work.sequences;
    if (tokens == 1 && sequence.generated > 0) {
      work.decode_context += sequence.computed + 1;
    } else {
      const auto count = static_cast<double>(tokens);
      work.prefill_pairs += count * (static_cast<double>(sequence.computed) + count / 2);
    }
  }

  // The request that came last gives its blocks back (they can still be hit) and starts again from
  // the head of the queue; what it has already said stays said.
  void preempt_last() {
    const std::uint32_t slot = running_.back();
    running_.pop_back();
    release(sequences_[slot]);
    sequences_[slot].preempted = true;
    waiting_.push_front(slot);
    ++totals_.preemptions;
  }

  template <class Sink>
  void retire(Sink& sink) {
    const auto is_done = [this](std::uint32_t slot) { return sequences_[slot].done(); };
    for (const std::uint32_t slot : running_) {
      if (!is_done(slot)) continue;
      release(sequences_[slot]);
      free_slots_.push_back(slot);
      ++totals_.finished;
      sink.finished(sequences_[slot].request.id);
    }
    std::erase_if(running_, is_done);
  }

  void release(Sequence& sequence) {
    cache_.release(sequence.blocks);
    sequence.blocks.clear();
    sequence.published = 0;
    sequence.computed = 0;
  }

  void publish() noexcept {
    totals_.running = static_cast<std::uint32_t>(running_.size());
    totals_.waiting = static_cast<std::uint32_t>(waiting_.size());
    totals_.kv_usage =
        1.0 - static_cast<double>(cache_.free()) / static_cast<double>(cache_.size());
    counters_ = totals_;
  }

  [[nodiscard]] std::uint64_t blocks_for(std::uint64_t tokens) const noexcept {
    return (tokens + profile_.block_tokens - 1) / profile_.block_tokens;
  }

  EngineProfile profile_;
  BlockCache cache_;
  std::vector<Sequence> sequences_;  // slots, reused: a request in flight keeps its own
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> running_;
  std::deque<std::uint32_t> waiting_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> scheduled_;  // slot, tokens: of this step
  std::vector<BlockId> hits_;
  EngineCounters totals_;    // as they are now
  EngineCounters counters_;  // as they were when the last step ended
  bool stepping_ = false;
};

}  // namespace limpet::sim
