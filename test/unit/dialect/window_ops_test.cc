#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lathe/support/random.h"
#include "test/unit/dialect/run_op.h"

// Convolutions and pools: against loops written here independently, and their corner cases.
namespace lathe::test {
namespace {

constexpr int64_t kRuns = 40;

Tensor Sample(Shape shape, uint64_t seed) {
  return RandomTensor(ElementType::kF32, std::move(shape), seed);
}

float At(const Tensor& t, const Shape& index) {
  int64_t flat = 0;
  for (size_t d = 0; d < index.size(); ++d) flat = flat * t.shape()[d] + index[d];
  return t.data<float>()[static_cast<size_t>(flat)];
}

// Parameters of a 2-D convolution.
struct Case {
  int64_t group, in, out;  // channels of one group
  Shape extent, kernel, strides, dilations, pads;

  explicit Case(RandomStream& r) {
    const auto pair = [&](int64_t low, int64_t high) {
      return Shape{r.Int(low, high), r.Int(low, high)};
    };
    group = r.Int(1, 3);
    in = r.Int(1, 3);
    out = r.Int(1, 5);
    extent = pair(5, 9);
    kernel = pair(1, 3);
    strides = pair(1, 3);
    dilations = pair(1, 2);
    pads = {r.Int(0, 2), r.Int(0, 2), r.Int(0, 2), r.Int(0, 2)};
  }
  void Apply(RunOp& op) const {
    op.Attr("group", group)
        .Attr("strides", strides)
        .Attr("dilations", dilations)
        .Attr("pads", pads);
  }
};

double ConvAt(const Case& c, const Tensor& x, const Tensor& w, const Shape& y) {
  double sum = 0;
  for (int64_t i = 0; i < c.in; ++i) {
    for (int64_t a = 0; a < c.kernel[0]; ++a) {
      for (int64_t b = 0; b < c.kernel[1]; ++b) {
        const int64_t row = y[2] * c.strides[0] + a * c.dilations[0] - c.pads[0];
        const int64_t column = y[3] * c.strides[1] + b * c.dilations[1] - c.pads[1];
        if (row < 0 || column < 0 || row >= c.extent[0] || column >= c.extent[1]) continue;
        sum += static_cast<double>(At(x, {y[0], y[1] / c.out * c.in + i, row, column})) *
               static_cast<double>(At(w, {y[1], i, a, b}));
      }
    }
  }
  return sum;
}

template <class F>
void ExpectEach(const Tensor& y, const F& expected) {
  for (int64_t i = 0; i < y.num_elements(); ++i) {
    Shape index(4);
    int64_t rest = i;
    for (size_t d = 4; d-- > 0; rest /= y.shape()[d]) index[d] = rest % y.shape()[d];
    ASSERT_NEAR(At(y, index), expected(index), 1e-5) << ShapeToString(index);
  }
}

TEST(Conv, AgreesWithPlainLoops) {
  for (int64_t run = 0; run < kRuns; ++run) {
    RandomStream r(static_cast<uint64_t>(run));
    const Case c(r);
    const Tensor x = Sample({2, c.group * c.in, c.extent[0], c.extent[1]}, 1);
    const Tensor w = Sample({c.group * c.out, c.in, c.kernel[0], c.kernel[1]}, 2);
    RunOp op("nn.conv");
    op.In(x).In(w);
    c.Apply(op);
    ExpectEach(op.Run(), [&](const Shape& y) { return ConvAt(c, x, w, y); });
  }
}

// y[o] sums x[i] * w[k] over all i with i * stride + k * dilation - pad = o.
double TransposedAt(const Case& c, const Tensor& x, const Tensor& w, const Shape& y) {
  double sum = 0;
  const int64_t g = y[1] / c.out;
  for (int64_t i = 0; i < c.in; ++i) {
    for (int64_t p = 0; p < c.extent[0] * c.extent[1]; ++p) {
      for (int64_t k = 0; k < c.kernel[0] * c.kernel[1]; ++k) {
        const Shape at{p / c.extent[1], p % c.extent[1]};
        const Shape tap{k / c.kernel[1], k % c.kernel[1]};
        if (at[0] * c.strides[0] + tap[0] * c.dilations[0] - c.pads[0] != y[2]) continue;
        if (at[1] * c.strides[1] + tap[1] * c.dilations[1] - c.pads[1] != y[3]) continue;
        sum += static_cast<double>(At(x, {y[0], g * c.in + i, at[0], at[1]})) *
               static_cast<double>(At(w, {g * c.in + i, y[1] % c.out, tap[0], tap[1]}));
      }
    }
  }
  return sum;
}

TEST(ConvTranspose, AgreesWithPlainLoops) {
  for (int64_t run = 0; run < kRuns / 4; ++run) {
    RandomStream r(static_cast<uint64_t>(run) + 100);
    const Case c(r);
    const Tensor x = Sample({2, c.group * c.in, c.extent[0], c.extent[1]}, 3);
    const Tensor w = Sample({c.group * c.in, c.out, c.kernel[0], c.kernel[1]}, 4);
    RunOp op("nn.conv_transpose");
    op.In(x).In(w);
    c.Apply(op);
    ExpectEach(op.Run(), [&](const Shape& y) { return TransposedAt(c, x, w, y); });
  }
}

TEST(Conv, SamePaddingPutsTheOddElementAtEitherEnd) {
  const auto run = [](const char* auto_pad) {
    return FloatsOf(RunOp("nn.conv")
                        .Floats({1, 1, 4}, {1, 2, 3, 4})
                        .Floats({1, 1, 2}, {1, 10})
                        .Attr("auto_pad", auto_pad)
                        .Run());
  };
  EXPECT_EQ(run("SAME_UPPER"), (std::vector<float>{21, 32, 43, 4}));
  EXPECT_EQ(run("SAME_LOWER"), (std::vector<float>{10, 21, 32, 43}));
  EXPECT_EQ(run("VALID"), (std::vector<float>{21, 32, 43}));
}

TEST(Conv, RefusesWhatDoesNotFit) {
  const auto error = [](Shape x, Shape w, int64_t group, std::vector<int64_t> strides = {}) {
    RunOp op("nn.conv");
    op.In(Sample(std::move(x), 1)).In(Sample(std::move(w), 2)).Attr("group", group);
    if (!strides.empty()) op.Attr("strides", strides);
    return op.EvalError();
  };
  EXPECT_EQ(error({1, 5, 4, 4}, {4, 2, 1, 1}, 2), "shape/conv-groups");
  EXPECT_EQ(error({1, 4, 4, 4}, {5, 2, 1, 1}, 2), "shape/conv-groups");
  EXPECT_EQ(error({1, 6, 4, 4}, {4, 2, 1, 1}, 2), "shape/conv-channels");
  EXPECT_EQ(error({1, 2, 4, 4}, {4, 2, 5, 1}, 1), "shape/window");
  EXPECT_EQ(error({1, 2, 4, 4}, {4, 2, 1}, 1), "shape/conv-rank");
  EXPECT_EQ(error({1, 2}, {4, 2}, 1), "shape/conv-rank");
  EXPECT_EQ(error({1, 2, 4, 4}, {4, 2, 1, 1}, 1, {1}), "shape/window-rank");
  EXPECT_EQ(error({1, 2, 4, 4}, {4, 2, 1, 1}, 1, {0, 1}), "shape/window");
  EXPECT_EQ(error({1, 2, 4, 4}, {4, 2, 1, 1}, 0), "shape/conv-groups");
}

TEST(Conv, KernelShapeMustBeThatOfTheWeights) {
  RunOp op("nn.conv");
  op.In(Sample({1, 1, 5}, 1))
      .In(Sample({1, 1, 3}, 2))
      .Attr("kernel_shape", std::vector<int64_t>{2});
  EXPECT_EQ(op.EvalError(), "shape/conv-kernel");
}

TEST(ConvTranspose, OutputShapeDecidesThePads) {
  const Tensor y = RunOp("nn.conv_transpose")
                       .Floats({1, 1, 2}, {1, 2})
                       .Floats({1, 1, 3}, {1, 10, 100})
                       .Attr("strides", std::vector<int64_t>{2})
                       .Attr("output_shape", std::vector<int64_t>{4})
                       .Run();
  EXPECT_EQ(FloatsOf(y), (std::vector<float>{10, 102, 20, 200}));  // one cut off at the beginning
}

TEST(ConvTranspose, SameEndsWhereTheLastKernelEnds) {
  const Tensor y = RunOp("nn.conv_transpose")
                       .Floats({1, 1, 2}, {1, 2})
                       .Floats({1, 1, 1}, {5})
                       .Attr("strides", std::vector<int64_t>{3})
                       .Attr("auto_pad", "SAME_UPPER")
                       .Run();
  EXPECT_EQ(FloatsOf(y), (std::vector<float>{5, 0, 0, 10}));
}

TEST(ConvInteger, PaddingHoldsTheZeroPoint) {
  const Tensor y = RunOp("nn.conv_integer")
                       .In(Tensor::Of<uint8_t>({1, 1, 2}, {3, 5}))
                       .In(Tensor::Of<int8_t>({2, 1, 2}, {1, 2, -1, 0}))
                       .In(Tensor::Scalar<uint8_t>(2))
                       .In(Tensor::Of<int8_t>({2}, {0, -1}))
                       .Attr("pads", std::vector<int64_t>{1, 0})
                       .Run();
  EXPECT_EQ(std::vector<int32_t>(y.data<int32_t>().begin(), y.data<int32_t>().end()),
            (std::vector<int32_t>{2, 7, 1, 3}));
}

TEST(CausalConv, StepsGiveTheSameAsOneRun) {
  const Tensor x = Sample({1, 2, 4}, 5);
  const Tensor w = Sample({2, 1, 3}, 6);
  const auto whole = RunOp("nn.causal_conv_with_state").In(x).In(w).Outputs(2).Values();
  RtValue state;
  for (int64_t t = 0; t < 4; ++t) {
    const Tensor step = Tensor::Of<float>({1, 2, 1}, {At(x, {0, 0, t}), At(x, {0, 1, t})});
    RunOp op("nn.causal_conv_with_state");
    op.In(step).In(w).Absent().InValue(state).Outputs(2);
    const auto results = op.Values();
    EXPECT_FLOAT_EQ(At(results[0].tensor(), {0, 1, 0}), At(whole[0].tensor(), {0, 1, t}));
    state = results[1];
  }
  EXPECT_EQ(state.tensor(), whole[1].tensor());
}

// ---- pools --------------------------------------------------------------------------------------

RunOp& Pool(RunOp&& op, const std::vector<float>& x, int64_t kernel, int64_t stride) {
  op.Floats({1, 1, static_cast<int64_t>(x.size())}, x);
  op.Attr("kernel_shape", std::vector<int64_t>{kernel})
      .Attr("strides", std::vector<int64_t>{stride});
  return op;
}

TEST(Pool, CeilModeDropsWindowsThatStartInThePadding) {
  const auto count = [](int64_t size, int64_t kernel, int64_t stride, std::vector<int64_t> pads,
                        bool ceil) {
    RunOp op("nn.max_pool");
    op.Floats({1, 1, size}, std::vector<float>(static_cast<size_t>(size)));
    op.Attr("kernel_shape", std::vector<int64_t>{kernel});
    op.Attr("strides", std::vector<int64_t>{stride}).Attr("pads", pads).Attr("ceil_mode", ceil);
    return op.Run().shape()[2];
  };
  EXPECT_EQ(count(4, 3, 2, {0, 0}, false), 1);
  EXPECT_EQ(count(4, 3, 2, {0, 0}, true), 2);
  EXPECT_EQ(count(2, 1, 2, {0, 0}, true), 1);  // a second one would start behind the input
  EXPECT_EQ(count(3, 2, 3, {1, 1}, true), 2);
  EXPECT_EQ(count(2, 3, 3, {1, 1}, true), 1);
}

// Also the only one: what follows it would start outside.
TEST(Pool, CeilModeLetsTheFirstWindowHangOver) {
  const auto run = [](const char* name, const std::vector<float>& x, int64_t stride) {
    RunOp op(name);
    return FloatsOf(Pool(std::move(op), x, 3, stride).Attr("ceil_mode", true).Run());
  };
  EXPECT_EQ(run("nn.max_pool", {1, 2}, 2), (std::vector<float>{2}));
  EXPECT_EQ(run("nn.average_pool", {1, 2}, 2), (std::vector<float>{1.5}));
  EXPECT_EQ(run("nn.max_pool", {1}, 3), (std::vector<float>{1}));
  const auto error = [](const std::vector<float>& x, int64_t stride) {
    RunOp op("nn.max_pool");
    return Pool(std::move(op), x, 3, stride).Attr("ceil_mode", true).EvalError();
  };
  EXPECT_EQ(error({1, 2}, 1), "shape/window");
  EXPECT_EQ(error({1}, 2), "shape/window");
}

TEST(Pool, CeilModeCountsWithoutPaddingToo) {
  RunOp op("nn.max_pool");
  Pool(std::move(op), {1, 2, 3, 4, 5, 6, 7}, 3, 3)
      .Attr("auto_pad", "VALID")
      .Attr("ceil_mode", true);
  EXPECT_EQ(FloatsOf(op.Run()), (std::vector<float>{3, 6, 7}));
}

TEST(Pool, SameNeverTakesPartsOfTheInputAway) {
  RunOp op("nn.average_pool");
  Pool(std::move(op), {1, 2, 3, 4, 5, 6}, 1, 3).Attr("auto_pad", "SAME_UPPER");
  EXPECT_EQ(FloatsOf(op.Run()), (std::vector<float>{1, 4}));
}

TEST(AveragePool, DividesByWhatIsInside) {
  const auto run = [](bool include, bool ceil, std::vector<int64_t> pads) {
    RunOp op("nn.average_pool");
    Pool(std::move(op), {2, 4, 6, 8}, 3, 2);
    return FloatsOf(
        op.Attr("pads", pads).Attr("count_include_pad", include).Attr("ceil_mode", ceil).Run());
  };
  EXPECT_EQ(run(false, false, {1, 1}), (std::vector<float>{3, 6}));
  EXPECT_EQ(run(true, false, {1, 1}), (std::vector<float>{2, 6}));
  EXPECT_EQ(run(true, true, {0, 0}),
            (std::vector<float>{4, 7}));  // beyond the padding: not counted
}

TEST(MaxPool, NanWinsAndTheFirstOfEqualsIsTheIndex) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto values = Pool(RunOp("nn.max_pool"), {1, 5, 5, nan, 2, 0}, 2, 2).Outputs(2).Values();
  const auto y = FloatsOf(values[0].tensor());
  const auto indices = values[1].tensor().data<int64_t>();
  EXPECT_EQ(y[0], 5);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 2);
  EXPECT_EQ(std::vector<int64_t>(indices.begin(), indices.end()), (std::vector<int64_t>{1, 3, 4}));
}

TEST(MaxPool, ColumnFirstIndices) {
  const auto values = RunOp("nn.max_pool")
                          .Floats({1, 2, 2, 3}, {0, 9, 1, 2, 3, 4, 0, 1, 2, 3, 4, 9})
                          .Attr("kernel_shape", std::vector<int64_t>{2, 3})
                          .Attr("storage_order", 1)
                          .Outputs(2)
                          .Values();
  const auto indices = values[1].tensor().data<int64_t>();
  EXPECT_EQ(indices[0], 2);   // row 0, column 1 of two rows
  EXPECT_EQ(indices[1], 11);  // the last one of the second channel
}

TEST(MaxPool, SmallIntegers) {
  const Tensor y = RunOp("nn.max_pool")
                       .In(Tensor::Of<int8_t>({1, 1, 3}, {-128, -5, -7}))
                       .Attr("kernel_shape", std::vector<int64_t>{2})
                       .Attr("pads", std::vector<int64_t>{1, 0})
                       .Run();
  EXPECT_EQ(std::vector<int8_t>(y.data<int8_t>().begin(), y.data<int8_t>().end()),
            (std::vector<int8_t>{-128, -5, -5}));
}

TEST(Pool, RefusesBadWindows) {
  EXPECT_EQ(Pool(RunOp("nn.max_pool"), {1, 2}, 3, 1).EvalError(), "shape/window");
  EXPECT_EQ(Pool(RunOp("nn.lp_pool"), {1, 2}, 1, 0).EvalError(), "shape/window");
  RunOp op("nn.average_pool");
  op.In(Sample({1, 1, 4, 4}, 1)).Attr("kernel_shape", std::vector<int64_t>{2});
  EXPECT_EQ(op.EvalError(), "shape/window-rank");
}

TEST(MaxRoiPool, RoundsImagesToZero) {
  for (const float image : {-1.0F, -0.4F, 0.4F, 1.0F}) {
    RunOp op("nn.max_roi_pool");
    op.In(Tensor::Of<float>({1, 1, 1, 1}, {5})).In(Tensor::Of<float>({1, 5}, {image, 0, 0, 0, 0}));
    op.Attr("pooled_shape", std::vector<int64_t>{1, 1});
    if (std::abs(image) < 1) {
      EXPECT_EQ(op.Run().data<float>()[0], 5);
    } else {
      EXPECT_EQ(op.EvalError(), "shape/roi");
    }
  }
}

// 7 * (57 / 7) is 57 in f64, more in f32; of 58 it is the other way round.
TEST(MaxRoiPool, CellsEndWhereTheElementTypeRoundsTo) {
  const auto last = [](ElementType element, float length) {
    std::vector<float> line(64);
    std::iota(line.begin(), line.end(), 0.0F);
    RunOp op("nn.max_roi_pool");
    op.In(Cast(Tensor::Of<float>({1, 1, 1, 64}, line), element));
    op.In(Cast(Tensor::Of<float>({1, 5}, {0, 0, 0, length - 1, 0}), element));
    op.Attr("pooled_shape", std::vector<int64_t>{1, 7});
    return ToDoubles(op.Run())[6];
  };
  EXPECT_EQ(last(ElementType::kF32, 57), 57);
  EXPECT_EQ(last(ElementType::kF64, 57), 56);
  EXPECT_EQ(last(ElementType::kF32, 58), 57);
  EXPECT_EQ(last(ElementType::kF16, 58), 57);
  EXPECT_EQ(last(ElementType::kF64, 58), 58);
}

TEST(MaxUnpool, UndoesMaxPoolAndChecksIndices) {
  const auto pooled = Pool(RunOp("nn.max_pool"), {1, 5, 7, 2}, 2, 2).Outputs(2).Values();
  const auto unpool = [&](const Tensor& indices, RunOp&& op = RunOp("nn.max_unpool")) -> RunOp& {
    return op.InValue(pooled[0])
        .In(indices)
        .Attr("kernel_shape", std::vector<int64_t>{2})
        .Attr("strides", std::vector<int64_t>{2});
  };
  EXPECT_EQ(FloatsOf(unpool(pooled[1].tensor()).Run()), (std::vector<float>{0, 5, 7, 0}));
  EXPECT_EQ(unpool(Tensor::Of<int64_t>({1, 1, 2}, {0, 4})).EvalError(), "shape/max-unpool");
}

TEST(DeformConv, ZeroOffsetsAreAConvolution) {
  const Tensor x = Sample({2, 4, 5, 6}, 7);
  const Tensor w = Sample({6, 2, 3, 2}, 8);
  const std::vector<int64_t> pads{1, 0, 1, 1};
  const Tensor plain = RunOp("nn.conv").In(x).In(w).Attr("group", 2).Attr("pads", pads).Run();
  const Tensor deformed = RunOp("nn.deform_conv")
                              .In(x)
                              .In(w)
                              .In(Tensor(ElementType::kF32, {2, 24, 5, 6}))
                              .Attr("group", 2)
                              .Attr("offset_group", 2)
                              .Attr("pads", pads)
                              .Run();
  EXPECT_TRUE(AllClose(deformed, plain)) << AllClose(deformed, plain).description;
}

}  // namespace
}  // namespace lathe::test
