// SPDX-License-Identifier: Apache-2.0
//
// The cases that laws.hpp tries a policy on: loads, pools and pages from a seed, the same on every
// machine. The corners (nothing known, everything full, counts at their limits) come first and are
// always there. Source of the generator: splitmix64 (Steele, Lea and Flood, 2014).
#pragma once

#include <limpet/concepts.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet::testing::detail {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t operator()() noexcept {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  // Small numbers as often as large ones: 0 to just under 2^bits.
  std::uint64_t any_size(unsigned bits) noexcept {
    const std::uint64_t value = (*this)();
    return value >> (64 - bits) >> ((*this)() % (bits + 1));
  }
  std::uint32_t count(unsigned bits) noexcept { return static_cast<std::uint32_t>(any_size(bits)); }
  double share() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// A home, the others, and the turn, as an overflow rule sees them.
struct Pool {
  ReplicaLoad home{};
  std::vector<ReplicaLoad> others{};
  std::uint64_t prompt_tokens = 0;
  std::uint64_t context_tokens = 0;
  std::uint64_t uncached_at_home = 0;
  std::uint64_t uncached_elsewhere = 0;

  [[nodiscard]] OverflowView view() const noexcept {
    OverflowView view(
        home, static_cast<std::uint32_t>(others.size()), &others,
        [](const void* source, void* context, OverflowView::Visit visit) {
          for (const ReplicaLoad& other : *static_cast<const std::vector<ReplicaLoad>*>(source))
            visit(context, other);
        });
    view.prompt_tokens = prompt_tokens;
    view.context_tokens = context_tokens;
    view.uncached_at_home = uncached_at_home;
    view.uncached_elsewhere = uncached_elsewhere;
    return view;
  }

  [[nodiscard]] bool holds(ReplicaId replica) const noexcept {
    for (const ReplicaLoad& other : others) {
      if (other.replica == replica) return true;
    }
    return false;
  }
};

struct Cases {
  explicit Cases(std::uint64_t seed) {
    Random random(seed);
    constexpr ReplicaLoad idle{.replica = {0, 0}};
    constexpr ReplicaLoad full{.replica = {1, 0},
                               .reading_fresh = true,
                               .max_num_seqs = 1,
                               .in_flight = 1'000'000,
                               .in_flight_tokens = std::uint64_t{1} << 40,
                               .pending_prefill_tokens = std::uint64_t{1} << 40,
                               .live_conversations = 1'000'000,
                               .live_tokens = std::uint64_t{1} << 40,
                               .kv_capacity_tokens = 1,
                               .kv_usage = 1.0,
                               .running = 1'000'000,
                               .waiting = 1'000'000};
    for (const ReplicaLoad& load : {idle, full}) {
      scores.push_back({load, {.candidates = 1}});
      scores.push_back({load, {.gauges_fresh = true, .candidates = 1}});
      pools.push_back({.home = load, .others = {idle}});
      pools.push_back({.home = load, .others = {full}});
    }
    for (int i = 0; i < 2000; ++i) {
      const std::uint32_t candidates = 1 + random.count(10);
      scores.push_back({some_load(random, 0),
                        {.gauges_fresh = random() % 2 == 0,
                         .candidates = candidates,
                         .position = static_cast<std::uint32_t>(random() % candidates),
                         .draw = random.any_size(40),
                         .prompt_tokens = random.any_size(20),
                         .uncached_tokens = random.any_size(20)}});
      Pool pool{.home = some_load(random, 0),
                .prompt_tokens = random.any_size(20),
                .context_tokens = random.any_size(20),
                .uncached_at_home = random.any_size(20),
                .uncached_elsewhere = random.any_size(20)};
      for (std::uint64_t others = 1 + random() % 8; others > 0; --others)
        pool.others.push_back(some_load(random, static_cast<std::uint16_t>(others)));
      pools.push_back(std::move(pool));
    }
  }

  std::vector<std::pair<ReplicaLoad, ScoreContext>> scores;
  std::vector<Pool> pools;

 private:
  static ReplicaLoad some_load(Random& random, std::uint16_t slot) {
    const bool has_reading = random() % 4 != 0;
    return {.replica = {slot, static_cast<std::uint16_t>(random() % 3)},
            .reading_fresh = has_reading && random() % 4 != 0,
            .max_num_seqs = random.count(9),
            .in_flight = random.count(7),
            .in_flight_tokens = random.any_size(22),
            .pending_prefill_tokens = random.any_size(22),
            .live_conversations = random.count(8),
            .live_tokens = random.any_size(22),
            .kv_capacity_tokens = random() % 4 == 0 ? 0 : random.any_size(22),
            .kv_usage = has_reading ? random.share() : 0.0,
            .in_flight_at_reading = random.count(7),
            .running = random.count(7),
            .waiting = random.count(7)};
  }
};

// What a parser made of a page, comparable: readings as the bytes of their fields.
struct Parsed {
  ParseStatus status = ParseStatus::ok;
  std::vector<std::string> readings{};

  [[nodiscard]] friend bool operator==(const Parsed&, const Parsed&) = default;
};

template <MetricsParser P>
[[nodiscard]] Parsed parse(const P& parser, std::string_view page) {
  Parsed parsed;
  auto keep = [&](const Reading& reading) {
    std::string bytes;
    bytes.append(reading.engine).append(1, '\0').append(reading.model).append(1, '\0');
    for (const std::optional<double>& field :
         {reading.running, reading.waiting, reading.kv_usage, reading.prefix_queries,
          reading.prefix_hits, reading.prompt_tokens, reading.prompt_tokens_cached,
          reading.kv_capacity_tokens, reading.start_time}) {
      char raw[sizeof(double)];
      const double value = field.value_or(0.0);
      std::memcpy(raw, &value, sizeof raw);
      bytes.append(1, field ? '1' : '0').append(raw, sizeof raw);
    }
    parsed.readings.push_back(std::move(bytes));
  };
  parsed.status = parser.parse(page, ReadingSink(keep));
  return parsed;
}

// A page with a few bytes changed, added or left out.
[[nodiscard]] inline std::string scrambled(std::string_view page, Random& random) {
  constexpr std::string_view telling = "{}[]\",=\\#\n\r\t :.-+eE09naN\0\xff";
  std::string text(page);
  for (std::uint64_t edits = 1 + random() % 8; edits > 0 && !text.empty(); --edits) {
    const std::size_t at = random() % text.size();
    const char byte = telling[random() % telling.size()];
    switch (random() % 3) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text.erase(at, random() % 40);
    }
  }
  return text;
}

[[nodiscard]] inline std::string random_bytes(std::size_t size, Random& random) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace limpet::testing::detail
