#include <cmath>
#include <limits>

#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::Of<T>({static_cast<int64_t>(values.size())}, values);
}

template <class T>
std::vector<T> ValuesOf(const Tensor& t) {
  const auto data = t.data<T>();
  return {data.begin(), data.end()};
}

template <class T>
std::vector<T> Binary(const char* name, const std::vector<T>& a, const std::vector<T>& b) {
  return ValuesOf<T>(RunOp(name).In(Vector(a)).In(Vector(b)).Run());
}

std::vector<float> Unary(const char* name, const std::vector<float>& x) {
  return FloatsOf(RunOp(name).In(Vector(x)).Run());
}

TEST(Arithmetic, IntegersWrapInTheirOwnType) {
  EXPECT_EQ(Binary<int8_t>("nn.add", {127, -128}, {1, -1}), (std::vector<int8_t>{-128, 127}));
  EXPECT_EQ(Binary<uint8_t>("nn.sub", {0}, {1}), (std::vector<uint8_t>{255}));
  EXPECT_EQ(Binary<int32_t>("nn.mul", {1 << 30}, {4}), (std::vector<int32_t>{0}));
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(Binary<int64_t>("nn.add", {kMin}, {-1}),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::max()}));
  EXPECT_EQ(ValuesOf<int64_t>(RunOp("nn.abs").In(Vector<int64_t>({kMin, -3})).Run()),
            (std::vector<int64_t>{kMin, 3}));
  EXPECT_EQ(ValuesOf<int16_t>(RunOp("nn.neg").In(Vector<int16_t>({-32768, 5})).Run()),
            (std::vector<int16_t>{-32768, -5}));
}

TEST(Arithmetic, IntegerDivisionGoesTowardsZeroAndNeverTraps) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(Binary<int32_t>("nn.div", {-7, 7, 5, kMin}, {2, -2, 0, -1}),
            (std::vector<int32_t>{-3, -3, 0, kMin}));
  EXPECT_EQ(Binary<int64_t>("nn.div", {kMin64}, {-1}), (std::vector<int64_t>{kMin64}));
  EXPECT_EQ(Binary<uint64_t>("nn.div", {~uint64_t{0}}, {2}),
            (std::vector<uint64_t>{~uint64_t{0} / 2}));
}

TEST(Arithmetic, NarrowFloatsRoundOnce) {
  const auto half = [](float v) { return Half(v); };
  const Tensor sum = RunOp("nn.sum")
                         .In(Vector<Half>({half(2048)}))
                         .In(Vector<Half>({half(1)}))
                         .In(Vector<Half>({half(1)}))
                         .Run();
  EXPECT_EQ(static_cast<float>(sum.data<Half>()[0]), 2050);  // 2048 + 1 would round to 2048
  const Tensor mean =
      RunOp("nn.mean").In(Vector<Half>({half(60000)})).In(Vector<Half>({half(60000)})).Run();
  EXPECT_EQ(static_cast<float>(mean.data<Half>()[0]), static_cast<float>(half(60000)));
  const Tensor product =
      RunOp("nn.mul").In(Vector<Half>({half(300)})).In(Vector<Half>({half(300)})).Run();
  EXPECT_EQ(static_cast<float>(product.data<Half>()[0]), kInf);
}

TEST(Arithmetic, BroadcastsAndRefuses) {
  const Tensor c =
      RunOp("nn.sub").Floats({2, 1, 2}, {1, 2, 3, 4}).Floats({3, 1}, {0, 10, 20}).Run();
  EXPECT_EQ(c.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(FloatsOf(c), (std::vector<float>{1, 2, -9, -8, -19, -18, 3, 4, -7, -6, -17, -16}));
  EXPECT_EQ(RunOp("nn.add").Floats({2}, {1, 2}).Floats({3}, {1, 2, 3}).EvalError(),
            "shape/broadcast");
  EXPECT_EQ(RunOp("nn.add").Floats({0, 3}, {}).Floats({1}, {1}).Run().shape(), (Shape{0, 3}));
}

TEST(Mod, SignOfTheDivisorOrOfTheDividend) {
  EXPECT_EQ(Binary<int32_t>("nn.mod", {-7, 7, -8, 7, 5}, {3, -3, 4, 7, 0}),
            (std::vector<int32_t>{2, -2, 0, 0, 0}));
  const auto fmod = [](std::vector<int32_t> a, std::vector<int32_t> b) {
    return ValuesOf<int32_t>(RunOp("nn.mod").In(Vector(a)).In(Vector(b)).Attr("fmod", true).Run());
  };
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(fmod({-7, 7, kMin}, {3, -3, -1}), (std::vector<int32_t>{-1, 1, 0}));
  const auto floats = Binary<float>("nn.mod", {-5.5F, 5.5F, -6, 1}, {2, -2, 3, 0});
  EXPECT_EQ(floats[0], 0.5F);
  EXPECT_EQ(floats[1], -0.5F);
  EXPECT_TRUE(floats[2] == 0 && !std::signbit(floats[2]));
  EXPECT_TRUE(std::isnan(floats[3]));
}

TEST(Mod, InfiniteDivisorKeepsTheDividendOrTakesTheDivisor) {
  const auto floats = Binary<float>("nn.mod", {3, -3, 0, kInf}, {kInf, kInf, -2, 2});
  EXPECT_EQ(floats[0], 3);
  EXPECT_EQ(floats[1], kInf);
  EXPECT_TRUE(floats[2] == 0 && std::signbit(floats[2]));
  EXPECT_TRUE(std::isnan(floats[3]));
}

TEST(MinMax, NanWins) {
  const auto max = Binary<float>("nn.max", {kNan, 1, -kInf}, {1, kNan, 2});
  EXPECT_TRUE(std::isnan(max[0]) && std::isnan(max[1]));
  EXPECT_EQ(max[2], 2);
  const auto min = Binary<float>("nn.min", {kNan, 1, 3}, {1, kNan, 2});
  EXPECT_TRUE(std::isnan(min[0]) && std::isnan(min[1]));
  EXPECT_EQ(min[2], 2);
  EXPECT_EQ(Binary<uint64_t>("nn.max", {~uint64_t{0}}, {1}), (std::vector<uint64_t>{~uint64_t{0}}));
}

TEST(Pow, IntegersExactlyAndMixedTypes) {
  EXPECT_EQ(Binary<int64_t>("nn.pow", {3, -2, 2, 5, -1, 0}, {39, 3, -1, 0, -3, 0}),
            (std::vector<int64_t>{4052555153018976267, -8, 0, 1, -1, 1}));
  const Tensor mixed =
      RunOp("nn.pow").In(Vector<int32_t>({4, 9})).In(Vector<float>({0.5F, 2})).Run();
  EXPECT_EQ(ValuesOf<int32_t>(mixed), (std::vector<int32_t>{2, 81}));
  // Whole exponents of any type are exact, beyond the digits of a double too.
  const int64_t large = (int64_t{1} << 53) + 1;
  const Tensor exact = RunOp("nn.pow")
                           .In(Vector<int64_t>({-200, -3, large, 3, 64, 1000000}))
                           .In(Vector<double>({3, 3, 1, -1, 0.5, 2.5}))
                           .Run();
  EXPECT_EQ(ValuesOf<int64_t>(exact),
            (std::vector<int64_t>{-8000000, -27, large, 0, 8, 1000000000000000}));
  const Tensor odd = RunOp("nn.pow").Floats({1}, {-1}).In(Vector<int32_t>({16777217})).Run();
  EXPECT_EQ(FloatsOf(odd), (std::vector<float>{-1}));
  const Tensor by_int = RunOp("nn.pow").Floats({2}, {1.5F, 2}).In(Vector<int64_t>({2, -1})).Run();
  EXPECT_EQ(FloatsOf(by_int), (std::vector<float>{2.25F, 0.5F}));
}

TEST(BitShift, AmountsBeyondTheWidth) {
  const auto shift = [](const char* direction, std::vector<int8_t> x, std::vector<int8_t> y) {
    return ValuesOf<int8_t>(
        RunOp("nn.bit_shift").In(Vector(x)).In(Vector(y)).Attr("direction", direction).Run());
  };
  EXPECT_EQ(shift("RIGHT", {-8, -8, -8, 8, 8}, {1, 8, -1, 9, 2}),
            (std::vector<int8_t>{-4, -1, -1, 0, 2}));
  EXPECT_EQ(shift("LEFT", {1, 1, -1, 64}, {7, 8, -1, 1}), (std::vector<int8_t>{-128, 0, 0, -128}));
}

TEST(Bitwise, NotStaysInTheType) {
  EXPECT_EQ(ValuesOf<uint16_t>(RunOp("nn.bitwise_not").In(Vector<uint16_t>({0, 65535})).Run()),
            (std::vector<uint16_t>{65535, 0}));
  EXPECT_EQ(Binary<int32_t>("nn.bitwise_xor", {-1, 6}, {1, 3}), (std::vector<int32_t>{-2, 5}));
}

TEST(Compare, StringsAndNan) {
  const Tensor equal = RunOp("nn.equal")
                           .In(Tensor::Of<std::string>({2, 1}, {"a", "b"}))
                           .In(Tensor::Of<std::string>({2}, {"b", ""}))
                           .Run();
  EXPECT_EQ(ValuesOf<bool>(equal), (std::vector<bool>{false, false, true, false}));
  const Tensor less = RunOp("nn.less_or_equal").Floats({2}, {kNan, 1}).Floats({2}, {1, 1}).Run();
  EXPECT_EQ(ValuesOf<bool>(less), (std::vector<bool>{false, true}));
  const Tensor big =
      RunOp("nn.greater").In(Vector<uint64_t>({uint64_t{1} << 63})).In(Vector<uint64_t>({1})).Run();
  EXPECT_TRUE(big.data<bool>()[0]);
}

TEST(Classify, InfinitiesBySign) {
  const auto is_inf = [](bool negative, bool positive) {
    return ValuesOf<bool>(RunOp("nn.is_inf")
                              .Floats({3}, {kInf, -kInf, kNan})
                              .Attr("detect_negative", negative)
                              .Attr("detect_positive", positive)
                              .Run());
  };
  EXPECT_EQ(is_inf(true, true), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(is_inf(false, true), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(is_inf(true, false), (std::vector<bool>{false, true, false}));
}

TEST(Unary, RoundTakesTheEvenNeighbor) {
  EXPECT_EQ(Unary("nn.round", {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 2.4F, 8388609.0F}),
            (std::vector<float>{0, 2, 2, -0.0F, -2, 2, 8388609.0F}));
}

TEST(Unary, SignAndReluKeepNan) {
  const auto sign = Unary("nn.sign", {-2, 0, kInf, kNan});
  EXPECT_EQ(sign[0], -1);
  EXPECT_EQ(sign[1], 0);
  EXPECT_EQ(sign[2], 1);
  EXPECT_TRUE(std::isnan(sign[3]));
  EXPECT_TRUE(std::isnan(Unary("nn.relu", {kNan})[0]));
  EXPECT_TRUE(std::isnan(Unary("nn.hard_sigmoid", {kNan})[0]));
}

TEST(Unary, SaturatingFunctionsDoNotOverflow) {
  EXPECT_EQ(Unary("nn.softplus", {1000, -1000}), (std::vector<float>{1000, 0}));
  EXPECT_EQ(Unary("nn.sigmoid", {1000, -1000, 0}), (std::vector<float>{1, 0, 0.5F}));
  EXPECT_EQ(Unary("nn.elu", {-1000}), (std::vector<float>{-1}));
  EXPECT_EQ(Unary("nn.mish", {100}), (std::vector<float>{100}));
}

TEST(Unary, SmallResultsDoNotCancel) {
  const auto gelu = RunOp("nn.gelu").Floats({1}, {-5}).Attr("approximate", "tanh").Run();
  EXPECT_NEAR(FloatsOf(gelu)[0], -2.2917961e-07F, 1e-13F);
  EXPECT_NEAR(Unary("nn.mish", {-40})[0], -1.6993417e-16F, 1e-22F);
}

TEST(Clip, BoundsAreOptionalAndCrossedBoundsGiveMax) {
  RunOp both("nn.clip");
  both.Floats({4}, {-5, 0, 5, kNan}).Floats({}, {2}).Floats({1}, {1});
  const auto crossed = FloatsOf(both.Run());
  EXPECT_EQ(crossed[0], 1);
  EXPECT_EQ(crossed[2], 1);
  EXPECT_TRUE(std::isnan(crossed[3]));
  RunOp upper("nn.clip");
  upper.Floats({2}, {-5, 5}).Absent().Floats({}, {1});
  EXPECT_EQ(FloatsOf(upper.Run()), (std::vector<float>{-5, 1}));
  EXPECT_EQ(RunOp("nn.clip").Floats({1}, {0}).Floats({2}, {1, 2}).EvalError(), "shape/scalar");
}

TEST(Prelu, SlopeGoesToTheInputOnly) {
  EXPECT_EQ(FloatsOf(RunOp("nn.prelu").Floats({2, 2}, {-1, 2, -3, -4}).Floats({2}, {2, 3}).Run()),
            (std::vector<float>{-2, 2, -6, -12}));
  EXPECT_EQ(RunOp("nn.prelu").Floats({2}, {1, 2}).Floats({3, 2}, {1, 1, 1, 1, 1, 1}).EvalError(),
            "shape/broadcast");
}

TEST(Dropout, TrainingKeepsAShareAndScales) {
  std::vector<float> ones(1000, 1.0F);
  const auto values = RunOp("nn.dropout")
                          .Floats({1000}, ones)
                          .Floats({}, {0.75F})
                          .In(Tensor::Scalar<bool>(true))
                          .Attr("seed", 7)
                          .Outputs(2)
                          .Values();
  const auto y = FloatsOf(values[0].tensor());
  const auto mask = values[1].tensor().data<bool>();
  int64_t kept = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], mask[i] ? 4.0F : 0.0F);
    kept += mask[i] ? 1 : 0;
  }
  EXPECT_GT(kept, 180);
  EXPECT_LT(kept, 320);
}

TEST(Dropout, InferenceIsTheIdentityAndRatioIsChecked) {
  const auto values = RunOp("nn.dropout").Floats({2}, {1, -2}).Outputs(2).Values();
  EXPECT_EQ(FloatsOf(values[0].tensor()), (std::vector<float>{1, -2}));
  EXPECT_TRUE(values[1].tensor().data<bool>()[1]);
  EXPECT_EQ(RunOp("nn.dropout")
                .Floats({1}, {1})
                .Floats({}, {1})
                .In(Tensor::Scalar<bool>(true))
                .EvalError(),
            "dropout/ratio");
}

TEST(Shrink, IntegersToo) {
  const Tensor y = RunOp("nn.shrink")
                       .In(Vector<int32_t>({-3, -1, 0, 1, 3}))
                       .Attr("lambd", 1.5)
                       .Attr("bias", 1.0)
                       .Run();
  EXPECT_EQ(ValuesOf<int32_t>(y), (std::vector<int32_t>{-2, 0, 0, 0, 2}));
}

}  // namespace
}  // namespace lathe::test
