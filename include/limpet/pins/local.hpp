// SPDX-License-Identifier: Apache-2.0
//
// LocalPins: the table of pins for one thread, and the shard that ShardedPins is made of.
//
// Holds up to `capacity` conversations and evicts the least recently active one, those with a turn
// in flight last. A pin that nobody used for `idle_ttl`, counted from the start or end of its
// conversation's last turn, is not found any more; one with a turn in flight never expires. All
// memory is taken by the constructor: 64 bytes a pin and 11 to 21 of index; every operation is O(1)
// and allocates nothing. Not thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>
#include <limpet/detail/pin_index.hpp>

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace limpet {

struct PinOptions {
  std::size_t capacity = 8192;                   // conversations, 1 to 2^30
  Duration idle_ttl = std::chrono::minutes(30);  // > 0
};

class LocalPins {
 public:
  explicit LocalPins(PinOptions options = {})
      : ttl_(options.idle_ttl),
        entries_(checked(options)),
        index_(static_cast<std::uint32_t>(options.capacity)) {
    for (std::uint32_t i = 0; i < entries_.size(); ++i) entries_[i].next = i + 1;
    entries_.back().next = none;
    free_ = 0;
  }

  // PinStore --------------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Home> find(KeyHash key, Instant now) const noexcept {
    const std::optional<Conversation> found = peek(key, now);
    return found ? std::optional(found->home) : std::nullopt;
  }

  Home pin(KeyHash key, Home home, Instant now) noexcept {
    TurnOpened ignored;
    return entries_[insert_or_get(key, home, now, ignored)].conversation.home;
  }

  Home repin(KeyHash key, Home expected, Home desired, Instant now) noexcept {
    const std::uint32_t at = find_live(key, now);
    if (at == none) return pin(key, desired, now);
    Home& home = entries_[at].conversation.home;
    if (home == expected) home = desired;
    return home;
  }

  bool unpin(KeyHash key, Home expected) noexcept {
    const std::uint32_t at = find_any(key);
    if (at == none || entries_[at].conversation.home != expected) return false;
    remove(at);
    return true;
  }

  // TracksTurns -----------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Conversation> peek(KeyHash key, Instant now) const noexcept {
    const std::uint32_t at = find_live(key, now);
    return at == none ? std::nullopt : std::optional(entries_[at].conversation);
  }

  // `tokens` is counted for the conversation where its engine has not told its context yet; 0
  // leaves the count as it is.
  std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) noexcept {
    const std::uint32_t at = find_live(key, now);
    if (at == none) return std::nullopt;
    TurnOpened opened;
    begin(at, now, tokens, opened);
    return opened;
  }

  TurnOpened pin_turn(KeyHash key, Home home, Instant now, std::uint32_t tokens) noexcept {
    TurnOpened opened;
    begin(insert_or_get(key, home, now, opened), now, tokens, opened);
    return opened;
  }

  // Effects: as repin, but an absent pin stays absent and activity is not refreshed.
  // Returns: the conversation as it was when the pin was `expected` and is now `desired`, else
  // nothing.
  std::optional<Conversation> repin_conversation(KeyHash key, Home expected, Home desired,
                                                 Instant now) noexcept {
    const std::uint32_t at = find_live(key, now);
    if (at == none || entries_[at].conversation.home != expected) return std::nullopt;
    Conversation& conversation = entries_[at].conversation;
    const Conversation before = conversation;
    conversation.home = desired;
    conversation.turns = conversation.in_flight;  // of the new pin: those that may be using it
    return before;
  }

  std::optional<Conversation> repin_idle(KeyHash key, Home expected, Home desired,
                                         Instant cutoff) noexcept {
    const std::uint32_t at = find_any(key);
    if (at == none) return std::nullopt;
    Conversation& conversation = entries_[at].conversation;
    if (conversation.home != expected || conversation.in_flight > 0 ||
        conversation.last_active > cutoff) {
      return std::nullopt;
    }
    const Conversation before = conversation;
    conversation.home = desired;
    return before;
  }

  // `context_tokens` is what the engine told of the conversation's context; 0: it did not tell.
  std::optional<TurnClosed> close_turn(KeyHash, PinTicket ticket, Instant now,
                                       std::uint32_t context_tokens, TurnEnd end) noexcept {
    if (ticket.entry >= entries_.size()) return std::nullopt;
    Entry& entry = entries_[ticket.entry];
    if (entry.incarnation != ticket.incarnation || entry.conversation.in_flight == 0)
      return std::nullopt;

    TurnClosed closed{.before = entry.conversation};
    if (end == TurnEnd::unpin_if_first && entry.conversation.turns == 1) {
      remove(ticket.entry);
      closed.unpinned = true;
      closed.remembered = false;
      return closed;
    }
    if (context_tokens != 0) {
      entry.conversation.context_tokens = context_tokens;
      entry.conversation.counted_tokens = context_tokens;
    }
    closed.counted_tokens = entry.conversation.counted_tokens;
    unlink(ticket.entry, active_);
    --entry.conversation.in_flight;
    touch(entry.conversation, now);
    link_newest(ticket.entry, entry.conversation.in_flight == 0 ? idle_ : active_);
    return closed;
  }

  // Effects: appends up to `limit` conversations idle since `cutoff` or earlier, least recently
  // active first.
  void idle_since(Instant cutoff, std::size_t limit, std::vector<IdleConversation>& out) const {
    for (std::uint32_t at = idle_.oldest; at != none && limit > 0;
         at = entries_[at].next, --limit) {
      if (entries_[at].conversation.last_active > cutoff) return;
      out.push_back({entries_[at].key, entries_[at].conversation});
    }
  }

  // Effects: removes the pins whose time to live is over and appends what they were.
  void expire(Instant now, std::vector<Conversation>& out) {
    while (idle_.oldest != none && expired(entries_[idle_.oldest].conversation, now)) {
      out.push_back(entries_[idle_.oldest].conversation);
      remove(idle_.oldest);
    }
  }

  // Pins held, those past their time to live included until they are evicted or expire() removes
  // them.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return entries_.size() * sizeof(Entry) + index_.bytes();
  }

 private:
  static constexpr std::uint32_t none = detail::PinIndex::none;

  struct Entry {
    KeyHash key;
    Conversation conversation;
    std::uint32_t incarnation = 0;
    std::uint32_t older = none;
    std::uint32_t next = none;  // the next younger one; of a free entry, the next free one
  };
  static_assert(sizeof(Entry) == 64,
                "an entry is one cache line: that is what a million pins cost");

  // Entries in order of their last activity.
  struct List {
    std::uint32_t oldest = none;
    std::uint32_t newest = none;
  };

  static std::size_t checked(const PinOptions& options) {
    detail::require(options.capacity >= 1 && options.capacity <= std::size_t{1} << 30, "capacity",
                    options.capacity, "a pin store holds 1 to 2^30 conversations");
    detail::require(options.idle_ttl > Duration::zero(), "idle_ttl", options.idle_ttl.count(),
                    "nanoseconds; a pin must live for some time");
    return options.capacity;
  }

  // A turn that ends after another one began must not make the conversation look older.
  static void touch(Conversation& conversation, Instant now) noexcept {
    if (now > conversation.last_active) conversation.last_active = now;
  }

  [[nodiscard]] bool expired(const Conversation& conversation, Instant now) const noexcept {
    return conversation.in_flight == 0 && now - conversation.last_active >= ttl_;
  }

  [[nodiscard]] std::uint32_t find_any(KeyHash key) const noexcept {
    return index_.find(key, [&](std::uint32_t at) { return entries_[at].key == key; });
  }

  [[nodiscard]] std::uint32_t find_live(KeyHash key, Instant now) const noexcept {
    const std::uint32_t at = find_any(key);
    return at != none && expired(entries_[at].conversation, now) ? none : at;
  }

  std::uint32_t insert_or_get(KeyHash key, Home home, Instant now, TurnOpened& opened) noexcept {
    std::uint32_t at = find_any(key);
    if (at != none) {
      if (!expired(entries_[at].conversation, now)) return at;
      opened.renewed = true;
    } else if (free_ == none) {
      at = idle_.oldest != none ? idle_.oldest : active_.oldest;
    }
    if (at != none) {
      opened.evicted = entries_[at].conversation;
      remove(at);
    }
    at = free_;
    free_ = entries_[at].next;
    Entry& entry = entries_[at];
    entry.key = key;
    entry.conversation = {.home = home, .last_active = now};
    ++entry.incarnation;
    index_.insert(key, at);
    link_newest(at, idle_);
    ++size_;
    return at;
  }

  void begin(std::uint32_t at, Instant now, std::uint32_t tokens, TurnOpened& opened) noexcept {
    Entry& entry = entries_[at];
    Conversation& conversation = entry.conversation;
    opened.before = conversation;
    opened.ticket = {at, entry.incarnation};
    unlink(at, conversation.in_flight == 0 ? idle_ : active_);
    ++conversation.turns;
    ++conversation.in_flight;
    touch(conversation, now);
    if (conversation.context_tokens == 0 && tokens != 0) conversation.counted_tokens = tokens;
    opened.counted_tokens = conversation.counted_tokens;
    link_newest(at, active_);
  }

  void remove(std::uint32_t at) noexcept {
    Entry& entry = entries_[at];
    unlink(at, entry.conversation.in_flight == 0 ? idle_ : active_);
    index_.erase(entry.key, at, [&](std::uint32_t other) { return entries_[other].key; });
    entry.conversation = {};
    ++entry.incarnation;  // leases of that stay now hold a void ticket
    entry.next = free_;
    free_ = at;
    --size_;
  }

  void unlink(std::uint32_t at, List& list) noexcept {
    const Entry& entry = entries_[at];
    (entry.older == none ? list.oldest : entries_[entry.older].next) = entry.next;
    (entry.next == none ? list.newest : entries_[entry.next].older) = entry.older;
  }

  void link_newest(std::uint32_t at, List& list) noexcept {
    entries_[at].older = list.newest;
    entries_[at].next = none;
    (list.newest == none ? list.oldest : entries_[list.newest].next) = at;
    list.newest = at;
  }

  Duration ttl_;
  std::vector<Entry> entries_;
  detail::PinIndex index_;
  List idle_;  // no turn in flight
  List active_;
  std::uint32_t free_ = none;
  std::size_t size_ = 0;
};

static_assert(TracksTurns<LocalPins>);

}  // namespace limpet
