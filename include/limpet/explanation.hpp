// SPDX-License-Identifier: Apache-2.0
//
// What Router::explain() hands out: the decision, and for every replica why it was or was not
// chosen. Plain values.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace limpet {

enum class Standing : std::uint8_t {
  chosen,
  eligible,  // could have taken the turn; another was better
  excluded,  // by the turn
  draining,  // and another is up
  down,
};

[[nodiscard]] constexpr std::string_view to_string(Standing standing) noexcept {
  constexpr std::string_view names[] = {"chosen", "eligible", "excluded", "draining", "down"};
  return names[static_cast<std::size_t>(standing)];
}

struct ExplainedReplica {
  std::string name;
  ReplicaLoad load{};
  std::optional<double> reading_age{};  // s; absent: never read
  Standing standing = Standing::eligible;
  bool home = false;
  bool overloaded = false;  // by the overflow rule
  double score = 0.0;       // as a place for a new conversation; lower is better
  ScoreTerms terms{};       // its addends, where the scorer explains itself
};

struct Explanation {
  Decision decision{};
  bool gauges_fresh = false;  // every replica that is up has a fresh reading
  std::vector<ExplainedReplica> replicas{};
};

}  // namespace limpet
