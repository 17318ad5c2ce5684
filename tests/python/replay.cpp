// SPDX-License-Identifier: Apache-2.0
//
// The C++ side of test_parity.py: plays a history from stdin on a plain Router<> and prints each
// decision, as the test does with limpet.Router. The argument names the policies.
#include <limpet/limpet.hpp>
#include <limpet/overflow/move_if_cheaper.hpp>
#include <limpet/scorers/least_pending_prefill.hpp>
#include <limpet/scorers/tokens_times_batch.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace limpet;

namespace {

template <class Scorer, class Overflow>
void play(Scorer scorer, Overflow overflow) {
  const ManualClock clock;
  Router router{ShardedPins<>{{.capacity = 64, .idle_ttl = std::chrono::seconds(600)}},
                scorer,
                overflow,
                VllmMetrics{},
                clock,
                RouterOptions{.shared_prefix_tokens = 100, .secret = {1, 2}}};
  ManualClock hand = clock;
  std::map<int, Lease> leases;
  std::map<std::uint16_t, std::string> names;
  const auto id_of = [&](const std::string& name) {
    return name == "-" ? ReplicaId{} : router.find(name).value_or(ReplicaId{});
  };

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "add") {
      std::string name;
      words >> name;
      const ReplicaId id =
          router.add_replica({.name = name, .max_num_seqs = 12, .kv_capacity_tokens = 9000});
      names[id.slot] = name;
    } else if (what == "route") {
      int number = 0;
      std::string key, parent, client, excluded;
      std::uint64_t tokens = 0;
      int side_call = 0;
      words >> number >> key >> parent >> client >> excluded >> tokens >> side_call;
      const std::vector<ReplicaId> exclude(excluded == "-" ? 0 : 1, id_of(excluded));
      Turn turn{.client_pinned = id_of(client),
                .exclude = exclude,
                .prompt_tokens = tokens,
                .side_call = side_call != 0};
      if (key != "-") turn.key = key;
      if (parent != "-") turn.parent = parent;
      Lease lease = router.route(turn);
      const Decision& decision = lease.decision();
      std::cout << to_string(decision.outcome) << '|' << to_string(decision.reason) << '|'
                << (lease ? names[lease.replica().slot] : "-") << '|' << decision.in_flight_seen
                << '\n';
      leases.insert_or_assign(number, std::move(lease));
    } else if (what == "first_byte") {
      int number = 0;
      words >> number;
      leases[number].first_byte();
    } else if (what == "end") {
      int number = 0;
      std::string how;
      std::uint64_t prompt = 0;
      words >> number >> how >> prompt;
      if (how == "finish") leases[number].finish({.prompt_tokens = prompt, .completion_tokens = 9});
      if (how == "cancel") leases[number].cancel();
      if (how == "fail") leases[number].fail();
      leases.erase(number);
    } else if (what == "advance") {
      std::int64_t milliseconds = 0;
      words >> milliseconds;
      hand.advance(std::chrono::milliseconds(milliseconds));
    } else if (what == "observe") {
      std::string name, usage;
      words >> name >> usage;
      router.observe(name, "vllm:kv_cache_usage_perc " + usage + "\n");
    } else if (what == "rebalance") {
      std::cout << router.rebalance(4, std::chrono::seconds(60)) << '\n';
    } else {
      std::string name;
      words >> name;
      const ReplicaId id = id_of(name);
      if (what == "drain") router.drain(id);
      if (what == "down") router.set_down(id);
      if (what == "up") router.set_up(id);
      if (what == "restarted") router.restarted(id);
    }
  }
}

}  // namespace

int main(int, char** arguments) {
  const std::string policies = arguments[1];
  if (policies == "full") play(WeightedLoad{}, MoveWhenFull{.threshold = 3});
  if (policies == "cheaper") play(LeastPendingPrefill{}, MoveIfCheaper{.floor_tokens = 200});
  if (policies == "batch") play(TokensTimesBatch{}, SpillAbove{.threshold = 3});
}
