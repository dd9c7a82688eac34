#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lathe/support/tensor.h"

namespace lathe {

// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): the n-th
// number is a function of (seed, stream, n), so any part can be computed anywhere in any order.
[[nodiscard]] std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key);

// A sequence of numbers from Philox. Same seed and stream, same numbers, on every machine.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  [[nodiscard]] uint32_t NextU32();
  [[nodiscard]] uint64_t NextU64();
  // Uniform in [0, 1), 53 random bits; uniform in [low, high).
  [[nodiscard]] double NextDouble();
  [[nodiscard]] double Uniform(double low, double high);
  // Uniform in [low, high], without bias. Precondition: low <= high.
  [[nodiscard]] int64_t Int(int64_t low, int64_t high);
  // Mean 0, deviation 1 (Box-Muller).
  [[nodiscard]] double Normal();
  // Moves on by `count` 32-bit numbers in constant time.
  void Skip(uint64_t count) { index_ += count; }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t index_ = 0;
  uint64_t cached_block_ = ~uint64_t{0};
  std::array<uint32_t, 4> block_{};
};

// The seed of a random operation: of the one that it gives itself, or of the run's and of how many
// operations have drawn before it.
[[nodiscard]] uint64_t SeedOfDraw(std::optional<double> given, uint64_t seed, uint64_t draw);

// A tensor of any type for trying things out: floats uniform in [-1, 1), f8e8m0 near 1, integers in
// [0, 10), bools even, strings "s0".."s9", complex by parts.
[[nodiscard]] Tensor RandomTensor(ElementType type, Shape shape, uint64_t seed,
                                  uint64_t stream = 0);

}  // namespace lathe
