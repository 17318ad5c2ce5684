// SPDX-License-Identifier: Apache-2.0
//
// Policies of your own: a scorer and an overflow rule for a pool of long prompts, checked against
// the laws that every policy must hold, then put into a router.
//
// A policy is any class with the right members; there is nothing to derive from. The static_asserts
// say at compile time whether it fits, the laws at run time whether it behaves.
#include <limpet/limpet.hpp>
#include <limpet/testing/laws.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>

// Places a conversation where the fewest prompt tokens are being worked on: one turn of 100,000
// tokens is more work than ten of 1,000. Turns count only between equals.
struct FewestTokens {
  [[nodiscard]] double score(const limpet::ReplicaLoad& load,
                             const limpet::ScoreContext&) const noexcept {
    return static_cast<double>(load.in_flight_tokens) + load.in_flight;
  }
};
static_assert(limpet::LoadScorer<FewestTokens>);

// Lets short conversations leave a busy home, since others read them again at once; a long one
// waits up to twice as many turns.
struct SpillShort {
  std::uint32_t threshold = 4;          // turns in flight at home; > 0
  std::uint64_t short_tokens = 20'000;  // of a prompt

  [[nodiscard]] bool overloaded(const limpet::ReplicaLoad& home) const noexcept {
    return home.in_flight >= threshold;
  }

  // Asked only when home is overloaded. `spill` without a target goes to the fewest in flight.
  [[nodiscard]] limpet::Verdict decide(const limpet::OverflowView& view) const noexcept {
    const std::uint64_t tokens = std::max(view.prompt_tokens, view.context_tokens);
    const bool is_short = tokens <= short_tokens;
    return is_short || view.home().in_flight >= 2 * threshold ? limpet::Verdict::spill
                                                              : limpet::Verdict::stay;
  }
};
static_assert(limpet::OverflowRule<SpillShort>);

int main() {
  limpet::testing::Violations violations = limpet::testing::check_scorer_laws(FewestTokens{});
  for (const auto& violation : limpet::testing::check_overflow_laws(SpillShort{})) {
    violations.push_back(violation);
  }
  for (const auto& violation : violations) std::cout << "broken law: " << violation << '\n';
  if (!violations.empty()) return 1;
  std::cout << "both policies hold their laws\n";

  limpet::Router router{limpet::ShardedPins<>{}, FewestTokens{}, SpillShort{.threshold = 1}};
  router.add_replica({.name = "gpu0"});
  router.add_replica({.name = "gpu1"});
  const auto route = [&](const char* key, std::uint64_t tokens) {
    limpet::Lease lease = router.route({.key = key, .prompt_tokens = tokens});
    std::cout << key << ", " << tokens << " tokens: " << to_string(lease.outcome()) << " to "
              << router.options(lease.replica())->name << '\n';
    return lease;  // whoever holds it holds the slot
  };
  limpet::Lease long_turn = route("long", 90'000);
  limpet::Lease long_again = route("long", 95'000);        // home is busy: it stays
  const limpet::Lease short_turn = route("short", 2'000);  // where fewer tokens are in flight
  long_turn.finish();
  long_again.finish();
  const limpet::Lease short_again = route("short", 2'500);  // home is busy: it leaves
  return long_again.outcome() == limpet::Outcome::sticky &&
                 short_again.outcome() == limpet::Outcome::spilled
             ? 0
             : 1;
}
