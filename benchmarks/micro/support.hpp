// SPDX-License-Identifier: Apache-2.0
//
// What every benchmark shares: session ids in random order, a count of allocations, and the naive
// rival.
//
// A benchmark visits its keys in an order that no prefetcher can guess, checks what it computed, and
// reports `allocs/op`. The floor of all of them is hashing the key (hash.bench.cpp); the rival is
// what one writes first, a mutex around a map from session id to replica, and only its find.
#pragma once

#include <benchmark/benchmark.h>

#include <limpet/hash.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace limpet::bench {

inline constexpr std::int64_t Ki = 1024;
inline constexpr std::int64_t Mi = 1024 * 1024;

// What operator new has done for this thread since it began. Defined in allocations.cpp.
struct Allocated {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
};
[[nodiscard]] Allocated allocated() noexcept;

// Runs `operation() -> bool`, which says whether it came out as it should, for as long as the
// benchmark asks, then some more times to count allocations.
template <class Operation>
void measure(benchmark::State& state, Operation operation) {
  constexpr std::int64_t counted = 1000;
  std::int64_t right = 0;
  for (auto _ : state) right += operation() ? 1 : 0;

  const std::uint64_t before = allocated().calls;
  for (std::int64_t i = 0; i < counted; ++i) right += operation() ? 1 : 0;
  const auto calls = static_cast<double>(allocated().calls - before);
  state.counters["allocs/op"] =
      benchmark::Counter(calls / counted, benchmark::Counter::kAvgThreads);
  state.SetItemsProcessed(state.iterations());
  if (right != state.iterations() + counted) state.SkipWithError("a wrong result");
}

[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t number) noexcept {
  return rendezvous_weight({.hi = number * 0x9e3779b97f4a7c15ULL, .lo = 0}, 0x2545f4914f6cdd1dULL);
}

// `count` session ids as agents make them: version 4 UUIDs, 36 characters. Kept until the process
// ends, since several benchmarks visit the same.
[[nodiscard]] inline const std::vector<std::string>& session_ids(std::int64_t count) {
  static std::unordered_map<std::int64_t, std::vector<std::string>> made;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::vector<std::string>& ids = made[count];
  if (!ids.empty()) return ids;
  ids.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::uint64_t>(i);
    const std::uint64_t a = mixed(2 * number);
    const std::uint64_t b = mixed(2 * number + 1);
    char text[37];
    std::snprintf(text, sizeof text, "%08x-%04x-4%03x-%04x-%012llx", static_cast<unsigned>(a >> 32),
                  static_cast<unsigned>(a >> 16 & 0xffff), static_cast<unsigned>(a & 0xfff),
                  static_cast<unsigned>(0x8000 | (b >> 48 & 0x3fff)),
                  static_cast<unsigned long long>(b & 0xffffffffffff));
    ids.emplace_back(text);
  }
  return ids;
}

// Visits keys at random, each thread in an order of its own.
class Visits {
 public:
  Visits(const std::vector<std::string>& keys, const benchmark::State& state)
      : keys_(keys), draws_(static_cast<std::uint64_t>(state.thread_index()) << 32) {}

  [[nodiscard]] const std::string& next() noexcept {
    return keys_[(mixed(++draws_) >> 32) * keys_.size() >> 32];
  }

 private:
  const std::vector<std::string>& keys_;
  std::uint64_t draws_;
};

// The naive rival: it knows where a session lives and nothing else.
class NaivePins {
 public:
  explicit NaivePins(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) pin(key, 1);
  }

  void pin(const std::string& key, std::uint32_t replica) {
    const std::lock_guard lock(mutex_);
    pins_.emplace(key, replica);
  }

  [[nodiscard]] std::optional<std::uint32_t> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = pins_.find(key);
    return found == pins_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> pins_;
};

// A thing that is costly to make and the same for all repetitions and threads of a benchmark:
// `make()` runs once for each `number`. Kept until the process ends.
template <class T, class Make>
[[nodiscard]] T& made_once(std::int64_t number, Make make) {
  static std::unordered_map<std::int64_t, std::unique_ptr<T>> made;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::unique_ptr<T>& one = made[number];
  if (!one) one = make();
  return *one;
}

}  // namespace limpet::bench
