// SPDX-License-Identifier: Apache-2.0
//
// JsonMetrics: figures that an engine serves as JSON, each named by a JSON pointer (RFC 6901).
//
// For engines without Prometheus text, or whose JSON is better: SGLang's /v1/loads, which needs no
// option of the server, is {.engines = "/loads", .engine = "/dp_rank", .running =
// "/num_running_reqs", .waiting = "/num_waiting_reqs", .kv_usage = "/token_usage"}.
// What is no number is unknown. Cost: simdjson's DOM of the page, which it frees again.
// Thread-safe. Needs the target limpet::wire (simdjson).
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/metrics/format.hpp>

#include <simdjson.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet {

// Pointers into an engine's object. An empty one: the page does not say.
struct JsonMetricsOptions {
  std::string engines{};  // to the array of engines; empty: the page is one engine
  std::string engine{};   // to its name, a text or a whole number
  std::string model{};
  std::string running{};
  std::string waiting{};
  std::string kv_usage{};
  std::string prefix_queries{};
  std::string prefix_hits{};
  std::string prompt_tokens{};
  std::string prompt_tokens_cached{};
  std::string kv_capacity_tokens{};
  std::string start_time{};
};

class JsonMetrics {
 public:
  // Throws: std::invalid_argument for a pointer that does not begin with '/', or where none of the
  // figures is named.
  explicit JsonMetrics(JsonMetricsOptions options) : options_(std::move(options)) {
    require_pointer("engines", options_.engines);
    require_pointer("engine", options_.engine);
    require_pointer("model", options_.model);
    bool names_a_figure = false;
    for (const Figure& figure : figures) {
      require_pointer(figure.name, options_.*figure.pointer);
      names_a_figure = names_a_figure || !(options_.*figure.pointer).empty();
    }
    if (!names_a_figure) {
      throw std::invalid_argument("JsonMetrics: running, waiting, ...: all empty; name a figure");
    }
  }

  [[nodiscard]] const JsonMetricsOptions& options() const noexcept { return options_; }

  [[nodiscard]] ParseStatus parse(std::string_view page, ReadingSink sink) const noexcept {
    std::vector<Reading> readings;
    try {
      const ParseStatus status = gather(page, readings);
      if (status != ParseStatus::ok) return status;
    } catch (const std::bad_alloc&) {
      return ParseStatus::out_of_memory;
    }
    for (const Reading& reading : readings) sink(reading);
    return readings.empty() ? ParseStatus::no_engine : ParseStatus::ok;
  }

 private:
  using Element = simdjson::dom::element;

  struct Figure {
    std::string_view name;
    std::string JsonMetricsOptions::* pointer;
    std::optional<double> Reading::* figure;
    ReadingField field;
  };

  static constexpr std::array<Figure, reading_fields> figures = {{
      {"running", &JsonMetricsOptions::running, &Reading::running, ReadingField::running},
      {"waiting", &JsonMetricsOptions::waiting, &Reading::waiting, ReadingField::waiting},
      {"kv_usage", &JsonMetricsOptions::kv_usage, &Reading::kv_usage, ReadingField::kv_usage},
      {"prefix_queries", &JsonMetricsOptions::prefix_queries, &Reading::prefix_queries,
       ReadingField::prefix_queries},
      {"prefix_hits", &JsonMetricsOptions::prefix_hits, &Reading::prefix_hits,
       ReadingField::prefix_hits},
      {"prompt_tokens", &JsonMetricsOptions::prompt_tokens, &Reading::prompt_tokens,
       ReadingField::prompt_tokens},
      {"prompt_tokens_cached", &JsonMetricsOptions::prompt_tokens_cached,
       &Reading::prompt_tokens_cached, ReadingField::prompt_tokens_cached},
      {"kv_capacity_tokens", &JsonMetricsOptions::kv_capacity_tokens, &Reading::kv_capacity_tokens,
       ReadingField::kv_capacity_tokens},
      {"start_time", &JsonMetricsOptions::start_time, &Reading::start_time,
       ReadingField::start_time},
  }};

  static void require_pointer(std::string_view name, const std::string& pointer) {
    if (pointer.empty() || pointer.front() == '/') return;
    throw std::invalid_argument("JsonMetrics: " + std::string(name) + " is \"" + pointer +
                                "\"; a JSON pointer begins with '/'");
  }

  // Finds names in the page again. A reading refers to the page, and the DOM does not say where a
  // value stood; but one that the page spells as it is read stands there, at or after the names of
  // the engines before it. So one pass over the page finds them all. One that is not found costs a
  // pass of its own, so after some such no more are looked for.
  class Names {
   public:
    explicit Names(std::string_view page) noexcept : page_(page) {}

    // Empty where the page spells it otherwise: with escapes, or a number as 1e3.
    [[nodiscard]] std::string_view find(std::string_view text) noexcept {
      if (misses_ == 16) return {};
      const std::size_t at = page_.find(text, from_);
      if (at == std::string_view::npos) {
        ++misses_;
        return {};
      }
      from_ = at;
      return page_.substr(at, text.size());
    }

   private:
    std::string_view page_;
    std::size_t from_ = 0;
    int misses_ = 0;
  };

  [[nodiscard]] static std::string_view name_at(Element engine, const std::string& pointer,
                                                Names& names) {
    Element name;
    if (pointer.empty() || engine.at_pointer(pointer).get(name) != simdjson::SUCCESS) return {};
    std::string_view text;
    if (name.get(text) == simdjson::SUCCESS) return names.find(text);
    std::int64_t number = 0;
    if (name.get(number) != simdjson::SUCCESS) return {};
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return names.find({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }

  // Nothing where the engine has none of the figures.
  [[nodiscard]] std::optional<Reading> reading_of(Element engine) const {
    Reading reading;
    bool found = false;
    for (const Figure& figure : figures) {
      const std::string& pointer = options_.*figure.pointer;
      double value = 0.0;
      if (pointer.empty() || engine.at_pointer(pointer).get(value) != simdjson::SUCCESS) continue;
      reading.*figure.figure = sensible(figure.field, value);
      found = true;
    }
    return found ? std::optional(reading) : std::nullopt;
  }

  [[nodiscard]] ParseStatus gather(std::string_view page, std::vector<Reading>& readings) const {
    if (page.empty()) return ParseStatus::malformed;  // simdjson would copy from its null pointer
    simdjson::dom::parser parser;
    Element document;
    const auto error = parser.parse(page.data(), page.size()).get(document);
    if (error == simdjson::MEMALLOC) return ParseStatus::out_of_memory;
    if (error != simdjson::SUCCESS) return ParseStatus::malformed;

    Names engines(page);
    Names models(page);
    const auto add = [&](Element engine) {
      const std::string_view name = name_at(engine, options_.engine, engines);
      const std::string_view model = name_at(engine, options_.model, models);
      if (auto reading = reading_of(engine)) {
        reading->engine = name;
        reading->model = model;
        readings.push_back(*reading);
      }
    };
    simdjson::dom::array list;
    if (options_.engines.empty()) {
      add(document);
    } else if (document.at_pointer(options_.engines).get(list) == simdjson::SUCCESS) {
      for (const Element engine : list) add(engine);
    }
    return ParseStatus::ok;
  }

  JsonMetricsOptions options_;
};

static_assert(MetricsParser<JsonMetrics>);

}  // namespace limpet
