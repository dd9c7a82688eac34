// Losses of each step beside those of PyTorch 2.15.0 (CPU), from the same weights and data:
// torch.optim and torch.nn.functional in eager mode, 24 steps of 8 samples in order.
#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "test/unit/train/networks.h"

namespace lathe::train::testing {
namespace {

class TorchLosses : public ::testing::Test {
 protected:
  TorchLosses() { LoadAllDialects(context_); }

  static void Expect(const Program& model, TrainingRecipe recipe, const DataSet& data,
                     const std::vector<double>& expected) {
    std::vector<double> losses;
    TrainerOptions options{.recipe = std::move(recipe), .epochs = 6, .batch = 8, .shuffle = false};
    options.compile.threads = 1;
    options.compile.engine = Engine();
    options.on_step = [&](const StepReport& report) { losses.push_back(report.metrics.loss); };
    Trainer(model, std::move(options)).Fit(data);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 3e-6 * expected[i]) << "step " << i + 1;
    }
  }

  IrContext context_;
};

TEST_F(TorchLosses, CrossEntropyOfMlpBySgdWithMomentum) {
  Expect(
      Mlp(context_, 4), {.optimizer = "sgd{lr=0.1,momentum=0.9}"}, *MlpData(),
      {1.2755882, 1.4993087,  1.5233566, 1.4737632, 1.2118003, 1.3469539,  1.4417926, 1.3690746,
       1.1600403, 1.1967171,  1.3349459, 1.274515,  1.1200144, 1.0774674,  1.2386277, 1.1819301,
       1.0759007, 0.95450437, 1.1495745, 1.0690193, 1.0178968, 0.84189695, 1.0613827, 0.92832685});
}

TEST_F(TorchLosses, CrossEntropyOfConvolutionsByAdamW) {
  Expect(ConvNet(context_), {.optimizer = "adamw{lr=1e-2}"}, *ConvData(),
         {1.6421438, 1.6757852, 1.6187159, 1.616493,  1.5212513, 1.5540166, 1.5846239, 1.5435066,
          1.4640372, 1.4935588, 1.5317956, 1.4750628, 1.3868015, 1.4574229, 1.4642746, 1.3968055,
          1.2905164, 1.4102701, 1.3813422, 1.3125867, 1.1911073, 1.3186867, 1.2793664, 1.2311432});
}

TEST_F(TorchLosses, MeanSquareBySgd) {
  const auto data = FromTensors({{"x", NumbersOf({32, 8}, 10)}, {"targets", NumbersOf({32}, 12)}});
  Expect(Mlp(context_, 1), {.loss = "mse", .optimizer = "sgd{lr=0.1}"}, *data,
         {0.3761161,  0.36972022, 0.36514628, 0.42403227, 0.29471532, 0.35644644,
          0.2882759,  0.35105681, 0.2673457,  0.37342855, 0.26011705, 0.30582142,
          0.2453002,  0.37967059, 0.24256828, 0.27608147, 0.22949912, 0.37876427,
          0.22898905, 0.25581977, 0.21746194, 0.37647977, 0.21640341, 0.24161363});
}

TEST_F(TorchLosses, MeanAbsoluteBySgd) {
  const auto data =
      FromTensors({{"x", NumbersOf({32, 8}, 10)}, {"targets", NumbersOf({32, 1}, 12)}});
  Expect(Mlp(context_, 1), {.loss = "l1", .optimizer = "sgd{lr=0.05}"}, *data,
         {0.5058884,  0.52811545, 0.56998217, 0.65362042, 0.46905345, 0.52033383,
          0.5452736,  0.62665576, 0.46617737, 0.51937294, 0.52987033, 0.60264266,
          0.46173549, 0.51917386, 0.51404774, 0.57841724, 0.45740613, 0.51930141,
          0.49847454, 0.55430323, 0.4532162,  0.51973176, 0.4828777,  0.53140295});
}

TEST_F(TorchLosses, BinaryCrossEntropyBySgdLooksThroughTheSigmoid) {
  std::vector<uint8_t> targets;
  for (const float v : Numbers(32, 12, 1)) targets.push_back(v > 0 ? 1 : 0);
  const auto data = FromTensors(
      {{"x", NumbersOf({32, 8}, 10)}, {"targets", Tensor::Of<uint8_t>({32, 1}, targets)}});
  const std::string sigmoid =
      R"(  %s = nn.sigmoid(%y) : (v_tensor<[N, 1], f32>) -> v_tensor<[N, 1], f32>
  nn.fetch(%s) {name = "probability"} : (v_tensor<[N, 1], f32>) -> ()
)";
  Expect(Mlp(context_, 1, sigmoid), {.loss = "binary_cross_entropy", .optimizer = "sgd{lr=0.5}"},
         *data, {0.73536801, 0.68280447, 0.70020533, 0.7759254,  0.68270254, 0.69910592,
                 0.64863646, 0.73479742, 0.66598427, 0.6970486,  0.61572677, 0.70738924,
                 0.65942329, 0.68658769, 0.59015352, 0.687747,   0.65371633, 0.67721039,
                 0.56767857, 0.66759235, 0.65167183, 0.66736513, 0.54805028, 0.64425236});
}

}  // namespace
}  // namespace lathe::train::testing
