// SPDX-License-Identifier: Apache-2.0
//
// Reads the lines of a metrics page: Prometheus text 0.0.4 and 1.0.0, and OpenMetrics.
//
// The page comes from another process, so every byte of it is suspect: a function here looks at
// one line, never past its end, and returns nothing where the line breaks the format. Nothing is
// allocated or copied (views refer to the page), all is pure. engines.hpp makes readings of lines.
// Sources: prometheus.io/docs/instrumenting/exposition_formats and the OpenMetrics 1.0 text format.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace limpet::prometheus {

// What a line holds. Without a name: nothing, the line is no such.
struct Sample {
  std::string_view name;
  std::string_view labels = {};  // from the first to the closing brace: see take_label()
  double value = 0.0;            // may be NaN or infinite

  [[nodiscard]] constexpr explicit operator bool() const noexcept { return !name.empty(); }
};

struct Label {
  std::string_view name;
  std::string_view value;  // its escapes left as they are
  bool has_value = false;  // else the name is the metric's, as in `{"name",label="value"}`
};

struct Family {
  std::string_view name;
  std::string_view type;  // "gauge", "counter", ...

  [[nodiscard]] constexpr explicit operator bool() const noexcept { return !name.empty(); }
};

[[nodiscard]] constexpr bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t';
}

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

[[nodiscard]] constexpr bool starts_name(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

// By character: may it stand in a bare name. A table, since names are most of a line of labels.
inline constexpr auto in_name = [] {
  struct Table {
    bool at[256];
  } table{};
  for (int c = 0; c < 256; ++c) {
    const auto letter = static_cast<char>(c);
    table.at[c] = starts_name(letter) || is_digit(letter);
  }
  return table;
}();

// Calls on_line(line, is_terminated) for each line, without its LF or CRLF, until it says false.
// Only the last line can be unterminated. Returns whether every line was visited.
template <class OnLine>
[[nodiscard]] bool for_each_line(std::string_view page, OnLine on_line) {
  const char* at = page.data();
  const char* const end = at + page.size();
  while (at != end) {
    const auto left = static_cast<std::size_t>(end - at);
    const auto* const newline = static_cast<const char*>(std::memchr(at, '\n', left));
    const char* line_end = newline != nullptr ? newline : end;
    const char* const next = newline != nullptr ? newline + 1 : end;
    if (line_end != at && line_end[-1] == '\r') --line_end;
    const std::string_view line(at, static_cast<std::size_t>(line_end - at));
    if (!on_line(line, newline != nullptr)) return false;
    at = next;
  }
  return true;
}

// The whole of `text` as a number: decimal with any exponent, NaN, Inf. One that no double holds
// (1e999) is NaN: written as it should be, but of no use.
[[nodiscard]] inline std::optional<double> parse_number(std::string_view text) noexcept {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  if (text.ends_with(')')) return std::nullopt;  // from_chars takes C's "nan(...)"
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (stopped != end || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc{} ? value : std::numeric_limits<double>::quiet_NaN();
}

// Whether a label value, whose escapes are \\, \" and \n, stands for `text`.
[[nodiscard]] constexpr bool stands_for(std::string_view label_value,
                                        std::string_view text) noexcept {
  std::size_t matched = 0;
  for (std::size_t i = 0; i < label_value.size(); ++i, ++matched) {
    char c = label_value[i];
    if (c == '\\' && i + 1 < label_value.size()) {
      c = label_value[++i];
      if (c == 'n') c = '\n';
    }
    if (matched == text.size() || text[matched] != c) return false;
  }
  return matched == text.size();
}

// Takes one line apart from left to right. A line of which a part is missing is of no further use.
class LineReader {
 public:
  explicit constexpr LineReader(std::string_view line) noexcept
      : at_(line.data()), end_(line.data() + line.size()) {}

  [[nodiscard]] constexpr bool done() const noexcept { return at_ == end_; }

  [[nodiscard]] constexpr bool next_is(char c) const noexcept { return at_ != end_ && *at_ == c; }

  constexpr void skip_blanks() noexcept {
    while (at_ != end_ && is_blank(*at_)) ++at_;
  }

  [[nodiscard]] constexpr bool take(char c) noexcept {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }

  // Up to the next blank; may be empty.
  [[nodiscard]] constexpr std::string_view take_word() noexcept {
    const char* const from = at_;
    while (at_ != end_ && !is_blank(*at_)) ++at_;
    return between(from, at_);
  }

  // The bare name of a metric or label; may be empty.
  [[nodiscard]] constexpr std::string_view take_name() noexcept {
    const char* const from = at_;
    if (at_ != end_ && starts_name(*at_)) {
      while (at_ != end_ && in_name.at[static_cast<unsigned char>(*at_)]) ++at_;
    }
    return between(from, at_);
  }

  // Sets `text` to what stands between two quotes, its escapes left as they are.
  [[nodiscard]] constexpr bool take_quoted(std::string_view& text) noexcept {
    if (!take('"')) return false;
    const char* const from = at_;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\' && ++at_ == end_) return false;
    }
    if (at_ == end_) return false;
    text = between(from, at_++);
    return true;
  }

  // Blanks, a number, blanks.
  [[nodiscard]] std::optional<double> take_number() noexcept {
    skip_blanks();
    const auto number = parse_number(take_word());
    skip_blanks();
    return number;
  }

  // One of `name="value",...}` and the comma after it.
  [[nodiscard]] constexpr bool take_label(Label& label) noexcept {
    label = {};
    const bool is_quoted = next_is('"');
    if (!is_quoted) {
      label.name = take_name();
    } else if (!take_quoted(label.name)) {
      return false;
    }
    if (label.name.empty()) return false;
    skip_blanks();
    label.has_value = take('=');
    if (label.has_value) {
      skip_blanks();
      if (!take_quoted(label.value)) return false;
      skip_blanks();
    } else if (!is_quoted) {
      return false;
    }
    if (!take(',') && !next_is('}')) return false;
    skip_blanks();
    return true;
  }

  // `{name="value",...}`, and the sample's name where the braces hold it.
  [[nodiscard]] constexpr bool take_labels(Sample& sample) noexcept {
    if (!take('{')) return false;
    skip_blanks();
    const char* const from = at_;
    for (Label label; !take('}');) {
      if (!take_label(label)) return false;
      if (label.has_value) continue;
      if (!sample.name.empty()) return false;
      sample.name = label.name;
    }
    sample.labels = between(from, at_);
    return true;
  }

 private:
  [[nodiscard]] static constexpr std::string_view between(const char* from,
                                                          const char* to) noexcept {
    return {from, static_cast<std::size_t>(to - from)};
  }

  const char* at_;
  const char* end_;
};

// `name{labels} value [timestamp] [# {labels} value [timestamp]]`, the last being OpenMetrics'
// exemplar.
[[nodiscard]] inline Sample parse_sample(std::string_view line) noexcept {
  LineReader reader(line);
  reader.skip_blanks();
  Sample sample{.name = reader.take_name()};
  const bool touches = !reader.next_is(' ') && !reader.next_is('\t');
  reader.skip_blanks();
  if (reader.next_is('{')) {
    if (!reader.take_labels(sample)) return {};
  } else if (touches) {
    return {};  // "name-1": the name did not end where the number begins
  }
  if (sample.name.empty()) return {};

  const auto value = reader.take_number();
  if (!value) return {};
  sample.value = *value;
  if (!reader.done() && !reader.next_is('#') && !reader.take_number()) return {};
  if (reader.take('#')) {
    Sample exemplar{.name = "exemplar"};
    reader.skip_blanks();
    if (!reader.take_labels(exemplar) || !reader.take_number()) return {};
    if (!reader.done() && !reader.take_number()) return {};
  }
  if (!reader.done()) return {};
  return sample;
}

// `# TYPE name type`; nothing for other comments.
[[nodiscard]] constexpr Family parse_type(std::string_view line) noexcept {
  LineReader reader(line);
  reader.skip_blanks();
  if (!reader.take('#')) return {};
  reader.skip_blanks();
  if (reader.take_word() != "TYPE") return {};
  reader.skip_blanks();
  Family family;
  if (reader.next_is('"')) {
    if (!reader.take_quoted(family.name)) return {};
  } else {
    family.name = reader.take_name();
  }
  reader.skip_blanks();
  family.type = reader.take_word();
  reader.skip_blanks();
  if (family.type.empty() || !reader.done()) return {};
  return family;
}

// Whether a page may end in this line without a newline, or was cut inside it. Whole are a sample
// with its value, a TYPE with a known type, `# EOF` and blanks; of other comments one can't tell,
// and no page ends in one. A number cut between two of its digits passes for a whole one.
[[nodiscard]] inline bool is_whole(std::string_view line) noexcept {
  LineReader reader(line);
  reader.skip_blanks();
  if (reader.done()) return true;
  if (!reader.take('#')) {
    return !line.ends_with('.') && static_cast<bool>(parse_sample(line));
  }
  if (const Family family = parse_type(line)) {
    constexpr std::string_view types[] = {"counter", "gauge",    "histogram",
                                          "summary", "untyped",  "unknown",
                                          "info",    "stateset", "gaugehistogram"};
    for (const std::string_view type : types) {
      if (family.type == type) return true;
    }
    return false;
  }
  reader.skip_blanks();
  if (reader.take_word() != "EOF") return false;
  reader.skip_blanks();
  return reader.done();
}

}  // namespace limpet::prometheus
