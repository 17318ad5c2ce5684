// SPDX-License-Identifier: Apache-2.0
//
// EngineTable: what a metrics page says so far, by engine and model, in order of first mention.
//
// A part of read_engines(), nothing to use by itself. Up to 16 entries live in the object and are
// searched one by one, so that a usual page costs no allocation; beyond them a hash index keeps a
// page of any number of engines linear in its length.
#pragma once

#include <limpet/detail/array.hpp>
#include <limpet/metrics/format.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace limpet::detail {

// What the lines with one pair of labels say. A label that they lack is empty.
struct EngineEntry {
  static constexpr std::uint8_t unknown = 0xFF;

  std::string_view engine;
  std::string_view model;
  double values[reading_fields] = {};
  std::uint8_t preferences[reading_fields] = {unknown, unknown, unknown, unknown, unknown,
                                              unknown, unknown, unknown, unknown};
  bool is_general = false;    // other entries have these labels and more
  std::size_t specifics = 0;  // how many of them have the most

  [[nodiscard]] bool knows(std::size_t field) const noexcept {
    return preferences[field] != unknown;
  }

  [[nodiscard]] std::optional<double> get(ReadingField field) const noexcept {
    const auto i = static_cast<std::size_t>(field);
    return knows(i) ? std::optional(values[i]) : std::nullopt;
  }

  void add(ReadingField field, std::uint8_t preference, double figure) noexcept {
    const auto i = static_cast<std::size_t>(field);
    const auto value = sensible(field, figure);
    if (!value || preference > preferences[i]) return;
    if (preference < preferences[i]) {
      values[i] = *value;
    } else if (is_counter(field)) {
      values[i] = std::min(values[i] + *value, std::numeric_limits<double>::max());
    } else {
      values[i] = std::max(values[i], *value);
    }
    preferences[i] = preference;
  }

  void fill_from(const EngineEntry& other) noexcept {
    for (std::size_t i = 0; i < reading_fields; ++i) {
      if (knows(i) || !other.knows(i)) continue;
      values[i] = other.values[i];
      preferences[i] = other.preferences[i];
    }
  }
};

class EngineTable {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // Requires: position < size().
  [[nodiscard]] EngineEntry& operator[](std::size_t position) noexcept {
    return position < inline_capacity ? first_[position] : more_[position - inline_capacity];
  }

  // Null where there is none.
  [[nodiscard]] EngineEntry* find(std::string_view engine, std::string_view model) noexcept {
    const std::size_t position = position_of(engine, model);
    return position < size_ ? &(*this)[position] : nullptr;
  }

  // Throws std::bad_alloc.
  [[nodiscard]] EngineEntry& find_or_add(std::string_view engine, std::string_view model) {
    // A page lists the engines of one series after the other, so the next line is most likely of
    // the engine after the last one.
    last_ = last_ + 1 < size_ ? last_ + 1 : 0;
    if (last_ < size_ && is(last_, engine, model)) return (*this)[last_];

    last_ = position_of(engine, model);
    if (last_ == size_) add(engine, model);
    return (*this)[last_];
  }

  // Not every series carries every label: vLLM's cache_config_info names no model, SGLang's
  // counters no rank. What such lines say belongs to the one engine that has the labels they lack.
  // Where there are several it can't be told apart, and stays where it is.
  void join_labels() noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      for (EngineEntry* const general : generals_of((*this)[i]).entries) {
        if (general != nullptr) general->is_general = true;
      }
    }
    for (std::size_t i = 0; i < size_; ++i) {
      if ((*this)[i].is_general) continue;
      for (EngineEntry* const general : generals_of((*this)[i]).entries) {
        if (general != nullptr) ++general->specifics;
      }
    }
    for (std::size_t i = 0; i < size_; ++i) {
      EngineEntry& entry = (*this)[i];
      if (entry.is_general) continue;
      for (const EngineEntry* const general : generals_of(entry).entries) {
        if (general != nullptr && general->specifics == 1) entry.fill_from(*general);
      }
    }
  }

 private:
  static constexpr std::size_t inline_capacity = 16;
  static constexpr std::size_t vacant = 0;

  struct Generals {
    EngineEntry* entries[3] = {};  // closest first; null where there is none
  };

  // The entries that lack one or both labels of `specific`.
  [[nodiscard]] Generals generals_of(const EngineEntry& specific) noexcept {
    Generals found;
    if (!specific.model.empty()) found.entries[0] = find(specific.engine, {});
    if (!specific.engine.empty()) found.entries[1] = find({}, specific.model);
    if (!specific.engine.empty() && !specific.model.empty()) found.entries[2] = find({}, {});
    return found;
  }

  [[nodiscard]] bool is(std::size_t position, std::string_view engine,
                        std::string_view model) noexcept {
    const EngineEntry& entry = (*this)[position];
    return entry.engine == engine && entry.model == model;
  }

  // size_ where there is none.
  [[nodiscard]] std::size_t position_of(std::string_view engine, std::string_view model) noexcept {
    if (index_.size() == 0) {
      std::size_t position = 0;
      while (position < size_ && !is(position, engine, model)) ++position;
      return position;
    }
    const std::size_t numbered = index_[slot_of(engine, model)];
    return numbered == vacant ? size_ : numbered - 1;
  }

  // The slot that holds the entry, or the vacant one where it belongs.
  [[nodiscard]] std::size_t slot_of(std::string_view engine, std::string_view model) noexcept {
    // Of <string_view>: <functional> is too heavy. NOLINTNEXTLINE(misc-include-cleaner)
    const std::hash<std::string_view> hash;
    const std::size_t mask = index_.size() - 1;
    std::size_t slot = (hash(engine) * 31 + hash(model)) & mask;
    while (index_[slot] != vacant && !is(index_[slot] - 1, engine, model)) slot = (slot + 1) & mask;
    return slot;
  }

  void add(std::string_view engine, std::string_view model) {
    if (size_ == inline_capacity + more_.size()) grow();
    EngineEntry& entry = (*this)[size_];
    entry.engine = engine;
    entry.model = model;
    ++size_;
    if (index_.size() != 0) index_[slot_of(engine, model)] = size_;
  }

  // Makes room for twice as many.
  void grow() {
    Array<EngineEntry> more(size_ + more_.size());
    Array<std::size_t> index(4 * size_);
    for (std::size_t i = 0; i < more_.size(); ++i) more[i] = more_[i];
    more_ = std::move(more);
    index_ = std::move(index);
    for (std::size_t i = 0; i < size_; ++i) {
      const EngineEntry& entry = (*this)[i];
      index_[slot_of(entry.engine, entry.model)] = i + 1;
    }
  }

  EngineEntry first_[inline_capacity];
  Array<EngineEntry> more_;
  Array<std::size_t> index_;  // 1 + position; open addressing, half full; empty: search in order
  std::size_t size_ = 0;
  std::size_t last_ = 0;
};

}  // namespace limpet::detail
