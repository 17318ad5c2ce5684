// SPDX-License-Identifier: Apache-2.0
//
// How long one step of an engine takes, as a sum of what the hardware has to do for it.
//
// A step reads the weights once or computes all its new tokens, whichever takes longer (the
// roofline); attention then costs by pairs of tokens in a prefill and by the context read in a
// decode; every sequence and every step has a price of its own. Six coefficients and a fixed
// front-end time describe a machine: profiles.hpp has some with their sources, calibrate.hpp fits
// others. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace limpet::sim {

// What one step was asked to compute.
struct StepWork {
  std::uint64_t tokens = 0;  // new tokens of all sequences, prefill and decode
  double prefill_pairs = 0;  // sum over prefill chunks: its tokens x the mean context they look at
  std::uint64_t decode_context = 0;  // sum over decoding sequences: the context that each reads
  std::uint32_t sequences = 0;
};

struct StepTime {           // all in seconds
  double weights = 0;       // to read the weights: the least that a step can take
  double per_token = 0;     // of dense compute, for each new token
  double per_pair = 0;      // prefill attention, for each (new token, token of its context)
  double per_context = 0;   // decode attention, for each token of context
  double per_sequence = 0;  // sampling and bookkeeping
  double fixed = 0;         // launch and scheduling

  [[nodiscard]] double operator()(const StepWork& work) const noexcept {
    return std::max(weights, per_token * static_cast<double>(work.tokens)) +
           per_pair * work.prefill_pairs + per_context * static_cast<double>(work.decode_context) +
           per_sequence * work.sequences + fixed;
  }
};

}  // namespace limpet::sim
