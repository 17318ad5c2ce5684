// SPDX-License-Identifier: Apache-2.0
#include <limpet/detail/shared_atomic.hpp>

#include "catch.hpp"

#include <optional>
#include <utility>

using limpet::detail::SharedAtomic;

TEST_CASE("copies share one number, as long as any is left") {
  std::optional<SharedAtomic<int>> first(7);
  SharedAtomic<int> second = *first;
  const SharedAtomic<int> third = std::move(second);
  first->operator->()->store(8);
  CHECK(second->load() == 8);  // NOLINT: a move is a copy
  first.reset();
  second->store(9);
  CHECK(third->load() == 9);
}

TEST_CASE("an assignment leaves one number for the other") {
  SharedAtomic<int> one(1);
  const SharedAtomic<int> other(2);
  const SharedAtomic<int> old = one;
  one = other;
  one->store(3);
  CHECK(other->load() == 3);
  CHECK(old->load() == 1);
  SharedAtomic<int>& itself = one;
  one = itself;
  CHECK(one->load() == 3);
}
