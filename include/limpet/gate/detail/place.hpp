// SPDX-License-Identifier: Apache-2.0
//
// Place and Resident: what the gate keeps of a replica and of a conversation that is let in.
//
// Plain values of Places.
#pragma once

#include <limpet/types.hpp>

#include <cstdint>
#include <list>

namespace limpet::detail {

struct Place {  // one replica
  ReplicaId replica{};
  std::uint64_t capacity = 0;          // tokens; 0: unknown
  std::uint64_t guessed_capacity = 0;  // by judge(), where nobody says
  bool serves = false;                 // the conversations it has
  bool takes_new = false;
  double theta = 0;
  std::uint64_t used = 0;  // tokens of its residents, without the shared prefix
  std::uint32_t residents = 0;
  Instant entered{};           // when the last one came in
  std::uint64_t reusable = 0;  // tokens, since theta was last set, as the next
  std::uint64_t lost = 0;      // of those, read again
  std::uint32_t judged = 0;    // turns
  int streak = 0;              // times that theta went up in a row; negative: down
};

struct Resident {
  ReplicaId replica{};
  std::uint64_t context = 0;   // tokens, as the engine told after its last turn
  std::uint64_t reserved = 0;  // tokens that it counts for
  std::uint32_t in_flight = 0;
  std::uint32_t turns = 0;  // begun in this stay
  Instant since{};          // of this stay
  Instant busy_since{};     // meaningful with a turn in flight
  Instant idle_since{};     // meaningful without one
  std::uint64_t stay = 0;   // number of this stay: what ended in an earlier one is not counted here
  Duration waited{};        // for this stay, with what was carried over from the last
  bool yields = false;      // makes way once its turn has ended, if that lets another in
  std::list<KeyHash>::iterator idle{};
};

// What a conversation asks for.
struct Need {
  std::uint64_t tokens = 0;
  std::uint64_t growth = 0;  // tokens, kept free for each that is then there, this one too
  bool urgent = false;       // has waited max_wait: those who have had min_turns make way
};

struct Freed {
  std::uint64_t tokens = 0;
  std::uint32_t residents = 0;
};

}  // namespace limpet::detail
