#include "lathe/support/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"

namespace lathe {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kMultiplier0 * counter[0];
    const uint64_t b = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint32_t RandomStream::NextU32() {
  const uint64_t block = index_ / 4;
  if (block != cached_block_) {
    block_ = Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                    {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    cached_block_ = block;
  }
  return block_[index_++ % 4];
}

uint64_t RandomStream::NextU64() {
  const uint64_t low = NextU32();
  return low | (static_cast<uint64_t>(NextU32()) << 32);
}

double RandomStream::NextDouble() { return static_cast<double>(NextU64() >> 11) * 0x1p-53; }

double RandomStream::Uniform(double low, double high) {
  const double value = low + (high - low) * NextDouble();
  return value < high || low == high ? value : std::nextafter(high, low);
}

int64_t RandomStream::Int(int64_t low, int64_t high) {
  LATHE_CHECK(low <= high);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  if (span == 0) return static_cast<int64_t>(NextU64());
  const uint64_t skip = (0 - span) % span;  // the numbers below this would come too often
  uint64_t value = NextU64();
  while (value < skip) value = NextU64();
  return static_cast<int64_t>(static_cast<uint64_t>(low) + value % span);
}

double RandomStream::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - NextDouble()));
  return radius * std::cos(2 * std::numbers::pi * NextDouble());
}

uint64_t SeedOfDraw(std::optional<double> given, uint64_t seed, uint64_t draw) {
  return given ? HashMix(std::bit_cast<uint64_t>(*given)) : HashCombine(seed, draw);
}

namespace {

template <class T>
inline constexpr bool kIsFloatType = !std::is_integral_v<T> && std::is_constructible_v<T, double> &&
                                     (std::is_floating_point_v<T> || requires(T x) { x.bits; });

template <class T>
T RandomElement(RandomStream& random) {
  if constexpr (std::is_same_v<T, std::string>) {
    return StrCat("s", random.Int(0, 9));
  } else if constexpr (std::is_same_v<T, bool>) {
    return random.Int(0, 1) != 0;
  } else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>) {
    using Part = typename T::value_type;
    const auto real = static_cast<Part>(random.Uniform(-1, 1));
    return {real, static_cast<Part>(random.Uniform(-1, 1))};
  } else if constexpr (std::is_same_v<T, F8E8M0>) {
    return T(random.Uniform(0.25, 4));
  } else if constexpr (kIsFloatType<T>) {
    return T(random.Uniform(-1, 1));
  } else {
    return static_cast<T>(random.Int(0, 9));
  }
}

}  // namespace

Tensor RandomTensor(ElementType type, Shape shape, uint64_t seed, uint64_t stream) {
  RandomStream random(seed, stream);
  Tensor result = VisitElementType(type, [&]<class T>(std::type_identity<T>) {
    const auto count = static_cast<size_t>(NumElements(shape));
    const auto values = std::make_unique<T[]>(count);
    for (size_t i = 0; i < count; ++i) values[i] = RandomElement<T>(random);
    return Tensor::Of<T>(shape, std::span<const T>(values.get(), count));
  });
  return type == ElementType::kIndex ? result.Reinterpreted(type) : result;
}

}  // namespace lathe
