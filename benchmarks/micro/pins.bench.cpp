// SPDX-License-Identifier: Apache-2.0
//
// What the store of pins costs by itself: find, pin of a known key, and bytes a pin; beside it the
// naive rival's find.
//
// Keys are hashed in the measured time, since a caller has text. Each checks what it found. Bytes
// are those that operator new handed out while the full-sized store was made. Not measured: a store
// so full that it evicts (first_turn does).
#include "support.hpp"

#include <limpet/hash.hpp>
#include <limpet/pins/sharded.hpp>

#include <memory>
#include <string>
#include <vector>

namespace limpet::bench {
namespace {

constexpr Home home{.replica = {.slot = 1, .version = 0}, .generation = 0};
constexpr Instant now{};

struct Store {
  explicit Store(const std::vector<std::string>& keys) {
    const std::size_t capacity = keys.size() + keys.size() / 4;
    const std::uint64_t before = allocated().bytes;
    pins = std::make_unique<ShardedPins<>>(ShardedPinOptions{.capacity = capacity});
    bytes_a_pin = static_cast<double>(allocated().bytes - before) / static_cast<double>(capacity);
    for (const std::string& key : keys) pins->pin(KeyHasher{}(key), home, now);
  }

  std::unique_ptr<ShardedPins<>> pins;
  double bytes_a_pin = 0.0;
};

[[nodiscard]] Store& store_with(const std::vector<std::string>& keys) {
  return made_once<Store>(static_cast<std::int64_t>(keys.size()),
                          [&] { return std::make_unique<Store>(keys); });
}

void find_pin(benchmark::State& state) {
  const auto& keys = session_ids(state.range(0));
  const Store& store = store_with(keys);
  Visits visits(keys, state);
  measure(state, [&] { return store.pins->find(KeyHasher{}(visits.next()), now) == home; });
  state.counters["bytes/pin"] = store.bytes_a_pin;
}

void pin_again(benchmark::State& state) {
  const auto& keys = session_ids(state.range(0));
  const Store& store = store_with(keys);
  Visits visits(keys, state);
  measure(state, [&] { return store.pins->pin(KeyHasher{}(visits.next()), home, now) == home; });
}

void naive_find(benchmark::State& state) {
  const auto& keys = session_ids(state.range(0));
  const NaivePins& pins =
      made_once<NaivePins>(state.range(0), [&] { return std::make_unique<NaivePins>(keys); });
  Visits visits(keys, state);
  measure(state, [&] { return pins.find(visits.next()) == 1; });
}

BENCHMARK(find_pin)->ArgName("pins")->Arg(8 * Ki)->Arg(100 * Ki)->Arg(1 * Mi);
BENCHMARK(pin_again)->ArgName("pins")->Arg(8 * Ki)->Arg(100 * Ki)->Arg(1 * Mi);
BENCHMARK(naive_find)->ArgName("pins")->Arg(8 * Ki)->Arg(100 * Ki)->Arg(1 * Mi);
BENCHMARK(naive_find)
    ->Name("threads_naive_find")
    ->ArgName("pins")
    ->Arg(1)
    ->Arg(8 * Ki)
    ->Arg(1 * Mi)
    ->ThreadRange(1, 16)
    ->UseRealTime();

}  // namespace
}  // namespace limpet::bench
