// SPDX-License-Identifier: Apache-2.0
//
// Small policies that tests share: a metrics page that is one number, and a store that is the four
// primitives of PinStore over a std::map and nothing more.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/scorers/weighted.hpp>

#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace limpet_test {

// Placement that reads the gauge: a full cache counts as eight turns, a live conversation as one.
inline constexpr limpet::WeightedLoad with_gauge{.kv_usage_weight = 8, .live_weight = 1};

// A page is the KV usage in decimal, as "0.25". An empty one is malformed.
struct NumberPage {
  limpet::ParseStatus parse(std::string_view page, limpet::ReadingSink sink) const noexcept {
    double usage = 0.0;
    const char* const end = page.data() + page.size();
    const auto [stop, error] = std::from_chars(page.data(), end, usage);
    if (error != std::errc{} || stop != end) return limpet::ParseStatus::malformed;
    sink(limpet::Reading{.kv_usage = usage});
    return limpet::ParseStatus::ok;
  }
};

// Never expires and never evicts. Thread-safe.
class FourPrimitives {
 public:
  FourPrimitives() = default;
  FourPrimitives(FourPrimitives&& other) noexcept : pins_(std::move(other.pins_)) {}
  FourPrimitives& operator=(FourPrimitives&& other) noexcept {
    pins_ = std::move(other.pins_);
    return *this;
  }

  [[nodiscard]] std::optional<limpet::Home> find(limpet::KeyHash key, limpet::Instant) const {
    const std::lock_guard lock(mutex_);
    const auto found = pins_.find({key.hi, key.lo});
    return found == pins_.end() ? std::nullopt : std::optional(found->second);
  }
  limpet::Home pin(limpet::KeyHash key, limpet::Home home, limpet::Instant) {
    const std::lock_guard lock(mutex_);
    return pins_.try_emplace({key.hi, key.lo}, home).first->second;
  }
  limpet::Home repin(limpet::KeyHash key, limpet::Home expected, limpet::Home desired,
                     limpet::Instant) {
    const std::lock_guard lock(mutex_);
    const auto at = pins_.try_emplace({key.hi, key.lo}, desired).first;
    if (at->second == expected) at->second = desired;
    return at->second;
  }
  bool unpin(limpet::KeyHash key, limpet::Home expected) {
    const std::lock_guard lock(mutex_);
    const auto found = pins_.find({key.hi, key.lo});
    if (found == pins_.end() || found->second != expected) return false;
    pins_.erase(found);
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, limpet::Home> pins_;
};

static_assert(limpet::MetricsParser<NumberPage>);
static_assert(limpet::PinStore<FourPrimitives>);
static_assert(!limpet::TracksTurns<FourPrimitives>);

}  // namespace limpet_test
