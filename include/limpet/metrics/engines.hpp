// SPDX-License-Identifier: Apache-2.0
//
// read_engines(): a metrics page and an EngineFormat -> one Reading an engine, in page order.
//
// What the page says of several engines together comes as a reading without an engine. A family
// that is declared and has no sample is 0: the engine is idle, not down. Figures that make no sense
// are unknown. Of another series' line only the first and last byte are checked. The page may lack
// its last newline; a last line that was cut off makes it malformed. Pure, so thread-safe. Cost:
// below three memchr passes over the page's lines, and no allocation up to 16 engines.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/metrics/engine_table.hpp>
#include <limpet/metrics/format.hpp>
#include <limpet/metrics/prometheus.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>

namespace limpet {

namespace detail {

// Gathers in one pass, then hands out: the sink sees nothing of a page that breaks off later.
class EngineScan {
 public:
  explicit EngineScan(const EngineFormat& format) noexcept : format_(format) {
    for (const EngineSeries& series : format.series) initials_ |= bit_of(series.name.front());
    if (!format.cache.name.empty()) initials_ |= bit_of(format.cache.name.front());
    if (!format.process_start.empty()) process_initial_ = format.process_start.front();
  }

  // Whether the page is well formed. Throws std::bad_alloc.
  [[nodiscard]] bool gather(std::string_view page) {
    const bool is_well_formed =
        prometheus::for_each_line(page, [this](std::string_view line, bool is_terminated) {
          return (is_terminated || prometheus::is_whole(line)) && read_line(line);
        });
    if (!is_well_formed) return false;
    // Families of an engine, and no sample that names one.
    if (entries_.size() == 0 && declared_ != 0) static_cast<void>(entries_.find_or_add({}, {}));
    return true;
  }

  // Requires: gather() returned true. `model` empty: all.
  [[nodiscard]] ParseStatus deliver(std::string_view model, ReadingSink sink) {
    share_blocks();
    entries_.join_labels();
    ParseStatus status = ParseStatus::no_engine;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (!is_wanted(entries_[i], model)) continue;
      sink(reading_of(entries_[i]));
      status = ParseStatus::ok;
    }
    return status;
  }

 private:
  // Preferences of the two ways to tell the size of the cache by labels.
  static constexpr std::uint8_t by_tokens = 0;
  static constexpr std::uint8_t by_blocks = 1;

  enum class Kind : std::uint8_t { other, figure, cache, process_start };

  struct Match {
    Kind kind = Kind::other;
    const EngineSeries* series = nullptr;
  };

  [[nodiscard]] static constexpr std::uint32_t bit_of(char letter) noexcept {
    return std::uint32_t{1} << (static_cast<unsigned char>(letter) & 31U);
  }

  [[nodiscard]] static constexpr std::uint32_t bit_of(ReadingField field) noexcept {
    return std::uint32_t{1} << static_cast<unsigned>(field);
  }

  // One look at a line that most others of the engine fail: the separator and the letter after it.
  [[nodiscard]] bool may_follow_prefix(std::string_view text) const noexcept {
    const std::size_t size = format_.prefix.size();
    return text.size() > size + 1 && (initials_ & bit_of(text[size + 1])) != 0 &&
           (text[size] == ':' || text[size] == '_');
  }

  // What follows the prefix; empty if that can't be one of our names.
  [[nodiscard]] std::string_view after_prefix(std::string_view text) const noexcept {
    if (!may_follow_prefix(text) || !text.starts_with(format_.prefix)) return {};
    return text.substr(format_.prefix.size() + 1);
  }

  [[nodiscard]] static bool begins_with_name(std::string_view text,
                                             std::string_view name) noexcept {
    if (name.empty() || !text.starts_with(name)) return false;
    return text.size() == name.size() || text[name.size()] == '{' ||
           prometheus::is_blank(text[name.size()]);
  }

  // `text` is a line that begins with a name, or a name; not empty.
  [[nodiscard]] Match match(std::string_view text) const noexcept {
    const std::string_view rest = after_prefix(text);
    if (rest.empty()) {
      if (begins_with_name(text, format_.process_start)) return {.kind = Kind::process_start};
      return {};
    }
    for (const EngineSeries& series : format_.series) {
      if (begins_with_name(rest, series.name)) return {.kind = Kind::figure, .series = &series};
    }
    if (begins_with_name(rest, format_.cache.name)) return {.kind = Kind::cache};
    return {};
  }

  [[nodiscard]] bool read_line(std::string_view line) {
    if (line.empty()) return true;
    if (prometheus::starts_name(line.front())) {
      if (may_follow_prefix(line) || line.front() == process_initial_) {
        const Match found = match(line);
        if (found.kind != Kind::other) return read_sample(found, prometheus::parse_sample(line));
      }
      if (prometheus::is_digit(line.back())) return true;
      return static_cast<bool>(prometheus::parse_sample(line));  // it may end in NaN, Inf, ...
    }
    if (line.front() == '#') {
      read_comment(line);
      return true;
    }
    if (prometheus::is_blank(line.front())) {
      while (!line.empty() && prometheus::is_blank(line.front())) line.remove_prefix(1);
      return read_line(line);
    }
    // Only a line with the name among its labels may begin otherwise.
    const auto sample = prometheus::parse_sample(line);
    return read_sample(match(sample.name), sample);
  }

  [[nodiscard]] bool read_sample(Match found, const prometheus::Sample& sample) {
    if (!sample) return false;
    if (found.kind == Kind::other) return true;
    if (found.kind == Kind::process_start) {
      page_.add(ReadingField::start_time, 0, sample.value);
      return true;
    }
    std::string_view engine;
    std::string_view model;
    std::optional<double> tokens;
    std::optional<double> blocks;
    std::optional<double> block_size;
    prometheus::LineReader labels(sample.labels);
    for (prometheus::Label label; labels.take_label(label);) {
      if (label.name == format_.engine_label) {
        engine = label.value;
      } else if (label.name == format_.model_label) {
        model = label.value;
      } else if (found.kind == Kind::cache) {
        if (label.name == format_.cache.tokens) tokens = prometheus::parse_number(label.value);
        if (label.name == format_.cache.blocks) blocks = prometheus::parse_number(label.value);
        if (label.name == format_.cache.block_size)
          block_size = prometheus::parse_number(label.value);
      }
    }
    EngineEntry& entry = entries_.find_or_add(engine, model);
    if (found.kind == Kind::figure) {
      sampled_ |= bit_of(found.series->field);
      entry.add(found.series->field, found.series->preference, sample.value);
    } else if (tokens) {
      entry.add(ReadingField::kv_capacity_tokens, by_tokens, *tokens);
    }
    if (blocks && block_size) {
      entry.add(ReadingField::kv_capacity_tokens, by_blocks, *blocks * *block_size);
    }
    return true;
  }

  // Notes the families that an idle engine may leave empty. OpenMetrics declares x for the counter
  // x_total.
  void read_comment(std::string_view line) noexcept {
    // Most comments are HELP, or TYPE of other series, and written in the usual way.
    constexpr std::string_view type = "# TYPE ";
    if (line.starts_with("# HELP ")) return;
    if (line.starts_with(type) && after_prefix(line.substr(type.size())).empty()) return;

    const std::string_view name = after_prefix(prometheus::parse_type(line).name);
    if (name.empty()) return;
    for (const EngineSeries& series : format_.series) {
      if (series.field >= ReadingField::kv_capacity_tokens) continue;  // never 0
      if (!series.name.starts_with(name)) continue;
      const std::string_view suffix = series.name.substr(name.size());
      if (suffix.empty() || suffix == "_total") declared_ |= bit_of(series.field);
    }
  }

  [[nodiscard]] static bool is_wanted(const EngineEntry& entry, std::string_view model) noexcept {
    // What belongs to one engine is told with it. What belongs to several is told of none of them,
    // but of the page as a whole.
    if (entry.is_general && (entry.specifics == 1 || !entry.engine.empty())) return false;
    if (model.empty()) return true;
    return entry.model.empty() ? !entry.is_general : prometheus::stands_for(entry.model, model);
  }

  // A server prints the sum of its engines' blocks for each of them.
  void share_blocks() noexcept {
    constexpr auto field = static_cast<std::size_t>(ReadingField::kv_capacity_tokens);
    double sharers = 0.0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].preferences[field] == by_blocks) sharers += 1.0;
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].preferences[field] == by_blocks) entries_[i].values[field] /= sharers;
    }
  }

  [[nodiscard]] Reading reading_of(const EngineEntry& entry) const noexcept {
    const auto figure = [&](ReadingField field) {
      const bool is_idle = (declared_ & ~sampled_ & bit_of(field)) != 0;
      return is_idle ? std::optional(0.0) : entry.get(field);
    };
    const auto page_start = page_.get(ReadingField::start_time);
    return {
        .engine = entry.engine,
        .model = entry.model,
        .running = figure(ReadingField::running),
        .waiting = figure(ReadingField::waiting),
        .kv_usage = figure(ReadingField::kv_usage),
        .prefix_queries = figure(ReadingField::prefix_queries),
        .prefix_hits = figure(ReadingField::prefix_hits),
        .prompt_tokens = figure(ReadingField::prompt_tokens),
        .prompt_tokens_cached = figure(ReadingField::prompt_tokens_cached),
        .kv_capacity_tokens = figure(ReadingField::kv_capacity_tokens),
        .start_time = page_start ? page_start : entry.get(ReadingField::start_time),
    };
  }

  const EngineFormat& format_;
  std::uint32_t initials_ = 0;  // of the series' names, by the low bits of the letter
  char process_initial_ = '\0';
  std::uint32_t declared_ = 0;  // fields with a TYPE line; 0 if it is all there is
  std::uint32_t sampled_ = 0;   // fields with a sample
  EngineEntry page_;            // what belongs to the page as a whole
  EngineTable entries_;
};

}  // namespace detail

// Effects: hands the readings of the engines to `sink`, all of them or, unless the status is ok,
// none. `model` limits them to those of that model and those whose lines name none; empty: all.
[[nodiscard]] inline ParseStatus read_engines(std::string_view page, const EngineFormat& format,
                                              std::string_view model, ReadingSink sink) noexcept {
  detail::EngineScan scan(format);
  try {
    if (!scan.gather(page)) return ParseStatus::malformed;
  } catch (const std::bad_alloc&) {
    return ParseStatus::out_of_memory;
  }
  return scan.deliver(model, sink);
}

}  // namespace limpet
