// SPDX-License-Identifier: Apache-2.0
//
// Does a prompt begin with the previous one? A chain of fingerprints over the parts of a request's
// body, for the ledger's class `diverged`.
//
// Part 0 is what stands before the messages (instructions, system prompt, tools), then each message
// is one. Element i of the chain is the fingerprint of the parts 0 to i, so a prompt that has only
// grown has the previous prompt's last element at the same place. What does not reach the engine
// does not count: spacing, `cache_control` markers, a text as a string or as a list of one text
// block. Costs a full pass over the body and a hash of it; it is not for the way of a request, but
// for after it. Nothing throws. Thread-safe.
#pragma once

#include <limpet/hash.hpp>
#include <limpet/wire/detail/json_walk.hpp>

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet {

namespace detail {

class PrefixWalk {
 public:
  // Returns: the chain; empty where the body cannot be read or does not hold the whole prompt.
  [[nodiscard]] std::vector<std::uint64_t> chain(std::string_view body) {
    PaddedCopy copy;
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document;
    JsonObject root;
    if (!copy.assign(body) || parser.iterate(copy.view()).get(document) != simdjson::SUCCESS ||
        document.get_object().get(root) != simdjson::SUCCESS || !read(root)) {
      return {};
    }
    std::vector<std::uint64_t> fingerprints;
    std::string link;  // what came before stands for itself in the hash of what comes next
    for (const std::string& part : parts_) {
      const KeyHash hash = KeyHasher()("prefix", link, part);
      fingerprints.push_back(hash.hi);
      link.assign(reinterpret_cast<const char*>(&hash), sizeof hash);
    }
    return fingerprints;
  }

 private:
  [[nodiscard]] bool read(JsonObject& root) {
    static constexpr std::string_view names[] = {
        "system", "instructions", "tools", "messages", "input", "previous_response_id"};
    std::string before_messages[3];
    std::vector<std::string> messages;
    bool partial = false;
    const bool whole = each_member(root, names, [&](std::size_t name, JsonValue& value) {
      if (name < 3) {
        return name == 2 ? add(value, before_messages[name])
                         : add_content(value, before_messages[name]);
      }
      if (name < 5) return add_messages(value, messages);
      partial = !value.is_null();
      return true;
    });
    if (!whole || partial || messages.empty()) return false;
    parts_.push_back(before_messages[0] + before_messages[1] + before_messages[2]);
    for (std::string& message : messages) parts_.push_back(std::move(message));
    return true;
  }

  [[nodiscard]] static bool add_messages(JsonValue& value, std::vector<std::string>& messages) {
    if (is(value, json_type::string)) return add_content(value, messages.emplace_back());
    return each_object(
        value, [&](JsonObject& message) { return add_object(message, messages.emplace_back()); });
  }

  // A text, or a list of blocks of which some are texts.
  [[nodiscard]] static bool add_content(JsonValue& value, std::string& out) {
    if (!is(value, json_type::array)) return add(value, out);
    return each_object(value, [&](JsonObject& block) {
      std::string text;
      std::string others;
      bool is_text = false;
      const bool whole = each_field(block, [&](std::string_view name, JsonValue& member) {
        std::string& to = name == "text" ? text : others;
        is_text = is_text || name == "text";
        if (name != "text" && name != "type") to.append(name);
        return name == "type" ? true : add(member, to);
      });
      out += is_text ? text + others : "block" + others;
      return whole;
    });
  }

  [[nodiscard]] static bool add_object(JsonObject& object, std::string& out) {
    out += '{';
    const bool whole = each_field(object, [&](std::string_view name, JsonValue& value) {
      out.append(name) += ':';
      return name == "content" ? add_content(value, out) : add(value, out);
    });
    out += '}';
    return whole;
  }

  [[nodiscard]] static bool add(JsonValue& value, std::string& out) {
    if (is(value, json_type::object)) {
      JsonObject object;
      return value.get_object().get(object) == simdjson::SUCCESS && add_object(object, out);
    }
    if (is(value, json_type::array)) {
      simdjson::ondemand::array list;
      if (value.get_array().get(list) != simdjson::SUCCESS) return false;
      out += '[';
      for (auto entry : list) {
        JsonValue element;
        if (std::move(entry).get(element) != simdjson::SUCCESS || !add(element, out)) return false;
      }
      out += ']';
      return true;
    }
    const std::string_view token = value.raw_json_token();
    out.append(token.substr(0, token.find_last_not_of(" \t\r\n") + 1)) += '\x1f';
    return true;
  }

  template <class Take>
  [[nodiscard]] static bool each_field(JsonObject& object, Take take) {
    for (auto entry : object) {
      simdjson::ondemand::field field;
      std::string_view name;
      if (std::move(entry).get(field) != simdjson::SUCCESS ||
          field.unescaped_key().get(name) != simdjson::SUCCESS) {
        return false;
      }
      JsonValue value = field.value();
      if (name != "cache_control" && !take(name, value)) return false;
    }
    return true;
  }

  std::vector<std::string> parts_;
};

}  // namespace detail

// Returns: one element for what stands before the messages and one for each message; empty where
// the body is no JSON object, holds no messages, or says only what is new (`previous_response_id`).
[[nodiscard]] inline std::vector<std::uint64_t> prefix_chain(std::string_view body) noexcept {
  try {
    return detail::PrefixWalk().chain(body);
  } catch (...) {
    return {};  // out of memory: unknown, as for a body that cannot be read
  }
}

}  // namespace limpet
