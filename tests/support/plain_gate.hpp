// SPDX-License-Identifier: Apache-2.0
//
// The gate's rule as a slow plain model: vectors, scans and recounts, for random histories that run
// beside it.
//
// It follows the written rule (include/limpet/gate/README.md) and shares no code with the headers:
// where the two differ, one of them is a bug. Times are whole ms unless they are said to be ns, tokens
// whole tokens. The shared prefix is configured and every pause that is learnt is kept, so nothing is
// estimated twice. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace limpet_test {

struct PlainGateOptions {
  double theta = 0.95;
  long max_wait = 60'000;
  long grace = 2'000;
  long deadline = 600'000;
  unsigned min_turns = 3;
  double shared = 0;
};

class PlainGate {
 public:
  static constexpr long ns_a_ms = 1'000'000;

  struct Replica {
    int name = -1;
    double capacity = 0;  // 0: unknown
    bool serves = false;
    bool takes_new = false;
  };
  struct Inside {
    std::uint64_t key;
    int replica;
    double context;  // after its last turn; 0: none has ended
    double counts_for;
    unsigned in_flight;
    unsigned turns;
    long since;
    long busy_since;
    long idle_since;
    std::uint64_t stay;
    long waited;  // ns, for this stay, with what was carried over
    bool yields;
  };
  struct Waits {
    std::uint64_t id;
    std::uint64_t key;
    double prompt;
    int home;  // -1: none
    long since;
    long carried = 0;  // ns, counts as waited too
    bool made_way = false;
    [[nodiscard]] long counted_from() const { return since * ns_a_ms - carried; }  // ns
  };
  struct In {
    std::uint64_t id;
    int replica;
    std::uint64_t stay;
    friend bool operator==(const In&, const In&) = default;
  };

  explicit PlainGate(PlainGateOptions options) : o(options), grace(options.grace) {}

  std::optional<In> pass(const Waits& turn, long now) {
    Inside* one = find(turn.key);
    if (one == nullptr) return std::nullopt;
    if (one->in_flight > 0) return begin(turn.id, *one, now);
    const double need = need_of(turn.prompt);
    const double more = std::max(0.0, need - one->counts_for);
    bool stays = turn.home == one->replica && !(one->yields && !queue.empty());
    if (stays && !fits(one->replica, more, {}) && count(one->replica) > 1) {
      const auto gone = idle_to_free(one->replica, more, now, turn.key);
      stays = gone.has_value();
      if (gone) send_out(*gone, now);
      one = find(turn.key);
    }
    if (!stays) {
      remove({turn.key});
      return std::nullopt;
    }
    one->counts_for = need;
    return begin(turn.id, *one, now);
  }

  std::optional<In> admit(const Waits& turn, int preferred, long now, bool urgent = false) {
    if (Inside* one = find(turn.key)) return begin(turn.id, *one, now);
    const double need = need_of(turn.prompt);
    const int where = room_for(need, preferred, now, urgent);
    if (where < 0) return std::nullopt;
    const long waited = (now - turn.since) * ns_a_ms + carried_for(turn.key);
    carried.erase(turn.key);
    inside.push_back({turn.key, where, 0, need, 0, 0, now, now, now, ++stays_begun, waited, false});
    last_in.resize(replicas.size(), 0);
    last_in[static_cast<std::size_t>(where)] = now;
    return begin(turn.id, inside.back(), now);
  }

  bool may_overtake(long now) const {
    return queue.empty() || now * ns_a_ms - queue[0].counted_from() < o.max_wait * ns_a_ms;
  }
  void wait(Waits turn) {
    turn.carried = carried_for(turn.key);
    queue.push_back(turn);
    std::stable_sort(queue.begin(), queue.end(), [](const Waits& a, const Waits& b) {
      return a.counted_from() < b.counted_from();
    });
  }
  long carried_for(std::uint64_t key) const {  // ns
    const auto found = carried.find(key);
    return found == carried.end() ? 0 : std::min(found->second, o.max_wait * ns_a_ms);
  }

  void abandon(std::uint64_t id) {
    std::erase_if(queue, [&](const Waits& w) { return w.id == id; });
  }

  // answer < 0: the turn was not answered. prompt 0: the engine said nothing.
  void leave(std::uint64_t key, std::uint64_t stay, double asked, double prompt, double answer,
             long now) {
    Inside* one = find(key);
    if (one != nullptr && one->stay != stay) one = nullptr;
    if (answer >= 0) {
      if (prompt > 0) {
        follow(mean_context, prompt + answer);
        follow(mean_answer, answer);
        const double before = one != nullptr ? one->context : 0;
        if (before > 0 && prompt + answer > before) follow(mean_growth, prompt + answer - before);
      } else if (asked > 0) {
        prompt = asked;
        answer = std::floor(mean_answer);
      } else {
        prompt = std::max(1.0, std::floor(mean_context));
        answer = 0;
      }
      if (one != nullptr) {
        one->context = prompt + answer;
        one->counts_for = own(one->context);
      }
    }
    if (one != nullptr && answer >= 0 && one->in_flight == 1) {
      const double took = static_cast<double>(now - one->busy_since) * 1e6;
      follow(one->turns == 1 ? mean_first_turn : mean_later_turn, took);
    }
    if (one == nullptr || --one->in_flight > 0) return;
    one->idle_since = now;
    idle_order.push_back(key);
    if (one->context == 0 || (count(one->replica) > 1 && !fits(one->replica, 0, {}))) remove({key});
  }

  std::vector<In> pump(long now) {
    std::vector<In> in;
    while (!queue.empty()) {
      std::size_t i = 0;
      auto got = admit(queue[0], queue[0].home, now);
      if (!got && !may_overtake(now)) {
        got = admit(queue[0], queue[0].home, now, true);
        if (!got) make_way(now);
        if (!got) got = admit(queue[0], queue[0].home, now, true);
        if (!got) return in;
      }
      while (!got && ++i < queue.size()) got = admit(queue[i], queue[i].home, now);
      if (!got) return in;
      in.push_back(*got);
      const std::uint64_t key = queue[i].key;
      abandon(queue[i].id);
      for (const Waits& other : std::vector<Waits>(queue)) {
        if (other.key != key) continue;
        in.push_back(begin(other.id, *find(key), now));
        abandon(other.id);
      }
    }
    return in;
  }

  std::vector<std::uint64_t> expire(long now) {
    std::vector<std::uint64_t> gone;
    for (const Waits& w : queue) {
      if (now - w.since >= o.deadline) gone.push_back(w.id);
    }
    for (const std::uint64_t id : gone) abandon(id);
    return gone;
  }

  void replica_is(Replica seen) {
    const auto slot = static_cast<std::size_t>(seen.name);
    if (slot >= replicas.size()) replicas.resize(slot + 1);
    replicas[slot] = seen;
    if (seen.serves) return;
    std::vector<std::uint64_t> gone;
    for (const Inside& one : inside) {
      if (one.replica == seen.name) gone.push_back(one.key);
    }
    erase(gone);
  }

  [[nodiscard]] double filled(int replica) const {
    double sum = 0;
    for (const Inside& one : inside) sum += one.replica == replica ? one.counts_for : 0;
    return sum;
  }
  [[nodiscard]] int count(int replica) const {
    return static_cast<int>(std::count_if(
        inside.begin(), inside.end(), [&](const Inside& one) { return one.replica == replica; }));
  }

  PlainGateOptions o;
  long grace;
  std::vector<Replica> replicas;
  std::vector<Inside> inside;
  std::vector<std::uint64_t> idle_order;  // longest idle first
  std::vector<Waits> queue;
  std::map<std::uint64_t, long> carried;  // ns

 private:
  Inside* find(std::uint64_t key) {
    for (Inside& one : inside) {
      if (one.key == key) return &one;
    }
    return nullptr;
  }

  static void follow(double& mean, double value) {
    mean = mean == 0 ? value : mean + (value - mean) / 16;
  }
  double own(double tokens) const { return std::floor(std::max(1.0, tokens - o.shared)); }
  double need_of(double prompt) const {
    return own((prompt > 0 ? prompt : mean_context) + mean_answer);
  }

  // What is kept free for each conversation there when a new one comes in.
  double growth_kept() const {
    return queue.empty() ? 0 : (o.min_turns - 1) * std::floor(mean_growth);
  }

  bool fits(int replica, double more, const std::vector<std::uint64_t>& without,
            double growth = 0) const {
    const Replica& r = replicas[static_cast<std::size_t>(replica)];
    double sum = 0;
    int left = 0;
    for (const Inside& one : inside) {
      if (one.replica != replica ||
          std::find(without.begin(), without.end(), one.key) != without.end())
        continue;
      sum += one.counts_for;
      ++left;
    }
    return r.capacity == 0 || left == 0 ||
           sum + more + growth * (left + 1) + o.shared <= o.theta * r.capacity;
  }

  void remove(const std::vector<std::uint64_t>& keys) {
    for (const std::uint64_t key : keys) {
      if (const Inside* one = find(key); one != nullptr && one->turns > 0)
        follow(mean_stay, one->turns);
      erase({key});
    }
  }

  void erase(const std::vector<std::uint64_t>& keys) {
    for (const std::uint64_t key : keys) {
      std::erase_if(inside, [&](const Inside& one) { return one.key == key; });
      std::erase(idle_order, key);
    }
  }

  // For idle ones that make room: what is left of a wait is carried over where a pause was too long.
  void send_out(const std::vector<std::uint64_t>& keys, long now) {
    for (const std::uint64_t key : keys) {
      const Inside one = *find(key);
      remove({key});
      const double unused = 1.0 - one.turns / mean_stay;
      if (paused(one, now) && unused > 0)
        carried[key] = static_cast<long>(unused * static_cast<double>(one.waited));
    }
  }

  In begin(std::uint64_t id, Inside& one, long now) {
    if (one.in_flight++ == 0) {
      std::erase(idle_order, one.key);
      one.busy_since = now;
      if (one.turns > 0) learn_pause(now - one.idle_since);
    }
    ++one.turns;
    return {id, one.replica, one.stay};
  }

  void learn_pause(long pause) {
    pauses.push_back(pause);
    if (pauses.size() % 16 != 0) return;
    std::vector<long> last(
        pauses.end() - static_cast<long>(std::min<std::size_t>(64, pauses.size())), pauses.end());
    std::sort(last.begin(), last.end());
    const long ninth = last[last.size() * 9 / 10];
    grace = std::min(o.grace, ninth + ninth / 2 + 100);
  }

  // ms; the means are in ns
  double respite() const {
    if (mean_first_turn == 0 || mean_later_turn == 0) return 0;
    const double twice = std::floor(2 * std::max(0.0, mean_first_turn - mean_later_turn)) / 1e6;
    return std::min(twice, static_cast<double>(o.max_wait) / 5);
  }

  // Longer than a conversation of that size may. ns: the grace of a larger one is no whole ms.
  bool paused(const Inside& one, long now) const {
    const double size = mean_context == 0 ? 1 : std::max(1.0, one.counts_for / own(mean_context));
    return static_cast<double>(now - one.idle_since) * 1e6 >=
           std::floor(size * static_cast<double>(grace) * 1e6);
  }

  bool may_go(const Inside& one, long now, bool urgent) const {
    if (one.in_flight > 0) return false;
    if (one.yields || paused(one, now)) return true;
    const auto since_last =
        static_cast<double>(now - last_in[static_cast<std::size_t>(one.replica)]);
    return urgent && one.turns >= o.min_turns && since_last >= respite();
  }

  std::optional<std::vector<std::uint64_t>> idle_to_free(int replica, double need, long now,
                                                         std::uint64_t spared, double growth = 0,
                                                         bool urgent = false) {
    std::vector<std::uint64_t> gone;
    for (const std::uint64_t key : idle_order) {
      const Inside& one = *find(key);
      if (one.replica != replica || key == spared || !may_go(one, now, urgent)) continue;
      gone.push_back(key);
      if (fits(replica, need, gone, growth)) return gone;
    }
    return std::nullopt;
  }

  int room_for(double need, int preferred, long now, bool urgent) {
    if (preferred >= 0 && replicas[static_cast<std::size_t>(preferred)].serves) {
      if (fits(preferred, need, {}, growth_kept())) return preferred;
      if (const auto gone = idle_to_free(preferred, need, now, 0, growth_kept(), urgent)) {
        send_out(*gone, now);
        return preferred;
      }
    }
    int best = -1;
    double least = 0;
    for (const Replica& r : replicas) {
      if (!r.takes_new || !fits(r.name, need, {}, growth_kept())) continue;
      const double share = r.capacity == 0 ? 0.0 : (filled(r.name) + need) / r.capacity;
      if (best < 0 || share < least) {
        best = r.name;
        least = share;
      }
    }
    if (best >= 0) return best;
    std::vector<std::uint64_t> looked_at;
    for (const std::uint64_t key : std::vector<std::uint64_t>(idle_order)) {
      const Inside one = *find(key);
      if (!replicas[static_cast<std::size_t>(one.replica)].takes_new || !may_go(one, now, urgent))
        continue;
      looked_at.push_back(key);
      std::vector<std::uint64_t> gone;
      for (const std::uint64_t other : looked_at) {
        if (find(other)->replica == one.replica) gone.push_back(other);
      }
      if (!fits(one.replica, need, gone, growth_kept())) continue;
      send_out(gone, now);
      return one.replica;
    }
    return -1;
  }

  void make_way(long now) {
    if (std::none_of(inside.begin(), inside.end(), [](const Inside& one) { return one.yields; }))
      queue[0].made_way = false;
    for (Waits& w : queue) {
      if (now * ns_a_ms - w.counted_from() < o.max_wait * ns_a_ms) return;
      if (!w.made_way) w.made_way = make_way_for(need_of(w.prompt));
    }
  }

  bool make_way_for(double need) {
    std::vector<Inside*> by_age;
    for (Inside& one : inside) {
      if (one.yields || one.turns < o.min_turns ||
          !replicas[static_cast<std::size_t>(one.replica)].takes_new)
        continue;
      if (fits(one.replica, need, {one.key}, growth_kept())) return true;
      by_age.push_back(&one);
    }
    std::sort(by_age.begin(), by_age.end(), [](const Inside* a, const Inside* b) {
      return std::tuple(a->since, a->key) < std::tuple(b->since, b->key);
    });
    for (std::size_t n = 1; n <= by_age.size(); ++n) {
      const int replica = by_age[n - 1]->replica;
      std::vector<std::uint64_t> gone;
      for (std::size_t i = 0; i < n; ++i) {
        if (by_age[i]->replica == replica) gone.push_back(by_age[i]->key);
      }
      if (!fits(replica, need, gone, growth_kept())) continue;
      for (const std::uint64_t key : gone) find(key)->yields = true;
      return true;
    }
    return false;
  }

  double mean_context = 0;
  double mean_answer = 0;
  double mean_growth = 0;
  double mean_stay = 0;        // turns
  double mean_first_turn = 0;  // of a stay, ns, as the next
  double mean_later_turn = 0;
  std::vector<long> last_in;  // when somebody came in last, of each replica
  std::uint64_t stays_begun = 0;
  std::vector<long> pauses;
};

}  // namespace limpet_test
