#include <cmath>
#include <limits>

#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> IntsOf(const Tensor& t) { return ToInt64s(t); }

float Reduced(const char* op, const std::vector<float>& values) {
  const Tensor t =
      RunOp(op).Floats({static_cast<int64_t>(values.size())}, values).Attr("keepdims", false).Run();
  EXPECT_EQ(t.rank(), 0);
  return FloatsOf(t).at(0);
}

TEST(Reduce, EmptySetsHaveTheNeutralElement) {
  EXPECT_EQ(Reduced("nn.reduce_sum", {}), 0);
  EXPECT_EQ(Reduced("nn.reduce_prod", {}), 1);
  EXPECT_EQ(Reduced("nn.reduce_max", {}), -kInf);
  EXPECT_EQ(Reduced("nn.reduce_min", {}), kInf);
  EXPECT_EQ(Reduced("nn.reduce_log_sum_exp", {}), -kInf);
  EXPECT_TRUE(std::isnan(Reduced("nn.reduce_mean", {})));
  const Tensor none(ElementType::kI8, {0});
  EXPECT_EQ(IntsOf(RunOp("nn.reduce_max").In(none).Run()), (std::vector<int64_t>{-128}));
  EXPECT_EQ(IntsOf(RunOp("nn.reduce_min").In(Tensor(ElementType::kU32, {0})).Run()),
            (std::vector<int64_t>{UINT32_MAX}));
  EXPECT_EQ(RunOp("nn.reduce_mean").In(Tensor(ElementType::kI32, {0})).EvalError(),
            "run/empty-mean");
}

TEST(Reduce, KeepsNanAndDoesNotOverflow) {
  EXPECT_TRUE(std::isnan(Reduced("nn.reduce_max", {1, kNan, 3})));
  EXPECT_TRUE(std::isnan(Reduced("nn.reduce_min", {1, kNan, 3})));
  EXPECT_NEAR(Reduced("nn.reduce_log_sum_exp", {1000, 1000}), 1000 + std::log(2), 1e-3);
  EXPECT_EQ(Reduced("nn.reduce_l1", {-1, 2}), 3);
  EXPECT_EQ(Reduced("nn.reduce_l2", {3, -4}), 5);
  // Beyond what integers hold it is what a cast gives, which compiled code does.
  EXPECT_EQ(IntsOf(RunOp("nn.reduce_l2").Ints({INT64_MAX, INT64_MAX}).Run()),
            (std::vector<int64_t>{INT64_MIN}));
}

TEST(Reduce, AxesChooseAndNoopStillMaps) {
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  const Tensor rows = RunOp("nn.reduce_sum").Floats({2, 3}, data).Ints({-1}).Run();
  EXPECT_EQ(rows.shape(), (Shape{2, 1}));
  EXPECT_EQ(FloatsOf(rows), (std::vector<float>{6, 15}));
  const Tensor noop = RunOp("nn.reduce_sum_square")
                          .Floats({2}, {3, 4})
                          .Ints({})
                          .Attr("noop_with_empty_axes", true)
                          .Run();
  EXPECT_EQ(FloatsOf(noop), (std::vector<float>{9, 16}));
  EXPECT_EQ(RunOp("nn.reduce_sum").Floats({2}, {3, 4}).Ints({1}).EvalError(), "shape/axis");
  EXPECT_EQ(RunOp("nn.reduce_sum").Floats({2, 1}, {3, 4}).Ints({0, -2}).EvalError(), "shape/axis");
}

TEST(Arg, TiesAndNan) {
  const auto run = [](const char* op, const std::vector<float>& values, bool last) {
    const Tensor t = RunOp(op)
                         .Floats({static_cast<int64_t>(values.size())}, values)
                         .Attr("select_last_index", last)
                         .Run();
    return IntsOf(t).at(0);
  };
  EXPECT_EQ(run("nn.arg_max", {1, 3, 3, 2}, false), 1);
  EXPECT_EQ(run("nn.arg_max", {1, 3, 3, 2}, true), 2);
  EXPECT_EQ(run("nn.arg_min", {1, 3, 1, 2}, true), 2);
  EXPECT_EQ(run("nn.arg_max", {1, kNan, kInf}, false), 1);
  EXPECT_EQ(run("nn.arg_min", {-kInf, kNan, 3}, false), 1);
  EXPECT_EQ(RunOp("nn.arg_max").Floats({0}, {}).EvalError(), "shape/empty-axis");
}

TEST(TopK, TiesByPositionAndKIsChecked) {
  RunOp op("nn.top_k");
  const auto out = op.Floats({5}, {2, 5, 5, 1, 5}).Ints({3}).Outputs(2).Values();
  EXPECT_EQ(FloatsOf(out[0].tensor()), (std::vector<float>{5, 5, 5}));
  EXPECT_EQ(IntsOf(out[1].tensor()), (std::vector<int64_t>{1, 2, 4}));
  const auto small = RunOp("nn.top_k")
                         .Floats({3}, {kNan, 2, 1})
                         .Ints({3})
                         .Attr("largest", false)
                         .Outputs(2)
                         .Values();
  EXPECT_EQ(IntsOf(small[1].tensor()), (std::vector<int64_t>{2, 1, 0}));
  EXPECT_EQ(RunOp("nn.top_k").Floats({3}, {1, 2, 3}).Ints({4}).Outputs(2).EvalError(),
            "shape/top-k");
  EXPECT_EQ(RunOp("nn.top_k").Floats({3}, {1, 2, 3}).Ints({-1}).Outputs(2).EvalError(),
            "shape/top-k");
}

TEST(Cum, ExclusiveAndReverse) {
  const auto run = [](bool exclusive, bool reverse) {
    RunOp op("nn.cum_prod");
    op.Floats({3}, {2, 3, 4}).In(Tensor::Scalar<int64_t>(0)).Attr("exclusive", exclusive);
    return FloatsOf(op.Attr("reverse", reverse).Run());
  };
  EXPECT_EQ(run(false, false), (std::vector<float>{2, 6, 24}));
  EXPECT_EQ(run(true, false), (std::vector<float>{1, 2, 6}));
  EXPECT_EQ(run(true, true), (std::vector<float>{12, 4, 1}));
}

TEST(Unique, SortsOrKeepsOrder) {
  RunOp op("nn.unique");
  const auto out = op.Floats({6}, {2, 1, 1, 3, 4, 3}).Attr("sorted", false).Outputs(4).Values();
  EXPECT_EQ(FloatsOf(out[0].tensor()), (std::vector<float>{2, 1, 3, 4}));
  EXPECT_EQ(IntsOf(out[1].tensor()), (std::vector<int64_t>{0, 1, 3, 4}));
  EXPECT_EQ(IntsOf(out[2].tensor()), (std::vector<int64_t>{0, 1, 1, 2, 3, 2}));
  EXPECT_EQ(IntsOf(out[3].tensor()), (std::vector<int64_t>{1, 2, 2, 1}));
  const Tensor words =
      Tensor::Of<std::string>({3}, {std::string("b"), std::string("a"), std::string("b")});
  const Tensor sorted = RunOp("nn.unique").In(words).Outputs(4).Values()[0].tensor();
  EXPECT_EQ(sorted.data<std::string>()[0], "a");
  EXPECT_EQ(sorted.num_elements(), 2);
}

TEST(Quantize, RoundsToEvenAndSaturates) {
  const auto run = [](const std::vector<float>& x, float scale, Tensor zero) {
    RunOp op("nn.quantize_linear");
    op.Floats({static_cast<int64_t>(x.size())}, x).In(Tensor::Scalar(scale)).In(std::move(zero));
    return IntsOf(op.Run());
  };
  EXPECT_EQ(run({0.5F, 1.5F, 2.5F, -0.5F, -1.5F}, 1, Tensor::Scalar<int8_t>(0)),
            (std::vector<int64_t>{0, 2, 2, 0, -2}));
  EXPECT_EQ(run({1e9F, -1e9F, kInf, -kInf}, 0.5F, Tensor::Scalar<uint8_t>(128)),
            (std::vector<int64_t>{255, 0, 255, 0}));
  EXPECT_EQ(run({-9, 7.4F, 100}, 1, Tensor::Of<Int4>({}, {Int4(1)})),
            (std::vector<int64_t>{-8, 7, 7}));
}

TEST(Quantize, BlocksAndAxes) {
  RunOp blocked("nn.dequantize_linear");
  blocked.In(Tensor::Of<int8_t>({1, 5}, {1, 2, 3, 4, 5})).Floats({1, 3}, {1, 10, 100});
  EXPECT_EQ(FloatsOf(blocked.Attr("axis", 1).Attr("block_size", 2).Run()),
            (std::vector<float>{1, 2, 30, 40, 500}));
  RunOp by_axis("nn.dequantize_linear");
  by_axis.In(Tensor::Of<int8_t>({2, 2}, {1, 2, 3, 4})).Floats({2}, {1, 10});
  EXPECT_EQ(FloatsOf(by_axis.Attr("axis", 0).Run()), (std::vector<float>{1, 2, 30, 40}));
  RunOp wrong("nn.dequantize_linear");
  wrong.In(Tensor::Of<int8_t>({2, 2}, {1, 2, 3, 4})).Floats({3}, {1, 10, 100});
  EXPECT_EQ(wrong.EvalError(), "shape/quantize");
}

TEST(Cast, PowersOfTwoRoundByMode) {
  const auto run = [](const char* mode) {
    RunOp op("nn.cast");
    op.Floats({2}, {3, 1.25F}).Attr("to", ElementType::kF8E8M0).Attr("round_mode", mode);
    return ToDoubles(op.Run());
  };
  EXPECT_EQ(run("up"), (std::vector<double>{4, 2}));
  EXPECT_EQ(run("down"), (std::vector<double>{2, 1}));
  EXPECT_EQ(run("nearest"), (std::vector<double>{4, 1}));
}

TEST(BitCast, NeedsTheSameWidth) {
  const Tensor bits = RunOp("nn.bit_cast").Floats({1}, {1}).Attr("to", ElementType::kI32).Run();
  EXPECT_EQ(IntsOf(bits), (std::vector<int64_t>{0x3F800000}));
  EXPECT_EQ(RunOp("nn.bit_cast").Floats({1}, {1}).Attr("to", ElementType::kI64).EvalError(),
            "type/bit-cast");
}

TEST(Random, SeedsDecide) {
  const auto run = [](double seed) {
    return FloatsOf(RunOp("nn.random_uniform")
                        .Attr("shape", std::vector<int64_t>{64})
                        .Attr("seed", seed)
                        .Attr("low", -2.0)
                        .Attr("high", 3.0)
                        .Run());
  };
  const auto first = run(1);
  EXPECT_EQ(first, run(1));
  EXPECT_NE(first, run(2));
  for (const float value : first) EXPECT_TRUE(value >= -2 && value < 3);
}

}  // namespace
}  // namespace lathe::test
