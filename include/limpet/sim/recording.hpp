// SPDX-License-Identifier: Apache-2.0
//
// What a real engine did with some requests, and the same requests on a simulated one.
//
// Open loop: each request is sent when it was sent then, whatever became of the others. This is how
// a profile is fitted (calibrate.hpp) and checked. Cost: that of the engine's steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/json_lines.hpp>
#include <limpet/sim/token_chain.hpp>

namespace limpet::sim {

// One request, in seconds since some common moment. The turns of one session share their prefix,
// each prompt being the previous prompt, its answer and new text; without a session a prompt is all
// its own.
struct Measured {
  double sent = 0;
  double first = 0;  // first byte of the answer
  double end = 0;    // last byte
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  // as the engine said
  std::uint64_t output_tokens = 0;
  std::string session;
};

struct Timing {
  double first = 0;
  double end = 0;
};

// Lines of {"at": s, "first": s, "end": s, "prompt": tokens, "output": tokens}, and where known
// "cached": tokens and "session": a name. Sorted by the time sent. Throws std::runtime_error.
[[nodiscard]] inline std::vector<Measured> read_measurements(const std::string& path) {
  std::vector<Measured> measured;
  read_json_lines(path, [&](const Json& line) {
    Measured m;
    m.sent = line.at("at").number();
    m.first = line.at("first").number();
    m.end = line.at("end").number();
    m.prompt_tokens = line.at("prompt").count();
    m.output_tokens = line.at("output").count();
    if (!line.get("cached").is_null()) m.cached_tokens = line.get("cached").count();
    if (!line.get("session").is_null()) m.session = line.get("session").text();
    measured.push_back(m);
  });
  std::stable_sort(measured.begin(), measured.end(),
                   [](const Measured& a, const Measured& b) { return a.sent < b.sent; });
  return measured;
}

// The prompts of a recording as an engine's cache would tell them apart. Where a first turn found
// something, all first turns share that much: `shared_tokens`, a prefix that was there before.
struct RecordedPrompts {
  std::uint64_t shared_tokens = 0;
  std::vector<TokenChain> chains;  // of prompt and answer, one a request
};

[[nodiscard]] inline RecordedPrompts recorded_prompts(const std::vector<Measured>& measured,
                                                      std::uint32_t block_tokens) {
  constexpr std::uint64_t shared_content = 1;
  RecordedPrompts prompts;
  std::map<std::string, TokenChain> sessions;
  for (const Measured& m : measured) {
    const bool first_turn = m.session.empty() || sessions.emplace(m.session, block_tokens).second;
    if (first_turn) prompts.shared_tokens = std::max(prompts.shared_tokens, m.cached_tokens);
  }
  sessions.clear();
  std::uint64_t content = shared_content;
  for (const Measured& m : measured) {
    TokenChain chain(block_tokens);
    const auto known = m.session.empty() ? sessions.end() : sessions.find(m.session);
    if (known != sessions.end()) {
      chain = known->second.tokens() <= m.prompt_tokens ? known->second
                                                        : known->second.prefix(m.prompt_tokens);
    } else {
      chain.append(shared_content, std::min(prompts.shared_tokens, m.prompt_tokens));
    }
    chain.append(++content, m.prompt_tokens - chain.tokens());
    chain.append(++content, m.output_tokens);
    if (!m.session.empty()) sessions.insert_or_assign(m.session, chain);
    prompts.chains.push_back(std::move(chain));
  }
  return prompts;
}

// Sends the requests to one engine of that profile. Requires that `measured` is sorted by time
// sent.
[[nodiscard]] inline std::vector<Timing> replay(const EngineProfile& profile,
                                                const std::vector<Measured>& measured) {
  struct Sink {
    std::vector<Timing>& timings;
    double now = 0;
    void first_token(std::uint64_t id, std::uint64_t) {
      if (id < timings.size()) timings[id].first = now;
    }
    void finished(std::uint64_t id) {
      if (id < timings.size()) timings[id].end = now;
    }
  };
  std::vector<Timing> timings(measured.size());
  Sink sink{timings};
  Engine engine(profile);
  const RecordedPrompts prompts = recorded_prompts(measured, profile.block_tokens);
  if (prompts.shared_tokens > 0) {  // what was there before, and took no time of this recording
    TokenChain shared(profile.block_tokens);
    shared.append(1, prompts.shared_tokens);
    shared.append(0, 1);
    engine.submit({measured.size(), std::move(shared), prompts.shared_tokens, 1});
    while (engine.has_work()) {
      (void)engine.begin_step();
      engine.end_step(sink);
    }
  }
  constexpr double never = std::numeric_limits<double>::infinity();
  std::size_t sent = 0;
  double step_end = never;
  while (sent < measured.size() || step_end < never) {
    const double arrival = sent < measured.size() ? measured[sent].sent + profile.front_end : never;
    sink.now = std::min(arrival, step_end);
    if (arrival <= step_end) {
      const Measured& m = measured[sent];
      engine.submit({sent, prompts.chains[sent], m.prompt_tokens, m.output_tokens});
      ++sent;
    } else {
      engine.end_step(sink);
      step_end = never;
    }
    if (step_end == never && engine.has_work()) step_end = sink.now + engine.begin_step();
  }
  return timings;
}

}  // namespace limpet::sim
