#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/tensor.h"

namespace lathe {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class To, class From>
std::vector<To> CastValues(std::initializer_list<From> values) {
  const Tensor in = Tensor::Of<From>({static_cast<int64_t>(values.size())}, values);
  return Unpack<To>(Cast(in, ElementTypeOf<To>));
}

template <class From>
std::vector<std::string> Texts(std::initializer_list<From> values) {
  return CastValues<std::string, From>(values);
}

TEST(CastTest, EveryPairKeepsSmallIntegers) {
  // 0 and 1 exist in all types but f8e8m0, which lacks 0.
  for (const ElementType from : AllElementTypes()) {
    for (const ElementType to : AllElementTypes()) {
      if (from == ElementType::kF8E8M0 || to == ElementType::kF8E8M0) continue;
      // Text keeps the form of the type it came from, so it is no place to come back to.
      if (from == ElementType::kString) continue;
      const Tensor start = Cast(Tensor::Of<int32_t>({3}, {1, 0, 1}), from);
      const Tensor there = Cast(start, to);
      EXPECT_EQ(there.element_type(), to);
      EXPECT_EQ(Cast(there, from), start) << Name(from) << " to " << Name(to);
    }
  }
}

TEST(CastTest, FloatToIntegerTruncates) {
  EXPECT_EQ((CastValues<int8_t, float>({1.9F, -1.9F, 127, -128, -0.5F})),
            (std::vector<int8_t>{1, -1, 127, -128, 0}));
  EXPECT_EQ((CastValues<uint64_t, double>({0x1p63, 1.8e19, 3.7})),
            (std::vector<uint64_t>{uint64_t{1} << 63, 18000000000000000000U, 3}));
  EXPECT_EQ((CastValues<int64_t, double>({-0x1p63, 9007199254740993.0})),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 9007199254740992}));
}

TEST(CastTest, OutOfRangeFloatsAsNumpyOnX86) {
  const double nan = std::nan("");
  EXPECT_EQ((CastValues<int8_t, double>({nan, kInf, -kInf, 300.7, -300.7, 3e9})),
            (std::vector<int8_t>{0, 0, 0, 44, -44, 0}));
  EXPECT_EQ((CastValues<uint8_t, double>({300.7, -300.7, -1})),
            (std::vector<uint8_t>{44, 212, 255}));
  const int32_t min32 = std::numeric_limits<int32_t>::min();
  EXPECT_EQ((CastValues<int32_t, double>({nan, kInf, -kInf, 3e9, -2147483648.5, -2147483649.0})),
            (std::vector<int32_t>{min32, min32, min32, min32, min32, min32}));
  EXPECT_EQ((CastValues<int32_t, double>({2147483647.9, -2147483648.9})),
            (std::vector<int32_t>{2147483647, min32}));
  const int64_t min64 = std::numeric_limits<int64_t>::min();
  EXPECT_EQ((CastValues<int64_t, double>({nan, kInf, -kInf, 1e19})),
            (std::vector<int64_t>{min64, min64, min64, min64}));
  EXPECT_EQ((CastValues<uint32_t, double>({3e9, -300.7, 5e9})),
            (std::vector<uint32_t>{3000000000, 4294966996, 705032704}));
  EXPECT_EQ((CastValues<Int4, double>({7.9, 8.2, -8.9, -9, nan})),
            (std::vector<Int4>{Int4(7), Int4(-8), Int4(-8), Int4(7), Int4(0)}));
}

TEST(CastTest, IntegersKeepTheLowBits) {
  EXPECT_EQ((CastValues<int8_t, int16_t>({200, -200, 128})), (std::vector<int8_t>{-56, 56, -128}));
  EXPECT_EQ((CastValues<uint64_t, int8_t>({-1})), (std::vector<uint64_t>{~uint64_t{0}}));
  EXPECT_EQ((CastValues<int64_t, uint64_t>({~uint64_t{0}})), (std::vector<int64_t>{-1}));
  EXPECT_EQ((CastValues<Int4, int32_t>({300, -1, 9})),
            (std::vector<Int4>{Int4(-4), Int4(-1), Int4(-7)}));
  EXPECT_EQ((CastValues<UInt2, int32_t>({7, -1})), (std::vector<UInt2>{UInt2(3), UInt2(3)}));
}

TEST(CastTest, Booleans) {
  const Tensor t = Cast(Tensor::Of<float>({5}, {0, -0.0F, 0.1F, NAN, -3}), ElementType::kBool);
  EXPECT_EQ(ToInt64s(t), (std::vector<int64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(ToDoubles(Cast(t, ElementType::kF16)), (std::vector<double>{0, 0, 1, 1, 1}));
}

TEST(CastTest, LargeIntegersRoundOnce) {
  // 2^63 + 2^52 + 1 lies just above the middle of two halves of a bf16's spacing when the spacing
  // is 2^56: by way of double the last bit would be lost.
  const uint64_t value = (uint64_t{1} << 63) + (uint64_t{1} << 55) + 1;
  const Tensor t = Cast(Tensor::Scalar<uint64_t>(value), ElementType::kBF16);
  EXPECT_EQ(ToDoubles(t)[0], 0x1p63 + 0x1p56);
  const uint64_t tie = (uint64_t{1} << 63) + (uint64_t{1} << 55);
  EXPECT_EQ(ToDoubles(Cast(Tensor::Scalar<uint64_t>(tie), ElementType::kBF16))[0], 0x1p63);
  EXPECT_EQ(ToDoubles(Cast(Tensor::Scalar<uint64_t>(tie - 1), ElementType::kBF16))[0], 0x1p63);
  const int64_t negative = -(int64_t{1} << 62) - (int64_t{1} << 54) - 1;
  EXPECT_EQ(ToDoubles(Cast(Tensor::Scalar<int64_t>(negative), ElementType::kBF16))[0],
            -0x1p62 - 0x1p55);
  EXPECT_TRUE(std::isinf(ToDoubles(Cast(Tensor::Scalar<int32_t>(70000), ElementType::kF16))[0]));
}

TEST(CastTest, SaturationIsOnlyForNarrowFloats) {
  const Tensor big = Tensor::Of<float>({2}, {1e6F, -1e6F});
  EXPECT_EQ(ToDoubles(Cast(big, ElementType::kF8E4M3FN)), (std::vector<double>{448, -448}));
  EXPECT_TRUE(std::isnan(ToDoubles(Cast(big, ElementType::kF8E4M3FN, false))[0]));
  EXPECT_EQ(ToDoubles(Cast(big, ElementType::kF8E5M2, false)), (std::vector<double>{kInf, -kInf}));
  EXPECT_EQ(ToDoubles(Cast(big, ElementType::kF16)), (std::vector<double>{kInf, -kInf}));
  EXPECT_EQ(ToDoubles(Cast(big, ElementType::kF4E2M1, false)), (std::vector<double>{6, -6}));
  const Tensor half = Cast(big, ElementType::kF16);
  EXPECT_EQ(ToDoubles(Cast(half, ElementType::kF8E5M2)), (std::vector<double>{57344, -57344}));
}

TEST(CastTest, PowersOfTwoRoundAsAsked) {
  const Tensor t = Tensor::Of<float>({3}, {1.1F, 1.5F, 0});
  const auto with = [&](PowerRounding rounding) {
    return ToDoubles(
        Cast(t, ElementType::kF8E8M0, {.saturate = true, .f8e8m0_rounding = rounding}));
  };
  EXPECT_EQ(with(PowerRounding::kUp), (std::vector<double>{2, 2, 0x1p-127}));
  EXPECT_EQ(with(PowerRounding::kDown), (std::vector<double>{1, 1, 0x1p-127}));
  EXPECT_EQ(with(PowerRounding::kNearest), (std::vector<double>{1, 2, 0x1p-127}));
}

TEST(CastTest, ToString) {
  EXPECT_EQ(Texts<double>({1, 0.1, 1e-5, 1e16, 123456789, -0.0, kInf, -kInf, std::nan(""), 1e-4}),
            (std::vector<std::string>{"1.0", "0.1", "1e-05", "1e+16", "123456789.0", "-0.0", "inf",
                                      "-inf", "nan", "0.0001"}));
  EXPECT_EQ(Texts<float>({0.1F, 3.14159274F}), (std::vector<std::string>{"0.1", "3.1415927"}));
  EXPECT_EQ(Texts<bool>({true, false}), (std::vector<std::string>{"True", "False"}));
  EXPECT_EQ(Texts<uint64_t>({~uint64_t{0}}), (std::vector<std::string>{"18446744073709551615"}));
  EXPECT_EQ(Texts<Int4>({Int4(-8)}), (std::vector<std::string>{"-8"}));
  EXPECT_EQ(Texts<std::complex<double>>({{1, 2}, {0.5, -1}}),
            (std::vector<std::string>{"(1+2j)", "(0.5-1j)"}));
}

TEST(CastTest, FromString) {
  EXPECT_EQ((CastValues<float, std::string>({"3.14", " 1e-5 ", "INF", "+inf", "-Inf", "1000"})),
            (std::vector<float>{3.14F, 1e-5F, INFINITY, INFINITY, -INFINITY, 1000}));
  EXPECT_EQ((CastValues<int64_t, std::string>({"7", "-9223372036854775808", "2.9", "1e3"})),
            (std::vector<int64_t>{7, std::numeric_limits<int64_t>::min(), 2, 1000}));
  EXPECT_EQ((CastValues<uint64_t, std::string>({"18446744073709551615"})),
            (std::vector<uint64_t>{~uint64_t{0}}));
  const Tensor flags = Tensor::Of<std::string>({4}, {"True", "False", "0", "2"});
  EXPECT_EQ(ToInt64s(Cast(flags, ElementType::kBool)), (std::vector<int64_t>{1, 0, 0, 1}));
  EXPECT_TRUE(
      std::isnan(ToDoubles(Cast(Tensor::Of<std::string>({1}, {"NaN"}), ElementType::kF16))[0]));
  using C = std::complex<double>;
  EXPECT_EQ((CastValues<C, std::string>({"(1+2j)", "1e-3-2e+2j", "-4j", "5"})),
            (std::vector<C>{{1, 2}, {1e-3, -200}, {0, -4}, {5, 0}}));
  for (const char* bad : {"", "x", "1.5y", "0x10", "j", "(1+2j"}) {
    EXPECT_THROW((void)Cast(Tensor::Of<std::string>({1}, {bad}), ElementType::kC64), Error) << bad;
  }
}

TEST(CastTest, StringsRoundTripThroughText) {
  for (const ElementType type :
       {ElementType::kF16, ElementType::kBF16, ElementType::kF32, ElementType::kF64,
        ElementType::kF8E5M2, ElementType::kC64, ElementType::kC128, ElementType::kI64}) {
    const Tensor t = RandomTensor(type, {200}, 3);
    EXPECT_EQ(Cast(Cast(t, ElementType::kString), type), t) << Name(type);
  }
}

TEST(CastTest, ComplexDropsTheImaginaryPart) {
  const Tensor t = Tensor::Of<std::complex<float>>({2}, {{1.5F, 9}, {0, 1}});
  EXPECT_EQ(Unpack<float>(Cast(t, ElementType::kF32)), (std::vector<float>{1.5F, 0}));
  EXPECT_EQ(ToInt64s(Cast(t, ElementType::kBool)), (std::vector<int64_t>{1, 1}));
  EXPECT_THROW((void)ToDoubles(t), Error);
}

TEST(CastTest, SameTypeShares) {
  const Tensor t = Tensor::Of<float>({1}, {1});
  EXPECT_TRUE(Cast(t, ElementType::kF32).SharesStorageWith(t));
  EXPECT_EQ(Cast(t, ElementType::kIndex).element_type(), ElementType::kIndex);
}

}  // namespace
}  // namespace lathe
