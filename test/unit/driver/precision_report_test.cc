#include "lathe/driver/precision_report.h"

#include <cmath>

#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "src/driver/wide_program.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

// A convolution that Winograd's tiles are taken for, a product, a choice, and symbolic sizes.
constexpr const char* kNetwork = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 64, 16, 16], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[64, 64, 3, 3], f32>
  %m = builtin.get_parameter() {name = "m"} : () -> v_tensor<[64, 10], f32>
  %1 = nn.conv(%x, %w) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (v_tensor<[N, 64, 16, 16], f32>, v_tensor<[64, 64, 3, 3], f32>) -> v_tensor<[N, 64, 16, 16], f32>
  %2 = nn.relu(%1) : (v_tensor<[N, 64, 16, 16], f32>) -> v_tensor<[N, 64, 16, 16], f32>
  %3 = nn.global_average_pool(%2) : (v_tensor<[N, 64, 16, 16], f32>) -> v_tensor<[N, 64, 1, 1], f32>
  %4 = nn.flatten(%3) : (v_tensor<[N, 64, 1, 1], f32>) -> v_tensor<[N, 64], f32>
  %5 = nn.matmul(%4, %m) : (v_tensor<[N, 64], f32>, v_tensor<[64, 10], f32>) -> v_tensor<[N, 10], f32>
  %6 = nn.arg_max(%5) {axis = 1, keepdims = false} : (v_tensor<[N, 10], f32>) -> v_tensor<[N], i64>
  nn.fetch(%5) {name = "y"} : (v_tensor<[N, 10], f32>) -> ()
  nn.fetch(%6) {name = "best"} : (v_tensor<[N], i64>) -> ())";

class PrecisionReportTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  Program WithParameters(std::string_view text,
                         const std::vector<std::pair<const char*, Tensor>>& parameters) {
    Program program = Parse(text);
    for (const auto& [name, data] : parameters) {
      program.parameters().Insert(StrAttribute::Get(context_, name), {data, false});
    }
    return program;
  }

  Program Network() {
    return WithParameters(kNetwork, {{"w", RandomTensor(ElementType::kF32, {64, 64, 3, 3}, 1)},
                                     {"m", RandomTensor(ElementType::kF32, {64, 10}, 2)}});
  }

  static PrecisionReport ReportOf(const Program& program, const std::vector<NamedValues>& inputs) {
    return ReportPrecision(program, inputs, {.compile = {.threads = 1}, .seconds = 0});
  }
};

TEST_F(PrecisionReportTest, EveryLevelHasItsErrors) {
  const Program program = Network();
  const std::vector<NamedValues> inputs = {
      {{"x", RandomTensor(ElementType::kF32, {2, 64, 16, 16}, 3)}},
      {{"x", RandomTensor(ElementType::kF32, {3, 64, 16, 16}, 4)}}};
  const PrecisionReport report = ReportOf(program, inputs);
  ASSERT_EQ(report.levels.size(), PrecisionNames().size());
  EXPECT_TRUE(report.kept.empty());
  EXPECT_EQ(report.kernels_not_compared, 0);
  for (const LevelReport& level : report.levels) {
    SCOPED_TRACE(Name(level.level));
    ASSERT_EQ(level.outputs.size(), 2u);
    const OutputError& y = level.outputs[0];
    EXPECT_EQ(y.name, "y");
    EXPECT_EQ(y.elements, 50);
    EXPECT_GT(y.relative_rms, 0);
    EXPECT_GE(y.largest, 0);
    EXPECT_EQ(y.top1, 1);
    EXPECT_EQ(level.outputs[1].different, 0);
    EXPECT_FALSE(level.outputs[1].top1.has_value());
    EXPECT_GT(level.milliseconds, 0);
    EXPECT_TRUE(level.keeps_promise);
    ASSERT_TRUE(level.worst.has_value());
    EXPECT_GT(level.worst->relative_rms, 0);
    EXPECT_FALSE(level.worst->strategy.empty());
  }
  const LevelReport& strict = report.levels[0];
  EXPECT_EQ(strict.level, Precision::kStrict);
  EXPECT_TRUE(strict.same_as_strict);
  EXPECT_EQ(strict.speedup, 1);
  EXPECT_LT(strict.outputs[0].relative_rms, 1e-6);
  EXPECT_FALSE(report.levels[static_cast<size_t>(Precision::kF32)].same_as_strict);
}

// The sum of 2^24 and 1 twice is exact in f64 alone.
TEST_F(PrecisionReportTest, TheReferenceIsExact) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1], f32>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[1], f32>
    %1 = nn.add(%x, %y) : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1], f32>
    %2 = nn.add(%1, %y) : (v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1], f32>
    nn.fetch(%2) {name = "z"} : (v_tensor<[1], f32>) -> ())");
  const NamedValues inputs = {{"x", Tensor::Of<float>({1}, {0x1p24F})},
                              {"y", Tensor::Of<float>({1}, {1.0F})}};
  const PrecisionReport report = ReportOf(program, {inputs});
  EXPECT_EQ(report.levels[0].outputs[0].largest, 2);
  EXPECT_NEAR(report.levels[0].outputs[0].relative_largest, 0x1p-23, 1e-12);
  ASSERT_TRUE(report.levels[0].worst.has_value());
  EXPECT_EQ(report.levels[0].worst->largest, 2);
}

TEST_F(PrecisionReportTest, InfinitiesAndNanAreNoErrorsWhereTheyBelong) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %1 = nn.mul(%x, %x) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
    nn.fetch(%1) {name = "z"} : (v_tensor<[4], f32>) -> ())");
  const float inf = INFINITY;
  // 1e30 squared is a number in f64 alone.
  const NamedValues inputs = {{"x", Tensor::Of<float>({4}, {inf, NAN, 2, 1e30F})}};
  const OutputError error = ReportOf(program, {inputs}).levels[0].outputs[0];
  EXPECT_EQ(error.different, 1);
  EXPECT_EQ(error.largest, 0);
}

TEST_F(PrecisionReportTest, WhatAModelRoundsIsAnErrorOfEachLevel) {
  const Program program = WithParameters(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4, 8], bf16>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[8, 6], bf16>
    %1 = nn.matmul(%x, %w) : (v_tensor<[4, 8], bf16>, v_tensor<[8, 6], bf16>) -> v_tensor<[4, 6], bf16>
    nn.fetch(%1) {name = "y"} : (v_tensor<[4, 6], bf16>) -> ())",
                                         {{"w", RandomTensor(ElementType::kBF16, {8, 6}, 1)}});
  const PrecisionReport report =
      ReportOf(program, {{{"x", RandomTensor(ElementType::kBF16, {4, 8}, 2)}}});
  for (const LevelReport& level : report.levels) {
    EXPECT_TRUE(level.same_as_strict);
    EXPECT_TRUE(level.keeps_promise);
    EXPECT_GT(level.outputs[0].relative_rms, 1e-4);
    EXPECT_LT(level.outputs[0].relative_rms, 0x1p-8);
  }
}

// Loops, branches, integers, casts, sizes of f32 that have no other type, and sequences.
TEST_F(PrecisionReportTest, WideProgramsHaveRegions) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32>
    %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
    %i = nn.cast(%x) {to = i32} : (v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], i32>
    %r = cf.if(%c) ({
      %e = nn.exp(%x) : (v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], f32>
      cf.yield(%e) : (v_tensor<[2, 3], f32>) -> ()
    }, {
      %f = nn.cast(%i) {to = f32} : (v_tensor<[2, 3], i32>) -> v_tensor<[2, 3], f32>
      cf.yield(%f) : (v_tensor<[2, 3], f32>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2, 3], f32>
    %h = nn.cast(%r) {to = f16} : (v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], f16>
    nn.fetch(%h) {name = "y"} : (v_tensor<[2, 3], f16>) -> ()
    nn.fetch(%i) {name = "i"} : (v_tensor<[2, 3], i32>) -> ())");
  WideProgram wide = Widened(program);
  EXPECT_TRUE(wide.kept.empty());
  const Tensor x = Tensor::Of<float>({2, 3}, {1, 2, 3, -1, -2, 0.5F});
  const NamedValues got =
      Interpreter(wide.program).Run({{"x", x}, {"c", Tensor::Scalar<bool>(true)}});
  ASSERT_EQ(got[0].second.tensor().element_type(), ElementType::kF64);
  EXPECT_EQ(got[0].second.tensor().data<double>()[0], std::exp(1.0));
  EXPECT_EQ(got[1].second.tensor().element_type(), ElementType::kI32);
}

TEST_F(PrecisionReportTest, WhatHasNoFormInF64StaysAsItIs) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[3], f32>
    %1 = nn.exp(%x) : (v_tensor<[3], f32>) -> v_tensor<[3], f32>
    %2 = nn.sequence_construct(%1) : (v_tensor<[3], f32>) -> list<v_tensor<[3], f32>>
    %3 = nn.concat_from_sequence(%2) {axis = 0} : (list<v_tensor<[3], f32>>) -> v_tensor<[3], f32>
    %4 = nn.neg(%3) : (v_tensor<[3], f32>) -> v_tensor<[3], f32>
    nn.fetch(%4) {name = "y"} : (v_tensor<[3], f32>) -> ())");
  WideProgram wide = Widened(program);
  EXPECT_EQ(wide.kept["nn.sequence_construct"], 1);
  const NamedValues got = Interpreter(wide.program).Run({{"x", Tensor::Of<float>({3}, {1, 2, 3})}});
  EXPECT_EQ(got[0].second.tensor().data<double>()[0], -static_cast<double>(std::exp(1.0F)));
}

// Scales of bytes stay f32, also where nothing is wide yet.
TEST_F(PrecisionReportTest, QuantizedWeightsKeepTheirScales) {
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2], f32>
    %q = nn.feed() {name = "q"} : () -> v_tensor<[2, 2], i8>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[], f32>
    %w = nn.dequantize_linear(%q, %s) : (v_tensor<[2, 2], i8>, v_tensor<[], f32>) -> v_tensor<[2, 2], f32>
    %y = nn.matmul(%x, %w) : (v_tensor<[1, 2], f32>, v_tensor<[2, 2], f32>) -> v_tensor<[1, 2], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[1, 2], f32>) -> ())");
  WideProgram wide = Widened(program);
  EXPECT_EQ(wide.kept["nn.dequantize_linear"], 1);
  const NamedValues got = Interpreter(wide.program)
                              .Run({{"x", Tensor::Of<float>({1, 2}, {1, 2})},
                                    {"q", Tensor::Of<int8_t>({2, 2}, {1, 2, 3, 4})},
                                    {"s", Tensor::Scalar<float>(0.5F)}});
  EXPECT_EQ(got[0].second.tensor().data<double>()[1], 5);
}

}  // namespace
}  // namespace lathe
