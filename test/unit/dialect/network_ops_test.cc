#include <cmath>
#include <limits>

#include "lathe/support/random.h"
#include "src/dialect/move.h"
#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Sample(Shape shape, uint64_t seed) {
  return RandomTensor(ElementType::kF32, std::move(shape), seed);
}
Tensor Half(const Tensor& t, size_t axis, int64_t which) {
  const int64_t extent = t.shape()[axis] / 2;
  return eval::Narrow(t, axis, which * extent, extent);
}
void ExpectClose(const Tensor& a, const Tensor& b) {
  EXPECT_TRUE(AllClose(a, b, 1e-5, 1e-6)) << a.ToString() << b.ToString();
}

// ---- recurrent layers ----

struct Layer {
  const char* name;
  int64_t gates;
};
constexpr Layer kLayers[] = {{"nn.rnn", 1}, {"nn.gru", 3}, {"nn.lstm", 4}};

std::vector<Tensor> RunLayer(const Layer& layer, const std::vector<Tensor>& xwrb,
                             const char* direction, bool layout, const std::vector<int32_t>& lens) {
  RunOp op(layer.name);
  for (const Tensor& t : xwrb) op.In(t);
  op.In(Tensor::Of<int32_t>({static_cast<int64_t>(lens.size())}, lens));
  op.Attr("direction", direction).Attr("layout", layout).Outputs(2);
  std::vector<Tensor> results;
  for (const RtValue& v : op.Values()) results.push_back(v.tensor());
  return results;
}

TEST(Recurrent, BothDirectionsAreOneOfEach) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(layer.name);
    const std::vector<Tensor> both = {Sample({4, 2, 3}, 1), Sample({2, layer.gates * 2, 3}, 2),
                                      Sample({2, layer.gates * 2, 2}, 3),
                                      Sample({2, layer.gates * 4}, 4)};
    const auto y = RunLayer(layer, both, "bidirectional", false, {4, 2});
    for (int64_t d = 0; d < 2; ++d) {
      std::vector<Tensor> one = {both[0]};
      for (size_t i = 1; i < both.size(); ++i) one.push_back(Half(both[i], 0, d));
      const auto own = RunLayer(layer, one, d == 0 ? "forward" : "reverse", false, {4, 2});
      ExpectClose(Half(y[0], 1, d), own[0]);
      ExpectClose(Half(y[1], 0, d), own[1]);
    }
  }
}

TEST(Recurrent, LayoutTransposesTheBatch) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(layer.name);
    std::vector<Tensor> in = {Sample({4, 2, 3}, 1), Sample({1, layer.gates * 2, 3}, 2),
                              Sample({1, layer.gates * 2, 2}, 3), Sample({1, layer.gates * 4}, 4)};
    const auto steps_first = RunLayer(layer, in, "forward", false, {3, 4});
    in[0] = eval::Permute(in[0], std::vector<size_t>{1, 0, 2});
    const auto batch_first = RunLayer(layer, in, "forward", true, {3, 4});
    ExpectClose(eval::Permute(steps_first[0], std::vector<size_t>{2, 0, 1, 3}), batch_first[0]);
    ExpectClose(eval::Permute(steps_first[1], std::vector<size_t>{1, 0, 2}), batch_first[1]);
  }
}

TEST(Recurrent, StepsBeyondTheLengthAreZeroAndLeaveTheState) {
  const Layer& lstm = kLayers[2];
  const std::vector<Tensor> in = {Sample({3, 2, 3}, 1), Sample({1, 8, 3}, 2), Sample({1, 8, 2}, 3),
                                  Sample({1, 16}, 4)};
  const auto y = RunLayer(lstm, in, "forward", false, {0, 2});
  const std::vector<float> all = FloatsOf(y[0]), last = FloatsOf(y[1]);
  const auto at = [&](size_t step, size_t n, size_t j) { return all[(step * 2 + n) * 2 + j]; };
  for (size_t j = 0; j < 2; ++j) {
    for (size_t step = 0; step < 3; ++step) EXPECT_EQ(at(step, 0, j), 0);
    EXPECT_EQ(at(2, 1, j), 0);
    EXPECT_EQ(last[j], 0);
    EXPECT_EQ(last[2 + j], at(1, 1, j));
  }
}

TEST(Recurrent, ActivationsTakeTheirNumbersInOrder) {
  const auto run = [](const std::vector<std::string>& names) {
    RunOp op("nn.rnn");
    op.Floats({1, 1, 1}, {2}).Floats({2, 1, 1}, {1, 1}).Floats({2, 1, 1}, {0, 0});
    op.Attr("direction", "bidirectional").Attr("activations", names);
    op.Attr("activation_alpha", std::vector<double>{3, 5});
    op.Attr("activation_beta", std::vector<double>{7});
    return op.Outputs(1).InferError().empty() ? FloatsOf(op.Run()) : std::vector<float>{};
  };
  EXPECT_EQ(run({"Affine", "LeakyRelu"}), (std::vector<float>{13, 2}));
  EXPECT_EQ(run({"relu", "affine"}), (std::vector<float>{2, 13}));
  EXPECT_TRUE(run({"Relu"}).empty());
  EXPECT_TRUE(run({"Relu", "Wiggle"}).empty());
}

TEST(Recurrent, NaNGoesThroughBounds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* activation : {"Affine", "HardSigmoid"}) {
    RunOp op("nn.rnn");
    op.Floats({1, 1, 1}, {nan}).Floats({1, 1, 1}, {1}).Floats({1, 1, 1}, {0});
    op.Attr("activations", std::vector<std::string>{activation}).Attr("clip", 0.5);
    EXPECT_TRUE(std::isnan(FloatsOf(op.Outputs(1).Run())[0])) << activation;
  }
}

// ---- attention ----

TEST(Attention, GroupedHeadsAreRepeatedKeys) {
  const Tensor q = Sample({2, 4, 3, 5}, 1), k = Sample({2, 2, 6, 5}, 2),
               v = Sample({2, 2, 6, 4}, 3);
  const std::vector<int64_t> twice = {0, 0, 1, 1};
  const Tensor grouped = RunOp("nn.attention").In(q).In(k).In(v).Run();
  const Tensor plain =
      RunOp("nn.attention").In(q).In(eval::Take(k, 1, twice)).In(eval::Take(v, 1, twice)).Run();
  EXPECT_EQ(grouped, plain);
}

TEST(Attention, PackedHeadsAreTheSame) {
  const Tensor x = Sample({2, 3, 8}, 1);
  const std::vector<size_t> swap = {0, 2, 1, 3};
  const Tensor heads = eval::Permute(x.Reshaped({2, 3, 2, 4}), swap);
  const Tensor packed = RunOp("nn.attention")
                            .In(x)
                            .In(x)
                            .In(x)
                            .Attr("q_num_heads", int64_t{2})
                            .Attr("kv_num_heads", int64_t{2})
                            .Run();
  const Tensor y = RunOp("nn.attention").In(heads).In(heads).In(heads).Run();
  EXPECT_EQ(packed, eval::Permute(y, swap).Reshaped({2, 3, 8}));
}

TEST(Attention, MaskedKeysNeverShow) {
  const Tensor q = Sample({1, 1, 2, 2}, 1);
  const Tensor k = Tensor::Of<float>({1, 1, 2, 2}, {1, 2, kNan, kNan});
  const Tensor v = Tensor::Of<float>({1, 1, 2, 1}, {7, kNan});
  const Tensor mask = Tensor::Of<bool>({2, 2}, {true, false, false, false});
  EXPECT_EQ(FloatsOf(RunOp("nn.attention").In(q).In(k).In(v).In(mask).Run()),
            (std::vector<float>{7, 0}));
}

TEST(Attention, AMaskMayEndEarly) {
  const Tensor x = Sample({1, 1, 4, 2}, 1);
  const Tensor zeros(ElementType::kF32, {4, 2});
  const Tensor v = Tensor::Of<float>({1, 1, 4, 1}, {3, 3, 9, 9});
  for (float y : FloatsOf(RunOp("nn.attention").In(x).In(x).In(v).In(zeros).Run())) {
    EXPECT_FLOAT_EQ(y, 3);
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const auto error = [](Shape q, Shape k, Shape v) {
    return RunOp("nn.attention")
        .In(Sample(std::move(q), 1))
        .In(Sample(std::move(k), 2))
        .In(Sample(std::move(v), 3))
        .EvalError();
  };
  EXPECT_EQ(error({1, 3, 2, 4}, {1, 2, 5, 4}, {1, 2, 5, 4}), "shape/heads");
  EXPECT_EQ(error({1, 3, 2, 4}, {1, 0, 5, 4}, {1, 0, 5, 4}), "shape/heads");
  EXPECT_EQ(error({1, 0, 2, 4}, {1, 0, 5, 4}, {1, 0, 5, 4}), "");
  EXPECT_EQ(error({1, 2, 2, 4}, {1, 2, 5, 3}, {1, 2, 5, 4}), "shape/extent");
  EXPECT_EQ(error({1, 2, 2, 4}, {1, 2, 5, 4}, {1, 2, 6, 4}), "shape/extent");
  EXPECT_EQ(error({1, 2, 8}, {1, 5, 8}, {1, 5, 8}), "shape/heads");
  EXPECT_EQ(error({2, 8}, {1, 5, 8}, {1, 5, 8}), "shape/rank");
}

// ---- resampling ----

TEST(Resize, NearestKeepsLargeIntegers) {
  const int64_t big = (int64_t{1} << 53) + 1;
  const Tensor y = RunOp("nn.resize")
                       .In(Tensor::Of<int64_t>({2}, {big, -big}))
                       .Absent()
                       .In(Tensor::Of<float>({1}, {2}))
                       .Run();
  EXPECT_EQ(y, Tensor::Of<int64_t>({4}, {big, big, -big, -big}));
}

TEST(Resize, LinearKeepsALine) {
  const Tensor y = RunOp("nn.resize")
                       .Floats({1, 5}, {0, 1, 2, 3, 4})
                       .Absent()
                       .Absent()
                       .Ints({3, 9})
                       .Attr("mode", "linear")
                       .Attr("coordinate_transformation_mode", "align_corners")
                       .Run();
  ASSERT_EQ(y.shape(), (Shape{3, 9}));
  for (size_t i = 0; i < 27; ++i) {
    EXPECT_FLOAT_EQ(FloatsOf(y)[i], 0.5F * static_cast<float>(i % 9));
  }
}

// `length_resized > 1 ? (x_resized + 0.5) / scale - 0.5 : 0`, whatever the scale.
TEST(Resize, OneElementOfPytorchHalfPixelIsTheFirst) {
  const Tensor y = RunOp("nn.resize")
                       .Floats({3}, {2, 7, -3})
                       .Absent()
                       .Floats({1}, {0.5})
                       .Attr("mode", "cubic")
                       .Attr("coordinate_transformation_mode", "pytorch_half_pixel")
                       .Run();
  EXPECT_EQ(FloatsOf(y), (std::vector<float>{2}));
}

// Between 0 and 255 a cubic filter goes from -17 to 272.
TEST(Resize, CubicIntegersSaturate) {
  const Tensor y = RunOp("nn.resize")
                       .In(Tensor::Of<uint8_t>({4}, {0, 0, 255, 255}))
                       .Absent()
                       .In(Tensor::Of<float>({1}, {2}))
                       .Attr("mode", "cubic")
                       .Run();
  EXPECT_EQ(y.data<uint8_t>()[2], 0);
  EXPECT_EQ(y.data<uint8_t>()[5], 255);
}

// Shares of sixths and sevenths sum up to one in some orders only.
TEST(Resize, EqualIntegersStay) {
  for (const char* mode : {"linear", "cubic"}) {
    for (const bool antialias : {false, true}) {
      const Tensor y = RunOp("nn.resize")
                           .In(Tensor::Of<int8_t>({2, 3}, {5, 5, 5, 5, 5, 5}))
                           .Absent()
                           .Absent()
                           .Ints({6, 7})
                           .Attr("mode", mode)
                           .Attr("antialias", antialias)
                           .Run();
      EXPECT_EQ(ToInt64s(y), std::vector<int64_t>(42, 5)) << mode << antialias;
    }
  }
}

TEST(Resize, AntialiasKeepsTheMean) {
  const Tensor x = Sample({64}, 5);
  for (const char* mode : {"linear", "cubic"}) {
    const Tensor y = RunOp("nn.resize")
                         .In(x)
                         .Absent()
                         .Absent()
                         .Ints({1})
                         .Attr("mode", mode)
                         .Attr("antialias", true)
                         .Attr("exclude_outside", true)
                         .Run();
    float low = 1e9F, high = -1e9F;
    for (float v : FloatsOf(x)) low = std::min(low, v), high = std::max(high, v);
    EXPECT_GT(FloatsOf(y)[0], low);
    EXPECT_LT(FloatsOf(y)[0], high);
  }
}

TEST(Resize, Refusals) {
  const auto error = [](std::vector<float> scales, bool sizes) {
    RunOp op("nn.resize");
    op.In(Sample({2, 2}, 1)).Absent();
    const auto count = static_cast<int64_t>(scales.size());
    scales.empty() ? op.Absent() : op.Floats({count}, scales);
    if (sizes) op.Ints({3, 3});
    return op.EvalError();
  };
  EXPECT_EQ(error({1, 2}, false), "");
  EXPECT_EQ(error({1, 2}, true), "shape/resize");
  EXPECT_EQ(error({}, false), "shape/resize");
  EXPECT_EQ(error({1, -2}, false), "shape/resize");
  EXPECT_EQ(error({1, kNan}, false), "shape/resize");
  EXPECT_EQ(error({1, 2, 3}, false), "shape/operand");
}

TEST(RoiAlign, PointsAreBounded) {
  const auto error = [](int64_t ratio) {
    return RunOp("nn.roi_align")
        .In(Sample({1, 2, 4, 4}, 1))
        .Floats({1, 4}, {0, 0, 2, 2})
        .Ints({0})
        .Attr("sampling_ratio", ratio)
        .InferError();
  };
  EXPECT_EQ(error(4096), "");
  EXPECT_EQ(error(4097), "roi-align/sizes");
  EXPECT_EQ(error(int64_t{1} << 40), "roi-align/sizes");
}

TEST(LpNormalization, OtherPowersAreRefusedBeforeItRuns) {
  const auto error = [](int64_t p) {
    return RunOp("nn.lp_normalization").In(Sample({2, 3}, 1)).Attr("p", p).InferError();
  };
  EXPECT_EQ(error(1), "");
  EXPECT_EQ(error(2), "");
  EXPECT_EQ(error(3), "shape/lp-normalization");
}

TEST(RoiAlign, AnEmptyImageReadsZeros) {
  const Tensor y = RunOp("nn.roi_align")
                       .In(Tensor(ElementType::kF32, {1, 2, 0, 3}))
                       .Floats({1, 4}, {0, 0, 2, 2})
                       .Ints({0})
                       .Run();
  EXPECT_EQ(FloatsOf(y), (std::vector<float>{0, 0}));
}

TEST(GridSample, TheIdentityGridIsTheImage) {
  const Tensor x = Sample({1, 1, 3, 4}, 1);
  const Tensor grid = RunOp("nn.affine_grid")
                          .Floats({1, 2, 3}, {1, 0, 0, 0, 1, 0})
                          .Ints({1, 1, 3, 4})
                          .Attr("align_corners", true)
                          .Run();
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    ExpectClose(
        RunOp("nn.grid_sample").In(x).In(grid).Attr("align_corners", true).Attr("mode", mode).Run(),
        x);
  }
}

// ---- signals ----

TEST(Dft, TheInverseUndoesIt) {
  for (int64_t n : {1, 2, 3, 4, 6, 8, 9, 12, 20}) {
    const Tensor x = Sample({2, n, 3, 2}, static_cast<uint64_t>(n));
    const Tensor axis = Tensor::Scalar<int64_t>(1);
    const Tensor y = RunOp("nn.dft").In(x).Absent().In(axis).Run();
    ExpectClose(RunOp("nn.dft").In(y).Absent().In(axis).Attr("inverse", true).Run(), x);
  }
}

TEST(Dft, HalfASpectrumIsEnoughForRealSignals) {
  for (int64_t n : {2, 5, 8, 9}) {
    const Tensor x = Sample({n, 1}, static_cast<uint64_t>(n));
    const Tensor y = RunOp("nn.dft").In(x).Attr("onesided", true).Run();
    EXPECT_EQ(y.shape(), (Shape{n / 2 + 1, 2}));
    ExpectClose(RunOp("nn.dft")
                    .In(y)
                    .In(Tensor::Scalar<int64_t>(n))
                    .Attr("onesided", true)
                    .Attr("inverse", true)
                    .Run(),
                x);
  }
}

TEST(Dft, Refusals) {
  const auto length = [](int64_t n) {
    return RunOp("nn.dft").In(Sample({2, 1}, 1)).In(Tensor::Scalar<int64_t>(n)).EvalError();
  };
  EXPECT_EQ(length(4096), "");
  EXPECT_EQ(length(1000003), "dft/length");
  EXPECT_EQ(length(0), "dft/length");
  EXPECT_EQ(RunOp("nn.dft").In(Sample({2, 3}, 1)).EvalError(), "shape/dft");
  EXPECT_EQ(
      RunOp("nn.dft").In(Sample({2, 2}, 1)).Absent().In(Tensor::Scalar<int64_t>(-1)).EvalError(),
      "shape/axis");
}

TEST(Det, ExchangesRowsAndSeesSingularMatrices) {
  EXPECT_EQ(FloatsOf(RunOp("nn.det").Floats({2, 2, 2}, {0, 1, 1, 0, 1, 2, 2, 4}).Run()),
            (std::vector<float>{-1, 0}));
  EXPECT_EQ(FloatsOf(RunOp("nn.det").In(Tensor(ElementType::kF32, {0, 0})).Run()),
            (std::vector<float>{1}));
  EXPECT_EQ(RunOp("nn.det").In(Sample({2, 3}, 1)).EvalError(), "shape/det");
}

TEST(ImageDecoder, DamagedAndForeignPictures) {
  const auto bytes = [](const std::vector<uint8_t>& values) {
    return Tensor::Of<uint8_t>({static_cast<int64_t>(values.size())}, values);
  };
  EXPECT_EQ(RunOp("nn.image_decoder").In(bytes({0x89, 'P', 'N', 'G', 1, 2, 3})).Run().shape(),
            (Shape{0, 0, 3}));
  EXPECT_EQ(RunOp("nn.image_decoder").In(bytes({'B', 'M', 0, 0})).Run().shape(), (Shape{0, 0, 3}));
  EXPECT_EQ(RunOp("nn.image_decoder").In(bytes({'G', 'I', 'F', '8'})).EvalError(), "image/format");
}

}  // namespace
}  // namespace lathe::test
