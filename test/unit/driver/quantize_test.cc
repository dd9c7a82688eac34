#include "lathe/driver/quantize.h"

#include <cmath>

#include "lathe/driver/compile_engine.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/random.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/narrow_program.h"

namespace lathe {
namespace {

// Two convolutions with a residual addition, a pool, and products; random weights.
constexpr const char* kNetwork = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 3, 8, 8], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[16, 3, 3, 3], f32>
  %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[16], f32>
  %v = builtin.get_parameter() {name = "v"} : () -> v_tensor<[16, 16, 3, 3], f32>
  %m = builtin.get_parameter() {name = "m"} : () -> v_tensor<[256, 5], f32>
  %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[5], f32>
  %1 = nn.conv(%x, %w, %b) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (v_tensor<[N, 3, 8, 8], f32>, v_tensor<[16, 3, 3, 3], f32>, v_tensor<[16], f32>) -> v_tensor<[N, 16, 8, 8], f32>
  %2 = nn.relu(%1) : (v_tensor<[N, 16, 8, 8], f32>) -> v_tensor<[N, 16, 8, 8], f32>
  %3 = nn.conv(%2, %v) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (v_tensor<[N, 16, 8, 8], f32>, v_tensor<[16, 16, 3, 3], f32>) -> v_tensor<[N, 16, 8, 8], f32>
  %4 = nn.add(%3, %2) : (v_tensor<[N, 16, 8, 8], f32>, v_tensor<[N, 16, 8, 8], f32>) -> v_tensor<[N, 16, 8, 8], f32>
  %5 = nn.max_pool(%4) {kernel_shape = [2, 2], strides = [2, 2]} : (v_tensor<[N, 16, 8, 8], f32>) -> v_tensor<[N, 16, 4, 4], f32>
  %6 = nn.flatten(%5) : (v_tensor<[N, 16, 4, 4], f32>) -> v_tensor<[N, 256], f32>
  %7 = nn.matmul(%6, %m) : (v_tensor<[N, 256], f32>, v_tensor<[256, 5], f32>) -> v_tensor<[N, 5], f32>
  %8 = nn.add(%7, %a) : (v_tensor<[N, 5], f32>, v_tensor<[5], f32>) -> v_tensor<[N, 5], f32>
  nn.fetch(%8) {name = "y"} : (v_tensor<[N, 5], f32>) -> ())";

Tensor Random(const Shape& shape, uint64_t stream, double scale = 1) {
  RandomStream random(7, stream);
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  for (float& v : values) v = static_cast<float>(scale * random.Uniform(-1, 1));
  return Tensor::Of<float>(shape, values);
}

class QuantizeTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  Program Network(double bias = 1) {
    Program program = Parse(kNetwork);
    const std::pair<const char*, Tensor> weights[] = {{"w", Random({16, 3, 3, 3}, 1)},
                                                      {"b", Random({16}, 2, bias)},
                                                      {"v", Random({16, 16, 3, 3}, 3)},
                                                      {"m", Random({256, 5}, 4)},
                                                      {"a", Random({5}, 5)}};
    for (const auto& [name, data] : weights) {
      program.parameters().Insert(StrAttribute::Get(context_, name), {data, false});
    }
    return program;
  }

  // Of what `b` computes, from what `a` does.
  static double RelativeError(const Program& a, const Program& b, const Tensor& x) {
    const auto exact = Compute(a, x), other = Compute(b, x);
    double difference = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      difference += (exact[i] - other[i]) * (exact[i] - other[i]);
      size += exact[i] * exact[i];
    }
    return std::sqrt(difference / size);
  }

  static std::vector<double> Compute(const Program& program, const Tensor& x) {
    return ToDoubles(Executable(program, Compiling()).Run({{"x", x}})[0].second.tensor());
  }

  // All tests share what is compiled.
  static CompileOptions Compiling() {
    static const auto engine = std::make_shared<CompileEngine>();
    return {.engine = engine};
  }

  // `runs` of pictures of random numbers times `scale`.
  static CalibrationData Pictures(uint64_t runs, double scale = 1) {
    return [=](std::span<const Port>, const std::function<void(const NamedValues&)>& use) {
      for (uint64_t i = 0; i < runs; ++i) use({{"x", Random({2, 3, 8, 8}, 100 + i, scale)}});
    };
  }
};

size_t CountOf(const Program& program, std::string_view name) {
  size_t count = 0;
  for (const Operation& op : *program.block()) count += op.name() == name;
  return count;
}

TEST_F(QuantizeTest, ResultsAreCloseToThoseOfFloats) {
  for (const bool symmetric : {false, true}) {
    for (const bool per_tensor : {false, true}) {
      const Program exact = Network();
      Program program = Network();
      const QuantizationReport report =
          Quantize(program, Pictures(8),
                   {.per_tensor = per_tensor, .symmetric = symmetric, .compile = Compiling()});
      EXPECT_EQ(report.quantized(), 3);
      EXPECT_EQ(report.runs, 8);
      ASSERT_EQ(report.outputs.size(), 1u);
      // Of a picture that was not among the data.
      const double error = RelativeError(exact, program, Random({4, 3, 8, 8}, 999));
      EXPECT_LT(error, 0.04);
      EXPECT_GT(error, 1e-4) << "nothing was quantized";
      EXPECT_LT(report.outputs[0].error, 0.04);
    }
  }
}

// Weights and ranges are those of f32; inputs and outputs stay what they are.
TEST_F(QuantizeTest, ModelsOfSixteenBits) {
  for (const ElementType element : {ElementType::kF16, ElementType::kBF16}) {
    const Program exact = Narrow(Network(), element);
    Program program = exact.Clone();
    const CalibrationData pictures = [&](std::span<const Port> ports,
                                         const std::function<void(const NamedValues&)>& use) {
      Pictures(8)(ports, [&](const NamedValues& values) {
        use({{"x", Cast(values[0].second.tensor(), element)}});
      });
    };
    EXPECT_EQ(Quantize(program, pictures, {.compile = Compiling()}).quantized(), 3);
    const Tensor x = Cast(Random({4, 3, 8, 8}, 999), element);
    const double error = RelativeError(exact, program, x);
    EXPECT_LT(error, 0.04);
    EXPECT_GT(error, 1e-4) << "nothing was quantized";
    EXPECT_EQ(TensorOf(program.fetches()[0]->operand(0)).element(), element);
  }
}

TEST_F(QuantizeTest, LayersRunOnBytes) {
  Program program = Network();
  Quantize(program, Pictures(4), {.compile = Compiling()});
  PassManager manager;
  manager.Add("inference");
  manager.Run(program);
  EXPECT_EQ(CountOf(program, "nn.conv_bytes"), 2u);
  EXPECT_EQ(CountOf(program, "nn.matmul_integer"), 1u);
  EXPECT_EQ(CountOf(program, "nn.conv"), 0u);
}

TEST_F(QuantizeTest, EveryMethodHasAReasonableRange) {
  for (const auto method :
       {CalibrationMethod::kMinMax, CalibrationMethod::kPercentile, CalibrationMethod::kEntropy}) {
    Program program = Network();
    const auto report = Quantize(program, Pictures(8), {.method = method, .compile = Compiling()});
    EXPECT_LT(report.outputs[0].error, 0.05) << static_cast<int>(method);
  }
}

// One number of 2,048 is 20 times as large as the others: its steps are, too, or it is cut off.
TEST_F(QuantizeTest, PercentileAndEntropyLeaveOutliersOut) {
  const auto product = [&] {
    Program program = Parse(R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 64], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[64, 8], f32>
  %y = nn.matmul(%x, %w) : (v_tensor<[N, 64], f32>, v_tensor<[64, 8], f32>) -> v_tensor<[N, 8], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[N, 8], f32>) -> ())");
    program.parameters().Insert(StrAttribute::Get(context_, "w"), {Random({64, 8}, 1), false});
    return program;
  };
  const CalibrationData data = [](std::span<const Port>, const auto& use) {
    for (uint64_t i = 0; i < 8; ++i) {
      Tensor x = Random({4, 64}, 100 + i);
      if (i == 3) x.mutable_data<float>()[17] = 20;
      use({{"x", x}});
    }
  };
  const auto error = [&](CalibrationMethod method) {
    Program program = product();
    Quantize(program, data, {.method = method, .percentile = 99.9, .compile = Compiling()});
    return RelativeError(product(), program, Random({4, 64}, 999));
  };
  const double least_to_most = error(CalibrationMethod::kMinMax);
  EXPECT_GT(least_to_most, 0.02);
  EXPECT_LT(error(CalibrationMethod::kPercentile), least_to_most / 4);
  EXPECT_LT(error(CalibrationMethod::kEntropy), least_to_most / 4);
}

// An integer bias in units of tiny products would not fit into 32 bits.
TEST_F(QuantizeTest, LargeBiasesAndConstantValuesFit) {
  const Program exact = Network(1e6);
  Program program = Network(1e6);
  Quantize(program, Pictures(4, 1e-6), {.compile = Compiling()});
  const Tensor x = Random({2, 3, 8, 8}, 100, 1e-6);
  const auto a = Compute(exact, x), b = Compute(program, x);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.02 * 1e8) << i;

  Program zeros = Network();
  const auto report = Quantize(zeros, Pictures(2, 0), {.compile = Compiling()});
  EXPECT_EQ(report.quantized(), 3);
  EXPECT_LT(report.outputs[0].error, 0.02);
}

TEST_F(QuantizeTest, MaxErrorLeavesLayersInFloats) {
  Program program = Network();
  const double all = Quantize(program, Pictures(4), {.compile = Compiling()}).outputs[0].error;
  Program other = Network();
  const auto report =
      Quantize(other, Pictures(4), {.max_error = all * 0.9, .compile = Compiling()});
  EXPECT_LT(report.quantized(), 3);
  EXPECT_GT(report.quantized(), 0);
  EXPECT_LE(report.outputs[0].error, all * 0.9);
  for (const LayerReport& layer : report.layers) EXPECT_TRUE(layer.output_error.has_value());
}

TEST_F(QuantizeTest, SaysWhatIsWrong) {
  const auto id = [&](const CalibrationData& data, QuantizeOptions options) {
    options.compile = Compiling();
    Program program = Network();
    return ErrorOf([&] { Quantize(program, data, options); }).id();
  };
  EXPECT_EQ(id(Pictures(0), {}), "quantize/data");
  EXPECT_EQ(id(Pictures(1, NAN), {}), "quantize/nothing");
  EXPECT_EQ(id(Pictures(1), {.kinds = {"dense"}}), "quantize/ops");
  EXPECT_EQ(id(Pictures(1), {.kinds = {"gemm"}}), "quantize/nothing");
  EXPECT_EQ(id(Pictures(1), {.exclude = {"*x"}}), "quantize/exclude");
  EXPECT_EQ(id(Pictures(1), {.max_error = 1e-12}), "quantize/max-error");
  Program twice = Network();
  Quantize(twice, Pictures(1), {.compile = Compiling()});
  EXPECT_EQ(ErrorOf([&] { Quantize(twice, Pictures(1), {.compile = Compiling()}); }).id(),
            "quantize/quantized");
  EXPECT_EQ(ErrorOf([] { (void)CalibrationMethodNamed("max"); }).id(), "quantize/method");
}

}  // namespace
}  // namespace lathe
