#include "lathe/support/float_types.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe::internal {
namespace {

uint32_t SignBit(const FloatFormat& f) { return 1U << (f.exponent_bits + f.mantissa_bits); }

uint32_t InfinityBits(const FloatFormat& f) {
  return ((1U << f.exponent_bits) - 1) << f.mantissa_bits;
}

uint32_t LargestFinite(const FloatFormat& f) {
  switch (f.nan) {
    case FloatFormat::NaN::kIeee:
      return InfinityBits(f) - 1;
    case FloatFormat::NaN::kAllOnes:
      return SignBit(f) - 2;
    default:
      return SignBit(f) - 1;
  }
}

uint32_t NanBits(const FloatFormat& f, bool negative) {
  const uint32_t sign = negative ? SignBit(f) : 0;
  switch (f.nan) {
    case FloatFormat::NaN::kIeee:  // quiet, no payload
      return sign | InfinityBits(f) | (1U << (f.mantissa_bits - 1));
    case FloatFormat::NaN::kAllOnes:
      return sign | (SignBit(f) - 1);
    case FloatFormat::NaN::kNegativeZero:
      return SignBit(f);
    case FloatFormat::NaN::kNone:
      return sign ^ SignBit(f);
  }
  return 0;
}

// Bits of the finite magnitude rounded to nearest even, as if the exponent had no upper limit.
// A subnormal is its quantum count; adding the mantissa count to the exponent field below it makes
// a carry move into the exponent by itself.
uint64_t RoundMagnitude(const FloatFormat& f, double magnitude) {
  if (magnitude == 0) return 0;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int scale = std::max(exponent - 1, 1 - f.bias);
  const double quanta = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - scale));
  const auto field = static_cast<uint64_t>(scale + f.bias - 1);
  return (field << f.mantissa_bits) + static_cast<uint64_t>(quanta);
}

bool IsNanBits(const FloatFormat& f, uint32_t bits) {
  const uint32_t magnitude = bits & (SignBit(f) - 1);
  switch (f.nan) {
    case FloatFormat::NaN::kIeee:
      return magnitude > InfinityBits(f);
    case FloatFormat::NaN::kAllOnes:
      return magnitude == SignBit(f) - 1;
    case FloatFormat::NaN::kNegativeZero:
      return bits == SignBit(f);
    case FloatFormat::NaN::kNone:
      return false;
  }
  return false;
}

// The float next to `value` whose last bit is 1, unless one is equal: a later rounding to a type at
// least two bits narrower then decides as it would on `value` itself.
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

}  // namespace

uint32_t EncodeFloat(const FloatFormat& format, double value, bool saturate) {
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return NanBits(format, negative);
  const uint32_t sign = negative ? SignBit(format) : 0;
  const uint32_t largest = LargestFinite(format);
  const uint64_t rounded =
      std::isinf(value) ? uint64_t{largest} + 1 : RoundMagnitude(format, std::fabs(value));
  if (rounded > largest) {
    if (saturate || format.nan == FloatFormat::NaN::kNone) return sign | largest;
    return format.has_infinity ? sign | InfinityBits(format) : NanBits(format, negative);
  }
  const bool no_negative_zero = format.nan == FloatFormat::NaN::kNegativeZero;
  if (rounded == 0 && no_negative_zero) return 0;
  return sign | static_cast<uint32_t>(rounded);
}

double DecodeFloat(const FloatFormat& format, uint32_t bits) {
  if (format.mantissa_bits == 0) {  // a power of two, without a sign
    return bits == 255 ? std::numeric_limits<double>::quiet_NaN()
                       : std::ldexp(1.0, static_cast<int>(bits) - format.bias);
  }
  const bool negative = (bits & SignBit(format)) != 0;
  const double sign = negative ? -1.0 : 1.0;
  if (IsNanBits(format, bits)) {
    return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  }
  const uint32_t magnitude = bits & (SignBit(format) - 1);
  if (format.has_infinity && magnitude == InfinityBits(format)) {
    return sign * std::numeric_limits<double>::infinity();
  }
  const auto field = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t fraction = magnitude & ((1U << format.mantissa_bits) - 1);
  const uint32_t hidden = field == 0 ? 0 : 1U << format.mantissa_bits;
  const int scale = std::max(field, 1) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(hidden + fraction), scale);
}

uint8_t EncodePower(double value, bool saturate, PowerRounding rounding) {
  constexpr uint8_t kNan = 255;
  constexpr int kBias = 127;
  if (std::isnan(value) || (!saturate && (std::signbit(value) || value == 0))) return kNan;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return 0;
  if (std::isinf(value)) return saturate ? 254 : kNan;
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  int power = exponent - 1;
  const bool up = rounding == PowerRounding::kUp        ? fraction > 0.5
                  : rounding == PowerRounding::kNearest ? fraction >= 0.75
                                                        : false;
  if (up) ++power;
  if (power > kBias) return saturate ? 254 : kNan;
  return static_cast<uint8_t>(std::max(power + kBias, 0));
}

uint16_t HalfFromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // 65520 and above
  if (magnitude < 0x38800000) {                       // below the smallest normal, 2^-14
    // Adding 0.5 leaves the subnormal's quanta in the low bits, rounded to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude + 0xFFF + odd - 0x38000000) >> 13));
}

uint16_t HalfFromDouble(double value) { return HalfFromFloat(RoundToOdd(value)); }

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (magnitude << 13));
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

uint16_t BFloat16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x0040);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

uint16_t BFloat16FromDouble(double value) { return BFloat16FromFloat(RoundToOdd(value)); }

}  // namespace lathe::internal
