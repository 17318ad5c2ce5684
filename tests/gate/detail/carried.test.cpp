// SPDX-License-Identifier: Apache-2.0
#include <limpet/gate/detail/carried.hpp>

#include "catch.hpp"

#include <chrono>
#include <cstdint>

using namespace limpet;
using namespace std::chrono_literals;

namespace {

KeyHash key(std::uint64_t number) {
  return {number, number};
}

}  // namespace

TEST_CASE("a carried wait is the last that was set, until it is forgotten") {
  detail::CarriedWaits waits;
  CHECK(waits.of(key(1)) == 0s);
  waits.set(key(1), 3s);
  waits.set(key(1), 5s);
  waits.set(key(2), 7s);
  CHECK(waits.of(key(1)) == 5s);
  waits.forget(key(1));
  CHECK(waits.of(key(1)) == 0s);
  CHECK(waits.of(key(2)) == 7s);
}

TEST_CASE("of carried waits the last 8,192 are kept, and not many more") {
  detail::CarriedWaits waits;
  for (std::uint64_t number = 0; number < 30'000; ++number) waits.set(key(number), 1s);
  std::uint64_t kept = 0;
  for (std::uint64_t number = 0; number < 30'000; ++number) {
    const bool known = waits.of(key(number)) == 1s;
    CHECK((known || number < 30'000 - 8'192));
    kept += known ? 1 : 0;
  }
  CHECK(kept <= 2 * 8'192);
  // What has grown old is set anew and forgotten as what is young.
  waits.set(key(29'000), 2s);
  CHECK(waits.of(key(29'000)) == 2s);
  waits.forget(key(29'000));
  CHECK(waits.of(key(29'000)) == 0s);
}
