// SPDX-License-Identifier: Apache-2.0
//
// FrontEnd: what stands before a fleet and says where each turn goes. The concept that the
// simulator drives: balancers.hpp and zoo.hpp have models, router_front_end.hpp makes one of any
// Router.
//
// A model is told what a real front end could know: the turn, when answers begin and end, what the
// engines say on their metrics page or to their coordinator, and nothing else. Derive from
// FrontEndBase to be deaf to what you do not use.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/token_chain.hpp>
#include <limpet/types.hpp>

namespace limpet::sim {

// One turn that asks for a replica. The views live until the turn has ended.
struct Arrival {
  std::uint64_t id = 0;
  std::string_view conversation;
  std::string_view parent;  // the conversation that started this one; empty: none
  std::uint64_t prompt_tokens = 0;
  std::uint64_t shared_tokens = 0;     // of the prompt, the part all sessions begin with
  const TokenChain* tokens = nullptr;  // prompt and answer: use the prompt's blocks alone
};

struct Choice {
  static constexpr std::size_t nowhere = ~std::size_t{0};  // not yet: the front end holds the turn

  std::size_t replica = nowhere;
  Outcome outcome = Outcome::balanced;
};

// What an engine tells the front end of its own server.
struct EngineCounts {
  std::uint32_t waiting = 0;
  std::uint32_t running = 0;
  double kv_usage = 0;

  [[nodiscard]] friend bool operator==(const EngineCounts&, const EngineCounts&) = default;
};

// clang-format off
template <class F>
concept FrontEnd = requires(F front, const Arrival& turn, std::uint64_t id, double now,
                            std::span<const EngineProfile> fleet, std::size_t replica,
                            const Usage& usage, std::span<const EngineCounts> counts,
                            std::string_view page) {
  front.start(fleet);                          // once, before anything else
  { front.choose(turn, now) } -> std::same_as<Choice>;
  front.first_byte(id, replica, now);          // of the turn with that id
  front.finished(id, replica, usage, now);
  front.counted(counts, now);                  // the coordinator's broadcast
  front.scraped(page, now);                    // the metrics page of the whole fleet
  { F::listens_to_counts } -> std::convertible_to<bool>;
  { F::reads_pages } -> std::convertible_to<bool>;
  { F::inside_server } -> std::convertible_to<bool>;  // chooses only after the front-end time
};
// clang-format on

// A front end that may hold turns (Choice::nowhere): `released` calls go(id, choice) for each that
// may leave now, and is asked after every finished turn and when `wake_at` has come (infinity:
// never).
template <class F>
concept HoldingFrontEnd = FrontEnd<F> && requires(F front, double now) {
  front.released(now, [](std::uint64_t, Choice) {});
  { front.wake_at() } -> std::same_as<double>;
};

struct FrontEndBase {
  static constexpr bool listens_to_counts = false;
  static constexpr bool reads_pages = false;
  static constexpr bool inside_server = false;

  void start(std::span<const EngineProfile>) noexcept {}
  void first_byte(std::uint64_t, std::size_t, double) noexcept {}
  void finished(std::uint64_t, std::size_t, const Usage&, double) noexcept {}
  void counted(std::span<const EngineCounts>, double) noexcept {}
  void scraped(std::string_view, double) noexcept {}
};

}  // namespace limpet::sim
