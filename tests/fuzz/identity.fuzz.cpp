// SPDX-License-Identifier: Apache-2.0
//
// Requests of any bytes: header lines, an empty line, and a body.
//
// Checked: an id is an id, and is absent exactly where nothing named a session; equal requests have
// equal identities; a header that names the session outranks whatever the body says; the body is
// survived when it loses its end.
#include <limpet/wire/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using limpet::BodyStatus;
using limpet::Id;
using limpet::identify;
using limpet::Identity;
using limpet::IdentitySource;
using limpet::KeyHasher;

using Headers = std::vector<std::pair<std::string_view, std::string_view>>;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Identity& identity) {
  for (const Id& id : {identity.session, identity.agent, identity.parent}) {
    require(id.empty() || Id::is_valid(id));
  }
  const KeyHasher hasher;
  const bool named = identity.source != IdentitySource::none;
  require(identity.session.empty() != named);
  require(identity.key("tenant", hasher).has_value() == named);
  require(identity.field.empty() != named);
  require(identity.parent_key("tenant", hasher).has_value() != identity.parent.empty());
  require(named || identity.agent.empty());
}

// Lines "name: value" up to an empty line; what follows is the body.
Headers take_headers(std::string_view& text) {
  Headers headers;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + (line.size() < text.size() ? 1 : 0));
    if (line.empty()) break;
    const std::size_t colon = line.find(": ");
    if (colon == line.npos) {
      headers.emplace_back(line, std::string_view{});
    } else {
      headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    }
  }
  return headers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view body(reinterpret_cast<const char*>(data), size);
  Headers headers = take_headers(body);

  const Identity identity = identify(headers, body);
  check(identity);
  const Identity again = identify(headers, body);
  require(again.session == identity.session && again.agent == identity.agent);
  require(again.parent == identity.parent && again.kind == identity.kind);
  require(again.source == identity.source && again.body_status == identity.body_status);

  for (std::size_t cut = 1; cut <= 8 && cut <= body.size(); ++cut) {
    const Identity shorter = identify(headers, body.substr(0, body.size() - cut));
    check(shorter);
  }

  headers.emplace_back("X_Limpet-Conversation_ID", "named");
  const Identity named = identify(headers, body);
  check(named);
  require(named.source == IdentitySource::limpet_header);
  require(identity.source == IdentitySource::limpet_header || named.session == "named");
  return 0;
}
