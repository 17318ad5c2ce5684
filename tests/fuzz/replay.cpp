// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target over a folder of stored inputs, without a fuzzer: any compiler, any sanitizer.
//
// Each input is run whole and cut at up to 64 places, since a page that ends anywhere is the most
// common damage. A folder that is absent or empty is an error: a corpus must not vanish unnoticed.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// A copy of exactly that size, so that AddressSanitizer sees a read past the end.
void run(const std::vector<char>& bytes, std::size_t size) {
  const std::vector<std::uint8_t> input(bytes.begin(),
                                        bytes.begin() + static_cast<std::ptrdiff_t>(size));
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

std::size_t replay(const std::filesystem::path& folder) {
  std::size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(stream), {});
    std::printf("%s, %zu bytes\n", entry.path().filename().c_str(), bytes.size());
    std::fflush(stdout);
    const std::size_t step = bytes.size() / 64 + 1;
    for (std::size_t size = 0; size < bytes.size(); size += step) run(bytes, size);
    run(bytes, bytes.size());
    ++inputs;
  }
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  try {
    const std::size_t inputs = replay(argv[1]);
    std::printf("%zu inputs\n", inputs);
    return inputs > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
