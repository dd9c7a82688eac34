#pragma once

#include <bit>
#include <compare>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "lathe/support/element_type.h"

namespace lathe {

// Storage types for the narrow floats: one field of bits, explicit conversions, no arithmetic
// (compute in float or double). Conversion from float or double rounds once, to nearest, ties to
// even. What lies beyond the largest finite value: see the table below; `Saturated` clamps it.
//
//   type        sign exp mant bias  inf  nan             beyond max (plain)
//   Half        1    5   10   15    yes  yes             inf
//   BFloat16    1    8   7    127   yes  yes             inf
//   F8E4M3FN    1    4   3    7     no   S.1111.111      nan
//   F8E4M3FNUZ  1    4   3    8     no   1.0000.000      nan   (no -0)
//   F8E5M2      1    5   2    15    yes  yes             inf
//   F8E5M2FNUZ  1    5   2    16    no   1.00000.00      nan   (no -0)
//   F8E8M0      0    8   0    127   no   11111111        nan   (powers of two; ties go up; zero and
//                                                            negative values become nan)
//   F4E2M1      1    2   1    1     no   no              clamps; nan becomes zero of the other
//   sign,
//                                                            as in ml_dtypes
//
// `Saturated` follows the ONNX Cast table for saturate = 1: finite values and infinities beyond the
// largest finite value become that value with their sign, NaN stays NaN. For F8E8M0 the sign is
// ignored and what is too small becomes 2^-127.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_infinity;
  enum class NaN : uint8_t { kIeee, kAllOnes, kNegativeZero, kNone } nan;
};

// How a value between two powers of two becomes an F8E8M0: away from zero, towards zero, or to the
// nearest with ties away from zero (ONNX Cast's round_mode).
enum class PowerRounding : uint8_t { kUp, kDown, kNearest };

namespace internal {
// The bits in `format` nearest to `value`; exact for any double, one rounding.
uint32_t EncodeFloat(const FloatFormat& format, double value, bool saturate);
double DecodeFloat(const FloatFormat& format, uint32_t bits);
uint8_t EncodePower(double value, bool saturate, PowerRounding rounding);
uint16_t HalfFromFloat(float value);
uint16_t HalfFromDouble(double value);
float HalfToFloat(uint16_t bits);
uint16_t BFloat16FromFloat(float value);
uint16_t BFloat16FromDouble(double value);
inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// The common part of the eight-bit and smaller floats; Derived::kFormat describes the encoding.
template <class Derived>
struct SmallFloat {
  uint8_t bits = 0;

  SmallFloat() = default;
  explicit SmallFloat(float value) : SmallFloat(static_cast<double>(value)) {}
  explicit SmallFloat(double value)
      : bits(static_cast<uint8_t>(EncodeFloat(Derived::kFormat, value, false))) {}

  explicit operator float() const {
    return static_cast<float>(DecodeFloat(Derived::kFormat, bits));
  }
  explicit operator double() const { return DecodeFloat(Derived::kFormat, bits); }

  [[nodiscard]] static Derived FromBits(uint8_t bits) {
    Derived result;
    result.bits = bits;
    return result;
  }
  [[nodiscard]] static Derived Saturated(double value) {
    return FromBits(static_cast<uint8_t>(EncodeFloat(Derived::kFormat, value, true)));
  }
};
}  // namespace internal

struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) : bits(internal::HalfFromFloat(value)) {}
  explicit Half(double value) : bits(internal::HalfFromDouble(value)) {}
  explicit operator float() const { return internal::HalfToFloat(bits); }
  explicit operator double() const { return internal::HalfToFloat(bits); }
  [[nodiscard]] static Half FromBits(uint16_t bits) {
    Half result;
    result.bits = bits;
    return result;
  }
};

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(internal::BFloat16FromFloat(value)) {}
  explicit BFloat16(double value) : bits(internal::BFloat16FromDouble(value)) {}
  explicit operator float() const { return internal::BFloat16ToFloat(bits); }
  explicit operator double() const { return internal::BFloat16ToFloat(bits); }
  [[nodiscard]] static BFloat16 FromBits(uint16_t bits) {
    BFloat16 result;
    result.bits = bits;
    return result;
  }
};

struct F8E4M3FN : internal::SmallFloat<F8E4M3FN> {
  using SmallFloat::SmallFloat;
  static constexpr FloatFormat kFormat{4, 3, 7, false, FloatFormat::NaN::kAllOnes};
};
struct F8E4M3FNUZ : internal::SmallFloat<F8E4M3FNUZ> {
  using SmallFloat::SmallFloat;
  static constexpr FloatFormat kFormat{4, 3, 8, false, FloatFormat::NaN::kNegativeZero};
};
struct F8E5M2 : internal::SmallFloat<F8E5M2> {
  using SmallFloat::SmallFloat;
  static constexpr FloatFormat kFormat{5, 2, 15, true, FloatFormat::NaN::kIeee};
};
struct F8E5M2FNUZ : internal::SmallFloat<F8E5M2FNUZ> {
  using SmallFloat::SmallFloat;
  static constexpr FloatFormat kFormat{5, 2, 16, false, FloatFormat::NaN::kNegativeZero};
};
struct F8E8M0 : internal::SmallFloat<F8E8M0> {
  static constexpr FloatFormat kFormat{8, 0, 127, false, FloatFormat::NaN::kAllOnes};

  F8E8M0() = default;
  explicit F8E8M0(float value) : F8E8M0(static_cast<double>(value)) {}
  explicit F8E8M0(double value) {
    bits = internal::EncodePower(value, false, PowerRounding::kNearest);
  }
  [[nodiscard]] static F8E8M0 Saturated(double value, PowerRounding rounding = PowerRounding::kUp) {
    return FromBits(internal::EncodePower(value, true, rounding));
  }
};
struct F4E2M1 : internal::SmallFloat<F4E2M1> {
  using SmallFloat::SmallFloat;
  static constexpr FloatFormat kFormat{2, 1, 1, false, FloatFormat::NaN::kNone};
};

// One unpacked sub-byte integer. Construction keeps the low bits (wraps), reading sign-extends.
template <int kBits, bool kIsSigned>
struct NarrowInt {
  static constexpr int64_t kMin = kIsSigned ? -(int64_t{1} << (kBits - 1)) : 0;
  static constexpr int64_t kMax =
      kIsSigned ? (int64_t{1} << (kBits - 1)) - 1 : (int64_t{1} << kBits) - 1;

  int8_t value = 0;

  NarrowInt() = default;
  explicit constexpr NarrowInt(int64_t v) : value(Wrap(v)) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  explicit constexpr operator T() const {
    return static_cast<T>(value);
  }
  friend constexpr auto operator<=>(const NarrowInt&, const NarrowInt&) = default;

  // The low kBits bits, for packing.
  [[nodiscard]] constexpr uint8_t bits() const {
    return static_cast<uint8_t>(static_cast<uint8_t>(value) & ((1U << kBits) - 1));
  }

 private:
  static constexpr int8_t Wrap(int64_t v) {
    const auto low = static_cast<uint64_t>(v) & ((uint64_t{1} << kBits) - 1);
    const bool negative = kIsSigned && (low >> (kBits - 1)) != 0;
    return static_cast<int8_t>(static_cast<int64_t>(low) - (negative ? int64_t{1} << kBits : 0));
  }
};

using Int4 = NarrowInt<4, true>;
using UInt4 = NarrowInt<4, false>;
using Int2 = NarrowInt<2, true>;
using UInt2 = NarrowInt<2, false>;

template <>
inline constexpr ElementType ElementTypeOf<Half> = ElementType::kF16;
template <>
inline constexpr ElementType ElementTypeOf<BFloat16> = ElementType::kBF16;
template <>
inline constexpr ElementType ElementTypeOf<F8E4M3FN> = ElementType::kF8E4M3FN;
template <>
inline constexpr ElementType ElementTypeOf<F8E4M3FNUZ> = ElementType::kF8E4M3FNUZ;
template <>
inline constexpr ElementType ElementTypeOf<F8E5M2> = ElementType::kF8E5M2;
template <>
inline constexpr ElementType ElementTypeOf<F8E5M2FNUZ> = ElementType::kF8E5M2FNUZ;
template <>
inline constexpr ElementType ElementTypeOf<F8E8M0> = ElementType::kF8E8M0;
template <>
inline constexpr ElementType ElementTypeOf<F4E2M1> = ElementType::kF4E2M1;
template <>
inline constexpr ElementType ElementTypeOf<Int4> = ElementType::kI4;
template <>
inline constexpr ElementType ElementTypeOf<UInt4> = ElementType::kU4;
template <>
inline constexpr ElementType ElementTypeOf<Int2> = ElementType::kI2;
template <>
inline constexpr ElementType ElementTypeOf<UInt2> = ElementType::kU2;
template <>
inline constexpr ElementType ElementTypeOf<std::complex<float>> = ElementType::kC64;
template <>
inline constexpr ElementType ElementTypeOf<std::complex<double>> = ElementType::kC128;

static_assert(sizeof(Half) == 2 && sizeof(F8E4M3FN) == 1 && sizeof(F4E2M1) == 1);
static_assert(sizeof(Int4) == 1);

}  // namespace lathe
