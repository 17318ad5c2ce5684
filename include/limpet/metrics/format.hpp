// SPDX-License-Identifier: Apache-2.0
//
// EngineFormat: how an engine prints itself on its metrics page, as a table of series names.
//
// VllmMetrics, SglangMetrics and LlamaCppMetrics are such tables, read by read_engines(); write one
// for any engine that prints Prometheus text. A table is constant data and costs nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace limpet {

// The figures of a Reading. Several lines may give one figure of one engine: one a server process,
// a tensor-parallel rank, a source of cached tokens. Of a counter they are parts and add up; of
// anything else they say the same, and the largest counts.
enum class ReadingField : std::uint8_t {
  running,
  waiting,
  kv_usage,
  prefix_queries,
  prefix_hits,
  prompt_tokens,
  prompt_tokens_cached,
  kv_capacity_tokens,
  start_time,
};

inline constexpr std::size_t reading_fields = 9;

[[nodiscard]] constexpr bool is_counter(ReadingField field) noexcept {
  return field >= ReadingField::prefix_queries && field <= ReadingField::prompt_tokens_cached;
}

// The figure, if it makes sense; what does not is unknown. NaN, infinite and negative figures make
// none, nor does a cache of no tokens (it is not set up yet) or a start in 1970. A share is at
// most 1.
[[nodiscard]] inline std::optional<double> sensible(ReadingField field, double figure) noexcept {
  const bool may_be_zero = field < ReadingField::kv_capacity_tokens;
  if (!std::isfinite(figure) || figure < 0.0 || (figure == 0.0 && !may_be_zero)) {
    return std::nullopt;
  }
  return field == ReadingField::kv_usage ? std::min(figure, 1.0) : figure;
}

struct EngineSeries {
  std::string_view name;  // without the format's prefix
  ReadingField field;
  std::uint8_t preference = 0;  // the lower overrides: two names of one thing are never added up
};

// Refers to an array that outlives it, as a std::span would, whose constructor from an array brings
// the concepts of ranges into every program.
class SeriesList {
 public:
  template <std::size_t N>
  constexpr SeriesList(const EngineSeries (&series)[N]) noexcept
      : begin_(series), end_(series + N) {}

  [[nodiscard]] constexpr const EngineSeries* begin() const noexcept { return begin_; }
  [[nodiscard]] constexpr const EngineSeries* end() const noexcept { return end_; }

 private:
  const EngineSeries* begin_;
  const EngineSeries* end_;
};

// A series whose labels tell the size of the KV cache: `tokens`, or else `blocks` of `block_size`.
// The blocks are those of the whole server, printed for each of its engines.
struct CacheSeries {
  std::string_view name;
  std::string_view tokens;
  std::string_view blocks;
  std::string_view block_size;
};

// An empty name is one that the engine has no use for.
struct EngineFormat {
  std::string_view prefix;  // "vllm" where series are named vllm:x, or vllm_x
  SeriesList series;
  std::string_view engine_label = {};
  std::string_view model_label = {};
  std::string_view process_start = {};  // of the page, not of an engine; overrides start_time
  CacheSeries cache = {};
};

}  // namespace limpet
