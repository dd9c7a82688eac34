#include "lathe/support/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace lathe {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A reference that knows nothing of the code under test: the value of every bit pattern, written
// down from the definition of the format, and the nearest one found by looking at all of them.
struct Reference {
  int exponent_bits, mantissa_bits, bias;
  bool infinity;                // all-ones exponent means infinity or NaN
  std::optional<uint32_t> nan;  // the single NaN magnitude, or (fnuz) the whole pattern
  bool fnuz = false;

  [[nodiscard]] int bits() const { return 1 + exponent_bits + mantissa_bits; }
  [[nodiscard]] uint32_t count() const { return 1U << bits(); }

  [[nodiscard]] double Value(uint32_t code) const {
    const uint32_t magnitude = code & (count() / 2 - 1);
    const uint32_t field = magnitude >> mantissa_bits;
    const uint32_t fraction = magnitude & ((1U << mantissa_bits) - 1);
    if (nan && (fnuz ? code : magnitude) == *nan) return std::nan("");
    if (infinity && field == (1U << exponent_bits) - 1) {
      if (fraction != 0) return std::nan("");
      return magnitude == code ? kInf : -kInf;
    }
    const double one = field == 0 ? 0 : 1;
    const double scale = std::pow(2.0, (field == 0 ? 1 : static_cast<int>(field)) - bias);
    const double value = (one + fraction / std::pow(2.0, mantissa_bits)) * scale;
    return magnitude == code ? value : -value;
  }
};

const Reference kHalf = {5, 10, 15, true, {}};
const Reference kBFloat = {8, 7, 127, true, {}};
const Reference kE4M3 = {4, 3, 7, false, 0x7F};
const Reference kE4M3Fnuz = {4, 3, 8, false, 0x80, true};
const Reference kE5M2 = {5, 2, 15, true, {}};
const Reference kE5M2Fnuz = {5, 2, 16, false, 0x80, true};
const Reference kE2M1 = {2, 1, 1, false, {}};

template <class T>
void CheckDecodesAndRoundTrips(const Reference& reference) {
  for (uint32_t code = 0; code < reference.count(); ++code) {
    const auto value = T::FromBits(static_cast<decltype(T::bits)>(code));
    const double expected = reference.Value(code);
    const double got = static_cast<double>(value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << code;
      ASSERT_TRUE(std::isnan(static_cast<float>(value))) << code;
      ASSERT_TRUE(std::isnan(static_cast<double>(T(got)))) << code;
      continue;
    }
    ASSERT_EQ(got, expected) << code;
    ASSERT_EQ(std::signbit(got), std::signbit(expected)) << code;
    ASSERT_EQ(static_cast<float>(value), static_cast<float>(expected)) << code;
    ASSERT_EQ(T(got).bits, code);
    ASSERT_EQ(T(static_cast<float>(got)).bits, code);
  }
}

// Between each two neighbors: just below, at and just above the middle; as double with the last
// bit of a double, as float with the last bit of a float.
template <class T>
void CheckRoundsToNearestEven(const Reference& reference) {
  for (uint32_t code = 0; code + 1 < reference.count() / 2; ++code) {
    const double low = reference.Value(code);
    const double high = reference.Value(code + 1);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    const double middle = (low + high) / 2;  // exact
    ASSERT_EQ(T(middle).bits, even) << code;
    ASSERT_EQ(T(std::nextafter(middle, 0.0)).bits, code) << code;
    ASSERT_EQ(T(std::nextafter(middle, kInf)).bits, code + 1) << code;
    const auto narrow = static_cast<float>(middle);
    if (narrow != middle) continue;
    ASSERT_EQ(T(narrow).bits, even) << code;
    ASSERT_EQ(T(std::nextafter(narrow, 0.0F)).bits, code) << code;
    ASSERT_EQ(T(std::nextafter(narrow, std::numeric_limits<float>::infinity())).bits, code + 1)
        << code;
    const bool zero = code == 0 && reference.fnuz;
    const uint32_t sign = reference.count() / 2;
    ASSERT_EQ(T(-std::nextafter(middle, 0.0)).bits, zero ? 0 : code | sign) << code;
  }
}

template <class T>
void CheckFormat(const Reference& reference) {
  CheckDecodesAndRoundTrips<T>(reference);
  CheckRoundsToNearestEven<T>(reference);
}

TEST(FloatTypesTest, Half) { CheckFormat<Half>(kHalf); }
TEST(FloatTypesTest, BFloat16) { CheckFormat<BFloat16>(kBFloat); }
TEST(FloatTypesTest, F8E4M3FN) { CheckFormat<F8E4M3FN>(kE4M3); }
TEST(FloatTypesTest, F8E4M3FNUZ) { CheckFormat<F8E4M3FNUZ>(kE4M3Fnuz); }
TEST(FloatTypesTest, F8E5M2) { CheckFormat<F8E5M2>(kE5M2); }
TEST(FloatTypesTest, F8E5M2FNUZ) { CheckFormat<F8E5M2FNUZ>(kE5M2Fnuz); }
TEST(FloatTypesTest, F4E2M1) { CheckFormat<F4E2M1>(kE2M1); }

TEST(FloatTypesTest, DoubleIsNotRoundedTwice) {
  // Just above the middle of two halves, by less than a float can tell.
  const double value = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(Half(value).bits, 0x3C01);
  EXPECT_EQ(Half(static_cast<float>(value)).bits, 0x3C00);
  EXPECT_EQ(BFloat16(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3F81);
}

TEST(FloatTypesTest, BeyondTheLargest) {
  EXPECT_EQ(Half(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0F).bits, 0x7C00);
  EXPECT_EQ(Half(-1e30F).bits, 0xFC00);
  EXPECT_EQ(Half(65519.9999).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0).bits, 0x7C00);
  EXPECT_EQ(BFloat16(3.4e38F).bits, 0x7F80);
  EXPECT_EQ(F8E4M3FN(464.0).bits, 0x7E);
  EXPECT_EQ(F8E4M3FN(465.0).bits, 0x7F);
  EXPECT_EQ(F8E4M3FN(-465.0).bits, 0xFF);
  EXPECT_EQ(F8E4M3FN(kInf).bits, 0x7F);
  EXPECT_EQ(F8E5M2(1e9).bits, 0x7C);
  EXPECT_EQ(F8E5M2FNUZ(1e9).bits, 0x80);
  EXPECT_EQ(F4E2M1(100.0).bits, 7);
  EXPECT_EQ(F4E2M1(-kInf).bits, 15);
}

TEST(FloatTypesTest, SaturatedFollowsTheOnnxTable) {
  for (const double big : {1e9, kInf}) {
    EXPECT_EQ(F8E4M3FN::Saturated(big).bits, 0x7E);
    EXPECT_EQ(F8E4M3FN::Saturated(-big).bits, 0xFE);
    EXPECT_EQ(F8E4M3FNUZ::Saturated(big).bits, 0x7F);
    EXPECT_EQ(F8E4M3FNUZ::Saturated(-big).bits, 0xFF);
    EXPECT_EQ(F8E5M2::Saturated(big).bits, 0x7B);
    EXPECT_EQ(F8E5M2::Saturated(-big).bits, 0xFB);
    EXPECT_EQ(F8E5M2FNUZ::Saturated(big).bits, 0x7F);
    EXPECT_EQ(F8E5M2FNUZ::Saturated(-big).bits, 0xFF);
    EXPECT_EQ(F8E8M0::Saturated(big).bits, big == kInf ? 254 : 127 + 30);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E4M3FN::Saturated(std::nan("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E5M2::Saturated(std::nan("")))));
  EXPECT_EQ(F8E4M3FNUZ(-0.0).bits, 0);
  EXPECT_EQ(F8E4M3FN(-0.0).bits, 0x80);
}

TEST(FloatTypesTest, PowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const auto value = F8E8M0::FromBits(static_cast<uint8_t>(code));
    ASSERT_EQ(static_cast<double>(value), std::ldexp(1.0, code - 127));
    ASSERT_EQ(static_cast<float>(value), std::ldexp(1.0F, code - 127));
    ASSERT_EQ(F8E8M0(static_cast<double>(value)).bits, code);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E8M0::FromBits(255))));
  EXPECT_EQ(F8E8M0(1.4999).bits, 127);
  EXPECT_EQ(F8E8M0(1.5).bits, 128);
  EXPECT_EQ(F8E8M0(3.0).bits, 129);
  EXPECT_EQ(F8E8M0(0.0).bits, 255);
  EXPECT_EQ(F8E8M0(-1.0).bits, 255);
  EXPECT_EQ(F8E8M0::Saturated(0.0).bits, 0);
  EXPECT_EQ(F8E8M0::Saturated(1e-300).bits, 0);
  EXPECT_EQ(F8E8M0::Saturated(1.01).bits, 128);
  EXPECT_EQ(F8E8M0::Saturated(1.99, PowerRounding::kDown).bits, 127);
  EXPECT_EQ(F8E8M0::Saturated(1.49, PowerRounding::kNearest).bits, 127);
}

TEST(FloatTypesTest, AllFloatsToBFloat16AreNearest) {
  // Every pattern of the upper half with some of the lower.
  for (uint32_t upper = 0; upper < 0x7F80; ++upper) {
    for (const uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      const bool up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1);
      ASSERT_EQ(BFloat16(value).bits, upper + (up ? 1 : 0));
      ASSERT_EQ(BFloat16(static_cast<double>(value)).bits, upper + (up ? 1 : 0));
    }
  }
}

TEST(NarrowIntTest, WrapsAndReads) {
  for (int64_t v = -40; v < 40; ++v) {
    EXPECT_EQ(static_cast<int64_t>(Int4(v)), ((v + 8) & 15) - 8);
    EXPECT_EQ(static_cast<int64_t>(UInt4(v)), v & 15);
    EXPECT_EQ(static_cast<int64_t>(Int2(v)), ((v + 2) & 3) - 2);
    EXPECT_EQ(static_cast<double>(UInt2(v)), static_cast<double>(v & 3));
    EXPECT_EQ(Int4(v).bits(), v & 15);
  }
  EXPECT_LT(Int4(-1), Int4(0));
}

}  // namespace
}  // namespace lathe
