// SPDX-License-Identifier: Apache-2.0
//
// Which conversation a request belongs to: identify(headers, body) -> Identity, whose key() is what
// a Router pins.
//
// Agents name their sessions each in their own way; the sources are tried in the order of
// IdentitySource, first match wins, and README.md beside this file lists what each client sends. An
// id in the headers costs a few hash lengths and leaves the body unread, unless the body is short
// enough to be a side call. Otherwise the body is walked once (simdjson). An Identity owns its ids:
// it may outlive the request. Nothing throws; whatever a stranger sends ends in an identity, at
// worst an empty one, with `body_status` saying why. Thread-safe: each thread keeps a parser of its
// own.
#pragma once

#include <limpet/hash.hpp>
#include <limpet/wire/detail/known_headers.hpp>
#include <limpet/wire/detail/request_body.hpp>
#include <limpet/wire/id.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet {

// Where the session's name was found, best first.
enum class IdentitySource : std::uint8_t {
  configured_header,  // IdentityOptions::session_headers
  limpet_header,      // x-limpet-conversation-id
  claude_code_header,
  codex_header,
  session_header,    // x-session-id and its like: opencode, pi, Hermes
  gateway_header,    // headers of other gateways and harnesses
  claude_code_body,  // metadata.user_id
  body_field,        // metadata.session_id, session_id, prompt_cache_key, conversation
  fingerprint,       // the first text that the user wrote
  none,              // keyless
};

enum class RequestKind : std::uint8_t {
  main,        // a turn of the session's main line
  subagent,    // a turn of a conversation that another one started
  side_call,   // a title, summary or classifier call: follows a pin, never makes or keeps one
  compaction,  // the conversation is about to be replaced by a summary of itself
};

enum class BodyStatus : std::uint8_t {
  unread,  // the headers said everything, or there was no body
  read,
  malformed,  // no JSON object, cut off, not UTF-8, or a name stands in it twice
  too_large,  // longer than IdentityOptions::max_body_bytes
};

[[nodiscard]] constexpr std::string_view to_string(IdentitySource source) noexcept {
  constexpr std::string_view names[] = {"configured_header",  "limpet_header",
                                        "claude_code_header", "codex_header",
                                        "session_header",     "gateway_header",
                                        "claude_code_body",   "body_field",
                                        "fingerprint",        "none"};
  return names[static_cast<std::size_t>(source)];
}

[[nodiscard]] constexpr std::string_view to_string(RequestKind kind) noexcept {
  constexpr std::string_view names[] = {"main", "subagent", "side_call", "compaction"};
  return names[static_cast<std::size_t>(kind)];
}

[[nodiscard]] constexpr std::string_view to_string(BodyStatus status) noexcept {
  constexpr std::string_view names[] = {"unread", "read", "malformed", "too_large"};
  return names[static_cast<std::size_t>(status)];
}

struct IdentityOptions {
  // Names of headers that the operator's own clients send; ahead of all others, in this order.
  std::vector<std::string> session_headers = {};

  // A longer body is not read: the request is keyless unless a header names its session. A read
  // costs about 0.3 ms a megabyte on the thread that routes.
  std::size_t max_body_bytes = std::size_t{8} << 20;

  // A longer body is never a side call. It bounds what telling them apart costs where a header
  // names the session: the title calls seen have 2 to 3 KB, the shortest turn of an agent 28 KB. 0:
  // never look.
  std::size_t side_call_max_bytes = 4096;
};

struct Identity {
  Id session;  // empty: keyless
  Id agent;    // empty: the main line, or a client that gives each agent a session of its own
  Id parent;   // the agent or the session that this conversation was started by; empty: none known
  IdentitySource source = IdentitySource::none;
  RequestKind kind = RequestKind::main;
  BodyStatus body_status = BodyStatus::unread;
  bool parent_is_agent = false;  // `parent` is an agent of this session; otherwise it is a session
  std::string_view
      field;  // the header or body field that named the session; lives as long as the options

  // The conversation's key; none where nothing names it. `tenant` is whoever the caller
  // authenticated: clients choose their session ids, so without it one could steer, or probe, where
  // another's conversation is served.
  [[nodiscard]] std::optional<KeyHash> key(std::string_view tenant,
                                           const KeyHasher& hasher) const noexcept {
    if (session.empty()) return std::nullopt;
    return hasher(tenant, session, agent);
  }

  // The key of the conversation that started this one, where the client said.
  [[nodiscard]] std::optional<KeyHash> parent_key(std::string_view tenant,
                                                  const KeyHasher& hasher) const noexcept {
    if (parent.empty()) return std::nullopt;
    return parent_is_agent ? hasher(tenant, session, parent)
                           : hasher(tenant, parent, std::string_view{});
  }
};

namespace detail {

// What Codex says of a request, in headers or in the body's client_metadata.
[[nodiscard]] inline std::optional<RequestKind> codex_kind(std::string_view subagent,
                                                           std::string_view request_kind) noexcept {
  if (subagent == "compact" || request_kind == "compaction") return RequestKind::compaction;
  if (request_kind == "memory") return RequestKind::side_call;
  if (!subagent.empty()) return RequestKind::subagent;
  return std::nullopt;
}

// Its buffers are reused: after the first requests a read allocates nothing.
[[nodiscard]] inline BodyReader& this_thread_reader() noexcept {
  thread_local BodyReader reader;
  return reader;
}

// What the headers say of a request's kind, as far as they speak of it.
[[nodiscard]] inline std::optional<RequestKind> kind_of(const HeaderFacts& headers) noexcept {
  const std::string_view request_class = headers[HeaderRole::claude_request_class];
  if (request_class == "main") return RequestKind::main;
  if (request_class == "subagent" || request_class == "workflow") return RequestKind::subagent;
  if (request_class == "auxiliary") return RequestKind::side_call;
  if (request_class == "compaction" || !headers[HeaderRole::claude_compaction].empty()) {
    return RequestKind::compaction;
  }
  const std::string_view turn = headers[HeaderRole::codex_turn_metadata];
  // The two kinds that matter; every turn of Codex carries this header, and few are worth parsing.
  const bool special =
      turn.find("\"compaction\"") != turn.npos || turn.find("\"memory\"") != turn.npos;
  return codex_kind(
      headers[HeaderRole::codex_subagent],
      special ? this_thread_reader().member(turn, "request_kind").view() : std::string_view{});
}

// Agents whose every turn of a conversation brings tools.
[[nodiscard]] inline bool always_brings_tools(std::string_view user_agent) noexcept {
  for (const std::string_view agent : {"claude-cli/", "codex_", "opencode/", "QwenCode/"}) {
    if (user_agent.starts_with(agent)) return true;
  }
  return false;
}

// A short request without tools that nobody has answered yet may be the first turn of a plain chat,
// so a side call has to show more: instructions of its own, and a small limit, an agent that would
// have brought tools, or a text that is talked about in a second user message. Wrong either way, it
// costs one turn its pin and no answer its correctness.
[[nodiscard]] inline bool looks_like_side_call(const BodyFacts& facts,
                                               std::string_view user_agent) noexcept {
  constexpr std::uint64_t small_limit =
      128;  // tokens: title calls of older clients ask for 20 to 100
  if (facts.has_tools || facts.answered || !facts.has_instructions || facts.user_messages == 0)
    return false;
  return facts.max_tokens <= small_limit || facts.user_messages > 1 ||
         always_brings_tools(user_agent);
}

// Session, agent and parent as far as the headers name them.
inline void take_headers(const HeaderFacts& headers, Identity& identity) noexcept {
  identity.session.assign(headers.session());
  identity.field = headers.field();
  switch (headers.group()) {
    case HeaderGroup::none:
      break;
    case HeaderGroup::configured:
      identity.source = IdentitySource::configured_header;
      break;
    case HeaderGroup::limpet:
      identity.source = IdentitySource::limpet_header;
      identity.parent.assign(headers[HeaderRole::limpet_parent]);
      break;
    case HeaderGroup::claude_code:
      identity.source = IdentitySource::claude_code_header;
      identity.agent.assign(headers[HeaderRole::claude_agent]);
      if (identity.agent.empty()) break;
      identity.parent.assign(headers[HeaderRole::claude_parent_agent]);
      identity.parent_is_agent = !identity.parent.empty();
      if (!identity.parent_is_agent) identity.parent.assign(headers.session());
      break;
    case HeaderGroup::codex:
      identity.source = IdentitySource::codex_header;
      identity.parent.assign(headers[HeaderRole::codex_parent]);
      break;
    case HeaderGroup::session:
      identity.source = IdentitySource::session_header;
      identity.parent.assign(headers[HeaderRole::opencode_parent]);
      break;
    case HeaderGroup::gateway:
      identity.source = IdentitySource::gateway_header;
      identity.parent.assign(headers[HeaderRole::dynamo_parent]);
      break;
  }
}

inline void take_body(const BodyFacts& facts, BodyReader& reader, Identity& identity) noexcept {
  constexpr std::string_view fields[] = {"metadata.user_id", "metadata.session_id", "session_id",
                                         "prompt_cache_key", "conversation"};
  if (facts.field != BodyField::none) {
    identity.session = facts.session;
    identity.source = facts.field == BodyField::user_id ? IdentitySource::claude_code_body
                                                        : IdentitySource::body_field;
    identity.field = fields[static_cast<std::size_t>(facts.field)];
  } else if (const Fingerprint print = reader.fingerprint(); !print.empty()) {
    const auto hex = print.hex();
    identity.session.assign({hex.data(), hex.size()});
    identity.source = IdentitySource::fingerprint;
    identity.field = "first user message";
  }
}

[[nodiscard]] inline Identity identity_of(const HeaderFacts& headers, std::string_view body,
                                          const IdentityOptions& options) noexcept {
  Identity identity;
  take_headers(headers, identity);
  std::optional<RequestKind> kind = kind_of(headers);
  if (!kind && !identity.parent.empty()) kind = RequestKind::subagent;

  // Who names the conversation for us, by a header of ours or his, means it: no guessing there.
  const bool may_be_side_call = !kind && body.size() <= options.side_call_max_bytes &&
                                identity.source != IdentitySource::configured_header &&
                                identity.source != IdentitySource::limpet_header;
  if (!body.empty() && (identity.session.empty() || may_be_side_call)) {
    BodyReader& reader = this_thread_reader();
    BodyFacts facts;
    if (body.size() > options.max_body_bytes) {
      identity.body_status = BodyStatus::too_large;
    } else if (!reader.read(body, may_be_side_call ? Messages::count : Messages::skip, facts)) {
      identity.body_status = BodyStatus::malformed;
    } else {
      identity.body_status = BodyStatus::read;
      if (identity.session.empty()) take_body(facts, reader, identity);
      if (!kind) kind = codex_kind(facts.subagent, facts.request_kind);
      if (!kind && facts.claude_subagent) kind = RequestKind::subagent;
      if (!kind && may_be_side_call &&
          looks_like_side_call(facts, headers[HeaderRole::user_agent])) {
        kind = RequestKind::side_call;
      }
    }
    constexpr std::size_t kept_per_thread = std::size_t{2} << 20;
    reader.shrink(kept_per_thread);
  }
  identity.kind = kind.value_or(RequestKind::main);
  return identity;
}

}  // namespace detail

// `headers`: any range of pairs (name, value) that convert to string_view: a span, a vector, a map.
template <class Headers>
  requires requires(const Headers& headers) {
    std::string_view(std::begin(headers)->first);
    std::string_view(std::begin(headers)->second);
  }
[[nodiscard]] Identity identify(const Headers& headers, std::string_view body,
                                const IdentityOptions& options = {}) noexcept {
  detail::HeaderFacts facts;
  for (const auto& header : headers) {
    facts.add(std::string_view(header.first), std::string_view(header.second),
              options.session_headers);
  }
  return detail::identity_of(facts, body, options);
}

[[nodiscard]] inline Identity identify(
    std::initializer_list<std::pair<std::string_view, std::string_view>> headers,
    std::string_view body, const IdentityOptions& options = {}) noexcept {
  return identify<std::initializer_list<std::pair<std::string_view, std::string_view>>>(
      headers, body, options);
}

}  // namespace limpet
