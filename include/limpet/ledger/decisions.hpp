// SPDX-License-Identifier: Apache-2.0
//
// Recorder: writes down everything that a router was asked and told, so that its decisions can be
// replayed bit for bit.
//
// It stands before a router whose clock is a ManualClock and moves that clock to the real time at
// every call, under one mutex: what is written is exactly the order and the time that the router
// saw. Thread-safe; costs some microseconds a turn. A record holds no key, only key hashes, and no
// text of anybody. `limpet replay-decisions FILE` plays a record again, with the same policies or
// with others, and names the turns that would have gone elsewhere.
//
// One JSON object a line. `t` is nanoseconds since `epoch`, whole seconds of the clock; replicas go by
// name; absent means unknown.
//   {"record":"limpet decisions","version":1,"epoch":81234,"affinity":"on"}
//   {"t":0,"do":"add","name":"gpu0","endpoint":"http://gpu0:8000","max_num_seqs":32}
//   {"t":5,"do":"route","lease":1,"key":"<32 hex>","outcome":"placed","replica":"gpu0","home":"gpu0"}
//   {"t":9,"do":"finish","lease":1,"prompt":900,"cached":0,"completion":12}
//   do: add drain up down restarted remove affinity observe route finish cancel fail
#pragma once

#include <limpet/clock.hpp>
#include <limpet/concepts.hpp>
#include <limpet/lease.hpp>
#include <limpet/router.hpp>
#include <limpet/types.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace limpet {

namespace detail {

[[nodiscard]] inline std::string quoted(std::string_view text) {
  constexpr char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (const auto byte = static_cast<unsigned char>(c); byte < 0x20) {
      out.append("\\u00") += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out += '"';
}

// A line of a record under construction.
class RecordLine {
 public:
  RecordLine() = default;
  RecordLine(std::int64_t t, std::string_view what) {
    add("t", static_cast<std::uint64_t>(t)).add("do", what);
  }

  RecordLine& add(std::string_view name, std::string_view value) {
    begin(name);
    text_ += quoted(value);
    return *this;
  }

  RecordLine& add(std::string_view name, std::uint64_t value) {
    begin(name);
    text_ += std::to_string(value);
    return *this;
  }

  RecordLine& add(std::string_view name, std::optional<double> value) {
    if (!value) return *this;
    begin(name);
    char digits[32];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, *value)
                             .ptr);  // reads back as the same double
    return *this;
  }

  RecordLine& add(std::string_view name, KeyHash key) {
    char digits[33] = {};
    constexpr char hex[] = "0123456789abcdef";
    for (int i = 0; i < 32; ++i)
      digits[i] = hex[(i < 16 ? key.hi >> (60 - 4 * i) : key.lo >> (124 - 4 * i)) & 15];
    return add(name, std::string_view(digits, 32));
  }

  RecordLine& add_list(std::string_view name, std::string_view members) {
    begin(name);
    text_.append("[").append(members).append("]");
    return *this;
  }

  [[nodiscard]] std::string object() && { return std::move(text_) + "}"; }
  [[nodiscard]] std::string line() && { return std::move(text_) + "}\n"; }

 private:
  void begin(std::string_view name) {
    text_.append(text_.empty() ? "{\"" : ",\"").append(name).append("\":");
  }

  std::string text_;
};

}  // namespace detail

// What the router would have planned, had it chosen as the record says: commit() of it lets a replay
// with other policies follow the recorded history, so that each turn is compared on its own.
[[nodiscard]] inline Decision as_recorded(const Decision& planned, ReplicaId replica,
                                          Outcome outcome) noexcept {
  const auto pins = [](Outcome what) { return what == Outcome::placed || what == Outcome::moved; };
  const Home pinned = pins(planned.outcome) ? planned.previous : planned.home;
  Decision recorded = planned;
  recorded.replica = replica;
  recorded.outcome = outcome;
  recorded.previous = pins(outcome) ? pinned : Home{};
  recorded.home = pins(outcome) ? Home{} : pinned;  // made by commit()
  return recorded;
}

// Requires: RouterT's clock is a copy of the ManualClock given here, and nobody uses the router but
// through the recorder.
template <class RouterT, Clock RealClock = SteadyClock>
class Recorder {
 public:
  // Receives whole lines, newline included, one call a line and never two at once.
  using Write = std::function<void(std::string_view line)>;

  // A lease whose end is written down as well. Must not outlive its recorder.
  class Recorded {
   public:
    Recorded(Recorded&&) noexcept = default;
    Recorded& operator=(Recorded&&) = delete;
    ~Recorded() { cancel(); }

    [[nodiscard]] const Lease& lease() const noexcept { return lease_; }
    [[nodiscard]] const Lease* operator->() const noexcept { return &lease_; }

    void finish(const Usage& usage) { recorder_->end(*this, "finish", &usage); }
    void finish() { recorder_->end(*this, "finish", nullptr); }
    void cancel() { recorder_->end(*this, "cancel", nullptr); }
    void fail() { recorder_->end(*this, "fail", nullptr); }

   private:
    friend Recorder;
    Recorded(Recorder& recorder, Lease lease, std::uint64_t number)
        : recorder_(&recorder), lease_(std::move(lease)), number_(number) {}

    Recorder* recorder_;
    Lease lease_;
    std::uint64_t number_;
  };

  Recorder(RouterT& router, ManualClock clock, Write write, RealClock real = {})
      : router_(router),
        clock_(std::move(clock)),
        write_(std::move(write)),
        real_(std::move(real)) {
    epoch_ = std::chrono::floor<std::chrono::seconds>(real_.now());
    clock_.advance_to(epoch_);
    std::string line = R"({"record":"limpet decisions","version":1,"epoch":)";
    line += std::to_string(epoch_.time_since_epoch() / std::chrono::seconds(1));
    line += router_.affinity() == Affinity::on ? R"(,"affinity":"on"})" : R"(,"affinity":"off"})";
    write_(line + "\n");
  }

  [[nodiscard]] Recorded route(const Turn& turn) {
    const std::lock_guard lock(mutex_);
    const std::int64_t t = tick();
    Lease lease = router_.route(turn);
    const Decision& decision = lease.decision();
    detail::RecordLine line(t, "route");
    line.add("lease", ++leases_);
    add_key(line, "key", turn.key);
    add_key(line, "parent", turn.parent);
    if (turn.client_pinned) line.add("client_pinned", name_of(turn.client_pinned));
    if (!turn.exclude.empty()) {
      std::string names;
      for (const ReplicaId id : turn.exclude) {
        names += (names.empty() ? "" : ",") + detail::quoted(name_of(id));
      }
      line.add_list("exclude", names);
    }
    if (turn.prompt_tokens != 0) line.add("prompt_tokens", turn.prompt_tokens);
    if (turn.side_call) line.add("side_call", std::uint64_t{1});
    line.add("outcome", to_string(decision.outcome));
    if (decision.replica) line.add("replica", name_of(decision.replica));
    if (decision.home.replica) line.add("home", name_of(decision.home.replica));
    write_(std::move(line).line());
    return Recorded(*this, std::move(lease), leases_);
  }

  ReplicaId add_replica(const ReplicaOptions& options) {
    const std::lock_guard lock(mutex_);
    const std::int64_t t = tick();
    const ReplicaId added = router_.add_replica(options);
    detail::RecordLine line(t, "add");
    line.add("name", options.name)
        .add("endpoint", options.endpoint.empty() ? options.name : options.endpoint);
    if (options.rank) line.add("rank", std::uint64_t{*options.rank});
    if (!options.engine.empty()) line.add("engine", options.engine);
    if (options.max_num_seqs != 0) line.add("max_num_seqs", std::uint64_t{options.max_num_seqs});
    if (options.kv_capacity_tokens != 0) line.add("kv_capacity_tokens", options.kv_capacity_tokens);
    write_(std::move(line).line());
    return added;
  }

  bool drain(ReplicaId replica) {
    return change("drain", replica, [&] { return router_.drain(replica); });
  }
  bool set_up(ReplicaId replica) {
    return change("up", replica, [&] { return router_.set_up(replica); });
  }
  bool set_down(ReplicaId replica) {
    return change("down", replica, [&] { return router_.set_down(replica); });
  }
  bool remove(ReplicaId replica) {
    return change("remove", replica, [&] { return router_.remove(replica); });
  }
  bool restarted(ReplicaId replica) {
    return change("restarted", replica, [&] { return router_.restarted(replica); });
  }

  void set_affinity(Affinity affinity) {
    const std::lock_guard lock(mutex_);
    detail::RecordLine line(tick(), "affinity");
    router_.set_affinity(affinity);
    write_(std::move(line.add("value", affinity == Affinity::on ? "on" : "off")).line());
  }

  ParseStatus observe(std::string_view endpoint, std::string_view page) {
    std::vector<Reading> readings;
    const ParseStatus status = router_.read(page, readings);
    if (status != ParseStatus::ok) return status;
    const std::lock_guard lock(mutex_);
    const std::int64_t t = tick();
    router_.observe(endpoint, readings);
    std::string list;
    for (const Reading& reading : readings) {
      detail::RecordLine one;
      one.add("engine", reading.engine)
          .add("running", reading.running)
          .add("waiting", reading.waiting);
      one.add("kv_usage", reading.kv_usage).add("prefix_queries", reading.prefix_queries);
      one.add("prefix_hits", reading.prefix_hits).add("prompt_tokens", reading.prompt_tokens);
      one.add("prompt_tokens_cached", reading.prompt_tokens_cached);
      one.add("kv_capacity_tokens", reading.kv_capacity_tokens)
          .add("start_time", reading.start_time);
      list += (list.empty() ? "" : ",") + std::move(one).object();
    }
    detail::RecordLine line(t, "observe");
    write_(std::move(line.add("endpoint", endpoint).add_list("readings", list)).line());
    return status;
  }

 private:
  [[nodiscard]] std::int64_t tick() {
    clock_.advance_to(real_.now());
    return (clock_.now() - epoch_).count();
  }

  [[nodiscard]] std::string name_of(ReplicaId replica) const {
    const std::optional<ReplicaOptions> options = router_.options(replica);
    return options ? options->name : std::string();
  }

  void add_key(detail::RecordLine& line, std::string_view name, const Key& key) const {
    if (key.has_value()) line.add(name, key.is_hash() ? key.hash() : router_.hash(key.text()));
  }

  template <class F>
  bool change(std::string_view what, ReplicaId replica, F apply) {
    const std::lock_guard lock(mutex_);
    detail::RecordLine line(tick(), what);
    line.add("name", name_of(replica));
    const bool known = apply();
    if (known) write_(std::move(line).line());
    return known;
  }

  void end(Recorded& recorded, std::string_view how, const Usage* usage) {
    const std::lock_guard lock(mutex_);
    if (!recorded.lease_.held()) return;
    detail::RecordLine line(tick(), how);
    line.add("lease", recorded.number_);
    if (usage != nullptr) {
      line.add("prompt", usage->prompt_tokens).add("completion", usage->completion_tokens);
      if (usage->cached_tokens) line.add("cached", *usage->cached_tokens);
      recorded.lease_.finish(*usage);
    } else if (how == "finish") {
      recorded.lease_.finish();
    } else if (how == "fail") {
      recorded.lease_.fail();
    } else {
      recorded.lease_.cancel();
    }
    write_(std::move(line).line());
  }

  RouterT& router_;
  ManualClock clock_;
  Write write_;
  RealClock real_;
  std::mutex mutex_;
  Instant epoch_{};
  std::uint64_t leases_ = 0;
};

}  // namespace limpet
