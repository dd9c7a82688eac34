#include <cmath>
#include <limits>

#include "lathe/support/random.h"
#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

Tensor Sample(Shape shape, uint64_t seed) {
  return RandomTensor(ElementType::kF32, std::move(shape), seed);
}

// Row r, column c of a matrix with `columns` columns.
double At(const Tensor& t, int64_t columns, int64_t r, int64_t c) {
  return t.data<float>()[static_cast<size_t>(r * columns + c)];
}

void ExpectProduct(int64_t m, int64_t n, int64_t k, bool tx, bool ty) {
  const Tensor x = Sample(tx ? Shape{k, m} : Shape{m, k}, 1);
  const Tensor y = Sample(ty ? Shape{n, k} : Shape{k, n}, 2);
  const Tensor z =
      RunOp("nn.matmul").In(x).In(y).Attr("transpose_x", tx).Attr("transpose_y", ty).Run();
  ASSERT_EQ(z.shape(), (Shape{m, n}));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t s = 0; s < k; ++s) {
        sum += (tx ? At(x, m, s, i) : At(x, k, i, s)) * (ty ? At(y, k, j, s) : At(y, n, s, j));
      }
      ASSERT_EQ(At(z, n, i, j), static_cast<float>(sum)) << m << " " << n << " " << k;
    }
  }
}

TEST(Matmul, AgreesWithPlainLoopsAtAllEdges) {
  for (const int64_t m : {1, 3, 4, 67}) {
    for (const int64_t n : {1, 5, 130}) {
      for (const int64_t k : {1, 7}) {
        ExpectProduct(m, n, k, false, false);
        ExpectProduct(m, n, k, true, true);
      }
    }
  }
  ExpectProduct(5, 6, 200, true, false);
  ExpectProduct(5, 6, 200, false, true);
}

TEST(Matmul, SumsOfManyPanels) {
  const int64_t k = 1000;
  const Tensor ones = Tensor::Of<float>({1, k}, std::vector<float>(k, 1.0F));
  const Tensor z = RunOp("nn.matmul").In(ones).In(ones.Reshaped({k, 1})).Run();
  EXPECT_EQ(FloatsOf(z), (std::vector<float>{1000}));
}

TEST(Matmul, BroadcastsBatchesAndPromotesVectors) {
  const auto shape = [](Shape x, Shape y) {
    return RunOp("nn.matmul").In(Sample(std::move(x), 1)).In(Sample(std::move(y), 2)).Run().shape();
  };
  EXPECT_EQ(shape({2, 1, 3, 4}, {5, 4, 6}), (Shape{2, 5, 3, 6}));
  EXPECT_EQ(shape({4}, {5, 4, 6}), (Shape{5, 6}));
  EXPECT_EQ(shape({5, 3, 4}, {4}), (Shape{5, 3}));
  EXPECT_EQ(shape({4}, {4}), (Shape{}));
  EXPECT_EQ(shape({0, 4}, {4, 3}), (Shape{0, 3}));
  const Tensor empty = RunOp("nn.matmul").In(Sample({2, 0}, 1)).In(Sample({0, 2}, 2)).Run();
  EXPECT_EQ(FloatsOf(empty), (std::vector<float>{0, 0, 0, 0}));
}

TEST(Matmul, BatchesMeetTheRightMatrices) {
  const Tensor x = Tensor::Of<float>({2, 1, 1, 1}, {2, 3});
  const Tensor y = Tensor::Of<float>({2, 1, 1}, {5, 7});
  EXPECT_EQ(FloatsOf(RunOp("nn.matmul").In(x).In(y).Run()), (std::vector<float>{10, 14, 15, 21}));
}

TEST(Matmul, IntegersWrap) {
  const Tensor x = Tensor::Of<int32_t>({1, 2}, {1 << 30, 1});
  const Tensor y = Tensor::Of<int32_t>({2, 1}, {4, -7});
  EXPECT_EQ(RunOp("nn.matmul").In(x).In(y).Run().data<int32_t>()[0], -7);
  const Tensor big = Tensor::Of<int64_t>({1, 1}, {(int64_t{1} << 53) + 1});
  EXPECT_EQ(
      RunOp("nn.matmul").In(big).In(Tensor::Of<int64_t>({1, 1}, {1})).Run().data<int64_t>()[0],
      (int64_t{1} << 53) + 1);
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const auto error = [](Shape x, Shape y) {
    return RunOp("nn.matmul").In(Sample(std::move(x), 1)).In(Sample(std::move(y), 2)).EvalError();
  };
  EXPECT_EQ(error({2, 3}, {4, 2}), "shape/matmul");
  EXPECT_EQ(error({}, {4, 2}), "shape/matmul");
  EXPECT_EQ(error({2, 2, 3}, {3, 3, 2}), "shape/broadcast");
}

TEST(Gemm, ScalesAndBroadcastsTheAddend) {
  const auto gemm = [](const Tensor& c, RunOp&& op = RunOp("nn.gemm")) -> RunOp& {
    return op.Floats({2, 2}, {1, 2, 3, 4})
        .Floats({2, 2}, {1, 0, 1, 1})
        .In(c)
        .Attr("alpha", 0.5)
        .Attr("beta", 2.0)
        .Attr("transA", true)
        .Attr("transB", true);
  };
  EXPECT_EQ(FloatsOf(gemm(Tensor::Of<float>({2, 1}, {1, 10})).Run()),
            (std::vector<float>{2.5F, 4, 21, 23}));
  EXPECT_EQ(gemm(Tensor::Of<float>({3}, {1, 2, 3})).EvalError(), "shape/broadcast");
  EXPECT_EQ(RunOp("nn.gemm").In(Sample({2, 2, 2}, 1)).In(Sample({2, 2}, 2)).EvalError(),
            "shape/gemm");
}

TEST(Einsum, TracesDiagonalsAndEllipses) {
  const auto einsum = [](const char* equation, std::vector<Tensor> inputs,
                         RunOp&& op = RunOp("nn.einsum")) -> RunOp& {
    for (Tensor& t : inputs) op.In(std::move(t));
    return op.Attr("equation", equation);
  };
  const Tensor m = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(FloatsOf(einsum("ii", {m}).Run()), (std::vector<float>{5}));
  EXPECT_EQ(FloatsOf(einsum("ii->i", {m}).Run()), (std::vector<float>{1, 4}));
  EXPECT_EQ(FloatsOf(einsum("ba", {m}).Run()), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(FloatsOf(einsum("ij,jk", {m, m}).Run()), (std::vector<float>{7, 10, 15, 22}));
  EXPECT_EQ(einsum("...ij,...jk->...ik", {Sample({3, 2, 4}, 1), Sample({4, 5}, 2)}).Run().shape(),
            (Shape{3, 2, 5}));
  EXPECT_EQ(einsum("ij->", {Sample({0, 3}, 1)}).Run().shape(), (Shape{}));
  for (const char* bad : {"ijk", "i", "ij,jk", "ij->k", "ij->ii", "i.j", "i1"}) {
    EXPECT_EQ(einsum(bad, {m}).EvalError(), "shape/einsum") << bad;
  }
  EXPECT_EQ(einsum("ij,ij", {m, Sample({2, 3}, 1)}).EvalError(), "shape/einsum");
}

TEST(QlinearMatmul, RoundsHalfToEvenAndSaturates) {
  const auto scalar = [](float v) { return Tensor::Scalar<float>(v); };
  const Tensor y = RunOp("nn.qlinear_matmul")
                       .In(Tensor::Of<uint8_t>({4, 1}, {3, 5, 200, 1}))
                       .In(scalar(0.5F))
                       .In(Tensor::Scalar<uint8_t>(2))
                       .In(Tensor::Of<uint8_t>({1, 1}, {1}))
                       .In(scalar(1))
                       .In(Tensor::Scalar<uint8_t>(0))
                       .In(scalar(1))
                       .In(Tensor::Scalar<int8_t>(10))
                       .Run();
  EXPECT_EQ(std::vector<int8_t>(y.data<int8_t>().begin(), y.data<int8_t>().end()),
            (std::vector<int8_t>{10, 12, 109, 10}));
}

// ---- normalizations -----------------------------------------------------------------------------

TEST(Softmax, LargeValuesAndInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto y = FloatsOf(RunOp("nn.softmax").Floats({2, 2}, {1000, 1000, -inf, 0}).Run());
  EXPECT_EQ(y, (std::vector<float>{0.5F, 0.5F, 0, 1}));
  const auto log = FloatsOf(RunOp("nn.log_softmax").Floats({2}, {1000, 0}).Run());
  EXPECT_EQ(log, (std::vector<float>{0, -1000}));
  EXPECT_EQ(RunOp("nn.softmax").Floats({2}, {1, 2}).Attr("axis", 1).EvalError(), "shape/axis");
  EXPECT_EQ(RunOp("nn.softmax").Floats({2, 0}, {}).Run().shape(), (Shape{2, 0}));
}

TEST(Hardmax, TakesTheFirstAlongTheAxis) {
  const auto y = FloatsOf(RunOp("nn.hardmax").Floats({2, 2}, {3, 1, 3, 2}).Attr("axis", 0).Run());
  EXPECT_EQ(y, (std::vector<float>{1, 0, 0, 1}));
}

TEST(Hardmax, NanIsTheGreatest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto y = FloatsOf(RunOp("nn.hardmax").Floats({2, 3}, {3, nan, nan, nan, 9, 1}).Run());
  EXPECT_EQ(y, (std::vector<float>{0, 1, 0, 1, 0, 0}));
}

TEST(BatchNormalization, TrainingUpdatesTheStatistics) {
  const auto run = [](bool training) {
    return RunOp("nn.batch_normalization")
        .Floats({2, 1, 2}, {1, 2, 3, 4})
        .Floats({1}, {2})
        .Floats({1}, {1})
        .Floats({1}, {10})
        .Floats({1}, {4})
        .Attr("epsilon", 0.0)
        .Attr("momentum", 0.5)
        .Attr("training_mode", training)
        .Outputs(3)
        .Values();
  };
  const auto inference = run(false);
  EXPECT_EQ(FloatsOf(inference[0].tensor()), (std::vector<float>{-8, -7, -6, -5}));
  EXPECT_EQ(FloatsOf(inference[1].tensor()), (std::vector<float>{10}));
  const auto training = run(true);
  EXPECT_FLOAT_EQ(FloatsOf(training[0].tensor())[3],
                  static_cast<float>(1.5 / std::sqrt(1.25) * 2 + 1));
  EXPECT_EQ(FloatsOf(training[1].tensor()), (std::vector<float>{6.25F}));
  EXPECT_EQ(FloatsOf(training[2].tensor()), (std::vector<float>{2.625F}));
}

TEST(BatchNormalization, ChecksTheChannels) {
  const auto vector = [](int64_t size) { return Sample({size}, 1); };
  RunOp op("nn.batch_normalization");
  op.In(Sample({1, 3, 2}, 1)).In(vector(3)).In(vector(3)).In(vector(2)).In(vector(3));
  EXPECT_EQ(op.EvalError(), "shape/channels");
}

TEST(LayerNormalization, StatisticsHaveTheStashType) {
  const auto values = RunOp("nn.layer_normalization")
                          .In(Cast(Tensor::Of<float>({2, 2}, {1, 3, 5, 5}), ElementType::kF16))
                          .In(Cast(Tensor::Of<float>({2}, {1, 2}), ElementType::kF16))
                          .Attr("epsilon", 1.0)
                          .Outputs(3)
                          .Values();
  EXPECT_EQ(FloatsOf(values[1].tensor()), (std::vector<float>{2, 5}));
  EXPECT_EQ(values[1].tensor().shape(), (Shape{2, 1}));
  EXPECT_FLOAT_EQ(FloatsOf(values[2].tensor())[0], static_cast<float>(1 / std::sqrt(2.0)));
  EXPECT_EQ(values[0].tensor().element_type(), ElementType::kF16);
}

TEST(GroupNormalization, ChannelsMustDivide) {
  RunOp op("nn.group_normalization");
  op.In(Sample({1, 3, 2}, 1)).In(Sample({3}, 1)).In(Sample({3}, 1)).Attr("num_groups", 2);
  EXPECT_EQ(op.EvalError(), "shape/groups");
}

TEST(LpNormalization, ZeroStaysZero) {
  const auto y = FloatsOf(RunOp("nn.lp_normalization").Floats({2, 2}, {0, 0, 3, 4}).Run());
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0.6F, 0.8F}));
}

TEST(Lrn, EvenSizeReachesFurtherBehind) {
  const auto y = FloatsOf(RunOp("nn.lrn")
                              .Floats({1, 3, 1}, {1, 2, 4})
                              .Attr("size", 2)
                              .Attr("alpha", 2.0)
                              .Attr("beta", 1.0)
                              .Attr("bias", 0.0)
                              .Run());
  EXPECT_EQ(y, (std::vector<float>{0.2F, 0.1F, 0.25F}));
}

}  // namespace
}  // namespace lathe::test
