// SPDX-License-Identifier: Apache-2.0
//
// What a routing policy does to caches and queues, before it meets a GPU: a table of policies and
// numbers of sessions on a simulated fleet of vLLM-like engines.
//
//   simulate                                                  the published ladder, four RTX A4000
//   simulate --workload agents --profile rtxpro6000-llama31-8b --sessions 8,32,64
//   simulate --workload replay=sessions.jsonl --replicas 8 --profile rtxpro6000-llama31-8b
//       --block-tokens 64                                     recorded sessions, a run each policy
//   simulate --help                                           everything else
#include <limpet/sim/plot.hpp>
#include <limpet/sim/policies.hpp>
#include <limpet/sim/profiles.hpp>
#include <limpet/sim/scenario.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace limpet::sim;

struct Settings {
  Scenario scenario{.profile = profiles::a4000_qwen3_4b()};
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::string> policies = {"limpet",          "vllm-lb",         "limpet-published",
                                       "consistent-hash", "prefix-affinity", "tokens-times-batch"};
  bool json = false;
  std::string svg;
};

constexpr const char* usage = R"(usage: simulate [options]
  --workload W     ladder (default), agents, replay=FILE, mooncake=FILE
  --profile P      one of the engine profiles below (default a4000-qwen3-4b)
  --replicas N     (default 4)
  --slow X         the last replica's steps take X times as long (default 1)
  --sessions A,B   sessions at once, one run each, one after the other (default 4,8,16,24,32 or 64)
  --seconds S      of each run, for ladder and agents (default 180)
  --think X        ladder: mean pause in s (default 0); others: scale of the pauses (default 1)
  --wander X       how far a replica's speed strays (default 0.1)
  --scrape S       between two readings of the metrics page (default 2)
  --block-tokens N of the KV cache (default: the profile's); large ones make long replays faster
  --threads N      policies at a time (default: one a processor)
  --seed N         (default 1)
  --policies A,B   of those below, or all
  --json           one JSON object a line instead of the table
  --svg FILE       also a picture
)";

template <class T, class Parse>
std::vector<T> list(const std::string& text, Parse parse) {
  std::vector<T> values;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) values.push_back(parse(item));
  return values;
}

double number(const std::string& text) {
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::logic_error&) {
  }
  if (used == 0 || used != text.size()) throw std::invalid_argument("not a number: " + text);
  return value;
}

std::uint32_t count(const std::string& text) {
  const double value = number(text);
  if (value < 1 || value > 1e6) throw std::invalid_argument("not a number of things: " + text);
  return static_cast<std::uint32_t>(value);
}

template <class Named>
std::string names_of(const Named& all) {
  std::string names;
  for (const auto& one : all) names.append(names.empty() ? "" : ", ").append(one.name);
  return names;
}

void help() {
  std::fputs(usage, stdout);
  std::puts("profiles:");
  for (const EngineProfile& profile : profiles::all()) std::printf("  %s\n", profile.name.c_str());
  std::puts("policies:");
  for (const PolicyName& policy : policy_names) {
    std::printf("  %-24s %s\n", std::string(policy.name).c_str(),
                std::string(policy.meaning).c_str());
  }
}

Settings settings_from(int argc, char** argv) {
  Settings s;
  Scenario& scenario = s.scenario;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) throw std::invalid_argument(option + " needs a value");
      return argv[i];
    };
    if (option == "--workload") {
      scenario.workload = value();
    } else if (option == "--profile") {
      const std::string name = value();
      const auto profile = profiles::find(name);
      if (!profile) {
        throw std::invalid_argument("--profile " + name + ": there are " +
                                    names_of(profiles::all()));
      }
      scenario.profile = *profile;
    } else if (option == "--replicas") {
      scenario.replicas = count(value());
    } else if (option == "--slow") {
      scenario.slow = number(value());
    } else if (option == "--sessions") {
      scenario.sessions = list<std::uint32_t>(value(), count);
    } else if (option == "--seconds") {
      scenario.seconds = number(value());
    } else if (option == "--think") {
      scenario.think = number(value());
    } else if (option == "--wander") {
      scenario.wander = number(value());
    } else if (option == "--scrape") {
      scenario.scrape = number(value());
    } else if (option == "--block-tokens") {
      scenario.profile.block_tokens = count(value());
    } else if (option == "--threads") {
      s.threads = count(value());
    } else if (option == "--seed") {
      scenario.seed = count(value());
    } else if (option == "--policies") {
      const std::string names = value();
      s.policies = list<std::string>(names, [](const std::string& name) { return name; });
      if (names == "all") {
        s.policies.clear();
        for (const PolicyName& policy : policy_names) s.policies.emplace_back(policy.name);
      }
    } else if (option == "--json") {
      s.json = true;
    } else if (option == "--svg") {
      s.svg = value();
    } else {
      throw std::invalid_argument("unknown option " + option);
    }
  }
  return s;
}

std::vector<Report> simulate_policy(const Scenario& scenario, const std::string& policy) {
  std::vector<Report> reports;
  with_policy(policy, [&](auto& front) {
    play(scenario, front, [&](Report report) {
      report.policy = policy;
      std::fprintf(stderr, "%s, %u sessions: done\n", policy.c_str(), report.seats);
      reports.push_back(std::move(report));
    });
  });
  return reports;
}

int simulate(const Settings& s) {
  for (const std::string& policy : s.policies) {
    if (with_policy(policy, [](auto&) {})) continue;
    throw std::invalid_argument("--policies " + policy + ": there are " + names_of(policy_names));
  }
  // Runs share nothing, so each thread takes the next policy; the table keeps the order asked for.
  std::vector<std::vector<Report>> by_policy(s.policies.size());
  std::vector<std::exception_ptr> errors(s.policies.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < s.policies.size(); i = next++) {
      try {
        by_policy[i] = simulate_policy(s.scenario, s.policies[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < s.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }

  std::vector<Report> reports;
  if (!s.json) std::fputs(table_head().c_str(), stdout);
  for (const std::vector<Report>& of_policy : by_policy) {
    for (const Report& report : of_policy) {
      std::fputs((s.json ? to_json(report) + "\n" : table_row(report)).c_str(), stdout);
      reports.push_back(report);
    }
  }
  if (!s.svg.empty()) std::ofstream(s.svg) << Plot::svg(reports);
  if (!s.json && s.policies.size() > 1) {
    std::fputs(("\n" + advice(reports, s.policies[0], s.policies[1])).c_str(), stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
      help();
      return 0;
    }
    return simulate(settings_from(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulate: %s\n", error.what());
    return 2;
  }
}
