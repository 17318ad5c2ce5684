// SPDX-License-Identifier: Apache-2.0
//
// Fleet's bodies, second half: who belongs to the pool, what their engines say, and the snapshot of
// it all. None of it is on the way of a turn: it may allocate and holds the membership mutex
// throughout.
#pragma once

#include <limpet/fleet.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet {

// Membership --------------------------------------------------------------------------------------

inline std::string_view Fleet::without_last_slashes(std::string_view endpoint) noexcept {
  while (endpoint.size() > 1 && endpoint.back() == '/') endpoint.remove_suffix(1);
  return endpoint;
}

inline ReplicaId Fleet::add(ReplicaOptions options) {
  detail::require(!options.name.empty(), "name", options.name, "a replica needs a name");
  const std::string_view endpoint =
      without_last_slashes(options.endpoint.empty() ? options.name : options.endpoint);
  options.endpoint = std::string(endpoint.data(), endpoint.size());

  const std::lock_guard lock(membership_);
  std::uint32_t at = size();
  for (std::uint32_t i = 0; i < size(); ++i) {
    const bool removed = Slot::state_of(slot(i).status.load()) == ReplicaState::removed;
    detail::require(removed || info(i).options.name != options.name, "name", options.name,
                    "another replica has that name");
    if (removed && at == size() && slot(i).in_flight.load() == 0) at = i;
  }
  if (at == size()) {
    if (at == 0xFFFF) throw std::length_error("a pool holds at most 65,535 replicas");
    if (at % chunk_size == 0) chunks_[at / chunk_size] = new Chunk;
    size_.store(at + 1, std::memory_order_release);
  }

  Slot& row = slot(at);
  const std::lock_guard row_lock(row.lock);
  const std::uint16_t version = Slot::version_of(row.status.load());
  row.name_hash = KeyHasher{}(options.name).hi;
  row.kv_capacity_tokens = options.kv_capacity_tokens;
  row.max_num_seqs = options.max_num_seqs;
  for (std::uint64_t& counter : row.counters) counter = 0;
  row.sticky = 0;
  info(at).options = std::move(options);
  info(at).joined = ++joins_;
  row.status.store(Slot::pack(version, ReplicaState::up), std::memory_order_release);
  ++serving_;
  return {static_cast<std::uint16_t>(at), version};
}

inline Fleet::Info* Fleet::info_of(ReplicaId replica) noexcept {
  return state(replica) == ReplicaState::removed ? nullptr : &info(replica.slot);
}

inline bool Fleet::set_state(ReplicaId replica, ReplicaState state) {
  const std::lock_guard lock(membership_);
  if (info_of(replica) == nullptr) return false;
  Slot& row = slot(replica.slot);
  const std::lock_guard row_lock(row.lock);
  const bool served = Slot::state_of(row.status.load()) <= ReplicaState::draining;
  row.status.store(Slot::pack(replica.version, state));
  const bool serves = state <= ReplicaState::draining;
  if (serves && !served) ++serving_;
  if (served && !serves) --serving_;
  return true;
}

inline bool Fleet::restarted(ReplicaId replica) {
  const std::lock_guard lock(membership_);
  Info* const info = info_of(replica);
  if (info == nullptr) return false;
  info->is_read = false;
  Slot& row = slot(replica.slot);
  const std::lock_guard row_lock(row.lock);
  row.forget_cache();
  row.count(detail::Counter::restarts);
  return true;
}

inline bool Fleet::remove(ReplicaId replica) {
  const std::lock_guard lock(membership_);
  Info* const info = info_of(replica);
  if (info == nullptr) return false;
  *info = {};
  Slot& row = slot(replica.slot);
  const std::lock_guard row_lock(row.lock);
  if (Slot::state_of(row.status.load()) <= ReplicaState::draining) --serving_;
  row.status.store(
      Slot::pack(static_cast<std::uint16_t>(replica.version + 1), ReplicaState::removed));
  row.forget_cache();
  return true;
}

inline std::optional<ReplicaId> Fleet::find(std::string_view name) const {
  const std::lock_guard lock(membership_);
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (info(i).options.name == name && state(id_of(i)) != ReplicaState::removed) return id_of(i);
  }
  return std::nullopt;
}

inline std::optional<ReplicaOptions> Fleet::options(ReplicaId replica) const {
  const std::lock_guard lock(membership_);
  if (state(replica) == ReplicaState::removed) return std::nullopt;
  return info(replica.slot).options;
}

template <class Members>
Members Fleet::members() const {
  const std::lock_guard lock(membership_);
  for (const ReplicaState wanted : {ReplicaState::up, ReplicaState::draining}) {
    Members members;
    for (std::uint32_t i = 0; i < size(); ++i) {
      const ReplicaId id = id_of(i);
      if (state(id) == wanted) members.push_back({home_at(id), slot(i).name_hash.load()});
    }
    if (!members.empty()) return members;
  }
  return {};
}

// Readings ----------------------------------------------------------------------------------------

// Counts of several engines add up, their shares of a cache do not: the fullest one is what a new
// turn must fear.
inline Reading Fleet::sum_for(const ReplicaOptions& options, const Reading* readings,
                              std::size_t count, bool& found) {
  Reading sum;
  const auto add = [](std::optional<double>& to, std::optional<double> more) {
    if (more) to = to.value_or(0.0) + *more;
  };
  const auto keep_highest = [](std::optional<double>& to, std::optional<double> other) {
    if (other && (!to || *to < *other)) to = other;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const Reading& reading = readings[i];
    if (!options.engine.empty() && options.engine != reading.engine) continue;
    found = true;
    add(sum.running, reading.running);
    add(sum.waiting, reading.waiting);
    add(sum.prefix_queries, reading.prefix_queries);
    add(sum.prefix_hits, reading.prefix_hits);
    add(sum.prompt_tokens, reading.prompt_tokens);
    add(sum.prompt_tokens_cached, reading.prompt_tokens_cached);
    add(sum.kv_capacity_tokens, reading.kv_capacity_tokens);
    keep_highest(sum.kv_usage, reading.kv_usage);
    keep_highest(sum.start_time, reading.start_time);
  }
  return sum;
}

inline bool Fleet::has_restarted(const Reading& before, const Reading& after) noexcept {
  const auto fell = [](std::optional<double> was, std::optional<double> is) {
    return was && is && *is < *was;
  };
  return fell(before.prefix_queries, after.prefix_queries) ||
         fell(before.prefix_hits, after.prefix_hits) ||
         fell(before.prompt_tokens, after.prompt_tokens) ||
         (before.start_time && after.start_time && *before.start_time != *after.start_time);
}

inline Fleet::Observed Fleet::observe(std::string_view endpoint, const Reading* readings,
                                      std::size_t count, Instant now) {
  endpoint = without_last_slashes(endpoint);
  constexpr auto relaxed = std::memory_order_relaxed;
  const auto count_of = [](std::optional<double> gauge) {
    return static_cast<std::uint32_t>(std::clamp(gauge.value_or(0.0), 0.0, 4e9));
  };

  const std::lock_guard lock(membership_);
  Observed observed;
  for (std::uint32_t i = 0; i < size(); ++i) {
    Info& info = this->info(i);
    if (info.options.endpoint != endpoint || state(id_of(i)) == ReplicaState::removed) continue;
    bool found = false;
    const Reading reading = sum_for(info.options, readings, count, found);
    if (!found) continue;
    ++observed.replicas;

    Slot& row = slot(i);
    const std::lock_guard row_lock(row.lock);
    if (info.is_read && has_restarted(info.last, reading)) {
      row.forget_cache();
      row.count(detail::Counter::restarts);
      ++observed.restarts;
    }
    row.running.store(count_of(reading.running), relaxed);
    row.waiting.store(count_of(reading.waiting), relaxed);
    if (info.options.kv_capacity_tokens == 0 && reading.kv_capacity_tokens) {
      row.kv_capacity_tokens.store(
          static_cast<std::uint64_t>(std::clamp(*reading.kv_capacity_tokens, 0.0, 1e15)), relaxed);
    }
    if (reading.kv_usage) {
      row.kv_usage.store(std::clamp(*reading.kv_usage, 0.0, 1.0), relaxed);
      row.in_flight_at_reading.store(row.in_flight.load(relaxed), relaxed);
      row.reading_at.store(now.time_since_epoch().count(), relaxed);
    }
    info.is_read = true;
    info.last = reading;
    info.read_at = now;
  }
  return observed;
}

void Fleet::snapshot(Instant now, auto& rows, bool counts_prefill) const {
  const std::lock_guard lock(membership_);
  struct Place {
    std::uint64_t joined;
    std::uint32_t index;
  };
  std::vector<Place> order;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (state(id_of(i)) != ReplicaState::removed) order.push_back({info(i).joined, i});
  }
  std::sort(order.begin(), order.end(),
            [](const Place& a, const Place& b) { return a.joined < b.joined; });
  for (const auto& [joined, i] : order) {
    const Info& info = this->info(i);
    ReplicaSnapshot out{.id = id_of(i),
                        .name = info.options.name,
                        .endpoint = info.options.endpoint,
                        .rank = info.options.rank,
                        .engine = info.options.engine,
                        .max_num_seqs = info.options.max_num_seqs};
    if (info.is_read) {
      out.running = info.last.running;
      out.waiting = info.last.waiting;
      out.kv_usage = info.last.kv_usage;
      out.prefix_queries = info.last.prefix_queries;
      out.prefix_hits = info.last.prefix_hits;
      out.reading_age = std::chrono::duration<double>(now - info.read_at).count();
    }
    Slot& row = slot(i);
    const std::lock_guard row_lock(row.lock);
    row.live.advance(bucket_of(now));
    out.state = Slot::state_of(row.status.load());
    out.in_flight = row.in_flight.load();
    out.in_flight_tokens = row.in_flight_tokens.load();
    if (counts_prefill) out.pending_prefill_tokens = row.pending_prefill_tokens.load();
    out.live_conversations = row.live.conversations();
    out.live_tokens = row.live.tokens();
    out.pins = row.pinned();
    out.placed = row.counted(detail::Counter::placed);
    out.sticky = row.counted(detail::Counter::sticky);
    out.spilled_in = row.counted(detail::Counter::spilled_in);
    out.spilled_out = row.counted(detail::Counter::spilled_out);
    out.moved = row.counted(detail::Counter::moved);
    out.balanced = row.counted(detail::Counter::balanced);
    out.client_pinned = row.counted(detail::Counter::client_pinned);
    out.failed = row.counted(detail::Counter::failed);
    out.restarts = row.counted(detail::Counter::restarts);
    if (const std::uint64_t capacity = row.kv_capacity_tokens.load(); capacity != 0) {
      out.kv_capacity_tokens = static_cast<double>(capacity);
    }
    rows.push_back(std::move(out));
  }
}

}  // namespace limpet
