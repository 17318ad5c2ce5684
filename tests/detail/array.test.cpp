// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/array.hpp>

#include "catch.hpp"

#include <utility>

using limpet::detail::Array;

namespace {

struct Counted {
  static inline int alive = 0;
  Counted() { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int value = 7;
};

}  // namespace

TEST_CASE("an array begins with default values, and an empty one holds nothing") {
  const Array<int> numbers(3);
  CHECK(numbers.size() == 3);
  for (const int number : numbers) CHECK(number == 0);
  CHECK(Array<Counted>(2)[1].value == 7);
  CHECK(Array<int>().size() == 0);
}

TEST_CASE("moving an array hands its elements over, and each is destroyed once") {
  {
    Array<Counted> first(3);
    Array<Counted> second(2);
    CHECK(Counted::alive == 5);
    first[1].value = 1;
    const Counted* const where = &first[1];
    second = std::move(first);
    CHECK(Counted::alive == 3);
    CHECK(&second[1] == where);
    CHECK(second[1].value == 1);
    CHECK(first.size() == 0);  // NOLINT(bugprone-use-after-move)
    CHECK(first.begin() == nullptr);
    const Array<Counted> third(std::move(second));
    CHECK(third.size() == 3);
    CHECK(Counted::alive == 3);
  }
  CHECK(Counted::alive == 0);
}
