// SPDX-License-Identifier: Apache-2.0
//
// What a policy must be able to do: the five concepts that Router<> is composed of, each with its
// laws.
//
// A model of a concept is any class with these members that a router can take by value (not
// std::movable, which made a twelfth of what the library adds to a build); testing/laws.hpp runs
// the laws on yours. Members marked noexcept must be so: routing never fails half-way. No policy is
// ever called under a lock of ours, so one may lock, log or call Python. A policy that several
// threads use through one router must be thread-safe; the stateless ones are.
#pragma once

#include <limpet/types.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace limpet {

// Clock -------------------------------------------------------------------------------------------

// | law      |                                                          |
// |----------|----------------------------------------------------------|
// | monotone | a later call in one thread never returns an earlier time |
template <class T>
concept Clock = std::is_move_constructible_v<T> && requires(const T& clock) {
  { clock.now() } noexcept -> std::same_as<Instant>;
};

// LoadScorer --------------------------------------------------------------------------------------

// What the whole fleet and the turn say, beside one replica's load.
struct ScoreContext {
  bool gauges_fresh = false;        // every replica that is up has a fresh reading
  std::uint32_t candidates = 0;     // how many replicas are being compared
  std::uint32_t position = 0;       // of this one among them, 0-based, in fleet order
  std::uint64_t draw = 0;           // differs from decision to decision: the source of all chance
  std::uint64_t prompt_tokens = 0;  // of the turn; 0: unknown
  // Of the prompt, what this replica presumably has to read; 0 unless the scorer has needs_prefill.
  std::uint64_t uncached_tokens = 0;
};

// | law      |                                                                 |
// |----------|-----------------------------------------------------------------|
// | pure     | equal arguments, equal score                                    |
// | ordered  | never NaN; lower is better                                      |
// | monotone | one more turn in flight, all else equal, never lowers the score |
template <class T>
concept LoadScorer =
    std::is_move_constructible_v<T> &&
    requires(const T& scorer, const ReplicaLoad& load, const ScoreContext& context) {
      { scorer.score(load, context) } noexcept -> std::same_as<double>;
    };

// One addend of a score, for explain(). A scorer may offer `terms(load, context) -> ScoreTerms`.
struct ScoreTerm {
  const char* name = nullptr;
  double value = 0.0;
};
using ScoreTerms = std::array<ScoreTerm, 4>;

template <class T>
concept ExplainsScore = LoadScorer<T> && requires(const T& scorer, const ReplicaLoad& load,
                                                  const ScoreContext& context) {
  { scorer.terms(load, context) } -> std::same_as<ScoreTerms>;
};

// OverflowRule ------------------------------------------------------------------------------------

// What to do with a turn whose home is overloaded. `spill` and `move` may name the replica; without
// a name a spill goes to the replica with the fewest turns in flight, provided it has fewer than
// home, and a move to the best placement score.
struct Verdict {
  enum class Action : std::uint8_t { stay, spill, move };

  Action action = Action::stay;
  ReplicaId target{};

  static const Verdict stay;
  static const Verdict spill;
  static const Verdict move;

  [[nodiscard]] constexpr Verdict to(ReplicaId replica) const noexcept { return {action, replica}; }
  [[nodiscard]] friend constexpr bool operator==(Verdict, Verdict) noexcept = default;
};

inline constexpr Verdict Verdict::stay{Verdict::Action::stay, {}};
inline constexpr Verdict Verdict::spill{Verdict::Action::spill, {}};
inline constexpr Verdict Verdict::move{Verdict::Action::move, {}};

// Home, the replicas that could take the turn instead, and what is known of the turn. Loads are
// read when asked for.
class OverflowView {
 public:
  // Calls `visit(context, load)` for each of the others, in fleet order.
  using Visit = void (*)(void* context, const ReplicaLoad& load);
  using ForEach = void (*)(const void* source, void* context, Visit visit);

  OverflowView(const ReplicaLoad& home, std::uint32_t others, const void* source,
               ForEach for_each) noexcept
      : home_(home), others_(others), source_(source), for_each_(for_each) {}

  [[nodiscard]] const ReplicaLoad& home() const noexcept { return home_; }

  // Replicas other than home that may take the turn.
  [[nodiscard]] std::uint32_t size() const noexcept { return others_; }

  // Effects: calls `visit(const ReplicaLoad&)` for each of them.
  template <class F>
  void for_each_other(F visit) const {
    for_each_(source_, std::addressof(visit),
              [](void* f, const ReplicaLoad& load) { (*static_cast<F*>(f))(load); });
  }

  std::uint64_t prompt_tokens = 0;   // of the turn; 0: unknown
  std::uint64_t context_tokens = 0;  // of its conversation, as home counts it; 0: unknown
  // Of the prompt, what presumably has to be read; 0 unless the rule has needs_prefill.
  std::uint64_t uncached_at_home = 0;
  std::uint64_t uncached_elsewhere = 0;

 private:
  const ReplicaLoad& home_;
  std::uint32_t others_;
  const void* source_;
  ForEach for_each_;
};

// | law         |                                                                        |
// |-------------|------------------------------------------------------------------------|
// | cheap first | overloaded() looks at home alone; decide() runs only after it said yes |
// | pure        | equal arguments, equal answers                                         |
// | monotone    | a home that is overloaded is still so with one more turn in flight     |
// | in the pool | a named target is one of view's others                                 |
template <class T>
concept OverflowRule = std::is_move_constructible_v<T> &&
                       requires(const T& rule, const ReplicaLoad& home, const OverflowView& view) {
                         { rule.overloaded(home) } noexcept -> std::same_as<bool>;
                         { rule.decide(view) } noexcept -> std::same_as<Verdict>;
                       };

// MetricsParser -----------------------------------------------------------------------------------

// One engine's gauges and counters from one page. What the page did not say is absent. `engine` and
// `model` refer to the page and are empty where it does not label its series.
struct Reading {
  std::string_view engine{};
  std::string_view model{};
  std::optional<double> running{};   // requests
  std::optional<double> waiting{};   // requests
  std::optional<double> kv_usage{};  // 0..1
  std::optional<double>
      prefix_queries{};  // tokens asked for in the prefix cache, since the engine started
  std::optional<double> prefix_hits{};    // tokens found there
  std::optional<double> prompt_tokens{};  // tokens of all prompts since the engine started
  std::optional<double> prompt_tokens_cached{};
  std::optional<double> kv_capacity_tokens{};
  std::optional<double> start_time{};  // s since the Unix epoch
};

enum class ParseStatus : std::uint8_t {
  ok,         // at least one reading was delivered
  malformed,  // a line breaks the format, or the page was cut in a line
  no_engine,  // a page of good form that holds none of the series we look for
  out_of_memory,
};

[[nodiscard]] constexpr std::string_view to_string(ParseStatus status) noexcept {
  constexpr std::string_view names[] = {"ok", "malformed", "no_engine", "out_of_memory"};
  return names[static_cast<std::size_t>(status)];
}

// Where readings go: refers to a callable that outlives the call.
class ReadingSink {
 public:
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, ReadingSink> && !std::is_const_v<F> &&
             std::invocable<F&, const Reading&>)
  explicit ReadingSink(F& function) noexcept
      : function_(std::addressof(function)),
        call_([](void* f, const Reading& reading) { (*static_cast<F*>(f))(reading); }) {}

  void operator()(const Reading& reading) const { call_(function_, reading); }

 private:
  void* function_;
  void (*call_)(void*, const Reading&);
};

// | law         |                                                        |
// |-------------|--------------------------------------------------------|
// | total       | any bytes are survived, in time linear in their number |
// | all or none | the sink is untouched unless the status is ok          |
// | pure        | equal pages, equal readings in equal order             |
template <class T>
concept MetricsParser = std::is_move_constructible_v<T> &&
                        requires(const T& parser, std::string_view page, ReadingSink sink) {
                          { parser.parse(page, sink) } noexcept -> std::same_as<ParseStatus>;
                        };

// PinStore ----------------------------------------------------------------------------------------

// Each write returns the winner, so that two first turns of one conversation agree, in one process
// or over a network.
//
// | law               |                                                                 |
// |-------------------|-----------------------------------------------------------------|
// | first pin wins    | pin(k, a) then pin(k, b): both return a                         |
// | compare and swap  | repin(k, e, d) changes a pin iff it is e, pins d where there is |
// |                   | none, and returns the pin that holds afterwards                 |
// | conditional unpin | unpin(k, e) removes the pin iff it is e, and says whether       |
// | found             | find returns the last winner until it is unpinned, replaced,    |
// |                   | evicted or expired                                              |
template <class T>
concept PinStore = std::is_move_constructible_v<T> &&
                   requires(T& store, const T& view, KeyHash key, Home home, Instant now) {
                     { view.find(key, now) } -> std::same_as<std::optional<Home>>;
                     { store.pin(key, home, now) } -> std::same_as<Home>;
                     { store.repin(key, home, home, now) } -> std::same_as<Home>;
                     { store.unpin(key, home) } -> std::same_as<bool>;
                   };

// What a store that also follows the turns of its conversations knows of one.
struct Conversation {
  Home home{};
  Instant last_active{};             // start or end of its last turn
  std::uint32_t turns = 0;           // begun since it was pinned
  std::uint32_t in_flight = 0;       // of those
  std::uint32_t context_tokens = 0;  // last prompt and output, as the engine told; 0: not told yet
  std::uint32_t counted_tokens = 0;  // what the fleet table counts for it
};

// Names one stay of a conversation in the store: void once it was evicted, even if it came back.
struct PinTicket {
  std::uint32_t entry = 0xFFFFFFFF;
  std::uint32_t incarnation = 0;

  [[nodiscard]] constexpr bool has_value() const noexcept { return entry != 0xFFFFFFFF; }
  [[nodiscard]] friend constexpr bool operator==(PinTicket, PinTicket) noexcept = default;
};

// A turn of a conversation began.
struct TurnOpened {
  Conversation before{};  // as it was; turns == 0 where this call pinned it
  PinTicket ticket{};
  std::uint32_t counted_tokens = 0;       // counted for it from now on
  bool renewed = false;                   // this call pinned it where an expired pin stood
  std::optional<Conversation> evicted{};  // what had to leave the store for it
};

// A turn ended.
struct TurnClosed {
  Conversation before{};             // as it was; home is where it is pinned, or was until now
  std::uint32_t counted_tokens = 0;  // counted for it from now on
  bool unpinned = false;             // its pin is gone
  bool remembered = true;            // counts as live for a while; false: forgotten at once
};

struct IdleConversation {
  KeyHash key{};
  Conversation conversation{};
};

enum class TurnEnd : std::uint8_t {
  keep_pin,
  unpin_if_first,  // remove the pin if no other turn has begun since it was made
};

// A store that also follows the turns of its conversations, which lets the router count live
// conversations, hold a pin while a turn is in flight, and rebalance. Without it
// `live_conversations` counts conversations in flight alone.
//
// peek                what find() finds, with all that is known of it
// open_turn           as find(), and also refreshes the pin and counts a turn in flight
// pin_turn            insert-or-get, and counts a turn in flight either way
// repin_conversation  compare-and-swap of an existing pin that does not refresh it; the
//                     conversation as it was, iff swapped
// repin_idle          the same, only for a conversation that had no turn since `cutoff`
// close_turn          ends a turn; nothing where that stay of the conversation is over
// idle_since          conversations without a turn since a time, least recently active first
// expire              removes the pins past their time to live and hands over what they were
template <class T>
concept TracksTurns =
    PinStore<T> && requires(T& store, const T& view, KeyHash key, Home home, Instant now,
                            std::uint32_t tokens, PinTicket ticket, TurnEnd end,
                            std::vector<IdleConversation>& idle, std::vector<Conversation>& gone) {
      { view.peek(key, now) } -> std::same_as<std::optional<Conversation>>;
      { store.open_turn(key, now, tokens) } -> std::same_as<std::optional<TurnOpened>>;
      { store.pin_turn(key, home, now, tokens) } -> std::same_as<TurnOpened>;
      {
        store.repin_conversation(key, home, home, now)
      } -> std::same_as<std::optional<Conversation>>;
      { store.repin_idle(key, home, home, now) } -> std::same_as<std::optional<Conversation>>;
      {
        store.close_turn(key, ticket, now, tokens, end)
      } -> std::same_as<std::optional<TurnClosed>>;
      view.idle_since(now, std::size_t{}, idle);
      store.expire(now, gone);
    };

// A replica as a store without a table sees it.
struct Member {
  Home home{};
  std::uint64_t name_hash = 0;
};

// A store that needs to know the pool: told at each change of it which replicas can be a home.
template <class T>
concept FollowsMembership =
    PinStore<T> && requires(T& store, const Member* members, std::size_t count) {
      store.set_members(members, count);
    };

}  // namespace limpet
