// SPDX-License-Identifier: Apache-2.0
//
// The core in one include: the router, its policies, its clocks. Needs the standard library alone.
//
// Optional headers, each with what it needs beside the core:
//   limpet/any.hpp            policies chosen at run time
//   limpet/scorers/least_pending_prefill.hpp, limpet/scorers/tokens_times_batch.hpp,
//   limpet/overflow/move_if_cheaper.hpp
//                             rules that count the tokens that are to be read
//   limpet/gate/working_set.hpp  admission, when the conversations outgrow the caches
//   limpet/testing/laws.hpp   the concepts' laws as checks for policies of your own
//   limpet/fmt.hpp            formatters, explanations as tables          (fmt, target limpet::fmt)
#pragma once

#include <limpet/clock.hpp>
#include <limpet/concepts.hpp>
#include <limpet/fleet.hpp>
#include <limpet/fwd.hpp>
#include <limpet/hash.hpp>
#include <limpet/lease.hpp>
#include <limpet/overflow/adjustable_spill.hpp>
#include <limpet/overflow/bounded_load.hpp>
#include <limpet/overflow/move_when_full.hpp>
#include <limpet/overflow/never.hpp>
#include <limpet/overflow/spill_above.hpp>
#include <limpet/pins/local.hpp>
#include <limpet/pins/rendezvous.hpp>
#include <limpet/pins/sharded.hpp>
#include <limpet/router.hpp>
#include <limpet/scorers/least_in_flight.hpp>
#include <limpet/scorers/power_of_two.hpp>
#include <limpet/scorers/round_robin.hpp>
#include <limpet/scorers/weighted.hpp>
#include <limpet/snapshot.hpp>
#include <limpet/types.hpp>
#include <limpet/version.hpp>
