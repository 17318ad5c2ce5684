// SPDX-License-Identifier: Apache-2.0
//
// LocalPins: the table of pins for one thread, and the shard that ShardedPins is made of.
//
// Holds up to `capacity` conversations and evicts the least recently active one, those with a turn
// in flight last. A pin that nobody used for `idle_ttl`, counted from the start or end of its
// conversation's last turn, is not found any more; one with a turn in flight never expires. All
// memory is taken by the constructor, 87 bytes a pin. No operation on a key allocates; each is O(1),
// a new pin in a full store on average. Not thread-safe.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/detail/check.hpp>
#include <limpet/detail/eviction_queue.hpp>
#include <limpet/detail/pin_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace limpet {

struct PinOptions {
  std::size_t capacity = 8192;                   // conversations, 1 to 2^30
  Duration idle_ttl = detail::seconds(30 * 60);  // > 0
};

class LocalPins {
 public:
  explicit LocalPins(PinOptions options = {})
      : table_(checked(options)),
        ttl_(options.idle_ttl),
        capacity_(options.capacity),
        evictions_(options.capacity) {}

  // PinStore --------------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Home> find(KeyHash key, Instant now) const noexcept {
    const std::optional<Conversation> found = peek(key, now);
    return found ? std::optional(found->home) : std::nullopt;
  }

  Home pin(KeyHash key, Home home, Instant now) noexcept {
    TurnOpened ignored;
    return table_[insert_or_get(key, home, now, ignored)].conversation.home;
  }

  Home repin(KeyHash key, Home expected, Home desired, Instant now) noexcept {
    const std::uint32_t at = find_live(key, now);
    if (at == none) return pin(key, desired, now);
    Home& home = table_[at].conversation.home;
    if (home == expected) home = desired;
    return home;
  }

  bool unpin(KeyHash key, Home expected) noexcept {
    const std::uint32_t at = table_.find(key);
    if (at == none || table_[at].conversation.home != expected) return false;
    remove(at);
    return true;
  }

  // TracksTurns -----------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Conversation> peek(KeyHash key, Instant now) const noexcept {
    return conversation_at(find_live(key, now));
  }

  // `tokens` is counted for the conversation where its engine has not told its context yet; 0
  // leaves the count as it is.
  std::optional<TurnOpened> open_turn(KeyHash key, Instant now, std::uint32_t tokens) noexcept {
    const std::uint32_t at = find_live(key, now);
    return at == none ? std::nullopt : std::optional(begin(table_[at], at, now, tokens));
  }

  TurnOpened pin_turn(KeyHash key, Home home, Instant now, std::uint32_t tokens) noexcept {
    TurnOpened pinned;
    const std::uint32_t at = insert_or_get(key, home, now, pinned);
    TurnOpened opened = begin(table_[at], at, now, tokens);
    opened.renewed = pinned.renewed;
    opened.evicted = pinned.evicted;
    return opened;
  }

  // Effects: as repin, but an absent pin stays absent and activity is not refreshed.
  // Returns: the conversation as it was when the pin was `expected` and is now `desired`, else
  // nothing.
  std::optional<Conversation> repin_conversation(KeyHash key, Home expected, Home desired,
                                                 Instant now) noexcept {
    const std::uint32_t at = find_live(key, now);
    const std::optional<Conversation> before = conversation_at(at);
    if (!before || before->home != expected) return std::nullopt;
    Conversation& conversation = table_[at].conversation;
    conversation.home = desired;
    conversation.turns = conversation.in_flight;  // of the new pin: those that may be using it
    return before;
  }

  std::optional<Conversation> repin_idle(KeyHash key, Home expected, Home desired,
                                         Instant cutoff) noexcept {
    const std::uint32_t at = table_.find(key);
    if (at == none) return std::nullopt;
    Conversation& conversation = table_[at].conversation;
    if (conversation.home != expected || conversation.in_flight > 0 ||
        conversation.last_active > cutoff) {
      return std::nullopt;
    }
    const Conversation before = conversation;
    conversation.home = desired;
    return before;
  }

  // `context_tokens` is what the engine told of the conversation's context; 0: it did not tell.
  std::optional<TurnClosed> close_turn(KeyHash key, PinTicket ticket, Instant now,
                                       std::uint32_t context_tokens, TurnEnd end) noexcept {
    std::uint32_t at = ticket.entry;
    if (!holds(at, ticket)) at = table_.find(key);  // an erase has moved it since
    if (!holds(at, ticket) || table_[at].conversation.in_flight == 0) return std::nullopt;

    Conversation& conversation = table_[at].conversation;
    const Conversation before = conversation;
    if (end == TurnEnd::unpin_if_first && before.turns == 1) {
      remove(at);
      return TurnClosed{.before = before, .unpinned = true, .remembered = false};
    }
    if (context_tokens != 0) {
      conversation.context_tokens = context_tokens;
      conversation.counted_tokens = context_tokens;
    }
    --conversation.in_flight;
    touch(table_[at], now);
    return TurnClosed{.before = before, .counted_tokens = conversation.counted_tokens};
  }

  // The next two append to a vector, of IdleConversation and of Conversation. They are templates so
  // that only those who call them compile them.

  // Effects: appends up to `limit` conversations idle since `cutoff` or earlier, least recently
  // active first. Looks through the table.
  void idle_since(Instant cutoff, std::size_t limit, auto& out) const {
    const std::size_t first = out.size();
    for (const Entry& entry : table_.entries()) {
      if (is_idle(entry) && entry.conversation.last_active <= cutoff)
        out.push_back({entry.key, entry.conversation});
    }
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
              [](const IdleConversation& a, const IdleConversation& b) {
                return a.conversation.last_active < b.conversation.last_active;
              });
    if (out.size() - first > limit) out.resize(first + limit);
  }

  // Effects: removes the pins whose time to live is over and appends what they were, least recently
  // active first. Looks through the table where one may be.
  void expire(Instant now, auto& out) {
    if (size_ == 0 || now - none_older_than_ < ttl_) return;
    const std::size_t first = out.size();
    none_older_than_ = Instant::max();
    for (std::uint32_t at = 0; at < table_.entries().size();) {
      const Conversation& conversation = table_[at].conversation;
      if (table_[at].stay != 0 && expired(conversation, now)) {
        out.push_back(conversation);
        remove(at);  // moves another one here, perhaps
        continue;
      }
      if (table_[at].stay != 0)
        none_older_than_ = std::min(none_older_than_, conversation.last_active);
      ++at;
    }
    std::sort(
        out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
        [](const Conversation& a, const Conversation& b) { return a.last_active < b.last_active; });
  }

  // Pins held, those past their time to live included until they are evicted or expire() removes
  // them.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return table_.bytes() + evictions_.bytes(); }

  // For ShardedPins, which calls for an entry before it has the lock.
  [[nodiscard]] const detail::PinTable& table() const noexcept { return table_; }

 private:
  using Entry = detail::PinTable::Entry;
  static constexpr std::uint32_t none = detail::PinTable::none;

  static std::size_t checked(const PinOptions& options) {
    detail::require(options.capacity >= 1 && options.capacity <= std::size_t{1} << 30, "capacity",
                    options.capacity, "a pin store holds 1 to 2^30 conversations");
    detail::require(options.idle_ttl.count() > 0, "idle_ttl", options.idle_ttl.count(),
                    "nanoseconds; a pin must live for some time");
    return options.capacity;
  }

  // A turn that ends after another one began must not make the conversation look older.
  void touch(Entry& entry, Instant now) noexcept {
    entry.activity = ++activity_;
    entry.conversation.last_active = std::max(entry.conversation.last_active, now);
  }

  [[nodiscard]] bool holds(std::uint32_t at, PinTicket ticket) const noexcept {
    return at < table_.entries().size() && table_[at].stay == ticket.incarnation &&
           ticket.incarnation != 0;
  }

  [[nodiscard]] static bool is_idle(const Entry& entry) noexcept {
    return entry.stay != 0 && entry.conversation.in_flight == 0;
  }

  [[nodiscard]] bool expired(const Conversation& conversation, Instant now) const noexcept {
    return conversation.in_flight == 0 && now - conversation.last_active >= ttl_;
  }

  [[nodiscard]] std::optional<Conversation> conversation_at(std::uint32_t at) const noexcept {
    return at == none ? std::nullopt : std::optional(table_[at].conversation);
  }

  [[nodiscard]] std::uint32_t find_live(KeyHash key, Instant now) const noexcept {
    const std::uint32_t at = table_.find(key);
    return at != none && expired(table_[at].conversation, now) ? none : at;
  }

  std::uint32_t insert_or_get(KeyHash key, Home home, Instant now, TurnOpened& opened) noexcept {
    std::uint32_t at = table_.find(key);
    if (at != none) {
      if (!expired(table_[at].conversation, now)) return at;
      opened.renewed = true;
    } else if (size_ == capacity_) {
      at = evictions_.next(table_);
    }
    if (at != none) {
      opened.evicted = conversation_at(at);
      remove(at);
    }
    at = table_.place_for(key);
    if (++stays_ == 0) ++stays_;
    table_[at] = {.key = key,
                  .conversation = {.home = home, .last_active = now},
                  .activity = ++activity_,
                  .stay = stays_};
    none_older_than_ = std::min(none_older_than_, now);
    ++size_;
    return at;
  }

  TurnOpened begin(Entry& entry, std::uint32_t at, Instant now, std::uint32_t tokens) noexcept {
    Conversation& conversation = entry.conversation;
    const Conversation before = conversation;
    ++conversation.turns;
    ++conversation.in_flight;
    touch(entry, now);
    if (conversation.context_tokens == 0 && tokens != 0) conversation.counted_tokens = tokens;
    return {.before = before,
            .ticket = {at, entry.stay},
            .counted_tokens = conversation.counted_tokens};
  }

  void remove(std::uint32_t at) noexcept {
    table_.erase(at);  // leases of that stay now hold a void ticket
    --size_;
  }

  std::uint64_t activity_ = 0;  // first, on the line of a shard's mutex: each turn writes both
  detail::PinTable table_;
  Duration ttl_;
  std::size_t capacity_;
  std::size_t size_ = 0;
  std::uint32_t stays_ = 0;
  detail::EvictionQueue evictions_;
  Instant none_older_than_ = Instant::max();  // no pin was active before
};

static_assert(TracksTurns<LocalPins>);

}  // namespace limpet
