// SPDX-License-Identifier: Apache-2.0
//
// CarriedWaits: how long conversations have waited for places that they lost before they had the
// usual use of them.
//
// Keeps at least the last 8,192 that were set and at most twice as many. O(1) on average. Not
// thread-safe: the gate locks.
#pragma once

#include <limpet/types.hpp>

#include <cstddef>
#include <unordered_map>
#include <utility>

namespace limpet::detail {

struct HashOfKey {
  std::size_t operator()(KeyHash key) const noexcept { return static_cast<std::size_t>(key.lo); }
};

class CarriedWaits {
 public:
  // Zero for one that is not known.
  [[nodiscard]] Duration of(KeyHash key) const noexcept {
    for (const Waits* waits : {&young_, &old_}) {
      if (const auto found = waits->find(key); found != waits->end()) return found->second;
    }
    return {};
  }

  void set(KeyHash key, Duration wait) {
    constexpr std::size_t most_young = 8'192;
    if (young_.size() >= most_young) old_ = std::exchange(young_, {});
    young_[key] = wait;
  }

  void forget(KeyHash key) {
    young_.erase(key);
    old_.erase(key);
  }

 private:
  using Waits = std::unordered_map<KeyHash, Duration, HashOfKey>;
  Waits young_;
  Waits old_;
};

}  // namespace limpet::detail
