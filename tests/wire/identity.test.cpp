// SPDX-License-Identifier: Apache-2.0
#include <limpet/wire/identity.hpp>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"

using limpet::BodyStatus;
using limpet::identify;
using limpet::Identity;
using limpet::IdentityOptions;
using limpet::IdentitySource;
using limpet::KeyHash;
using limpet::KeyHasher;
using limpet::RequestKind;

namespace {

using Header = std::pair<std::string_view, std::string_view>;
using Headers = std::vector<Header>;

Identity by_body(std::string_view body) {
  return identify({}, body);
}

constexpr std::string_view uuid = "00000001-1111-4222-8333-000000000001";

}  // namespace

TEST_CASE("each known session header names the session") {
  const std::pair<std::string_view, IdentitySource> rows[] = {
      {"x-limpet-conversation-id", IdentitySource::limpet_header},
      {"x-claude-code-session-id", IdentitySource::claude_code_header},
      {"thread-id", IdentitySource::codex_header},
      {"session-id", IdentitySource::codex_header},
      {"session_id", IdentitySource::codex_header},
      {"conversation_id", IdentitySource::codex_header},
      {"x-session-id", IdentitySource::session_header},
      {"x-session-affinity", IdentitySource::session_header},
      {"x-opencode-session", IdentitySource::session_header},
      {"x-litellm-session-id", IdentitySource::gateway_header},
      {"x-dynamo-session-id", IdentitySource::gateway_header},
      {"x-smg-routing-key", IdentitySource::gateway_header},
      {"x-bf-session-id", IdentitySource::gateway_header},
      {"x-grok-conv-id", IdentitySource::gateway_header},
      {"x-amp-thread-id", IdentitySource::gateway_header},
      {"x-openwebui-chat-id", IdentitySource::gateway_header},
      {"x-task-id", IdentitySource::gateway_header},
      {"x-roo-task-id", IdentitySource::gateway_header},
      {"x-aibrix-session-key", IdentitySource::gateway_header},
  };
  for (const auto& [name, source] : rows) {
    CAPTURE(name);
    const Identity identity = identify({{"accept", "*/*"}, {name, uuid}}, "");
    CHECK(identity.session == uuid);
    CHECK(identity.agent.empty());
    CHECK(identity.parent.empty());
    CHECK(identity.source == source);
    CHECK(identity.kind == RequestKind::main);
    CHECK(identity.body_status == BodyStatus::unread);
  }
}

TEST_CASE("header names compare without case and with a dash equal to an underscore") {
  for (const std::string_view name :
       {"X-Session-Id", "X_SESSION_ID", "x_session-id", "x-session_ID"}) {
    CAPTURE(name);
    CHECK(identify({{name, "s"}}, "").session == "s");
    CHECK(identify({{name, "s"}}, "").field == "x-session-id");
  }
  for (const std::string_view name :
       {"x-session-id2", "xx-session-id", "x-session-i", "x=session=id", "xmsessionmid",
        "x-sessiOn?id", "x session id", "", "x", "x-sess\xEFon-id"}) {
    CAPTURE(name);
    CHECK(identify({{name, "s"}}, "").session.empty());
  }
}

TEST_CASE("the first source in the table wins, wherever its header stands") {
  const std::string_view order[] = {"x-limpet-conversation-id",
                                    "x-claude-code-session-id",
                                    "thread-id",
                                    "session-id",
                                    "conversation-id",
                                    "x-session-id",
                                    "x-session-affinity",
                                    "x-opencode-session",
                                    "x-litellm-session-id",
                                    "x-dynamo-session-id",
                                    "x-smg-routing-key",
                                    "x-bf-session-id",
                                    "x-grok-conv-id",
                                    "x-amp-thread-id",
                                    "x-openwebui-chat-id",
                                    "x-task-id",
                                    "x-roo-task-id",
                                    "x-aibrix-session-key"};
  for (std::size_t first = 0; first + 1 < std::size(order); ++first) {
    const std::string_view better = order[first];
    const std::string_view worse = order[first + 1];
    CAPTURE(better, worse);
    CHECK(identify({{better, "better"}, {worse, "worse"}}, "").session == "better");
    CHECK(identify({{worse, "worse"}, {better, "better"}}, "").session == "better");
    CHECK(identify({{better, ""}, {worse, "worse"}}, "").session == "worse");
  }
  CHECK(identify({{"x-session-id", "a"}, {"x-session-id", "b"}}, "").session == "a");
  CHECK(identify({{"x-aibrix-session-key", "header"}}, R"({"session_id":"body"})").session ==
        "header");
}

TEST_CASE("the operator's own headers come first, in his order") {
  const IdentityOptions options{.session_headers = {"X-Correlation-ID", "traceparent"}};
  const Identity identity =
      identify({{"x-limpet-conversation-id", "l"}, {"Traceparent", "t"}, {"x_correlation_id", "c"}},
               "", options);
  CHECK(identity.session == "c");
  CHECK(identity.source == IdentitySource::configured_header);
  CHECK(identity.field == "X-Correlation-ID");
  CHECK(identify({{"traceparent", "t"}, {"x-session-id", "s"}}, "", options).session == "t");
  CHECK(identify({{"traceparent", ""}, {"x-session-id", "s"}}, "", options).session == "s");
  CHECK(identify({{"traceparent", "t"}}, "").session.empty());
}

TEST_CASE("what names a request, a user or a network is never a key") {
  for (const std::string_view name :
       {"x-request-id", "traceparent", "x-correlation-id", "x-client-request-id", "x-forwarded-for",
        "authorization", "cookie", "user-agent"}) {
    CAPTURE(name);
    CHECK_FALSE(identify({{name, "value"}}, "").key("", KeyHasher{}).has_value());
  }
  for (const std::string_view body :
       {R"({"user":"u"})", R"({"safety_identifier":"u"})", R"({"previous_response_id":"resp_1"})",
        R"({"metadata":{"user_id":"someone@example.com"}})",
        R"({"prompt":"\"session_id\": \"x\" metadata session_id"})"}) {
    CAPTURE(body);
    CHECK_FALSE(by_body(body).key("", KeyHasher{}).has_value());
  }
}

TEST_CASE("an id is 1 to 256 visible characters, compared whole, or it is no id") {
  const auto session = [](std::string_view value) {
    return std::string(identify({{"x-session-id", value}}, "").session.view());
  };
  const std::string longest(256, 'a');
  for (const std::string_view value :
       {std::string_view("a"), uuid, std::string_view(longest), std::string_view("!~{}\"\\:/")}) {
    CHECK(session(value) == value);
  }
  CHECK(session(longest + "a").empty());
  CHECK(session("").empty());
  // Every byte that is not visible ASCII, at every place that the check could treat apart.
  for (int byte = 0; byte < 256; ++byte) {
    for (const std::size_t size : {1u, 7u, 8u, 9u, 36u}) {
      for (std::size_t place = 0; place < size; ++place) {
        std::string value(size, 'x');
        value[place] = static_cast<char>(byte);
        const bool visible = byte > 0x20 && byte < 0x7F;
        REQUIRE(session(value) == (visible ? value : ""));
      }
    }
  }
  const KeyHasher hasher;
  CHECK(identify({{"x-session-id", "session-1"}}, "").key("", hasher) !=
        identify({{"x-session-id", "session-12"}}, "").key("", hasher));
}

TEST_CASE("a sub-agent of Claude Code has an agent, and a parent: the main line or another agent") {
  const Header session{"x-claude-code-session-id", uuid};
  const KeyHasher hasher({.k0 = 1, .k1 = 2});
  const Identity main = identify(Headers{session}, "");
  const Identity child = identify(Headers{session, {"x-claude-code-agent-id", "a1"}}, "");
  const Identity grandchild = identify(
      Headers{session, {"x-claude-code-agent-id", "a2"}, {"x-claude-code-parent-agent-id", "a1"}},
      "");
  CHECK(main.kind == RequestKind::main);
  CHECK(child.kind == RequestKind::subagent);
  CHECK(child.session == uuid);
  CHECK(child.agent == "a1");
  CHECK(child.parent == uuid);
  CHECK(grandchild.agent == "a2");
  CHECK(grandchild.parent == "a1");
  CHECK(child.key("t", hasher) == hasher("t", uuid, "a1"));
  CHECK(child.parent_key("t", hasher) == main.key("t", hasher));
  CHECK(grandchild.parent_key("t", hasher) == child.key("t", hasher));
  CHECK_FALSE(main.parent_key("t", hasher).has_value());
  // A parent without an agent says nothing of the main line.
  CHECK(identify(Headers{session, {"x-claude-code-parent-agent-id", "a1"}}, "").parent.empty());
}

TEST_CASE("a child with a session of its own names the session that started it") {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"x-limpet-conversation-id", "x-limpet-parent-id"},
      {"thread-id", "x-codex-parent-thread-id"},
      {"x-session-id", "x-parent-session-id"},
      {"x-dynamo-session-id", "x-dynamo-parent-session-id"},
  };
  const KeyHasher hasher;
  for (const auto& [session_header, parent_header] : rows) {
    CAPTURE(session_header, parent_header);
    const Identity child = identify({{session_header, "child"}, {parent_header, "parent"}}, "");
    CHECK(child.session == "child");
    CHECK(child.parent == "parent");
    CHECK(child.kind == RequestKind::subagent);
    CHECK(child.parent_key("t", hasher) ==
          identify({{session_header, "parent"}}, "").key("t", hasher));
    CHECK(identify({{session_header, "child"}, {parent_header, ""}}, "").kind == RequestKind::main);
  }
  // A parent of one client says nothing about another's session.
  CHECK(identify({{"x-session-id", "s"}, {"x-codex-parent-thread-id", "p"}}, "").parent.empty());
}

TEST_CASE("a body names its session in the order of the table") {
  const auto claude = [](std::string_view value) {
    return R"("metadata":{"user_id":")" + std::string(value) + R"(","session_id":"m"})";
  };
  const std::string device(64, 'a');
  const std::string json = R"({\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\")" +
                           std::string(uuid) + R"(\"})";
  const std::string rest = R"("session_id":"s","prompt_cache_key":"p","conversation":"c")";
  const auto found = [](const std::string& members) {
    const Identity identity = by_body("{" + members + "}");
    return std::string(identity.session.view()) + " " + std::string(identity.field);
  };
  CHECK(found(rest + "," + claude(json)) == std::string(uuid) + " metadata.user_id");
  CHECK(found(claude("user_" + device + "_account__session_" + std::string(uuid)) + "," + rest) ==
        std::string(uuid) + " metadata.user_id");
  CHECK(found(claude("user_" + device + "_account_" + std::string(uuid) + "_session_" +
                     std::string(uuid))) == std::string(uuid) + " metadata.user_id");
  CHECK(found(claude("a@b.c") + "," + rest) == "m metadata.session_id");
  CHECK(found(rest) == "s session_id");
  CHECK(found(R"("prompt_cache_key":"p","conversation":"c","session_id":7)") ==
        "p prompt_cache_key");
  CHECK(found(R"("conversation":"c","session_id":"")") == "c conversation");
  CHECK(found(R"("conversation":{"id":"conv_1","x":1})") == "conv_1 conversation");
  CHECK(by_body("{" + claude(json) + "}").source == IdentitySource::claude_code_body);
  CHECK(by_body("{" + rest + "}").source == IdentitySource::body_field);
}

TEST_CASE("any other user id is no id") {
  const std::string device(64, 'a');
  const std::string session = "_session_" + std::string(uuid);
  for (const std::string& value :
       {std::string("someone@example.com"), std::string("{}"), std::string("{"),
        std::string(R"({\"session_id\":7})"), std::string(R"({\"session_id\":\"\"})"),
        std::string(R"({\"session_id\":\"a\",\"session_id\":\"b\"})"),
        std::string(R"([\"session_id\"])"), "user_" + device + "_account_" + session + "x",
        "user_" + device + "_account_x" + session, "user_" + device + session,
        "user_" + std::string(63, 'a') + "_account_" + session,
        "user_" + std::string(64, 'g') + "_account_" + session,
        "User_" + device + "_account_" + session, "user_" + device + "_account__session_",
        "user_" + device + "_account__session_00000001x1111-4222-8333-000000000001"}) {
    CAPTURE(value);
    CHECK(by_body(R"({"metadata":{"user_id":")" + value + R"("}})").session.empty());
  }
}

TEST_CASE("the fingerprint is of the first text that the user wrote") {
  const auto print = [](std::string_view body) {
    const Identity identity = by_body(body);
    if (!identity.session.empty()) CHECK(identity.source == IdentitySource::fingerprint);
    return std::string(identity.session.view());
  };
  const std::string hi = print(R"({"messages":[{"role":"user","content":"hi"}]})");
  REQUIRE(hi.size() == 32);

  SECTION("the same text is the same, however it is wrapped") {
    for (const std::string_view body :
         {R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})",
          R"({"messages":[{"content":[{"text":"hi","type":"text"}],"role":"user"}]})",
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi",)"
          R"("cache_control":{"type":"ephemeral"}}]}]})",
          R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":"hi"}]})",
          R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"},)"
          R"({"role":"user","content":"more"}]})",
          R"({"model":"m","system":"changed","messages":[{"role":"user","content":"hi"}]})",
          R"({"messages":[{"role":"user","content":"\u0068\u0069"}],"tools":[{}]})",
          R"({"input":"hi"})", R"({"input":[{"role":"user","content":"hi"}]})",
          R"({"input":[{"type":"message","role":"developer","content":"d"},{"type":"message",)"
          R"("role":"user","content":[{"type":"input_text","text":"hi"}]}]})"}) {
      CAPTURE(body);
      CHECK(print(body) == hi);
    }
  }
  SECTION("another text is another conversation") {
    for (const std::string_view body :
         {R"({"messages":[{"role":"user","content":"hi!"}]})",
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"h"},)"
          R"({"type":"text","text":"i"}]}]})",
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"},)"
          R"({"type":"text","text":"there"}]}]})"}) {
      CAPTURE(body);
      CHECK(print(body) != hi);
    }
  }
  SECTION("what is no text of the user's does not count") {
    for (const std::string_view body :
         {R"({"messages":[{"role":"user","content":[{"type":"image","source":{}},)"
          R"({"type":"text","text":"hi"}]}]})",
          R"({"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]},)"
          R"({"role":"user","content":"hi"}]})",
          R"({"messages":["x",7,{"role":"user","content":null},{"role":"user","content":""},)"
          R"({"role":"user","content":"hi"}]})",
          R"({"messages":[{"content":"no role"},{"role":"user","content":" \n hi"}]})"}) {
      CAPTURE(body);
      CHECK(print(body) == hi);
    }
  }
  SECTION("the preambles of harnesses are skipped") {
    const std::string_view preambles[] = {
        R"(<system-reminder>\nToday is Monday.\n</system-reminder>)",
        R"(<environment_context>\n  <cwd>/a</cwd>\n</environment_context>)",
        R"(<user_instructions>\nBe brief.\n</user_instructions>)",
        R"(<session_context>\nThis is the Gemini CLI.\n</session_context>)",
        R"(# AGENTS.md instructions for /a\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>)",
        R"(# AGENTS.md instructions for /a\n\n<INSTRUCTIONS>x</INSTRUCTIONS>\n)"
        R"(<environment_context>y</environment_context>)",
        R"(This is the Qwen Code. We are setting up the context for our chat.\nToday's date is x)",
        R"(x-anthropic-billing-header: cc_version=1; cch=a1b2c;)",
    };
    for (const std::string_view preamble : preambles) {
      CAPTURE(preamble);
      const std::string text(preamble);
      CHECK(print(R"({"messages":[{"role":"user","content":[{"type":"text","text":")" + text +
                  R"("},{"type":"text","text":"hi"}]}]})") == hi);
      CHECK(print(R"({"messages":[{"role":"user","content":")" + text +
                  R"("},{"role":"assistant","content":"ok"},{"role":"user","content":"hi"}]})") ==
            hi);
      CHECK(print(R"({"messages":[{"role":"user","content":")" + text + R"("}]})").empty());
      // In one text with what the user wrote, where the harness says where it ends.
      if (!preamble.starts_with("This is the ")) {
        CHECK(print(R"({"messages":[{"role":"user","content":")" + text + R"(\nhi"}]})") == hi);
      }
    }
  }
  SECTION("a text that only resembles a preamble is the user's") {
    for (const std::string_view text :
         {"<system>x</system>hi", "# AGENTS", "This is the end", "<b>hi</b>", "<", "x-anthropic",
          "hi <system-reminder>x</system-reminder>"}) {
      CAPTURE(text);
      const std::string found =
          print(R"({"messages":[{"role":"user","content":")" + std::string(text) + R"("}]})");
      CHECK_FALSE(found.empty());
      CHECK(found != hi);
    }
  }
}

TEST_CASE("a body without any text of the user's is keyless") {
  for (const std::string_view body :
       {"{}", R"({"messages":[]})", R"({"messages":null})", R"({"input":[]})", R"({"prompt":"hi"})",
        R"({"messages":[{"role":"assistant","content":"hi"}]})", R"({"messages":{"a":1}})"}) {
    CAPTURE(body);
    const Identity identity = by_body(body);
    CHECK(identity.session.empty());
    CHECK(identity.source == IdentitySource::none);
    CHECK(identity.body_status == BodyStatus::read);
    CHECK_FALSE(identity.key("t", KeyHasher{}).has_value());
  }
}

TEST_CASE("a body that cannot be read is keyless and says so") {
  const std::string whole =
      R"({"messages":[{"role":"user","content":"hi"}],"metadata":{"session_id":"s"},"tools":[]})";
  CHECK(by_body(whole).session == "s");
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const Identity identity = by_body(std::string_view(whole).substr(0, size));
    CAPTURE(size);
    CHECK(identity.session.empty());
    CHECK(identity.body_status == BodyStatus::malformed);
  }
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& body : std::vector<std::string>{
           "x", "null", "[]", "\"s\"", "{\"session_id\":\"s\"} x", "{\"session_id\":\"s\"}{}",
           "{\"session_id\":\"s\",}", "{\"session_id\" \"s\"}", "{'session_id':'s'}",
           "{\"session_id\":\"\xFF\"}", "{\"a\":\"\xC3\",\"session_id\":\"s\"}",
           "{\"session_id\":\"\\x\"}", "{\"session_id\":\"s\",\"session_id\":\"s\"}",
           "{\"session_id\":\"s\",\"\\u0073ession_id\":\"t\"}",
           "{\"metadata\":{\"session_id\":\"s\",\"session_id\":\"t\"}}",
           "{\"session_id\":\"s\",\"messages\":[],\"messages\":[]}", deep}) {
    CAPTURE(body.substr(0, 60));
    const Identity identity = by_body(body);
    CHECK(identity.session.empty());
    CHECK(identity.body_status == BodyStatus::malformed);
  }
  CHECK(by_body("{\"messages\":" + deep + "}").session.empty());
  CHECK(by_body("{\"metadata\":{\"user_id\":" + deep + "}}").session.empty());
}

TEST_CASE("a body over the limit is not read") {
  const std::string body = R"({"session_id":"s","pad":")" + std::string(1000, 'x') + R"("})";
  CHECK(identify({}, body, {.max_body_bytes = body.size()}).session == "s");
  const Identity identity = identify({}, body, {.max_body_bytes = body.size() - 1});
  CHECK(identity.session.empty());
  CHECK(identity.body_status == BodyStatus::too_large);
  const std::string large = R"({"session_id":"s","pad":")" + std::string(10 << 20, 'x') + R"("})";
  CHECK(by_body(large).body_status == BodyStatus::too_large);
  CHECK(identify({{"x-session-id", "h"}}, large).session == "h");
}

TEST_CASE("a large body leaves the reader fit for the next") {
  const std::string large = R"({"session_id":"s","pad":")" + std::string(5 << 20, 'x') + R"("})";
  for (int round = 0; round < 3; ++round) {
    CHECK(by_body(large).session == "s");
    CHECK(by_body(R"({"session_id":"t"})").session == "t");
    CHECK(by_body("{").body_status == BodyStatus::malformed);
  }
}

TEST_CASE("a broken body does not matter where a header names the session") {
  const Identity identity = identify({{"x-session-id", "s"}}, "{\"a\":");
  CHECK(identity.session == "s");
  CHECK(identity.kind == RequestKind::main);
  CHECK(identity.body_status == BodyStatus::malformed);
}

TEST_CASE("a request's kind is what its client says it is") {
  const auto kind = [](const Headers& more, std::string_view body = "") {
    Headers headers{{"session-id", "s"}};
    headers.insert(headers.end(), more.begin(), more.end());
    return identify(headers, body).kind;
  };
  CHECK(kind({{"x-openai-subagent", "compact"}}) == RequestKind::compaction);
  CHECK(kind({{"x-openai-subagent", "review"}}) == RequestKind::subagent);
  CHECK(kind({{"x-openai-subagent", "collab_spawn"}}) == RequestKind::subagent);
  const std::string_view turn = "x-codex-turn-metadata";
  CHECK(kind({{turn, R"({"request_kind":"compaction","turn_id":"t"})"}}) ==
        RequestKind::compaction);
  CHECK(kind({{turn, R"({"request_kind":"turn","note":"compaction"})"}}) == RequestKind::main);
  CHECK(kind({{turn, R"({"x":{"request_kind":"compaction"}})"}}) == RequestKind::main);
  CHECK(kind({{turn, R"({"request_kind":"memory"})"}}) == RequestKind::side_call);
  CHECK(kind({{turn, R"({"request_kind":"compaction")"}}) == RequestKind::main);
  const std::string_view request_class = "x-claude-code-request-class";
  CHECK(kind({{request_class, "main"}}) == RequestKind::main);
  CHECK(kind({{request_class, "subagent"}}) == RequestKind::subagent);
  CHECK(kind({{request_class, "workflow"}}) == RequestKind::subagent);
  CHECK(kind({{request_class, "compaction"}}) == RequestKind::compaction);
  CHECK(kind({{request_class, "auxiliary"}}) == RequestKind::side_call);
  CHECK(kind({{request_class, "new"}}) == RequestKind::main);
  CHECK(kind({{"x-claude-code-compaction", "auto"}}) == RequestKind::compaction);

  CHECK(by_body(R"({"prompt_cache_key":"k","client_metadata":{"x-openai-subagent":"compact"}})")
            .kind == RequestKind::compaction);
  CHECK(by_body(R"({"prompt_cache_key":"k","client_metadata":{"x-codex-turn-metadata":)"
                R"("{\"request_kind\":\"compaction\"}"}})")
            .kind == RequestKind::compaction);
  CHECK(by_body(R"({"session_id":"s","client_metadata":{"x-codex-turn-metadata":7}})").session ==
        "s");
  CHECK(by_body(R"({"session_id":"s","system":[{"type":"text","text":)"
                R"("x-anthropic-billing-header: cc_version=1; cc_is_subagent=true;"}]})")
            .kind == RequestKind::subagent);
  CHECK(by_body(R"({"session_id":"s","system":"say cc_is_subagent=true"})").kind ==
        RequestKind::main);
  CHECK(by_body(R"({"session_id":"s","instructions":"x-anthropic-billing-header: )"
                R"(cc_is_subagent=true;"})")
            .kind == RequestKind::main);
}

TEST_CASE("a side call is short, unanswered and without tools, and shows one thing more") {
  const std::string system = R"({"role":"system","content":"Make a title."})";
  const std::string user = R"({"role":"user","content":"fix my build"})";
  const auto kind = [](const std::string& messages, const std::string& more = "",
                       std::string_view agent = "curl/8") {
    return identify({{"x-session-id", "s"}, {"user-agent", agent}},
                    R"({"messages":[)" + messages + "]" + more + "}")
        .kind;
  };
  // The one thing more: a small limit, a second user message, or an agent that brings tools.
  CHECK(kind(system + "," + user, R"(,"max_tokens":20)") == RequestKind::side_call);
  CHECK(kind(system + "," + user, R"(,"max_completion_tokens":100)") == RequestKind::side_call);
  CHECK(kind(user, R"(,"system":"Make a title.","max_tokens":20)") == RequestKind::side_call);
  CHECK(kind(system + "," + user + "," + user) == RequestKind::side_call);
  for (const std::string_view agent : {"opencode/1.18.33", "claude-cli/2.1.332 (external)",
                                       "codex_exec/0.171.0", "QwenCode/0.15.10 (linux; x64)"}) {
    CHECK(kind(system + "," + user, R"(,"tools":[],"max_tokens":32000)", agent) ==
          RequestKind::side_call);
  }
  CHECK(identify({{"x-session-id", "s"}},
                 R"({"instructions":"Make a title.","input":"x","max_output_tokens":16})")
            .kind == RequestKind::side_call);

  // A plain chat's first turn, and everything that goes on, are turns of the conversation.
  CHECK(kind(user) == RequestKind::main);
  CHECK(kind(system + "," + user) == RequestKind::main);
  CHECK(kind(user, R"(,"max_tokens":8)") == RequestKind::main);
  CHECK(kind(system + "," + user, R"(,"max_tokens":4096)") == RequestKind::main);
  CHECK(kind(system + "," + user + R"(,{"role":"assistant","content":"a"},)" + user,
             R"(,"max_tokens":20)") == RequestKind::main);
  CHECK(kind(system + "," + user, R"(,"max_tokens":20,"tools":[{"name":"t"}])", "opencode/1") ==
        RequestKind::main);
  CHECK(kind(system + "," + user, R"(,"max_tokens":20,"pad":")" + std::string(5000, 'x') + '"') ==
        RequestKind::main);

  // Who names the conversation to us means it, and a named agent is no side call.
  const std::string title = R"({"messages":[)" + system + "," + user + R"(],"max_tokens":20})";
  CHECK(identify({{"x-limpet-conversation-id", "s"}}, title).kind == RequestKind::main);
  CHECK(identify({{"x-own", "s"}}, title, {.session_headers = {"x-own"}}).kind ==
        RequestKind::main);
  CHECK(
      identify({{"x-claude-code-session-id", "s"}, {"x-claude-code-agent-id", "a"}}, title).kind ==
      RequestKind::subagent);
  CHECK(identify({{"x-session-id", "s"}}, title, {.side_call_max_bytes = 0}).kind ==
        RequestKind::main);
  // With an id in the headers and a long body, nothing is read.
  CHECK(identify({{"x-session-id", "s"}}, std::string(5000, ' ')).body_status ==
        BodyStatus::unread);
}

TEST_CASE("a key depends on tenant, session and agent, and on the secret") {
  const Identity a = identify({{"x-session-id", "s"}}, "");
  const KeyHasher hasher({.k0 = 3, .k1 = 4});
  CHECK(a.key("team-a", hasher) == hasher("team-a", "s", ""));
  CHECK(a.key("team-a", hasher) != a.key("team-b", hasher));
  CHECK(a.key("team-a", hasher) != a.key("team-a", KeyHasher{}));
}

TEST_CASE("headers may be any range of pairs") {
  const std::map<std::string, std::string> map{{"x-session-id", "s"}};
  const std::vector<std::pair<std::string, std::string>> strings{{"x-session-id", "s"}};
  const Headers views{{"x-session-id", "s"}};
  CHECK(identify(map, "").session == "s");
  CHECK(identify(strings, "").session == "s");
  CHECK(identify(std::span<const Header>(views), "").session == "s");
  STATIC_REQUIRE(noexcept(identify(views, "")));
}

TEST_CASE("an identity outlives the request it was made of") {
  Identity kept;
  {
    const std::string value(200, 'v');
    const std::string name = "x-session-id";
    kept = identify({{name, value}}, "");
  }
  const Identity copy = kept;
  CHECK(copy.session == std::string(200, 'v'));
  CHECK(copy.field == "x-session-id");
}
