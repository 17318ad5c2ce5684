// SPDX-License-Identifier: Apache-2.0
//
// Formatters for fmt: outcomes, reasons, states and ids as words, a decision as one line, a
// snapshot and an explanation as a table for people.
//
// Optional: needs fmt 9 or later (target limpet::fmt); nothing else includes it. Every formatter
// takes the format spec of a string: fmt::format("{:>8}", lease.outcome()). Tables end without a
// newline; an unknown figure is "-", never 0. Words allocate nothing, the rest does: this is for
// logs and terminals, not for every turn. Stateless, thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/explanation.hpp>
#include <limpet/snapshot.hpp>
#include <limpet/types.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace limpet::detail {

template <class E>
concept Word = std::is_enum_v<E> && requires(E word) {
  { limpet::to_string(word) } -> std::same_as<std::string_view>;
};

// Left-aligned names, right-aligned figures, two spaces between columns.
class TextTable {
 public:
  enum class Align : std::uint8_t { left, right };

  void column(std::string title, Align align = Align::right) {
    columns_.push_back({width(title), align});
    title_.push_back(std::move(title));
  }

  void row(std::vector<std::string> cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      columns_[i].width = std::max(columns_[i].width, width(cells[i]));
    }
    rows_.push_back(std::move(cells));
  }

  void append_to(std::string& text) const {
    append_line(text, title_);
    for (const std::vector<std::string>& cells : rows_) {
      text += '\n';
      append_line(text, cells);
    }
  }

 private:
  struct Column {
    std::size_t width;
    Align align;
  };

  // Code points: names may be UTF-8.
  [[nodiscard]] static std::size_t width(std::string_view text) noexcept {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }

  void append_line(std::string& text, const std::vector<std::string>& cells) const {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(columns_[i].width - width(cells[i]), ' ');
      if (i > 0) text += "  ";
      if (columns_[i].align == Align::right) text += padding;
      text += cells[i];
      if (columns_[i].align == Align::left) text += padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
  }

  std::vector<Column> columns_;
  std::vector<std::string> title_;
  std::vector<std::vector<std::string>> rows_;
};

[[nodiscard]] inline std::string cell(std::optional<double> figure, int decimals,
                                      std::string_view unit = "") {
  return figure ? fmt::format("{:.{}f}{}", *figure, decimals, unit) : "-";
}

[[nodiscard]] inline std::string text_of(ReplicaId id) {
  return id ? fmt::format("#{}.{}", id.slot, id.version) : "none";
}

[[nodiscard]] inline std::string text_of(const Decision& decision) {
  std::string text(to_string(decision.outcome));
  if (decision.replica) {
    text += fmt::format(" to {}, {} in flight", text_of(decision.replica), decision.in_flight_seen);
  }
  if (decision.home.replica && decision.home.replica != decision.replica) {
    text += fmt::format(", home {}", text_of(decision.home.replica));
  }
  if (decision.previous.replica) {
    text += fmt::format(", was {}", text_of(decision.previous.replica));
  }
  return text.append(": ").append(to_string(decision.reason));
}

[[nodiscard]] inline std::string text_of(const Snapshot& snapshot) {
  TextTable table;
  table.column("replica", TextTable::Align::left);
  table.column("state", TextTable::Align::left);
  bool counts_prefill = false;
  for (const ReplicaSnapshot& r : snapshot.replicas)
    counts_prefill = counts_prefill || r.pending_prefill_tokens;
  table.column("in flight");
  if (counts_prefill) table.column("to read");
  for (const char* const title :
       {"live", "pins", "placed", "sticky", "spilled in", "spilled out", "moved", "balanced",
        "client", "failed", "running", "waiting", "kv", "hits", "age"}) {
    table.column(title);
  }
  for (const ReplicaSnapshot& r : snapshot.replicas) {
    std::optional<double> hits;
    if (r.prefix_queries && r.prefix_hits && *r.prefix_queries > 0) {
      hits = 100 * *r.prefix_hits / *r.prefix_queries;
    }
    std::vector<std::string> cells{r.name, std::string(to_string(r.state)),
                                   fmt::format("{}", r.in_flight)};
    if (counts_prefill) cells.push_back(fmt::format("{}", r.pending_prefill_tokens.value_or(0)));
    for (const std::uint64_t count :
         {std::uint64_t{r.live_conversations}, std::uint64_t{r.pins}, r.placed, r.sticky,
          r.spilled_in, r.spilled_out, r.moved, r.balanced, r.client_pinned, r.failed}) {
      cells.push_back(fmt::format("{}", count));
    }
    cells.insert(cells.end(), {cell(r.running, 0), cell(r.waiting, 0), cell(r.kv_usage, 2),
                               cell(hits, 1, " %"), cell(r.reading_age, 1, " s")});
    table.row(std::move(cells));
  }
  std::string text;
  table.append_to(text);
  text += fmt::format(
      "\nrefused {}, unrouted {}; pins unpinned {}, evicted {}, expired {}; pages read {}, bad {}; "
      "affinity {}",
      snapshot.refused, snapshot.unrouted, snapshot.unpinned, snapshot.evicted, snapshot.expired,
      snapshot.readings, snapshot.bad_readings, snapshot.affinity ? "on" : "off");
  return text;
}

// Why `replica` did not get the turn that `chosen` got.
[[nodiscard]] inline std::string_view why_not(const ExplainedReplica& replica,
                                              const ExplainedReplica* chosen,
                                              const Decision& decision) noexcept {
  if (replica.standing == Standing::down) return "is down";
  if (replica.standing == Standing::excluded) return "excluded for this turn";
  if (replica.standing == Standing::draining) return "draining: takes nothing new";
  if (chosen == nullptr) return "";
  switch (decision.reason) {
    case Reason::client_named_replica:
      return "the client named another";
    case Reason::home_has_room:
    case Reason::side_call:
      if (decision.outcome == Outcome::sticky) return "home comes first";
      break;
    case Reason::parent_home:
      return "the parent's home comes first";
    case Reason::home_overloaded_but_best:
      return replica.load.in_flight < chosen->load.in_flight ? "no better, says the overflow rule"
                                                             : "has no fewer in flight than home";
    default:
      break;
  }
  if (replica.home) return replica.overloaded ? "home, but overloaded" : "home, but left";
  if (decision.outcome == Outcome::placed || decision.outcome == Outcome::moved) {
    if (decision.reason == Reason::home_overloaded && replica.score < chosen->score)
      return "the overflow rule named another";
    return replica.score > chosen->score ? "higher score" : "lost the tie";
  }
  return replica.load.in_flight > chosen->load.in_flight ? "more in flight" : "lost the tie";
}

[[nodiscard]] inline std::string text_of(const Explanation& explanation) {
  const Decision& decision = explanation.decision;
  const ExplainedReplica* chosen = nullptr;
  const ScoreTerms* terms = nullptr;  // of a replica that has some: their names head the columns
  bool any_up = false;                // draining replicas are scored only where none is
  for (const ExplainedReplica& r : explanation.replicas) {
    if (r.standing == Standing::chosen) chosen = &r;
    if (r.terms[0].name != nullptr) terms = &r.terms;
    any_up = any_up || (r.standing <= Standing::eligible && r.load.state == ReplicaState::up);
  }

  std::string text(to_string(decision.outcome));
  if (chosen != nullptr) text.append(" to ").append(chosen->name);
  text.append(": ").append(to_string(decision.reason));
  if (!explanation.gauges_fresh) text += "; gauges not all fresh, so not scored";
  text += '\n';

  TextTable table;
  table.column("", TextTable::Align::left);
  table.column("replica", TextTable::Align::left);
  table.column("state", TextTable::Align::left);
  for (const char* const title : {"in flight", "live", "kv", "age", "score"}) table.column(title);
  const char* sign = "= ";
  for (std::size_t i = 0; terms != nullptr && i < terms->size(); ++i) {
    if ((*terms)[i].name == nullptr) continue;
    table.column(std::string(sign) + (*terms)[i].name);
    sign = "+ ";
  }
  table.column("why", TextTable::Align::left);

  for (const ExplainedReplica& r : explanation.replicas) {
    const bool scored =
        r.standing <= Standing::eligible && (r.load.state == ReplicaState::up || !any_up);
    const bool read = r.reading_age.has_value();
    std::vector<std::string> cells{r.standing == Standing::chosen ? "->" : "",
                                   r.name,
                                   std::string(to_string(r.load.state)),
                                   fmt::format("{}", r.load.in_flight),
                                   fmt::format("{}", r.load.live_conversations),
                                   cell(read ? std::optional(r.load.kv_usage) : std::nullopt, 2),
                                   cell(r.reading_age, 1, " s"),
                                   cell(scored ? std::optional(r.score) : std::nullopt, 3)};
    for (std::size_t i = 0; terms != nullptr && i < terms->size(); ++i) {
      if ((*terms)[i].name == nullptr) continue;
      cells.push_back(cell(scored ? std::optional(r.terms[i].value) : std::nullopt, 3));
    }
    cells.emplace_back(&r == chosen ? to_string(decision.reason) : why_not(r, chosen, decision));
    table.row(std::move(cells));
  }
  table.append_to(text);
  return text;
}

// What becomes text by one of the functions above.
template <class T>
concept Text = std::same_as<T, ReplicaId> || std::same_as<T, Decision> ||
               std::same_as<T, Snapshot> || std::same_as<T, Explanation>;

}  // namespace limpet::detail

namespace fmt {

template <limpet::detail::Word E>
struct formatter<E, char> : formatter<std::string_view> {
  template <class Context>
  auto format(E word, Context& context) const {
    return formatter<std::string_view>::format(limpet::to_string(word), context);
  }
};

template <limpet::detail::Text T>
struct formatter<T, char> : formatter<std::string_view> {
  template <class Context>
  auto format(const T& value, Context& context) const {
    return formatter<std::string_view>::format(limpet::detail::text_of(value), context);
  }
};

}  // namespace fmt
