// SPDX-License-Identifier: Apache-2.0
//
// Compiling this file is passing: after fwd.hpp alone another header may mention leases, views and
// any router, and the definitions agree with what it declared.
#include <limpet/fwd.hpp>

namespace {

struct Gateway {
  void send(const limpet::Lease& lease);
  void show(const limpet::Snapshot& snapshot, const limpet::Explanation& why);

  template <class P, class S, class O, class M, class C>
  void attach(limpet::Router<P, S, O, M, C>& router);
};

}  // namespace

#include <limpet/limpet.hpp>

namespace {

template <class P, class S, class O, class M, class C>
void Gateway::attach(limpet::Router<P, S, O, M, C>& router) {
  show(router.snapshot(), router.explain("conversation-key"));
  send(router.route("conversation-key"));
}

void Gateway::send(const limpet::Lease&) {}
void Gateway::show(const limpet::Snapshot&, const limpet::Explanation&) {}

[[maybe_unused]] void attach_one(Gateway& gateway, limpet::Router<>& router) {
  gateway.attach(router);
}

}  // namespace
