#include "lathe/support/hash.h"

namespace lathe {

uint64_t HashBytes(const void* data, size_t size, uint64_t seed) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = HashCombine(seed, size);
  while (size >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof(word));
    hash = HashCombine(hash, word);
    bytes += sizeof(word);
    size -= sizeof(word);
  }
  if (size > 0) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, size);
    hash = HashCombine(hash, word);
  }
  return hash;
}

}  // namespace lathe
