// SPDX-License-Identifier: Apache-2.0
//
// What the body of a request says of its conversation, in one on-demand pass of simdjson.
//
// The pass goes to the end: the field that names the session may stand behind everything else, a
// truncated body shows only there, and a name given twice is no name. What no rule asks for is
// skipped, not parsed: a flaw inside it goes unseen here and is the engine's to reject. Cost:
// simdjson's own walk, plus a copy of the body, since simdjson reads past the end of its input. A
// reader keeps its buffers: one a thread, never shared.
#pragma once

#include <limpet/wire/detail/claude_user_id.hpp>
#include <limpet/wire/detail/first_message.hpp>
#include <limpet/wire/detail/json_walk.hpp>
#include <limpet/wire/id.hpp>

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace limpet::detail {

// The fields of a body that name a session, best first.
enum class BodyField : std::uint8_t {
  user_id,
  metadata_session_id,
  session_id,
  prompt_cache_key,
  conversation,
  none
};

// Whether the messages are looked at one by one: only worth it where a side call is possible.
enum class Messages : std::uint8_t { skip, count };

struct BodyFacts {
  BodyField field = BodyField::none;
  Id session;                    // from `field`
  Id request_kind;               // Codex: client_metadata's turn metadata
  Id subagent;                   // Codex: client_metadata
  bool claude_subagent = false;  // the accounting line of the system prompt says so
  bool has_tools = false;
  bool has_instructions = false;  // a system prompt of any kind
  bool answered = false;          // the model or a tool has spoken before
  std::uint32_t user_messages = 0;
  std::uint64_t max_tokens = UINT64_MAX;
};

class BodyReader {
 public:
  // False where the body is no JSON object, holds a name twice, or memory is short; `facts` is then
  // void.
  [[nodiscard]] bool read(std::string_view body, Messages messages, BodyFacts& facts) noexcept {
    if (!copy_.assign(body)) return false;
    // Left alone, the parser grows to exactly each longer body; rounded up, it grows a few times.
    if (parser_.capacity() < body.size() &&
        parser_.allocate(copy_.capacity()) != simdjson::SUCCESS) {
      return false;
    }
    JsonObject root;
    return parser_.iterate(copy_.view()).get(document_) == simdjson::SUCCESS &&
           document_.get_object().get(root) == simdjson::SUCCESS &&
           read_root(root, messages, facts) &&
           document_.current_location().error() == simdjson::OUT_OF_BOUNDS;  // nothing follows
  }

  // The fingerprint of the body last read with success; empty where no message holds a text of the
  // user's own.
  [[nodiscard]] Fingerprint fingerprint() noexcept {
    static constexpr std::string_view names[] = {"messages", "input"};
    document_.rewind();
    Fingerprint print;
    JsonObject root;
    if (document_.get_object().get(root) != simdjson::SUCCESS) return print;
    stop_early(each_member(root, names, [&](std::size_t, JsonValue& messages) {
      std::string_view text;
      if (!read_text(messages, text)) return false;
      print.add(text);
      stop_early(each_object(messages, [&](JsonObject& message) {
        return add_user_text(message, print) && print.empty();
      }));
      return print.empty();
    }));
    return print;
  }

  // The string member `name` of a small JSON object that came as text, if it is an id.
  [[nodiscard]] Id member(std::string_view json, std::string_view name) noexcept {
    constexpr std::size_t longest = 8192;
    simdjson::ondemand::document document;
    JsonObject object;
    if (json.size() > longest || !inner_copy_.assign(json) ||
        inner_parser_.iterate(inner_copy_.view()).get(document) != simdjson::SUCCESS ||
        document.get_object().get(object) != simdjson::SUCCESS) {
      return {};
    }
    const std::string_view names[] = {name};
    std::string_view text;
    const bool whole = each_member(
        object, names, [&](std::size_t, JsonValue& value) { return read_text(value, text); });
    return whole ? Id(text) : Id();
  }

  // Gives memory back after an unusually large body.
  void shrink(std::size_t keep) noexcept {
    if (copy_.capacity() <= keep) return;
    document_ = {};
    parser_ = simdjson::ondemand::parser{};
    copy_ = PaddedCopy{};
  }

 private:
  // A walk that need not see the end.
  static void stop_early(bool) noexcept {}

  [[nodiscard]] bool read_root(JsonObject& root, Messages messages, BodyFacts& facts) noexcept {
    static constexpr std::string_view names[] = {"metadata",
                                                 "client_metadata",
                                                 "session_id",
                                                 "prompt_cache_key",
                                                 "messages",
                                                 "input",
                                                 "system",
                                                 "instructions",
                                                 "tools",
                                                 "functions",
                                                 "conversation",
                                                 "max_tokens",
                                                 "max_completion_tokens",
                                                 "max_output_tokens"};
    return each_member(root, names, [&](std::size_t name, JsonValue& value) {
      switch (name) {
        case 0:
          return read_metadata(value, facts);
        case 1:
          return read_client_metadata(value, facts);
        case 2:
          return offer(BodyField::session_id, value, facts);
        case 3:
          return offer(BodyField::prompt_cache_key, value, facts);
        case 4:
        case 5:
          return messages == Messages::skip || count_messages(value, facts);
        case 6:
          return read_system(value, facts);
        case 7:
          return read_instructions(value, facts);
        case 8:
        case 9:
          return read_tools(value, facts);
        case 10:
          return read_conversation(value, facts);
        default:
          return read_limit(value, facts);
      }
    });
  }

  // Takes the value as the session's name if it is an id and its field outranks what there is.
  [[nodiscard]] static bool offer(BodyField field, JsonValue& value, BodyFacts& facts) noexcept {
    std::string_view text;
    if (!read_text(value, text)) return false;
    take(field, Id(text), facts);
    return true;
  }

  static void take(BodyField field, const Id& id, BodyFacts& facts) noexcept {
    if (id.empty() || field >= facts.field) return;
    facts.field = field;
    facts.session = id;
  }

  [[nodiscard]] bool read_metadata(JsonValue& value, BodyFacts& facts) noexcept {
    static constexpr std::string_view names[] = {"user_id", "session_id"};
    return each_member(value, names, [&](std::size_t name, JsonValue& entry) {
      if (name == 1) return offer(BodyField::metadata_session_id, entry, facts);
      std::string_view user;
      if (!read_text(entry, user)) return false;
      take(BodyField::user_id,
           user.starts_with('{') ? member(user, "session_id") : Id(session_of_user_id(user)),
           facts);
      return true;
    });
  }

  [[nodiscard]] static bool read_conversation(JsonValue& value, BodyFacts& facts) noexcept {
    static constexpr std::string_view names[] = {"id"};
    return offer(BodyField::conversation, value, facts) &&
           each_member(value, names, [&](std::size_t, JsonValue& id) {
             return offer(BodyField::conversation, id, facts);
           });
  }

  [[nodiscard]] bool read_client_metadata(JsonValue& value, BodyFacts& facts) noexcept {
    static constexpr std::string_view names[] = {"x-openai-subagent", "x-codex-turn-metadata"};
    return each_member(value, names, [&](std::size_t name, JsonValue& entry) {
      std::string_view text;
      if (!read_text(entry, text)) return false;
      if (name == 0) {
        facts.subagent = Id(text);
      } else {
        facts.request_kind = member(text, "request_kind");
      }
      return true;
    });
  }

  [[nodiscard]] static bool count_messages(JsonValue& value, BodyFacts& facts) noexcept {
    static constexpr std::string_view names[] = {"role", "type"};
    if (is(value, json_type::string)) ++facts.user_messages;
    return each_object(value, [&](JsonObject& message) {
      std::string_view texts[2];
      const auto keep = [&](std::size_t name, JsonValue& entry) {
        return read_text(entry, texts[name]);
      };
      if (!each_member(message, names, keep)) return false;
      const std::string_view role = texts[0];
      const std::string_view type = texts[1];
      if (role == "user") {
        ++facts.user_messages;
      } else if (role == "system" || role == "developer") {
        facts.has_instructions = true;
      } else if (!role.empty() ||
                 type != "message") {  // Responses: calls and outputs have a type alone
        facts.answered = true;
      }
      return true;
    });
  }

  // A system prompt is a string or a list of blocks: its first text that is not empty.
  [[nodiscard]] static bool read_prompt(JsonValue& value, std::string_view& text,
                                        BodyFacts& facts) noexcept {
    static constexpr std::string_view names[] = {"text"};
    const bool whole = read_text(value, text) && each_object(value, [&](JsonObject& block) {
                         return each_member(block, names, [&](std::size_t, JsonValue& entry) {
                           return !text.empty() || read_text(entry, text);
                         });
                       });
    if (!text.empty()) facts.has_instructions = true;
    return whole;
  }

  // Claude Code's accounting line is the front of its system prompt.
  [[nodiscard]] static bool read_system(JsonValue& value, BodyFacts& facts) noexcept {
    std::string_view text;
    if (!read_prompt(value, text, facts)) return false;
    const std::string_view line = text.substr(0, text.find('\n'));
    facts.claude_subagent = line.starts_with("x-anthropic-billing-header:") &&
                            line.find("cc_is_subagent=true") != line.npos;
    return true;
  }

  [[nodiscard]] static bool read_instructions(JsonValue& value, BodyFacts& facts) noexcept {
    std::string_view text;
    return read_prompt(value, text, facts);
  }

  [[nodiscard]] static bool read_tools(JsonValue& value, BodyFacts& facts) noexcept {
    simdjson::ondemand::array list;
    bool none = true;
    if (!is(value, json_type::array)) return true;
    if (value.get_array().get(list) != simdjson::SUCCESS ||
        list.is_empty().get(none) != simdjson::SUCCESS) {
      return false;
    }
    if (!none) facts.has_tools = true;
    return true;
  }

  [[nodiscard]] static bool read_limit(JsonValue& value, BodyFacts& facts) noexcept {
    std::uint64_t limit = 0;
    if (is(value, json_type::number) && value.get_uint64().get(limit) == simdjson::SUCCESS) {
      facts.max_tokens = std::min(facts.max_tokens, limit);
    }
    return true;
  }

  // The texts of one message, if it is the user's.
  [[nodiscard]] static bool add_user_text(JsonObject& message, Fingerprint& print) noexcept {
    static constexpr std::string_view role_name[] = {"role"};
    static constexpr std::string_view content_name[] = {"content"};
    static constexpr std::string_view block_names[] = {"type", "text"};
    std::string_view role;
    const bool whole = each_member(
        message, role_name, [&](std::size_t, JsonValue& value) { return read_text(value, role); });
    if (!whole || message.reset().error() != simdjson::SUCCESS) return false;
    if (role != "user") return true;
    return each_member(message, content_name, [&](std::size_t, JsonValue& content) {
      std::string_view text;
      if (!read_text(content, text)) return false;
      print.add(text);
      return each_object(content, [&](JsonObject& block) {
        std::string_view texts[2];
        const auto keep = [&](std::size_t name, JsonValue& value) {
          return read_text(value, texts[name]);
        };
        if (!each_member(block, block_names, keep)) return false;
        if (texts[0].empty() || texts[0] == "text" || texts[0] == "input_text") print.add(texts[1]);
        return true;
      });
    });
  }

  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
  PaddedCopy copy_;
  simdjson::ondemand::parser inner_parser_;
  PaddedCopy inner_copy_;
};

}  // namespace limpet::detail
