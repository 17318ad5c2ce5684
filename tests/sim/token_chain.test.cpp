// SPDX-License-Identifier: Apache-2.0
#include <limpet/sim/token_chain.hpp>

#include "catch.hpp"

#include <set>

using limpet::sim::TokenChain;

TEST_CASE("chains agree in exactly the blocks that their common beginning fills") {
  TokenChain a(16);
  a.append(1, 40);
  TokenChain b = a;
  a.append(2, 100);
  b.append(3, 100);
  REQUIRE(a.tokens() == 140);
  REQUIRE(a.blocks().size() == 8);
  CHECK(a.blocks()[0] == b.blocks()[0]);
  CHECK(a.blocks()[1] == b.blocks()[1]);
  for (std::size_t i = 2; i < 8; ++i) CHECK(a.blocks()[i] != b.blocks()[i]);
}

TEST_CASE("equal text after a different beginning is not the same block") {
  TokenChain a(16);
  TokenChain b(16);
  a.append(1, 16);
  b.append(2, 16);
  a.append(3, 16);
  b.append(3, 16);
  CHECK(a.blocks()[1] != b.blocks()[1]);
}

TEST_CASE("all blocks of a long text differ") {
  TokenChain chain(16);
  chain.append(1, 160'000);
  CHECK(std::set<std::uint64_t>(chain.blocks().begin(), chain.blocks().end()).size() == 10'000);
}

TEST_CASE("a prefix keeps whole blocks and can be continued") {
  TokenChain chain(16);
  chain.append(1, 100);
  TokenChain fork = chain.prefix(50);
  CHECK(fork.tokens() == 48);
  REQUIRE(fork.blocks().size() == 3);
  CHECK(fork.blocks()[2] == chain.blocks()[2]);
  fork.append(2, 16);
  CHECK(fork.blocks()[3] != chain.blocks()[3]);
}
