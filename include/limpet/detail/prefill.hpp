// SPDX-License-Identifier: Apache-2.0
//
// How much of a turn's prompt a replica presumably has to read: all of it but the prefix that the
// pool shares and, where its history is, what that replica still caches of it.
//
// Only for policies that ask by `static constexpr bool needs_prefill = true`: a router of others
// counts none of it and is the same code as without. Thread-safe, allocates nothing; may take the
// lock of one row.
#pragma once

#include <limpet/concepts.hpp>
#include <limpet/fleet.hpp>
#include <limpet/types.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace limpet::detail {

// Whether a scorer or rule looks at pending_prefill_tokens or uncached tokens.
template <class Policy>
concept NeedsPrefill = requires { requires Policy::needs_prefill; };

// A turn's prompt, all without the shared prefix.
struct Prompt {
  std::uint32_t tokens = 0;  // of the turn; 0: it did not say
  std::uint32_t mean = 0;    // of the pool's conversations
  std::uint64_t shared = 0;  // the prefix itself
};

// The conversation that a prompt continues: its parent's, where a hint is taken from that, else its
// own as it is pinned; null: none.
[[nodiscard]] inline const Conversation* history_of(
    const std::optional<Conversation>& parent, const std::optional<Conversation>& pinned) noexcept {
  return parent ? &*parent : pinned ? &*pinned : nullptr;
}

class Uncached {
 public:
  Uncached() noexcept = default;

  // `history`: the conversation that the prompt continues, or null.
  Uncached(const Fleet& fleet, const Prompt& prompt, const Conversation* history,
           Instant now) noexcept
      : elsewhere_(prompt.tokens != 0                                   ? prompt.tokens
                   : history != nullptr && history->counted_tokens != 0 ? history->counted_tokens
                                                                        : prompt.mean) {
    if (history == nullptr || !fleet.still_caches(*history, prompt.shared, now)) return;
    home_ = history->home.replica;
    // A context that nobody has told is the whole prompt.
    if (history->counted_tokens != 0)
      at_home_ = elsewhere_ - std::min(elsewhere_, history->counted_tokens);
  }

  [[nodiscard]] std::uint32_t at(ReplicaId replica) const noexcept {
    return replica == home_ ? at_home_ : elsewhere_;
  }
  [[nodiscard]] std::uint32_t elsewhere() const noexcept { return elsewhere_; }

 private:
  std::uint32_t elsewhere_ = 0;
  std::uint32_t at_home_ = 0;
  ReplicaId home_{};  // none: nobody caches more than the shared prefix
};

}  // namespace limpet::detail
