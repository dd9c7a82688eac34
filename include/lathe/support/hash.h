#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace lathe {

// Hashes that depend on the values alone: the same in every run and on every machine of the same
// byte order. Never feed them an address.

// A bijection of 64 bits that spreads every bit (the finalizer of splitmix64).
[[nodiscard]] constexpr uint64_t HashMix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Order matters: HashCombine(HashCombine(s, a), b) differs from the other way round.
[[nodiscard]] constexpr uint64_t HashCombine(uint64_t seed, uint64_t value) {
  return HashMix(seed * 0x9e3779b97f4a7c15U + value + 0x632be59bd9b4e019U);
}

[[nodiscard]] uint64_t HashBytes(const void* data, size_t size, uint64_t seed = 0);
[[nodiscard]] inline uint64_t HashString(std::string_view text, uint64_t seed = 0) {
  return HashBytes(text.data(), text.size(), seed);
}

}  // namespace lathe
