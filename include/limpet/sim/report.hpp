// SPDX-License-Identifier: Apache-2.0
//
// Report: what one run came to, in the columns by which policies are compared.
//
// Medians and tails can look good while a few sessions starve, so the mean, the slowest session and
// Jain's fairness index stand beside them. Quantiles are the ladder tool's: element floor(p n) of
// the sorted list. Plain values; the text forms are stable to the byte.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <limpet/types.hpp>

namespace limpet::sim {

struct TurnRecord {
  std::string session;
  std::uint32_t seat = 0;  // the user that sent it
  std::uint32_t turn = 0;  // within its session
  std::uint32_t replica = 0;
  Outcome outcome = Outcome::balanced;
  double sent = 0;  // s since the run began, as the next two
  double first = 0;
  double end = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t output_tokens = 0;
};

struct Quantity {  // of times in s
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double mean = 0;
  double max = 0;

  [[nodiscard]] static Quantity of(std::vector<double> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    const auto at = [&](double p) {
      const auto i = static_cast<std::size_t>(p * static_cast<double>(values.size()));
      return values[std::min(i, values.size() - 1)];
    };
    double sum = 0;
    for (const double value : values) sum += value;
    return {at(0.50), at(0.95), at(0.99), sum / static_cast<double>(values.size()), values.back()};
  }
};

struct Report {
  std::string policy;
  std::uint32_t seats = 0;  // sessions at once
  double seconds = 0;
  std::uint64_t turns = 0;
  std::uint64_t sessions = 0;  // completed
  double sessions_per_hour = 0;
  double output_tokens_per_minute = 0;
  Quantity ttfb;             // of all turns
  Quantity ttfb_first;       // of the first turns of sessions
  Quantity session;          // duration of those completed
  double prefix_hits = 0;    // share of prompt tokens found, by the engines' own counters, 0..1
  double from_cache = 0;     // the same by what each turn was told
  double replicas_busy = 0;  // mean number of replicas with a turn running
  double stayed_home = 1;    // share of the turns that had a home
  std::uint64_t spilled = 0;
  std::uint64_t moved = 0;
  std::uint64_t preemptions = 0;
  double jain = 1;  // of the output tokens that each seat got: 1 is equal, 1/n is all to one
};

[[nodiscard]] inline double jain_index(const std::vector<double>& shares) noexcept {
  double sum = 0;
  double squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares == 0 ? 1.0 : sum * sum / (static_cast<double>(shares.size()) * squares);
}

// The columns that follow from the turns alone; run.hpp adds what only the engines know.
[[nodiscard]] inline Report summarize(const std::vector<TurnRecord>& turns, std::uint32_t seats) {
  Report report;
  report.seats = seats;
  report.turns = turns.size();
  std::vector<double> all;
  std::vector<double> first;
  std::vector<double> shares(seats, 0.0);
  std::uint64_t sticky = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  for (const TurnRecord& turn : turns) {
    all.push_back(turn.first - turn.sent);
    if (turn.turn == 0) first.push_back(turn.first - turn.sent);
    shares[turn.seat] += static_cast<double>(turn.output_tokens);
    prompt_tokens += turn.prompt_tokens;
    cached_tokens += turn.cached_tokens;
    sticky += turn.outcome == Outcome::sticky ? 1 : 0;
    report.spilled += turn.outcome == Outcome::spilled ? 1 : 0;
    report.moved += turn.outcome == Outcome::moved ? 1 : 0;
  }
  report.ttfb = Quantity::of(std::move(all));
  report.ttfb_first = Quantity::of(std::move(first));
  report.jain = jain_index(shares);
  if (prompt_tokens > 0) {
    report.from_cache = static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
  const std::uint64_t with_home = sticky + report.spilled + report.moved;
  if (with_home > 0) {
    report.stayed_home = static_cast<double>(sticky) / static_cast<double>(with_home);
  }
  return report;
}

[[nodiscard]] inline std::string table_head() {
  return "policy                    seats  turns  out/min    p50    p95    p99   mean  first  "
         "hits%  "
         "cache%   busy  home%  spill  moved  preempt  sess/h  slowest  jain\n";
}

[[nodiscard]] inline std::string table_row(const Report& r) {
  char line[320];
  const int length = std::snprintf(
      line, sizeof line,
      "%-25s %5u %6llu %8.0f %6.2f %6.2f %6.2f %6.2f %6.2f %6.1f %6.1f %5.2f %6.1f %6llu %6llu "
      "%8llu "
      "%7.0f %8.1f %5.3f\n",
      r.policy.c_str(), r.seats, static_cast<unsigned long long>(r.turns),
      r.output_tokens_per_minute, r.ttfb.p50, r.ttfb.p95, r.ttfb.p99, r.ttfb.mean, r.ttfb_first.p50,
      100 * r.prefix_hits, 100 * r.from_cache, r.replicas_busy, 100 * r.stayed_home,
      static_cast<unsigned long long>(r.spilled), static_cast<unsigned long long>(r.moved),
      static_cast<unsigned long long>(r.preemptions), r.sessions_per_hour, r.session.max, r.jain);
  return {line, static_cast<std::size_t>(std::max(0, length))};
}

// One JSON object, times in s, shares 0..1.
[[nodiscard]] inline std::string to_json(const Report& r) {
  std::string json = "{\"policy\": \"" + r.policy + "\"";
  const auto add = [&json](const std::string& name, double value) {
    char text[64];
    const int length = std::snprintf(text, sizeof text, "%.6g", value);
    json += ", \"" + name + "\": " + std::string(text, static_cast<std::size_t>(length));
  };
  const auto add_times = [&add](const std::string& name, const Quantity& q) {
    add(name + "_p50", q.p50);
    add(name + "_p95", q.p95);
    add(name + "_p99", q.p99);
    add(name + "_mean", q.mean);
    add(name + "_max", q.max);
  };
  add("seats", r.seats);
  add("seconds", r.seconds);
  add("turns", static_cast<double>(r.turns));
  add("sessions", static_cast<double>(r.sessions));
  add("sessions_per_hour", r.sessions_per_hour);
  add("output_tokens_per_minute", r.output_tokens_per_minute);
  add_times("ttfb", r.ttfb);
  add_times("ttfb_first", r.ttfb_first);
  add_times("session", r.session);
  add("prefix_hits", r.prefix_hits);
  add("from_cache", r.from_cache);
  add("replicas_busy", r.replicas_busy);
  add("stayed_home", r.stayed_home);
  add("spilled", static_cast<double>(r.spilled));
  add("moved", static_cast<double>(r.moved));
  add("preemptions", static_cast<double>(r.preemptions));
  add("jain", r.jain);
  return json + "}";
}

}  // namespace limpet::sim
