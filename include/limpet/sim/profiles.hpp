// SPDX-License-Identifier: Apache-2.0
//
// Machines as data: named engine profiles, each with the source of its figures.
//
// How well each one reproduces what was measured is told, and tested, beside README.md. Make your
// own with calibrate.hpp; start from the machine that resembles yours.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include <limpet/sim/engine.hpp>

namespace limpet::sim::profiles {

// RTX 4090 24 GB, Llama 3.1 8B bf16, vLLM 0.19.0. Capacities as that server printed them; step time
// fitted (calibrate.hpp) to every second of 300 ShareGPT requests published with LLMServingSim
// (casys-kaist/LLMServingSim 5daddb2, bench/examples, MIT), with the front end held at 30 ms, one
// decode step: asynchronous scheduling makes a request wait that long. First principles agree: 16
// GB of weights at 1,008 GB/s are 16 ms, 131,072 B of KV a token at 943 GB/s 0.139 us.
[[nodiscard]] inline EngineProfile rtx4090_llama31_8b() {
  return {.name = "rtx4090-llama31-8b",
          .kv_tokens = 41'392,  // 2,588 blocks, one of which is never handed out
          .max_num_seqs = 256,
          .max_num_batched_tokens = 2'048,
          .step = {.weights = 0.01696,
                   .per_token = 1.026e-4,
                   .per_pair = 1.79e-9,
                   .per_context = 1.389e-7,
                   .per_sequence = 2.37e-5,
                   .fixed = 1.27e-3},
          .front_end = 0.030};
}

// RTX PRO 6000 96 GB, the same model, server and source. Its KV cache of about 500,000 tokens never
// fills in the run. 16 GB at 1,792 GB/s are 9 ms.
[[nodiscard]] inline EngineProfile rtxpro6000_llama31_8b() {
  return {.name = "rtxpro6000-llama31-8b",
          .kv_tokens = 500'000,
          .max_num_seqs = 128,
          .max_num_batched_tokens = 2'048,
          .step = {.weights = 0.01061,
                   .per_token = 4.51e-5,
                   .per_pair = 1.07e-9,
                   .per_context = 7.37e-8,
                   .per_sequence = 4.76e-5,
                   .fixed = 1.46e-3},
          .front_end = 0.030};
}

// RTX A4000 16 GB, Qwen3 4B bf16, vLLM 0.26.0, one of four data-parallel ranks: the machine of the
// published ladder. From first principles: KV of 147,456 B a token at 448 GB/s, 8 GB of weights, 60
// ms of front end and network, max_num_seqs 32. Fitted by hand to the ladder's rows at 4 and 8
// sessions: 2,950 tokens/s of prefill and 20 ms for a step's weights and launch. KV capacity is
// published as about 32,000 tokens; 36,000 fits the row at 16 sessions best. Its hit counters count
// look-ups.
[[nodiscard]] inline EngineProfile a4000_qwen3_4b() {
  return {.name = "a4000-qwen3-4b",
          .kv_tokens = 36'000,
          .max_num_seqs = 32,
          .max_num_batched_tokens = 2'048,
          .step = {.weights = 0.017,
                   .per_token = 1.0 / 2'950,
                   .per_pair = 5e-9,
                   .per_context = 3.3e-7,
                   .per_sequence = 1e-4,
                   .fixed = 0.003},
          .front_end = 0.060,
          .hit_counting = HitCounting::each_lookup};
}

// One core of a shared machine, 82M random weights, vLLM 0.32.0: a real closed loop of our own on
// two data-parallel ranks. Capacities as configured (1,000 blocks of 32 tokens, one never handed
// out). Step and front-end times read off the step with two sessions under the engine's own
// balancer (cold prompts 1,650 tokens/s, 27 ms a decode step with one sequence, 34 ms with two),
// then chosen by hand among some 20 settings by comparison with all of its runs: they are not a
// held-out fit. The front end shares the cores with the engines, so what it takes varies.
[[nodiscard]] inline EngineProfile cpu_core_82m() {
  return {.name = "cpu-core-82m",
          .kv_tokens = 999 * 32,
          .block_tokens = 32,
          .max_num_seqs = 32,
          .max_num_batched_tokens = 2'048,
          .step = {.weights = 0.018,
                   .per_token = 1.0 / 1'650,
                   .per_pair = 5e-9,
                   .per_context = 6e-7,
                   .per_sequence = 0.002,
                   .fixed = 0.002},
          .front_end = 0.080,
          .front_end_spread = 0.7};
}

[[nodiscard]] inline std::array<EngineProfile, 4> all() {
  return {rtx4090_llama31_8b(), rtxpro6000_llama31_8b(), a4000_qwen3_4b(), cpu_core_82m()};
}

[[nodiscard]] inline std::optional<EngineProfile> find(std::string_view name) {
  for (const EngineProfile& profile : all()) {
    if (profile.name == name) return profile;
  }
  return std::nullopt;
}

}  // namespace limpet::sim::profiles
