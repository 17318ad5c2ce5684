// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/random.hpp>

#include "catch.hpp"

using limpet::sim::mix;
using limpet::sim::Quantiles;
using limpet::sim::Random;

TEST_CASE("splitmix64 gives its published first values for the seed 1234567") {
  // The reference implementation's test values (Rosetta Code, Pseudo-random numbers/Splitmix64).
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected :
       {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL}) {
    CHECK(mix(state) == expected);
    state += 0x9e3779b97f4a7c15ULL;
  }
}

TEST_CASE("uniform numbers stay in [0, 1) and have the mean and variance of that interval") {
  Random random(42);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double u = random.uniform();
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    sum += u;
    squares += u * u;
  }
  CHECK(sum / 100'000 == Approx(0.5).margin(0.005));
  CHECK(squares / 100'000 == Approx(1.0 / 3).margin(0.005));
}

TEST_CASE("between takes both ends and nothing outside") {
  Random random(7);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 1000; ++i) {
    const auto n = random.between(3, 6);
    REQUIRE((n >= 3 && n <= 6));
    low |= n == 3;
    high |= n == 6;
  }
  CHECK(low);
  CHECK(high);
}

TEST_CASE("a distribution has the quantiles it was given, and geometric means between") {
  const Quantiles q({{0.0, 1.0}, {0.5, 100.0}, {1.0, 10'000.0}});
  CHECK(q.at(0.0) == Approx(1.0));
  CHECK(q.at(0.25) == Approx(10.0));
  CHECK(q.at(0.5) == Approx(100.0));
  CHECK(q.at(1.0) == Approx(10'000.0));
}
