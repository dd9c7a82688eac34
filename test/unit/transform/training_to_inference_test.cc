// From a training program back to an inference program.
#include <gtest/gtest.h>

#include "lathe/pass/pass_manager.h"
#include "lathe/support/random.h"
#include "lathe/transform/optimizer.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

// A layer, batch normalization, dropout.
constexpr const char* kModel = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[4, 3], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[3, 2], f32>
  %s = builtin.get_parameter() {name = "scale"} : () -> v_tensor<[2], f32>
  %b = builtin.get_parameter() {name = "bias"} : () -> v_tensor<[2], f32>
  %m = builtin.get_parameter() {name = "mean"} : () -> v_tensor<[2], f32>
  %v = builtin.get_parameter() {name = "var"} : () -> v_tensor<[2], f32>
  %p = nn.matmul(%x, %w) : (v_tensor<[4, 3], f32>, v_tensor<[3, 2], f32>) -> v_tensor<[4, 2], f32>
  %n = nn.batch_normalization(%p, %s, %b, %m, %v) {momentum = 0.75} : (v_tensor<[4, 2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[4, 2], f32>
  %d = nn.dropout(%n) : (v_tensor<[4, 2], f32>) -> v_tensor<[4, 2], f32>
  nn.fetch(%d) {name = "y"} : (v_tensor<[4, 2], f32>) -> ()
)";

class TrainingToInferenceTest : public ProgramTest {
 protected:
  Program Model() {
    Program program = Parse(kModel);
    const auto insert = [&](const char* name, Tensor data) {
      program.parameters().Insert(StrAttribute::Get(context_, name), {.data = std::move(data)});
    };
    insert("w", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
    insert("scale", Tensor::Of<float>({2}, {1, 2}));
    insert("bias", Tensor::Of<float>({2}, {0, 1}));
    insert("mean", Tensor::Of<float>({2}, {0, 0}));
    insert("var", Tensor::Of<float>({2}, {1, 1}));
    return program;
  }

  static void Apply(Program& program, const std::string& passes) {
    PassManager manager({.verify_each = true});
    manager.Add(passes);
    manager.Run(program);
  }

  static NamedValues Batch() { return {{"x", RandomTensor(ElementType::kF32, {4, 3}, 5)}}; }

  static std::vector<double> Values(const Program& program, std::string_view name) {
    return ToDoubles(program.parameters().Find(name)->data);
  }

  static size_t Count(const Program& program, std::string_view op_name) {
    size_t count = 0;
    for (const Operation& op : *program.block()) count += op.name() == op_name ? 1 : 0;
    return count;
  }
};

constexpr const char* kTrain =
    "training_mode,append_backward{store=none},adamw{lr=0.1,accumulate=2}";

TEST_F(TrainingToInferenceTest, RunningStatisticsAreUpdated) {
  Program program = Model();
  Apply(program, "training_mode");
  (void)Interpreter(program).Run(Batch());
  const std::vector<double> x = ToDoubles(Batch()[0].second.tensor());
  for (size_t c = 0; c < 2; ++c) {
    std::vector<double> column;
    for (size_t i = 0; i < 4; ++i) {
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += x[i * 3 + k] * static_cast<double>(k * 2 + c + 1);
      column.push_back(sum);
    }
    double mean = 0, var = 0;
    for (const double v : column) mean += v / 4;
    for (const double v : column) var += (v - mean) * (v - mean) / 4;
    EXPECT_NEAR(Values(program, "mean")[c], 0.25 * mean, 1e-5);
    EXPECT_NEAR(Values(program, "var")[c], 0.75 + 0.25 * var, 1e-4);
  }
}

TEST_F(TrainingToInferenceTest, StatisticsAreNoneOfTheOptimizers) {
  Program program = Model();
  Apply(program, kTrain);
  for (const char* name : {"w", "scale", "bias"}) {
    EXPECT_NE(program.parameters().Find(OptimizerStateName(name, "adamw", "exp_avg")), nullptr);
  }
  for (const char* name : {"mean", "var"}) {
    EXPECT_EQ(program.parameters().Find(OptimizerStateName(name, "adamw", "exp_avg")), nullptr);
    EXPECT_TRUE(program.parameters().Find(name)->is_mutable);
  }
}

// The program that was, with the parameters that training has made.
TEST_F(TrainingToInferenceTest, BackToInference) {
  Program program = Model();
  Apply(program, kTrain);
  for (int i = 0; i < 4; ++i) (void)Interpreter(program).Run(Batch());
  EXPECT_EQ(Values(program, kStepCounter), std::vector<double>{2});
  Program plain = Model();
  for (const char* name : {"w", "scale", "bias", "mean", "var"}) {
    EXPECT_NE(Values(program, name), Values(plain, name)) << name;
    plain.parameters().Find(name)->data = program.parameters().Find(name)->data;
  }
  Apply(program, "training_to_inference");
  EXPECT_EQ(program.parameters().size(), plain.parameters().size());
  for (const auto& entry : program.parameters()) EXPECT_FALSE(entry.variable.is_mutable);
  EXPECT_EQ(Count(program, "builtin.set_parameter"), 0u);
  EXPECT_EQ(Count(program, "cf.if"), 0u);
  EXPECT_EQ(Interpreter(program).Run(Batch()), Interpreter(plain).Run(Batch()));
  Apply(program, "inference");
  EXPECT_EQ(Count(program, "nn.batch_normalization"), 0u);
}

TEST_F(TrainingToInferenceTest, SomeStaySet) {
  Program program = Model();
  Apply(program, "training_mode,training_to_inference{keep=[me*]}");
  EXPECT_EQ(Count(program, "builtin.set_parameter"), 1u);
  EXPECT_TRUE(program.parameters().Find("mean")->is_mutable);
}

}  // namespace
}  // namespace lathe::testing
