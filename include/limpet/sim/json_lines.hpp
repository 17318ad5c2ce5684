// SPDX-License-Identifier: Apache-2.0
//
// A small strict reader for recordings: one JSON value a line, as in the traces that replay.hpp and
// calibrate.hpp read.
//
// The simulator must build with the standard library alone, and reads trusted files of a few MB
// once: so a plain tree, no speed, and an exception with the line number for whatever is not JSON.
// What clients and engines send is read elsewhere (wire/, with simdjson). Strings keep ASCII
// escapes only.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace limpet::sim {

class Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

  [[nodiscard]] static Json parse(std::string_view text) {
    Reader reader{text};
    Json value = reader.value(0);
    reader.skip_space();
    if (!reader.rest.empty()) throw std::runtime_error("text after the value");
    return value;
  }

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] bool is_null() const noexcept { return kind_ == Kind::null; }
  [[nodiscard]] const std::vector<Json>& items() const { return wants(Kind::array).items_; }
  [[nodiscard]] const std::string& text() const { return wants(Kind::string).text_; }
  [[nodiscard]] double number() const { return wants(Kind::number).number_; }
  [[nodiscard]] std::uint64_t count() const {
    // Up to where a double is exact.
    if (!(number() >= 0 && number() <= 0x1p53)) throw std::runtime_error("a count is out of range");
    return static_cast<std::uint64_t>(number_);
  }

  // The member of that name, or null.
  [[nodiscard]] const Json& get(std::string_view name) const {
    static const Json absent;
    (void)wants(Kind::object);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return items_[i];
    }
    return absent;
  }

  [[nodiscard]] const Json& at(std::string_view name) const {
    const Json& member = get(name);
    if (member.is_null()) throw std::runtime_error("no member \"" + std::string(name) + "\"");
    return member;
  }

 private:
  [[nodiscard]] const Json& wants(Kind kind) const {
    if (kind_ != kind) throw std::runtime_error("a value is of another kind than expected");
    return *this;
  }

  struct Reader {
    std::string_view rest;

    [[nodiscard]] Json value(int depth) {
      if (depth > 32) throw std::runtime_error("nested too deeply");
      skip_space();
      Json json;
      if (take("null")) return json;
      if (take("true") || take("false")) {
        json.kind_ = Kind::boolean;
      } else if (take("\"")) {
        json.kind_ = Kind::string;
        json.text_ = string();
      } else if (take("[")) {
        json.kind_ = Kind::array;
        list("]", [&] { json.items_.push_back(value(depth + 1)); });
      } else if (take("{")) {
        json.kind_ = Kind::object;
        list("}", [&] {
          skip_space();
          need("\"");
          json.names_.push_back(string());
          skip_space();
          need(":");
          json.items_.push_back(value(depth + 1));
        });
      } else {
        json.kind_ = Kind::number;
        const auto [end, error] =
            std::from_chars(rest.data(), rest.data() + rest.size(), json.number_);
        if (error != std::errc{} || !std::isfinite(json.number_))
          throw std::runtime_error("neither a value nor a number");
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      }
      return json;
    }

    template <class Element>
    void list(std::string_view end, Element element) {
      skip_space();
      if (take(end)) return;
      do {
        element();
        skip_space();
      } while (take(","));
      need(end);
    }

    // After the opening quote, to and with the closing one.
    [[nodiscard]] std::string string() {
      std::string text;
      while (!rest.empty() && rest.front() != '"') {
        char c = rest.front();
        rest.remove_prefix(1);
        if (c == '\\') {
          if (rest.empty() || rest.front() == 'u') throw std::runtime_error("a \\u escape");
          c = rest.front();
          rest.remove_prefix(1);
          if (c == 'n') c = '\n';
          if (c == 't') c = '\t';
        }
        text += c;
      }
      need("\"");
      return text;
    }

    void skip_space() noexcept {
      const std::size_t first = rest.find_first_not_of(" \t\r\n");
      rest.remove_prefix(first == std::string_view::npos ? rest.size() : first);
    }

    [[nodiscard]] bool take(std::string_view token) noexcept {
      if (!rest.starts_with(token)) return false;
      rest.remove_prefix(token.size());
      return true;
    }

    void need(std::string_view token) {
      if (!take(token)) throw std::runtime_error("expected " + std::string(token));
    }
  };

  Kind kind_ = Kind::null;
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;  // of an array, or the values of an object
  std::vector<std::string> names_;
};

// Calls line(json) for each line that is not empty. Throws std::runtime_error that names the file
// and the line if it cannot be read, is not JSON, or line() throws one.
template <class Line>
void read_json_lines(const std::string& path, Line&& line) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::string text;
  for (std::size_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      line(Json::parse(text));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(path + ":" + std::to_string(number) + ": " + error.what());
    }
  }
}

}  // namespace limpet::sim
