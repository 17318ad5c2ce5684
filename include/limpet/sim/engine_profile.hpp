// SPDX-License-Identifier: Apache-2.0
//
// EngineProfile: what tells one engine from another: capacities in tokens, times in seconds, and
// which version's way of counting it has. profiles.hpp has some with their sources. Plain data.
#pragma once

#include <cstdint>
#include <string>

#include <limpet/sim/step_time.hpp>

namespace limpet::sim {

// What vllm:prefix_cache_queries and _hits count. Until vllm-project/vllm #48860 (merged in July
// 2026) every look-up of a waiting request did, one a step, so that a queue showed the hits of the
// request at its head, over and over; since then each request counts once, when it is admitted.
enum class HitCounting : std::uint8_t { each_request, each_lookup };

struct EngineProfile {
  std::string name;
  std::uint64_t kv_tokens = 32'768;  // capacity of the KV cache
  std::uint32_t block_tokens = 16;
  std::uint32_t max_num_seqs = 256;
  std::uint32_t max_num_batched_tokens = 2'048;
  StepTime step;
  double front_end = 0;         // s from the client to the scheduler: network, parsing, tokenising
  double front_end_spread = 0;  // a turn's time there is uniform in front_end x (1 +- spread)
  HitCounting hit_counting = HitCounting::each_request;
  double slowdown = 1;  // of every step: 1.1 is a replica that is 10 % slower than its profile
};

}  // namespace limpet::sim
