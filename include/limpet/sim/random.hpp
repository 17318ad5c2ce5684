// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every machine, and distributions given by their quantiles.
//
// The standard library fixes its engines but not its distributions, and a report must be byte
// identical wherever it is made. xoshiro256** seeded by splitmix64 (Blackman and Vigna, 2018,
// public domain) is all that is needed here. Not for secrets. Cost: a few ns a number, no
// allocation.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace limpet::sim {

// One well mixed 64-bit value from another: splitmix64's output function.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept {
    for (auto& word : state_) {
      word = mix(seed);
      seed += 0x9e3779b97f4a7c15ULL;
    }
  }

  [[nodiscard]] std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // In [0, 1), with all 53 bits that a double can hold.
  [[nodiscard]] double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // In [0, bound). Requires bound > 0. The bias, below bound / 2^53, is far under what any run
  // sees.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept {
    assert(bound > 0);
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(bound));
  }

  // In [low, high], both included. Requires low <= high.
  [[nodiscard]] std::uint32_t between(std::uint32_t low, std::uint32_t high) noexcept {
    assert(low <= high);
    return low + static_cast<std::uint32_t>(below(std::uint64_t{high} - low + 1));
  }

 private:
  std::array<std::uint64_t, 4> state_{};
};

// A distribution of positive values known by some of its quantiles, with the logarithm of the value
// taken as linear between them: token counts and pauses span decades.
class Quantiles {
 public:
  struct Point {
    double probability;
    double value;
  };

  // Requires at least two points, the probabilities rising from 0 to 1 and the values positive.
  explicit Quantiles(std::vector<Point> points) : points_(std::move(points)) {
    assert(points_.size() >= 2);
    assert(points_.front().probability == 0.0 && points_.back().probability == 1.0);
  }

  [[nodiscard]] double at(double probability) const noexcept {
    std::size_t i = 1;
    while (i + 1 < points_.size() && points_[i].probability < probability) ++i;
    const Point& low = points_[i - 1];
    const Point& high = points_[i];
    const double share = (probability - low.probability) / (high.probability - low.probability);
    return low.value * std::pow(high.value / low.value, share);
  }

  [[nodiscard]] double draw(Random& random) const noexcept { return at(random.uniform()); }

 private:
  std::vector<Point> points_;
};

}  // namespace limpet::sim
