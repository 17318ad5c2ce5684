// SPDX-License-Identifier: Apache-2.0
#include <limpet/hash.hpp>

#include "catch.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using limpet::KeyHash;
using limpet::KeyHasher;
using limpet::KeySecret;

// As `openssl mac` prints a tag: the 16 bytes of two little-endian words.
std::string hex(KeyHash hash) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string text;
  for (const std::uint64_t word : {hash.hi, hash.lo}) {
    for (int shift = 0; shift < 64; shift += 8) {
      const auto byte = static_cast<unsigned>(word >> shift) & 0xFF;
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
  }
  return text;
}

// Bytes 00 01 02 ... as many as asked for.
std::string counting(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}

// The key 000102030405060708090a0b0c0d0e0f of the SipHash paper's vectors.
constexpr KeySecret paper_key{0x0706050403020100, 0x0f0e0d0c0b0a0908};

}  // namespace

TEST_CASE("a key hashes as SipHash-1-3 with 128 bits of output") {
  // Each from OpenSSL 3.0, FILE holding the bytes:
  //   openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16
  //     -macopt c-rounds:1 -macopt d-rounds:3 -in FILE SIPHASH
  const KeyHasher hash(paper_key);
  CHECK(hex(hash("")) == "E77EBCB22788A5BEFD62DB6ADD303001");
  CHECK(hex(hash("a")) == "083C37DE637C4FA8492FD75D37AE8A67");
  CHECK(hex(hash("conversation")) == "643C447A2B70CF1D017E7C67EA756A88");
  CHECK(hex(hash("12345678")) == "152A4D125E549475FD99DB767A627829");
  CHECK(hex(hash("123456789abcdef")) == "71C1C700800E5B6DB8E6B46C6896CAAB");
  CHECK(hex(hash(counting(7))) == "1084B923F2AAE0C3A62F2EC80848AB77");
  CHECK(hex(hash(counting(8))) == "AA12FEE1D5E3DAB4724F16AB35F9C799");
  CHECK(hex(hash(counting(16))) == "D0A8D95715518EEBB513B0F83D9E1793");
  CHECK(hex(hash(counting(63))) == "4C5800E34EFE426F079F6B0AA75260AD");
  CHECK(hex(hash(counting(64))) == "1253DEF24B4AA5364EC8A759BA6A66C2");
  CHECK(hex(hash(counting(256))) == "F56C8B243A0C025A6A687AA2B99C707A");
  CHECK(hex(hash(counting(1000))) == "E782FAFF9D1D1648254286A620D3F3FA");

  // The same with hexkey:00000000000000000000000000000000.
  CHECK(hex(KeyHasher{}("conversation")) == "CF72E67041CC8FBE2B967D8896A5119D");
}

TEST_CASE("another secret gives another hash, the same secret the same") {
  const KeyHasher one(KeySecret{1, 2});
  CHECK(one("conversation") == KeyHasher(KeySecret{1, 2})("conversation"));
  CHECK(one("conversation") != KeyHasher(KeySecret{1, 3})("conversation"));
  CHECK(one("conversation") != KeyHasher(KeySecret{2, 2})("conversation"));
  CHECK(one.secret() == KeySecret{1, 2});
}

TEST_CASE("a key of three parts hashes their lengths and words, closed by a 1") {
  // From an implementation in Python: SipHash-1-3 over the words (size, bytes padded with zeros to
  // whole words) of each part, then the word 1.
  const KeyHasher hash(paper_key);
  CHECK(hex(hash("team-a", "session-1", "")) == "B408DCAFABB338E6AE3F063CE5663F9C");
  CHECK(hex(hash("", "", "")) == "4F557398699B9BAE11B7BCE990997EBB");
  CHECK(hex(hash("tenant-8", "0123456789abcdef", "agent")) == "43706775C3867B996190F46212462D3D");
}

TEST_CASE("no key of three parts imitates another one, or a single text") {
  const KeyHasher hash;
  // Texts whose borders, zeros and lengths are easy to confuse.
  const std::vector<std::string> parts = {"",
                                          "a",
                                          "ab",
                                          "b",
                                          "/",
                                          "a/",
                                          std::string(1, '\0'),
                                          std::string(7, '\0'),
                                          std::string(8, '\0'),
                                          std::string(9, '\0'),
                                          std::string("\1\0\0\0\0\0\0\0", 8),
                                          std::string("a\0\0\0\0\0\0\0", 8),
                                          std::string("\10\0\0\0\0\0\0\0", 8)};
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  std::size_t keys = 0;
  const auto add = [&](KeyHash key) {
    seen.insert({key.hi, key.lo});
    ++keys;
  };
  std::set<std::string> texts;
  for (const std::string& tenant : parts) {
    for (const std::string& session : parts) {
      for (const std::string& agent : parts) {
        add(hash(tenant, session, agent));
        texts.insert(tenant + session + agent);
      }
    }
  }
  for (const std::string& text : texts) add(hash(text));
  CHECK(seen.size() == keys);
}

TEST_CASE("a hash reads each byte once and none beyond the key") {
  // The same bytes at every alignment and with other neighbours.
  const KeyHasher hash(paper_key);
  const std::string bytes = counting(64);
  for (std::size_t size = 0; size <= 40; ++size) {
    for (std::size_t offset = 1; offset <= 8; ++offset) {
      std::string around(64, '\xee');
      around.replace(offset, size, bytes, 0, size);
      CAPTURE(size, offset);
      CHECK(hash(std::string_view(around).substr(offset, size)) ==
            hash(std::string_view(bytes).substr(0, size)));
    }
  }
}

TEST_CASE("rendezvous weights are splitmix64's mix of key and replica") {
  // Worked out in Python. The second is also the published first output of splitmix64 from state 0.
  CHECK(limpet::rendezvous_weight({1, 2}, 3) == 0x86fe60c5083a5582);
  CHECK(limpet::rendezvous_weight({0x9e3779b97f4a7c15, 0}, 0) == 0xe220a8397b1dcdaf);
  CHECK(limpet::rendezvous_weight({0x0123456789abcdef, 0xfedcba9876543210}, 0xdeadbeef) ==
        0x67e5654ba0ef3bd8);
}
