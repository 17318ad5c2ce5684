// SPDX-License-Identifier: Apache-2.0
//
// A slow, plain JSON value for tests: read a document, change it, write it in another way.
//
// Written apart from the code under test, which uses simdjson. Throws on anything that is no JSON.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet_tests {

struct Json {
  enum class Type : std::uint8_t { literal, string, list, object };

  Type type = Type::literal;
  std::string text;                // a literal as written, a string unescaped
  std::vector<std::string> names;  // of an object's members
  std::vector<Json> items;         // of a list, or the values of an object's members

  [[nodiscard]] static Json string(std::string text) {
    Json json;
    json.type = Type::string;
    json.text = std::move(text);
    return json;
  }

  [[nodiscard]] Json* find(std::string_view name) {
    const auto place = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    return place < names.size() ? &items[place] : nullptr;
  }
  [[nodiscard]] Json& at(std::string_view name) {
    if (Json* value = find(name)) return *value;
    throw std::out_of_range("no member " + std::string(name));
  }
  void add(std::string name, Json value) {
    names.push_back(std::move(name));
    items.push_back(std::move(value));
  }
  void erase(std::string_view name) {
    const auto place = std::ranges::find(names, name);
    if (place == names.end()) return;
    items.erase(items.begin() + (place - names.begin()));
    names.erase(place);
  }

  // Calls visit(object) for this value and everything in it that is an object.
  template <class Visit>
  void each_object(const Visit& visit) {
    if (type == Type::object) visit(*this);
    for (Json& item : items) item.each_object(visit);
  }
};

class JsonReader {
 public:
  [[nodiscard]] static Json read(std::string_view text) {
    JsonReader reader(text);
    Json json = reader.value();
    reader.space();
    if (reader.at_ != text.size()) throw std::invalid_argument("text after the JSON");
    return json;
  }

 private:
  explicit JsonReader(std::string_view text) : text_(text) {}

  [[nodiscard]] char peek() const {
    if (at_ >= text_.size()) throw std::invalid_argument("the JSON ends early");
    return text_[at_];
  }
  void expect(char c) {
    if (peek() != c) throw std::invalid_argument("unexpected character in JSON");
    ++at_;
  }
  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  // The parts of a list or an object, up to `close`.
  template <class Part>
  void parts(char close, const Part& part) {
    ++at_;
    space();
    if (peek() == close) {
      ++at_;
      return;
    }
    while (true) {
      part();
      space();
      if (peek() == close) break;
      expect(',');
    }
    ++at_;
  }

  [[nodiscard]] Json value() {
    space();
    Json json;
    switch (peek()) {
      case '{':
        json.type = Json::Type::object;
        parts('}', [&] {
          space();
          std::string key = string();
          space();
          expect(':');
          json.add(std::move(key), value());
        });
        return json;
      case '[':
        json.type = Json::Type::list;
        parts(']', [&] { json.items.push_back(value()); });
        return json;
      case '"':
        return Json::string(string());
      default:
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(peek())) != 0 ||
                                      peek() == '-' || peek() == '+' || peek() == '.')) {
          json.text += text_[at_++];
        }
        if (json.text.empty()) throw std::invalid_argument("no JSON value");
        return json;
    }
  }

  [[nodiscard]] std::string string() {
    expect('"');
    std::string text;
    while (peek() != '"') {
      const char c = text_[at_++];
      if (c != '\\') {
        text += c;
        continue;
      }
      const char escape = peek();
      ++at_;
      constexpr std::string_view names = "bfnrt", values = "\b\f\n\r\t";
      if (escape == 'u') {
        std::uint32_t code = unit();
        if (code >= 0xD800 && code < 0xDC00) {
          expect('\\');
          expect('u');
          code = 0x10000 + ((code - 0xD800) << 10) + (unit() - 0xDC00);
        }
        append(text, code);
      } else if (const std::size_t known = names.find(escape); known != names.npos) {
        text += values[known];
      } else {
        text += escape;
      }
    }
    ++at_;
    return text;
  }

  [[nodiscard]] std::uint32_t unit() {
    const std::string digits(text_.substr(at_, 4));
    at_ += 4;
    return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
  }

  static void append(std::string& text, std::uint32_t code) {
    const auto byte = [&](std::uint32_t value) { text += static_cast<char>(value); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xC0 | code >> 6);
      byte(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      byte(0xE0 | code >> 12);
      byte(0x80 | (code >> 6 & 0x3F));
      byte(0x80 | (code & 0x3F));
    } else {
      byte(0xF0 | code >> 18);
      byte(0x80 | (code >> 12 & 0x3F));
      byte(0x80 | (code >> 6 & 0x3F));
      byte(0x80 | (code & 0x3F));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// How a document is written: the same document in every style.
class JsonWriter {
 public:
  enum class Style : std::uint8_t {
    compact,   // members in their order, no spaces
    shuffled,  // members in any order, spaces anywhere, some letters written as \u escapes
  };

  JsonWriter(Style style, std::mt19937& random) : random_(&random), style_(style) {}

  [[nodiscard]] std::string write(const Json& json) {
    out_.clear();
    value(json);
    return out_;
  }

 private:
  [[nodiscard]] bool chance(unsigned one_in) { return (*random_)() % one_in == 0; }

  void token(char c) {
    space();
    out_ += c;
    space();
  }
  void space() {
    constexpr std::string_view spaces = " \n\t\r";
    while (style_ == Style::shuffled && chance(4)) out_ += spaces[(*random_)() % spaces.size()];
  }

  void string(std::string_view text) {
    out_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20 ||
                 (style_ == Style::shuffled && c > 0 && chance(50))) {
        constexpr std::string_view digits = "0123456789abcdef";
        out_ += "\\u00";
        out_ += digits[static_cast<unsigned char>(c) >> 4];
        out_ += digits[static_cast<unsigned char>(c) & 0xF];
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  void value(const Json& json) {
    switch (json.type) {
      case Json::Type::literal:
        out_ += json.text;
        break;
      case Json::Type::string:
        string(json.text);
        break;
      case Json::Type::list:
        token('[');
        for (std::size_t i = 0; i < json.items.size(); ++i) {
          if (i > 0) token(',');
          value(json.items[i]);
        }
        token(']');
        break;
      case Json::Type::object: {
        std::vector<std::size_t> order(json.items.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        if (style_ == Style::shuffled) std::shuffle(order.begin(), order.end(), *random_);
        token('{');
        for (std::size_t i = 0; i < order.size(); ++i) {
          if (i > 0) token(',');
          string(json.names[order[i]]);
          token(':');
          value(json.items[order[i]]);
        }
        token('}');
        break;
      }
    }
  }

  std::string out_;
  std::mt19937* random_;
  Style style_;
};

}  // namespace limpet_tests
