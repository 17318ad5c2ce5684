// SPDX-License-Identifier: Apache-2.0
//
// A conversation's key, hashed once: SipHash-1-3 with 128 bits of output.
//
// Keyed, because session ids come from strangers: who does not know the secret cannot craft two
// keys that collide, or thousands that crowd one shard. One compression and three finishing rounds
// are what Rust's standard map uses against the same attack. Two routers with the same secret hash
// alike, on any machine. Cost: about 1 ns a byte plus 15. Stateless.
// Algorithm: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), with the reference
// code's 128-bit variant.
#pragma once

#include <limpet/types.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace limpet {

// 128 secret bits. All zero, the default, makes decisions reproducible and collisions craftable:
// set it to random bytes, the same in every process that should agree, where keys come from clients
// that you do not trust.
struct KeySecret {
  std::uint64_t k0 = 0;
  std::uint64_t k1 = 0;

  [[nodiscard]] friend constexpr bool operator==(KeySecret, KeySecret) noexcept = default;
};

namespace detail {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  constexpr void round() noexcept {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }

  constexpr void absorb(std::uint64_t word) noexcept {
    v3 ^= word;
    round();
    v0 ^= word;
  }

  [[nodiscard]] constexpr KeyHash finish() noexcept {
    v2 ^= 0xee;
    for (int i = 0; i < 3; ++i) round();
    const std::uint64_t first = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    for (int i = 0; i < 3; ++i) round();
    return {.hi = first, .lo = v0 ^ v1 ^ v2 ^ v3};
  }
};

// SipHash reads little-endian words, so that machines of either order agree.
[[nodiscard]] inline std::uint64_t load_le64(const char* bytes) noexcept {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  if constexpr (std::endian::native == std::endian::big) {
    word = __builtin_bswap64(word);
  }
  return word;
}

// The last bytes that fill no whole word, as the low bytes of one.
[[nodiscard]] inline std::uint64_t load_tail(std::string_view bytes) noexcept {
  const std::size_t count = bytes.size() & 7;
  if (count == 0) return 0;
  if (bytes.size() >= 8) return load_le64(bytes.data() + bytes.size() - 8) >> (64 - 8 * count);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) {
    word |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return word;
}

}  // namespace detail

// The hash of a key, and of keys made of several parts.
class KeyHasher {
 public:
  constexpr explicit KeyHasher(KeySecret secret = {}) noexcept : secret_(secret) {}

  [[nodiscard]] KeyHash operator()(std::string_view key) const noexcept {
    detail::SipState sip = start();
    absorb_whole_words(sip, key);
    sip.absorb(detail::load_tail(key) | std::uint64_t{key.size()} << 56);
    return sip.finish();
  }

  // The key of (tenant, session, agent). Each part is preceded by its length, so no text in one can
  // imitate another; the closing 1 is a word that no single text ends with, since a text's last
  // word is 0 below its length when that is 0.
  [[nodiscard]] KeyHash operator()(std::string_view tenant, std::string_view session,
                                   std::string_view agent) const noexcept {
    detail::SipState sip = start();
    for (const std::string_view part : {tenant, session, agent}) {
      sip.absorb(part.size());
      absorb_whole_words(sip, part);
      if ((part.size() & 7) != 0) sip.absorb(detail::load_tail(part));
    }
    sip.absorb(1);
    return sip.finish();
  }

  [[nodiscard]] constexpr KeySecret secret() const noexcept { return secret_; }

 private:
  [[nodiscard]] constexpr detail::SipState start() const noexcept {
    return {secret_.k0 ^ 0x736f6d6570736575ULL, secret_.k1 ^ 0x646f72616e646f6dULL ^ 0xeeULL,
            secret_.k0 ^ 0x6c7967656e657261ULL, secret_.k1 ^ 0x7465646279746573ULL};
  }

  static void absorb_whole_words(detail::SipState& sip, std::string_view bytes) noexcept {
    const std::size_t whole = bytes.size() & ~std::size_t{7};
    for (std::size_t i = 0; i < whole; i += 8) sip.absorb(detail::load_le64(bytes.data() + i));
  }

  KeySecret secret_;
};

// Mixes a conversation with a replica: the highest of these over the replicas is rendezvous
// hashing's choice, the same for every router. Source of the mixer: splitmix64 (Steele, Lea and
// Flood, 2014).
[[nodiscard]] constexpr std::uint64_t rendezvous_weight(KeyHash key,
                                                        std::uint64_t replica_name_hash) noexcept {
  std::uint64_t x = key.hi ^ std::rotl(key.lo, 32) ^ replica_name_hash;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace limpet
