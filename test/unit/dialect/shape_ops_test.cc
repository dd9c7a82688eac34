#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

Tensor Iota(Shape shape) {
  Tensor t(ElementType::kF32, std::move(shape));
  float next = 0;
  for (float& value : t.mutable_data<float>()) value = next++;
  return t;
}

Shape Reshaped(Shape from, const std::vector<int64_t>& to, bool allowzero = false) {
  return RunOp("nn.reshape")
      .In(Iota(std::move(from)))
      .Ints(to)
      .Attr("allowzero", allowzero)
      .Run()
      .shape();
}

TEST(Reshape, CopiesZerosAndInfersMinusOne) {
  EXPECT_EQ(Reshaped({2, 3, 4}, {0, -1}), (Shape{2, 12}));
  EXPECT_EQ(Reshaped({2, 3, 4}, {4, 0, 2}), (Shape{4, 3, 2}));
  EXPECT_EQ(Reshaped({0, 3}, {3, 0}, true), (Shape{3, 0}));
  EXPECT_EQ(Reshaped({2, 3}, {-1}), (Shape{6}));
  EXPECT_EQ(Reshaped({0, 3, 4}, {0, -1}), (Shape{0, 12}));
  EXPECT_EQ(Reshaped({0, 4, 3}, {0, 2, -1}), (Shape{0, 2, 6}));
  // As exporters write a batch that may be empty.
  EXPECT_EQ(Reshaped({0, 3}, {0, -1}, true), (Shape{0, 3}));
  EXPECT_EQ(Reshaped({0, 5, 12}, {0, 5, -1, 3}, true), (Shape{0, 5, 4, 3}));
}

TEST(Reshape, RefusesWhatCanNotBe) {
  const auto error = [](Shape from, const std::vector<int64_t>& to, bool allowzero = false) {
    return RunOp("nn.reshape")
        .In(Iota(std::move(from)))
        .Ints(to)
        .Attr("allowzero", allowzero)
        .EvalError();
  };
  EXPECT_EQ(error({2, 3}, {4, -1}), "shape/reshape");
  EXPECT_EQ(error({2, 3}, {5}), "shape/reshape");
  EXPECT_EQ(error({2, 3}, {-1, -1}), "shape/reshape-infer");
  EXPECT_EQ(error({2, 3}, {6, 1, 0}), "shape/reshape-zero");
  EXPECT_EQ(error({2, 3}, {-2, 3}), "shape/reshape-entry");
  EXPECT_EQ(error({0, 3}, {-1, 0}, true), "shape/reshape-infer");
  EXPECT_EQ(error({4, 0}, {0, -1}, true), "shape/reshape-infer");
  EXPECT_EQ(error({2, 3}, {INT64_MAX, INT64_MAX}), "limit/size");
}

TEST(Shape, SlicesItself) {
  const auto run = [](int64_t start, int64_t end) {
    const Tensor t =
        RunOp("nn.shape").In(Iota({2, 3, 4})).Attr("start", start).Attr("end", end).Run();
    return std::vector<int64_t>(t.data<int64_t>().begin(), t.data<int64_t>().end());
  };
  EXPECT_EQ(run(1, 3), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(run(-1, 100), (std::vector<int64_t>{4}));
  EXPECT_EQ(run(-100, -2), (std::vector<int64_t>{2}));
  EXPECT_EQ(run(2, 1), (std::vector<int64_t>{}));
}

TEST(Transpose, ReversesByDefaultAndMovesPackedElements) {
  const Tensor t = RunOp("nn.transpose").In(Iota({2, 3})).Run();
  EXPECT_EQ(FloatsOf(t), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  const std::vector<Int4> nibbles{Int4(1), Int4(-2), Int4(3), Int4(-4), Int4(5), Int4(-6)};
  const Tensor packed = RunOp("nn.transpose").In(Tensor::Of<Int4>({2, 3}, nibbles)).Run();
  const std::vector<Int4> expected{Int4(1), Int4(-4), Int4(-2), Int4(5), Int4(3), Int4(-6)};
  EXPECT_EQ(Unpack<Int4>(packed), expected);
}

TEST(Transpose, RefusesWrongPermutations) {
  const auto error = [](const std::vector<int64_t>& perm) {
    return RunOp("nn.transpose").In(Iota({2, 3})).Attr("perm", perm).EvalError();
  };
  EXPECT_EQ(error({0, 0}), "shape/axis");
  EXPECT_EQ(error({0}), "shape/transpose");
  EXPECT_EQ(error({0, 2}), "shape/axis");
}

TEST(Expand, BroadcastsBothWays) {
  const Tensor t = RunOp("nn.expand").In(Iota({3, 1})).Ints({2, 1, 2}).Run();
  EXPECT_EQ(t.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(FloatsOf(t), (std::vector<float>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(RunOp("nn.expand").In(Iota({3, 2})).Ints({4, 2}).EvalError(), "shape/broadcast");
  EXPECT_EQ(RunOp("nn.expand").In(Iota({1})).Ints({-1}).EvalError(), "shape/negative-dim");
}

TEST(Expand, RefusesAbsurdSizes) {
  EXPECT_EQ(RunOp("nn.expand").In(Iota({1})).Ints({int64_t{1} << 40}).EvalError(), "limit/memory");
  EXPECT_EQ(RunOp("nn.constant_of_shape").Ints({int64_t{1} << 62, 8}).EvalError(), "limit/size");
  EXPECT_EQ(RunOp("nn.tile").In(Iota({2})).Ints({INT64_MAX}).EvalError(), "limit/size");
}

TEST(Squeeze, ChecksAxes) {
  EXPECT_EQ(RunOp("nn.squeeze").In(Iota({1, 3, 1})).Run().shape(), (Shape{3}));
  EXPECT_EQ(RunOp("nn.squeeze").In(Iota({1, 3, 1})).Ints({-1}).Run().shape(), (Shape{1, 3}));
  EXPECT_EQ(RunOp("nn.squeeze").In(Iota({1, 3, 1})).Ints({1}).EvalError(), "shape/squeeze");
  EXPECT_EQ(RunOp("nn.unsqueeze").In(Iota({3})).Ints({-1, 0}).Run().shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(RunOp("nn.unsqueeze").In(Iota({3})).Ints({0, 0}).EvalError(), "shape/axis");
}

TEST(Range, CountsAndClamps) {
  const auto run = [](int64_t start, int64_t limit, int64_t delta) {
    const Tensor t = RunOp("nn.range")
                         .In(Tensor::Scalar(start))
                         .In(Tensor::Scalar(limit))
                         .In(Tensor::Scalar(delta))
                         .Run();
    return std::vector<int64_t>(t.data<int64_t>().begin(), t.data<int64_t>().end());
  };
  EXPECT_EQ(run(3, 9, 3), (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(run(10, 4, -2), (std::vector<int64_t>{10, 8, 6}));
  EXPECT_EQ(run(4, 10, -2), (std::vector<int64_t>{}));
  EXPECT_EQ(run(INT64_MAX - 1, INT64_MAX, 5), (std::vector<int64_t>{INT64_MAX - 1}));
  EXPECT_EQ(run(INT64_MIN, INT64_MAX, INT64_MAX),
            (std::vector<int64_t>{INT64_MIN, -1, INT64_MAX - 1}));
  EXPECT_EQ(run(INT64_MAX, INT64_MIN, INT64_MIN), (std::vector<int64_t>{INT64_MAX, -1}));
  const auto error = [](int64_t start, int64_t limit, int64_t delta) {
    return RunOp("nn.range")
        .In(Tensor::Scalar(start))
        .In(Tensor::Scalar(limit))
        .In(Tensor::Scalar(delta))
        .EvalError();
  };
  EXPECT_EQ(error(0, 5, 0), "run/range-delta");
  EXPECT_EQ(error(INT64_MIN, INT64_MAX, 1), "limit/size");
}

}  // namespace
}  // namespace lathe::test
