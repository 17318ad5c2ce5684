// SPDX-License-Identifier: Apache-2.0
//
// Where recordings of real engines and sessions lie, for tests that use them when they are there.
//
// The folder is named by LIMPET_SHARED_DATA, else it is ../shared/data beside the checkout. The
// recordings are not part of the project, so where a file is absent a test must
// SKIP(missing_data(file)).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace limpet_tests {

[[nodiscard]] inline std::filesystem::path shared_data_folder() {
  if (const char* folder = std::getenv("LIMPET_SHARED_DATA"); folder != nullptr) return folder;
  const auto repository = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  return repository.parent_path() / "shared" / "data";
}

// The whole file, or nothing where it is absent.
[[nodiscard]] inline std::optional<std::string> shared_data(std::string_view file) {
  std::ifstream stream(shared_data_folder() / file, std::ios::binary);
  if (!stream) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

[[nodiscard]] inline std::string missing_data(std::string_view file) {
  return (shared_data_folder() / file).string() + " is absent; set LIMPET_SHARED_DATA";
}

}  // namespace limpet_tests
