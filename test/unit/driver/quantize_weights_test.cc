#include <cmath>

#include "lathe/driver/compile_engine.h"
#include "lathe/driver/quantize.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/random.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

// Two products and a gemm; the weights of the first are read transposed.
constexpr const char* kNetwork = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 40], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[70, 40], f32>
  %v = builtin.get_parameter() {name = "v"} : () -> v_tensor<[70, 33], f32>
  %g = builtin.get_parameter() {name = "g"} : () -> v_tensor<[5, 33], f32>
  %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[5], f32>
  %t = nn.transpose(%w) {perm = [1, 0]} : (v_tensor<[70, 40], f32>) -> v_tensor<[40, 70], f32>
  %1 = nn.matmul(%x, %t) : (v_tensor<[N, 40], f32>, v_tensor<[40, 70], f32>) -> v_tensor<[N, 70], f32>
  %2 = nn.relu(%1) : (v_tensor<[N, 70], f32>) -> v_tensor<[N, 70], f32>
  %3 = nn.matmul(%2, %v) : (v_tensor<[N, 70], f32>, v_tensor<[70, 33], f32>) -> v_tensor<[N, 33], f32>
  %4 = nn.gemm(%3, %g, %b) {transB = true} : (v_tensor<[N, 33], f32>, v_tensor<[5, 33], f32>, v_tensor<[5], f32>) -> v_tensor<[N, 5], f32>
  nn.fetch(%4) {name = "y"} : (v_tensor<[N, 5], f32>) -> ())";

Tensor Random(const Shape& shape, uint64_t stream) {
  RandomStream random(7, stream);
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  for (float& v : values) v = static_cast<float>(random.Uniform(-1, 1));
  return Tensor::Of<float>(shape, values);
}

class QuantizeWeightsTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  Program Network() {
    Program program = Parse(kNetwork);
    const std::pair<const char*, Tensor> weights[] = {{"w", Random({70, 40}, 1)},
                                                      {"v", Random({70, 33}, 2)},
                                                      {"g", Random({5, 33}, 3)},
                                                      {"b", Random({5}, 4)}};
    for (const auto& [name, data] : weights) {
      program.parameters().Insert(StrAttribute::Get(context_, name), {data, false});
    }
    return program;
  }

  // All tests share what is compiled.
  static CompileOptions Compiling() {
    static const auto engine = std::make_shared<CompileEngine>();
    return {.engine = engine};
  }

  // Rows that lie near a plane of few dimensions, as those of models do.
  static CalibrationData Rows(uint64_t runs) {
    return [=](std::span<const Port>, const std::function<void(const NamedValues&)>& use) {
      const Tensor directions = Random({6, 40}, 50);
      for (uint64_t i = 0; i < runs; ++i) {
        const Tensor places = Random({20, 6}, 100 + i), noise = Random({20, 40}, 200 + i);
        std::vector<float> rows(20 * 40);
        for (size_t r = 0; r < 20; ++r) {
          for (size_t k = 0; k < 40; ++k) {
            float& v = rows[r * 40 + k];
            v = 0.05F * noise.data<float>()[r * 40 + k];
            for (size_t d = 0; d < 6; ++d) {
              v += places.data<float>()[r * 6 + d] * directions.data<float>()[d * 40 + k];
            }
          }
        }
        use({{"x", Tensor::Of<float>({20, 40}, rows)}});
      }
    };
  }

  QuantizationReport Run(Program& program, WeightOptions options, uint64_t runs = 0) {
    options.compile = Compiling();
    const CalibrationData data = Rows(runs);
    return QuantizeWeights(program, runs > 0 ? &data : nullptr, options);
  }
};

TEST_F(QuantizeWeightsTest, EveryProductWithAndWithoutZeroPoints) {
  for (const int64_t bits : {4, 8}) {
    for (const bool symmetric : {false, true}) {
      Program program = Network();
      const auto report =
          Run(program, {.form = {.bits = bits, .block = 16, .symmetric = symmetric}}, 2);
      EXPECT_EQ(report.quantized(), 3);
      for (const LayerReport& layer : report.layers) {
        EXPECT_LT(layer.error.value(), bits == 4 ? 0.15 : 0.01);
        EXPECT_GT(layer.error.value(), 0);
        EXPECT_FALSE(layer.nearest_error.has_value());
      }
      EXPECT_LT(report.outputs.at(0).error, bits == 4 ? 0.3 : 0.02);
      size_t products = 0;
      Optimize(program);
      for (const Operation& op : *program.block()) products += op.name() == "nn.matmul_nbits";
      EXPECT_EQ(products, 3);
    }
  }
}

TEST_F(QuantizeWeightsTest, RoundingByDataLosesLess) {
  Program nearest = Network(), calibrated = Network();
  const auto plain = Run(nearest, {.form = {.block = 16}}, 5);
  const auto report =
      Run(calibrated, {.form = {.block = 16}, .rounding = WeightRounding::kCalibrated}, 5);
  for (size_t i = 0; i < report.layers.size(); ++i) {
    EXPECT_EQ(report.layers[i].nearest_error, plain.layers[i].error);
    EXPECT_LT(*report.layers[i].error, 0.8 * *report.layers[i].nearest_error);
  }
  EXPECT_LT(report.outputs[0].error, plain.outputs[0].error);
}

TEST_F(QuantizeWeightsTest, WithoutDataTheErrorIsThatOfWeights) {
  Program program = Network();
  const auto report = Run(program, {.form = {.bits = 8}});
  EXPECT_EQ(report.runs, 0);
  EXPECT_TRUE(report.outputs.empty());
  for (const LayerReport& layer : report.layers) EXPECT_LT(*layer.error, 0.005);
}

TEST_F(QuantizeWeightsTest, MaxErrorLeavesLayersInFloats) {
  Program program = Network();
  const double all = Run(program, {}, 2).outputs[0].error;
  Program other = Network();
  const auto report = Run(other, {.max_error = all * 0.9}, 2);
  EXPECT_LT(report.quantized(), 3);
  EXPECT_GT(report.quantized(), 0);
  EXPECT_LE(report.outputs[0].error, all * 0.9);
}

TEST_F(QuantizeWeightsTest, SaysWhatIsWrong) {
  const auto id = [&](const WeightOptions& options, uint64_t runs = 0) {
    Program program = Network();
    return ErrorOf([&] { Run(program, options, runs); }).id();
  };
  EXPECT_EQ(id({.form = {.bits = 3}}), "quantize/bits");
  EXPECT_EQ(id({.form = {.block = 24}}), "quantize/block");
  EXPECT_EQ(id({.form = {.block = 8}}), "quantize/block");
  EXPECT_EQ(id({.rounding = WeightRounding::kCalibrated}), "quantize/no-data");
  EXPECT_EQ(id({.max_error = 0.5}), "quantize/no-data");
  EXPECT_EQ(id({.max_error = 1e-12}, 1), "quantize/max-error");
  EXPECT_EQ(id({.exclude = {"*x*"}}), "quantize/exclude");
  EXPECT_EQ(ErrorOf([] { (void)WeightRoundingNamed("up"); }).id(), "quantize/rounding");
  Program twice = Network();
  Run(twice, {});
  EXPECT_EQ(ErrorOf([&] { Run(twice, {}); }).id(), "quantize/quantized");
}

}  // namespace
}  // namespace lathe
