// SPDX-License-Identifier: Apache-2.0
//
// The requests that real agents were seen to send, as recorded and rewritten in ways that must not
// matter: members shuffled, spaces, escapes, cache markers moved, accounting line changed.
#include <limpet/wire/identity.hpp>

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/plain_json.hpp"
#include "support/shared_data.hpp"

using limpet::identify;
using limpet::Identity;
using limpet::IdentitySource;
using limpet::KeyHasher;
using limpet::RequestKind;
using limpet_tests::Json;
using limpet_tests::JsonReader;
using limpet_tests::JsonWriter;

namespace {

constexpr std::string_view claude = "00000001-1111-4222-8333-000000000001";
constexpr std::string_view codex = "00000004-1111-4222-8333-000000000004";
constexpr std::string_view opencode = "ses_74349d838c228c92efe74350b8";

struct Expected {
  std::string_view file;
  std::string_view conversation;  // requests with the same one share a key
  std::string_view session;
  std::string_view agent;
  std::string_view parent;
  IdentitySource source;
  RequestKind kind;
  // With the headers taken away; an empty session is a fingerprint.
  std::string_view body_session;
  IdentitySource body_source;
  RequestKind body_kind;
};

const Expected requests[] = {
    {"claude_code_turn1", "main", claude, "", "", IdentitySource::claude_code_header,
     RequestKind::main, claude, IdentitySource::claude_code_body, RequestKind::main},
    {"claude_code_turn2", "main", claude, "", "", IdentitySource::claude_code_header,
     RequestKind::main, claude, IdentitySource::claude_code_body, RequestKind::main},
    {"claude_code_turn4", "main", claude, "", "", IdentitySource::claude_code_header,
     RequestKind::main, claude, IdentitySource::claude_code_body, RequestKind::main},
    {"claude_code_subagent_turn1", "sub", claude, "a00000000feed0002", claude,
     IdentitySource::claude_code_header, RequestKind::subagent, claude,
     IdentitySource::claude_code_body, RequestKind::subagent},
    {"claude_code_subagent_turn2", "sub", claude, "a00000000feed0002", claude,
     IdentitySource::claude_code_header, RequestKind::subagent, claude,
     IdentitySource::claude_code_body, RequestKind::subagent},
    {"codex_turn1", "codex", codex, "", "", IdentitySource::codex_header, RequestKind::main, codex,
     IdentitySource::body_field, RequestKind::main},
    {"codex_turn2", "codex", codex, "", "", IdentitySource::codex_header, RequestKind::main, codex,
     IdentitySource::body_field, RequestKind::main},
    {"opencode_turn1", "opencode", opencode, "", "", IdentitySource::session_header,
     RequestKind::main, "", IdentitySource::fingerprint, RequestKind::main},
    {"opencode_turn2", "opencode", opencode, "", "", IdentitySource::session_header,
     RequestKind::main, "", IdentitySource::fingerprint, RequestKind::main},
    {"opencode_title", "opencode", opencode, "", "", IdentitySource::session_header,
     RequestKind::side_call, "", IdentitySource::fingerprint, RequestKind::side_call},
};

struct Request {
  std::vector<std::pair<std::string, std::string>> headers;
  Json body;
};

std::optional<Request> load(std::string_view name) {
  const auto text = limpet_tests::shared_data("agent_requests/" + std::string(name) + ".json");
  if (!text) return std::nullopt;
  Json file = JsonReader::read(*text);
  Request request;
  for (Json& header : file.at("headers").items) {
    request.headers.emplace_back(header.items[0].text, header.items[1].text);
  }
  request.body = file.at("body");
  return request;
}

// Rewrites what differs between requests of one conversation and must not matter.
void disturb(Json& body, std::mt19937& random) {
  const Json marker = JsonReader::read(R"({"type":"ephemeral"})");
  body.each_object([&](Json& object) {
    object.erase("cache_control");
    if (object.find("text") != nullptr && random() % 2 == 0) {
      object.add("cache_control", marker);
    }
  });
  if (Json* system = body.find("system")) {
    std::string& line = system->items.at(0).text;
    if (line.empty()) {
      std::string& text = system->items.at(0).at("text").text;
      REQUIRE(text.starts_with("x-anthropic-billing-header:"));
      text += " cch=" + std::to_string(random()) + ";";
    }
  }
}

}  // namespace

TEST_CASE("every real request gets its session, agent, parent, source and kind from the headers") {
  const KeyHasher hasher({.k0 = 5, .k1 = 6});
  std::vector<std::pair<std::string_view, limpet::KeyHash>> keys;
  std::mt19937 random(1);
  for (const Expected& expected : requests) {
    CAPTURE(expected.file);
    const auto request = load(expected.file);
    if (!request) SKIP(limpet_tests::missing_data("agent_requests"));
    const std::string body = JsonWriter(JsonWriter::Style::compact, random).write(request->body);
    const Identity identity = identify(request->headers, body);
    CHECK(identity.session == expected.session);
    CHECK(identity.agent == expected.agent);
    CHECK(identity.parent == expected.parent);
    CHECK(identity.source == expected.source);
    CHECK(identity.kind == expected.kind);
    keys.emplace_back(expected.conversation, identity.key("t", hasher).value());
  }
  for (const auto& a : keys) {
    for (const auto& b : keys) CHECK((a.first == b.first) == (a.second == b.second));
  }
}

TEST_CASE("with the headers taken away the body names the session, as far as it can") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::string opencode_print;
  for (const Expected& expected : requests) {
    const auto request = load(expected.file);
    if (!request) SKIP(limpet_tests::missing_data("agent_requests"));
    CAPTURE(expected.file);
    for (int variant = 0; variant < 40; ++variant) {
      Json body = request->body;
      if (variant > 0) disturb(body, random);
      const auto style = variant < 2 ? JsonWriter::Style::compact : JsonWriter::Style::shuffled;
      const std::string text = JsonWriter(style, random).write(body);
      const Identity identity = identify({}, text);
      REQUIRE(identity.source == expected.body_source);
      REQUIRE(identity.agent.empty());
      // Spaces make the title call too long to be taken for one.
      if (text.size() <= 4096 || expected.body_kind != RequestKind::side_call) {
        REQUIRE(identity.kind == expected.body_kind);
      }
      if (!expected.body_session.empty()) {
        REQUIRE(identity.session == expected.body_session);
      } else if (expected.body_kind == RequestKind::main) {
        if (opencode_print.empty()) opencode_print = identity.session.view();
        REQUIRE(identity.session == opencode_print);
      } else {
        REQUIRE(identity.session != opencode_print);
      }
    }
  }
}

TEST_CASE("without ids, fingerprints tell the conversations apart and hold from turn to turn") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<std::pair<std::string_view, std::string>> prints;
  for (const Expected& expected : requests) {
    const auto request = load(expected.file);
    if (!request) SKIP(limpet_tests::missing_data("agent_requests"));
    CAPTURE(expected.file);
    const std::string_view conversation =
        expected.kind == RequestKind::side_call ? "title" : expected.conversation;
    for (int variant = 0; variant < 10; ++variant) {
      Json body = request->body;
      body.erase("metadata");
      body.erase("prompt_cache_key");
      disturb(body, random);
      const Identity identity =
          identify({}, JsonWriter(JsonWriter::Style::shuffled, random).write(body));
      REQUIRE(identity.source == IdentitySource::fingerprint);
      prints.emplace_back(conversation, identity.session.view());
    }
  }
  for (const auto& a : prints) {
    for (const auto& b : prints) REQUIRE((a.first == b.first) == (a.second == b.second));
  }
}
