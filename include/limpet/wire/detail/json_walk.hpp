// SPDX-License-Identifier: Apache-2.0
//
// Steps of a walk over JSON with simdjson's on-demand parser: objects member by member, lists
// object by object.
//
// A walk tells two things apart: a value of another type than expected is passed over (true), as a
// stranger's field of the same name may be anything; JSON that cannot be read, or a name that
// stands twice in one object, ends the walk (false). Nothing here throws, allocates or recurses;
// texts live until the parser's next document.
#pragma once

#include <limpet/wire/id.hpp>

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace limpet::detail {

using JsonValue = simdjson::ondemand::value;
using JsonObject = simdjson::ondemand::object;
using simdjson::ondemand::json_type;

// A buffer with the readable bytes past the end that simdjson asks for.
class PaddedCopy {
 public:
  // False where memory is short.
  [[nodiscard]] bool assign(std::string_view text) noexcept {
    if (!bytes_ || text.size() > capacity_) {
      const std::size_t capacity = std::bit_ceil(text.size());
      bytes_.reset(new (std::nothrow) char[capacity + simdjson::SIMDJSON_PADDING]);
      capacity_ = bytes_ ? capacity : 0;
    }
    if (!bytes_) return false;
    if (!text.empty()) std::memcpy(bytes_.get(), text.data(), text.size());
    std::memset(bytes_.get() + text.size(), 0, simdjson::SIMDJSON_PADDING);
    size_ = text.size();
    return true;
  }

  [[nodiscard]] simdjson::padded_string_view view() const noexcept {
    return simdjson::padded_string_view(bytes_.get(), size_, size_ + simdjson::SIMDJSON_PADDING);
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

[[nodiscard]] inline bool is(JsonValue& value, json_type type) noexcept {
  json_type actual;
  return value.type().get(actual) == simdjson::SUCCESS && actual == type;
}

// `text` stays as it is where the value is no string.
[[nodiscard]] inline bool read_text(JsonValue& value, std::string_view& text) noexcept {
  return !is(value, json_type::string) || value.get_string().get(text) == simdjson::SUCCESS;
}

// Calls take(place in `names`, value) for each member named there; `take` says whether to go on.
template <std::size_t N, class Take>
[[nodiscard]] bool each_member(JsonObject& object, const std::string_view (&names)[N],
                               Take take) noexcept {
  static_assert(N <= 32);
  std::uint32_t seen = 0;
  for (auto entry : object) {
    simdjson::ondemand::field field;
    std::string_view key;
    if (std::move(entry).get(field) != simdjson::SUCCESS ||
        field.unescaped_key().get(key) != simdjson::SUCCESS)
      return false;
    const auto place = static_cast<std::size_t>(std::ranges::find(names, key) - std::begin(names));
    if (place == N) continue;
    if ((seen >> place & 1) != 0) return false;
    seen |= std::uint32_t{1} << place;
    JsonValue value = field.value();
    if (!take(place, value)) return false;
  }
  return true;
}

// The same for a value, which may be something else than an object.
template <std::size_t N, class Take>
[[nodiscard]] bool each_member(JsonValue& value, const std::string_view (&names)[N],
                               Take take) noexcept {
  JsonObject object;
  if (!is(value, json_type::object)) return true;
  return value.get_object().get(object) == simdjson::SUCCESS && each_member(object, names, take);
}

// Calls take(object) for each object of a list; `take` says whether to go on.
template <class Take>
[[nodiscard]] bool each_object(JsonValue& value, Take take) noexcept {
  simdjson::ondemand::array list;
  if (!is(value, json_type::array)) return true;
  if (value.get_array().get(list) != simdjson::SUCCESS) return false;
  for (auto entry : list) {
    JsonValue element;
    JsonObject object;
    if (std::move(entry).get(element) != simdjson::SUCCESS) return false;
    if (!is(element, json_type::object)) continue;
    if (element.get_object().get(object) != simdjson::SUCCESS || !take(object)) return false;
  }
  return true;
}

}  // namespace limpet::detail
