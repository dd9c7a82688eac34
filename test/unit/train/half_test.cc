#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "lathe/dialect/all.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/file.h"
#include "lathe/transform/optimizer.h"
#include "test/unit/train/networks.h"

// Parameters of 16 bits: kept in f32, and a loss that is scaled for f16.
namespace lathe::train::testing {
namespace {

class HalfTest : public ::testing::Test {
 protected:
  HalfTest() { LoadAllDialects(context_); }

  static TrainerOptions Options() {
    TrainerOptions options{.recipe = {.optimizer = "adamw{lr=1e-2}"}, .epochs = 6, .batch = 8};
    options.seed = 5;
    options.compile.threads = 1;
    options.compile.engine = Engine();
    return options;
  }

  static double Loss(const Program& model, const TrainerOptions& options) {
    Trainer trainer(model, options);
    trainer.Fit(*MlpData());
    return trainer.Evaluate(*MlpData()).loss;
  }

  IrContext context_;
  TemporaryFolder folder_;
};

TEST_F(HalfTest, LearnsAsF32Does) {
  const Program model = Mlp(context_, 4);
  for (const char* optimizer : {"adamw{lr=1e-2}", "sgd{lr=0.1,momentum=0.9,clip_global_norm=1}",
                                "sgd{lr=0.1,accumulate=2}"}) {
    TrainerOptions options = Options();
    options.recipe.optimizer = optimizer;
    const double loss = Loss(model, options);
    EXPECT_NEAR(Loss(Narrow(model, ElementType::kF16), options), loss, 4e-3 * loss) << optimizer;
    EXPECT_NEAR(Loss(Narrow(model, ElementType::kBF16), options), loss, 3e-2 * loss) << optimizer;
  }
}

TEST_F(HalfTest, WeightsAndStatesAreF32AndTheModelIsNot) {
  for (const ElementType element : {ElementType::kF16, ElementType::kBF16}) {
    const Program model = Narrow(Mlp(context_, 4), element);
    Trainer trainer(model, Options());
    for (const auto& [name, variable] : trainer.programs().step.parameters()) {
      EXPECT_GE(BitWidth(variable.data.element_type()), 32U) << name.value();
      EXPECT_FALSE(name.value().starts_with(StrCat(kLossScale, "@"))) << "the scale is learned";
    }
    EXPECT_EQ(trainer.programs().shared.size(), 4U);
    const bool scaled = trainer.programs().step.parameters().Find(kLossScale) != nullptr;
    EXPECT_EQ(scaled, element == ElementType::kF16);
    trainer.Fit(*MlpData());
    const Program trained = trainer.Trained();
    for (const auto& [name, variable] : trained.parameters()) {
      EXPECT_EQ(variable.data.element_type(), element);
      EXPECT_NE(variable.data, model.parameters().Find(name.value())->data) << name.value();
    }
  }
}

TEST_F(HalfTest, ResumesBitExactly) {
  const Program model = Narrow(Mlp(context_, 4), ElementType::kF16);
  TrainerOptions options = Options();
  Trainer whole(model, options);
  whole.Fit(*MlpData());
  options.epochs = 3;
  Trainer first(model, options);
  first.Fit(*MlpData());
  const std::string half = StrCat(folder_.path(), "/half"), end = StrCat(folder_.path(), "/end");
  first.SaveCheckpoint(half);
  options.epochs = 6;
  Trainer second(model, options);
  second.Resume(half);
  second.Fit(*MlpData());
  second.SaveCheckpoint(end);
  whole.SaveCheckpoint(half);
  EXPECT_EQ(ReadFile(half), ReadFile(end));
}

// The sum of x w, of which w is learned, rounded to f16 after each operation: the gradient of w is
// x.
class ScaledStep {
 public:
  ScaledStep(IrContext& context, const std::string& optimizer, double scale,
             Precision precision = Precision::kStrict) {
    const Program model =
        ProgramOf(context, R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f16>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f16>
  %p = nn.mul(%x, %w) : (v_tensor<[2], f16>, v_tensor<[2], f16>) -> v_tensor<[2], f16>
  %c = nn.cast(%p) {to = f32} : (v_tensor<[2], f16>) -> v_tensor<[2], f32>
  %y = nn.reduce_sum(%c) {keepdims = false} : (v_tensor<[2], f32>) -> v_tensor<[], f32>
  nn.fetch(%y) {name = "loss"} : (v_tensor<[], f32>) -> ()
)",
                  {{"w", Cast(Tensor::Of<float>({2}, {1, 2}), ElementType::kF16)}});
    const TrainingRecipe recipe{.loss = "loss", .optimizer = optimizer, .loss_scale = scale};
    step_.emplace(MakeTrainingProgram(model, recipe).step,
                  CompileOptions{.engine = Engine(), .precision = precision, .threads = 1});
  }

  void Run(float a, float b) {
    (void)step_->Run({{"x", Cast(Tensor::Of<float>({2}, {a, b}), ElementType::kF16)}});
  }
  void Set(std::string_view name, const Tensor& value) {
    step_->SetParameter(std::string(name), value);
  }
  std::vector<double> Get(std::string_view name) const {
    return ToDoubles(step_->GetParameter(std::string(name)));
  }

 private:
  std::optional<Executable> step_;
};

using Doubles = std::vector<double>;

// 2^-24 is the least f16; what is smaller is 0 without a scale.
TEST_F(HalfTest, SmallGradientsAreNotLost) {
  ScaledStep step(context_, "sgd{lr=1024}", 32768);
  step.Run(0x1p-20F, 0x1p-24F);
  EXPECT_EQ(step.Get("w"), (Doubles{1 - 0x1p-10, 2 - 0x1p-14}));
}

// 65,536 is beyond f16.
TEST_F(HalfTest, AStepWhoseGradientsAreNotFiniteChangesNothingButTheScale) {
  ScaledStep step(context_, "adamw{lr=0.125}", 65536);
  step.Run(1, 0.25);
  EXPECT_EQ(step.Get("w"), (Doubles{1, 2}));
  EXPECT_EQ(step.Get(kStepCounter), Doubles{0});
  EXPECT_EQ(step.Get("w@adamw.exp_avg"), (Doubles{0, 0}));
  EXPECT_EQ(step.Get(kLossScale), Doubles{32768});
  step.Run(1, 0.25);
  EXPECT_NE(step.Get("w")[0], 1);
  EXPECT_TRUE(std::isfinite(step.Get("w")[0]));
  EXPECT_EQ(step.Get(kStepCounter), Doubles{1});
  EXPECT_EQ(step.Get(kLossScale), Doubles{32768});
  EXPECT_EQ(step.Get(kGoodSteps), Doubles{1});
}

TEST_F(HalfTest, TheScaleGrowsAfterManyGoodSteps) {
  ScaledStep step(context_, "sgd{lr=0.125}", 1024);
  step.Set(kGoodSteps, Tensor::Scalar<int64_t>(1998));
  step.Run(1, 1);
  EXPECT_EQ(step.Get(kLossScale), Doubles{1024});
  step.Run(1, 1);
  EXPECT_EQ(step.Get(kLossScale), Doubles{2048});
  EXPECT_EQ(step.Get(kGoodSteps), Doubles{0});
  EXPECT_EQ(step.Get("w"), (Doubles{0.75, 1.75}));
}

TEST_F(HalfTest, TheScaleStaysFinite) {
  ScaledStep step(context_, "sgd{lr=0.125}", 0x1p126, Precision::kF32);
  step.Set(kGoodSteps, Tensor::Scalar<int64_t>(1999));
  step.Run(0, 0);
  EXPECT_EQ(step.Get(kLossScale), Doubles{0x1p126});
  EXPECT_EQ(step.Get(kGoodSteps), Doubles{0});
}

TEST_F(HalfTest, OneBadMicroBatchSkipsTheUpdate) {
  ScaledStep step(context_, "sgd{lr=0.125,accumulate=2}", 65536);
  step.Run(1, 0.25);  // not finite
  EXPECT_EQ(step.Get(kLossScale), Doubles{65536});
  step.Run(0.5, 0.25);
  EXPECT_EQ(step.Get("w"), (Doubles{1, 2}));
  EXPECT_EQ(step.Get(kLossScale), Doubles{32768});
  step.Run(0.5, 0.25);
  step.Run(0.5, 0.75);
  EXPECT_EQ(step.Get("w"), (Doubles{1 - 0.0625, 2 - 0.0625}));
}

TEST_F(HalfTest, AScaleOfNothingIsRefused) {
  TrainerOptions options = Options();
  options.recipe.loss_scale = 0;
  const Program model = Narrow(Mlp(context_, 4), ElementType::kF16);
  const TrainingProgram made = MakeTrainingProgram(model, options.recipe);
  EXPECT_EQ(made.step.parameters().Find(kLossScale), nullptr);
  PassManager manager;
  manager.Add("append_loss,scale_loss{initial=-1}");
  Program program = model.Clone();
  try {
    manager.Run(program);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "loss/scale");
  }
}

}  // namespace
}  // namespace lathe::train::testing
