// SPDX-License-Identifier: Apache-2.0
//
// The table behind read_engines(): lookup in any order, and whose figures an unlabelled line's are.
#include <limpet/metrics/engine_table.hpp>

#include "catch.hpp"

#include <cstddef>
#include <string>
#include <vector>

using limpet::ReadingField;
using limpet::detail::EngineEntry;
using limpet::detail::EngineTable;

namespace {

std::vector<std::string> numbered(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

TEST_CASE("the table finds what it was given, in any order and number") {
  const std::size_t count = GENERATE(std::size_t{1}, std::size_t{15}, std::size_t{16},
                                     std::size_t{17}, std::size_t{33}, std::size_t{1000});
  const auto names = numbered(count);
  EngineTable table;
  for (const auto& name : names) {
    table.find_or_add(name, "m").add(ReadingField::running, 0, std::stod(name));
  }
  REQUIRE(table.size() == count);
  for (std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{31}}) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& name = names[i * step % count];
      EngineEntry* const found = table.find(name, "m");
      REQUIRE(found != nullptr);
      REQUIRE(found->get(ReadingField::running) == std::stod(name));
      REQUIRE(&table.find_or_add(name, "m") == found);
      REQUIRE(table.find(name, "n") == nullptr);
    }
  }
  CHECK(table.size() == count);
  for (std::size_t i = 0; i < count; ++i) REQUIRE(table[i].engine == names[i]);
}

TEST_CASE("a figure without labels belongs to the only engine, however many lines it has") {
  EngineTable table;
  table.find_or_add("", "").add(ReadingField::waiting, 0, 3.0);
  table.find_or_add("0", "").add(ReadingField::kv_capacity_tokens, 0, 100.0);
  table.find_or_add("0", "m").add(ReadingField::running, 0, 1.0);
  table.join_labels();
  const EngineEntry& entry = *table.find("0", "m");
  CHECK(entry.get(ReadingField::running) == 1.0);
  CHECK(entry.get(ReadingField::waiting) == 3.0);
  CHECK(entry.get(ReadingField::kv_capacity_tokens) == 100.0);
  CHECK_FALSE(entry.is_general);
  CHECK(table.find("", "")->is_general);
  CHECK(table.find("0", "")->is_general);
}

TEST_CASE("the closest of two unlabelled lines counts") {
  EngineTable table;
  table.find_or_add("", "").add(ReadingField::running, 0, 1.0);
  table.find_or_add("0", "").add(ReadingField::running, 0, 2.0);
  table.find_or_add("0", "m").add(ReadingField::waiting, 0, 0.0);
  table.join_labels();
  CHECK(table.find("0", "m")->get(ReadingField::running) == 2.0);
}

TEST_CASE("a figure without labels belongs to none of several engines") {
  EngineTable table;
  table.find_or_add("", "m").add(ReadingField::prompt_tokens, 0, 9.0);
  table.find_or_add("0", "m").add(ReadingField::running, 0, 1.0);
  table.find_or_add("1", "m").add(ReadingField::running, 0, 2.0);
  table.join_labels();
  CHECK_FALSE(table.find("0", "m")->get(ReadingField::prompt_tokens).has_value());
  CHECK(table.find("", "m")->is_general);
  CHECK(table.find("", "m")->specifics == 2);
}
