// SPDX-License-Identifier: Apache-2.0
#include <limpet/gate/ticket.hpp>

#include "catch.hpp"
#include "support/small_pool.hpp"

#include <limpet/gate/working_set.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>

#include <utility>

using namespace limpet;
using limpet_test::SmallPool;

TEST_CASE("a ticket that nobody gave has ended") {
  GateTicket none;
  CHECK(none.state() == TicketState::ended);
  CHECK(none.reason() == GateReason::none);
  none.cancel();
  none.fail();
}

TEST_CASE("states and reasons have names") {
  CHECK(to_string(TicketState::refused) == "refused");
  CHECK(to_string(GateReason::waited) == "let in after a wait");
}

TEST_CASE("a first byte is told to the lease behind the ticket") {
  SmallPool<SpillAbove, LocalPins, LeastPendingPrefill> pool(1);
  WorkingSetGate gate(pool.router);
  GateTicket ticket = gate.enter(Turn{.key = "c", .prompt_tokens = 700});
  CHECK(pool.row(0).pending_prefill_tokens == 700U);
  ticket.first_byte();
  ticket.first_byte();
  CHECK(pool.row(0).pending_prefill_tokens == 0U);
  CHECK(ticket.lease().held());
  gate.leave(std::move(ticket));
  CHECK(pool.row(0).pending_prefill_tokens == 0U);
}
