// SPDX-License-Identifier: Apache-2.0
//
// How much of their prompts coding-agent sessions find already read on the replica they are sent
// to, policy by policy: the same sessions, the same pauses, six ways of choosing a replica.
//
//   replay --trace sessions.jsonl --replicas 8        (replay --help says the rest)
//
// replay.py is its twin over the Python module and prints the same figures.
#include "playback.hpp"
#include "sessions.hpp"

#include <limpet/limpet.hpp>
#include <limpet/sim/random.hpp>

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using replay::Settings;
using replay::Tally;

constexpr std::string_view help =
    R"(replay: plays coding-agent sessions over a fleet, once for each way of choosing a replica.

  --trace FILE       recorded sessions, one JSON object a line; without it they are generated
  --sessions N       how many to generate, or the first N of the file (default: 500, or all)
  --seed N           of the generated sessions and of the random policy (default 1)
  --replicas N       1 to 1024 (default 8)
  --concurrent N     sessions at a time; when one ends the next begins (default: 16 a replica)
  --ramp SECONDS     over which the first of them begin, evenly spread (default 3600)
  --max-num-seqs N   of each replica: Limpet leaves a home that serves a quarter of it (default 32)
  --idle-ttl SECONDS after which the pin of an idle conversation is forgotten (default 0: never, as
                     the replicas of this replay never forget what they read; 1800 is the library's)
  --json             prints JSON instead of the table
  --help

Time is virtual. A turn is sent when the answer before it has come and its recorded pause is over,
and takes the time it took when it was recorded, wherever it is sent. Sub-agents run beside the main
line, as conversations of their own.

policies  random, round robin, least in flight: choose a replica for each turn
          consistent hash: for each conversation, by a hash of its key
          never leaving home: for each conversation, by load, and it stays there
          Limpet: the same, but a turn leaves a home that is overloaded, once

figures   read before   share of all prompt tokens that the chosen replica had read before
          at home       share of the turns after a conversation's first that were sent to where that
                        one was placed
          spills        turns that left an overloaded home
          placed again  turns whose conversation had to be placed anew (its pin had expired)
          imbalance     turns in flight, averaged over time: the fullest replica over the mean
          momentary     the same with whichever replica is the fullest at each moment: how unevenly
                        the turns of a moment fall, not what a replica has to bear. With few in
                        flight it is high whoever chooses (one turn on 8 replicas: 8); its floor is
                        that of turns spread evenly at every moment. Affinity has its price here,
                        since a turn does not go wherever it is quiet just now
)";

struct Arguments {
  Settings settings;
  std::string trace;
  std::uint64_t sessions = 0;  // 0: all of the file, or the default
  bool json = false;
};

// What the user asked for makes no sense: said in one line, exit code 2.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::uint64_t number(std::string_view option, std::string_view text,
                                   std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw Refused(std::string(option) + " '" + std::string(text) + "': a whole number from " +
                  std::to_string(least) + " to " + std::to_string(most) + " is needed");
  }
  return value;
}

[[nodiscard]] Arguments parse(const std::vector<std::string_view>& words) {
  constexpr std::uint64_t seconds = 1'000'000'000;
  constexpr std::uint64_t count = 1'000'000;
  Arguments arguments;
  Settings& settings = arguments.settings;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string_view option = words[i].substr(0, equals);
    const auto text = [&] {
      if (equals != std::string_view::npos) return words[i].substr(equals + 1);
      if (++i == words.size()) throw Refused(std::string(option) + " needs a value");
      return words[i];
    };
    const auto whole = [&](std::uint64_t least, std::uint64_t most) {
      return number(option, text(), least, most);
    };
    if (option == "--trace") {
      arguments.trace = text();
    } else if (option == "--sessions") {
      arguments.sessions = whole(1, 100'000);
    } else if (option == "--seed") {
      settings.seed = whole(0, std::numeric_limits<std::uint64_t>::max());
    } else if (option == "--replicas") {
      settings.replicas = static_cast<std::uint32_t>(whole(1, 1024));
    } else if (option == "--concurrent") {
      settings.concurrent = static_cast<std::uint32_t>(whole(1, count));
    } else if (option == "--ramp") {
      settings.ramp_ms = 1000 * static_cast<std::int64_t>(whole(0, seconds));
    } else if (option == "--max-num-seqs") {
      settings.max_num_seqs = static_cast<std::uint32_t>(whole(1, count));
    } else if (option == "--idle-ttl") {
      settings.idle_ttl_s = static_cast<std::int64_t>(whole(0, seconds));
    } else if (words[i] == "--json") {
      arguments.json = true;
    } else {
      throw Refused("unknown option '" + std::string(words[i]) + "'");
    }
  }
  return arguments;
}

[[nodiscard]] std::vector<replay::Session> sessions_for(const Arguments& arguments) {
  if (arguments.trace.empty()) {
    const std::uint64_t count = arguments.sessions == 0 ? 500 : arguments.sessions;
    return replay::Generator(arguments.settings.seed).sessions(count);
  }
  try {
    std::vector<replay::Session> sessions = replay::read_sessions(arguments.trace);
    if (arguments.sessions != 0 && arguments.sessions < sessions.size()) {
      sessions.resize(arguments.sessions);
    }
    return sessions;
  } catch (const std::runtime_error& error) {
    throw Refused(error.what());
  }
}

// On a terminal a line that is rewritten, else a line every five seconds.
class Progress {
 public:
  explicit Progress(std::uint64_t turns) : turns_(turns) {}

  void show(std::string_view policy, std::uint64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5))) {
      return;
    }
    shown_ = now;
    std::cerr << (terminal_ ? "\r\x1b[K" : "") << policy << ": " << 100 * done / turns_ << " % of "
              << turns_ << " turns" << (terminal_ ? "" : "\n") << std::flush;
  }

  void clear() const {
    if (terminal_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  std::uint64_t turns_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

struct Row {
  const char* policy;
  Tally tally;

  [[nodiscard]] double reused_percent() const {
    return 100.0 * ratio(tally.reused_tokens, tally.prompt_tokens);
  }
  [[nodiscard]] double home_percent() const {
    return 100.0 * ratio(tally.at_home, tally.later_turns);
  }
  [[nodiscard]] double imbalance() const {
    const auto& replicas = tally.in_flight_ms;
    return over_mean(*std::max_element(replicas.begin(), replicas.end()));
  }
  [[nodiscard]] double momentary() const { return over_mean(tally.fullest_in_flight_ms); }
  [[nodiscard]] double floor() const { return over_mean(tally.spread_in_flight_ms); }

  [[nodiscard]] static double ratio(std::uint64_t a, std::uint64_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
  }

 private:
  [[nodiscard]] double over_mean(std::uint64_t in_flight_ms) const {
    return ratio(in_flight_ms * tally.in_flight_ms.size(), tally.fleet_in_flight_ms());
  }
};

// Every policy is this one router: what differs is its pins, its overflow rule and what it is
// asked.
[[nodiscard]] std::vector<Row> compare(const std::vector<replay::Session>& sessions,
                                       const Settings& settings) {
  using limpet::Turn;
  using Replicas = std::vector<limpet::ReplicaId>;
  std::uint64_t turns = 0;
  std::size_t conversations = 0;
  for (const replay::Session& session : sessions) {
    turns += session.turns.size();
    conversations += session.keys.size();
  }
  const limpet::PinOptions pin_options{.capacity = std::max<std::size_t>(8192, conversations),
                                       .idle_ttl = settings.idle_ttl_s == 0
                                                       ? std::chrono::hours(24 * 36'500)
                                                       : std::chrono::seconds(settings.idle_ttl_s)};

  std::vector<Row> rows;
  Progress progress(turns);
  const auto play = [&](const char* policy, auto pins, auto overflow, auto ask) {
    const limpet::ManualClock clock;
    limpet::Router router{std::move(pins), limpet::WeightedLoad{}, overflow, limpet::VllmMetrics{},
                          clock};
    replay::Playback playback(sessions, settings, router, clock, ask);
    rows.push_back({policy, playback.run([&](std::uint64_t n) { progress.show(policy, n); })});
  };
  const auto pins = [&] { return limpet::LocalPins(pin_options); };
  const limpet::NeverSpill never;
  const auto as_it_is = [](Turn&, const Replicas&) {};

  play("random", pins(), never,
       [drawn = settings.seed](Turn& turn, const Replicas& replicas) mutable {
         turn.client_pinned = replicas[limpet::sim::mix(drawn++) % replicas.size()];
       });
  play("round robin", pins(), never, [next = 0U](Turn& turn, const Replicas& replicas) mutable {
    turn.client_pinned = replicas[next++ % replicas.size()];
  });
  play("consistent hash", limpet::RendezvousPins{}, never, as_it_is);
  play("least in flight", pins(), never, [](Turn& turn, const Replicas&) { turn.key = {}; });
  play("never leaving home", pins(), never, as_it_is);
  play("Limpet", pins(), limpet::SpillAbove{}, as_it_is);
  progress.clear();
  return rows;
}

using Count = unsigned long long;  // what printf can name

void print_table(const std::vector<replay::Session>& sessions, const Settings& settings,
                 const std::vector<Row>& rows) {
  const Tally& any = rows.front().tally;
  std::printf("%zu sessions, %llu turns, %.0f million prompt tokens on %u replicas\n",
              sessions.size(), Count{any.turns}, static_cast<double>(any.prompt_tokens) / 1e6,
              settings.replicas);
  std::printf(
      "%u sessions at a time; half of the turns met %zu or more others in flight, none more "
      "than %zu\nfloor of the momentary imbalance: %.2f\n\n",
      settings.sessions_at_a_time(), any.median_met(), any.most_met(), rows.front().floor());
  std::printf("%-20s%12s%10s%9s%14s%11s%11s\n", "policy", "read before", "at home", "spills",
              "placed again", "imbalance", "momentary");
  for (const Row& row : rows) {
    std::printf("%-20s%10.2f %%%8.2f %%%9llu%14llu%11.2f%11.2f\n", row.policy, row.reused_percent(),
                row.home_percent(), Count{row.tally.spills}, Count{row.tally.placed_again},
                row.imbalance(), row.momentary());
  }
}

void print_json(const std::vector<replay::Session>& sessions, const Settings& settings,
                const std::vector<Row>& rows) {
  const Tally& any = rows.front().tally;
  std::printf("{\n  \"sessions\": %zu,\n  \"turns\": %llu,\n  \"prompt_tokens\": %llu,\n",
              sessions.size(), Count{any.turns}, Count{any.prompt_tokens});
  std::printf("  \"replicas\": %u,\n  \"concurrent\": %u,\n  \"ramp_s\": %llu,\n",
              settings.replicas, settings.sessions_at_a_time(),
              static_cast<Count>(settings.ramp_ms / 1000));
  std::printf("  \"max_num_seqs\": %u,\n  \"idle_ttl_s\": %llu,\n", settings.max_num_seqs,
              static_cast<Count>(settings.idle_ttl_s));
  std::printf("  \"virtual_s\": %.3f,\n  \"median_met\": %zu,\n  \"most_met\": %zu,\n",
              static_cast<double>(any.end_ms) / 1000, any.median_met(), any.most_met());
  std::printf("  \"momentary_floor\": %.4f,\n", rows.front().floor());
  std::printf("  \"policies\": [");
  const char* separator = "\n";
  for (const Row& row : rows) {
    std::printf(
        "%s    {\"policy\": \"%s\", \"reused_percent\": %.4f, \"home_percent\": %.4f, "
        "\"spills\": %llu, \"placed_again\": %llu, \"imbalance\": %.4f, "
        "\"momentary_imbalance\": %.4f, \"decisions\": \"%016llx\"}",
        separator, row.policy, row.reused_percent(), row.home_percent(), Count{row.tally.spills},
        Count{row.tally.placed_again}, row.imbalance(), row.momentary(),
        Count{row.tally.fingerprint});
    separator = ",\n";
  }
  std::printf("\n  ]\n}\n");
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string_view> arguments(words + 1, words + count);
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end() ||
      std::find(arguments.begin(), arguments.end(), "-h") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  try {
    const Arguments parsed = parse(arguments);
    const std::vector<replay::Session> sessions = sessions_for(parsed);
    const std::vector<Row> rows = compare(sessions, parsed.settings);
    (parsed.json ? print_json : print_table)(sessions, parsed.settings, rows);
    if (std::fflush(stdout) != 0) throw std::runtime_error("the output cannot be written");
    return 0;
  } catch (const Refused& refused) {
    std::cerr << "replay: " << refused.what() << "\n(replay --help says what it takes)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "replay: " << error.what() << '\n';
    return 1;
  }
}
