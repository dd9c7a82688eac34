#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lathe/dialect/all.h"
#include "lathe/driver/emit.h"
#include "lathe/support/file.h"
#include "lathe/support/safetensors.h"
#include "test/unit/train/networks.h"

namespace lathe::train::testing {
namespace {

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() { LoadAllDialects(context_); }

  static TrainerOptions Options(int64_t epochs = 2) {
    TrainerOptions options{.recipe = {.optimizer = "adamw{lr=1e-2}"}, .epochs = epochs, .batch = 6};
    options.seed = 5;
    options.compile.threads = 1;
    options.compile.engine = Engine();
    return options;
  }

  template <class F>
  static Error ErrorOf(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "", "no error");
  }

  Error FitError(const Program& model, const TrainerOptions& options, const DataSet& data) {
    return ErrorOf([&] { Trainer(model, options).Fit(data); });
  }

  std::string Checkpoint(const Trainer& trainer, const std::string& name) {
    const std::string path = StrCat(folder_.path(), "/", name);
    trainer.SaveCheckpoint(path);
    return path;
  }

  IrContext context_;
  TemporaryFolder folder_;
};

TEST_F(TrainerTest, ReportsStepsEpochsAndEvaluation) {
  TrainerOptions options = Options(3);
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  options.on_step = [&](const StepReport& r) { steps.push_back(r); };
  options.on_epoch = [&](const EpochReport& r) { epochs.push_back(r); };
  Trainer trainer(ConvNet(context_), options);
  const auto data = ConvData();
  EXPECT_EQ(trainer.Fit(*data, data.get()), FitResult::kDone);
  ASSERT_EQ(steps.size(), 18U);  // 5 batches of 6 and one of 2
  EXPECT_EQ(steps[5].metrics.samples, 2);
  EXPECT_EQ(steps[6].epoch, 2);
  EXPECT_EQ(steps[17].step, 18);
  ASSERT_EQ(epochs.size(), 3U);
  double sum = 0;
  for (int i = 0; i < 6; ++i) {
    const Metrics& m = steps[static_cast<size_t>(i)].metrics;
    sum += m.loss * static_cast<double>(m.samples);
  }
  EXPECT_NEAR(epochs[0].training.loss, sum / 32, 1e-12);
  ASSERT_TRUE(epochs[2].evaluation.has_value());
  EXPECT_LT(epochs[2].evaluation->loss, epochs[0].evaluation->loss);
  EXPECT_EQ(epochs[2].evaluation->samples, 32);
  EXPECT_GE(*epochs[2].evaluation->accuracy, *epochs[0].evaluation->accuracy);
  EXPECT_EQ(trainer.Evaluate(*data).loss, epochs[2].evaluation->loss);
}

TEST_F(TrainerTest, TrainedProgramGivesTheLossOfTheEvaluation) {
  TrainerOptions options = Options();
  options.batch = 32;
  Trainer trainer(ConvNet(context_), options);
  const auto data = ConvData();
  trainer.Fit(*data);
  Program trained = trainer.Trained();
  const NamedValues out = Interpreter(trained).Run({{"x", NumbersOf({32, 1, 8, 8}, 11)}});
  const std::vector<double> p = ToDoubles(Find(out, "probabilities")->tensor());
  const std::vector<int64_t> labels = ToInt64s(Labels(32, 5));
  double loss = 0;
  for (size_t i = 0; i < 32; ++i) loss -= std::log(p[i * 5 + static_cast<size_t>(labels[i])]) / 32;
  EXPECT_NEAR(trainer.Evaluate(*data).loss, loss, 1e-5);
}

// 4 epochs are 2 and, from a checkpoint, 2; all bits of weights, optimizer state and sums.
TEST_F(TrainerTest, ResumesBitExactly) {
  const Program model = ConvNet(context_);
  const auto data = ConvData();
  for (const char* optimizer : {"sgd{lr=0.1,momentum=0.9}", "adamw{lr=1e-2}"}) {
    TrainerOptions options = Options(4);
    options.recipe.optimizer = optimizer;
    Trainer whole(model, options);
    whole.Fit(*data);
    options.epochs = 2;
    Trainer first(model, options);
    first.Fit(*data);
    const std::string half = Checkpoint(first, "half");
    options.epochs = 4;
    Trainer second(model, options);
    second.Resume(half);
    EXPECT_EQ(second.epoch(), 2);
    second.Fit(*data);
    EXPECT_EQ(ReadFile(Checkpoint(whole, "whole")), ReadFile(Checkpoint(second, "second")))
        << optimizer;
    EXPECT_NE(ReadFile(Checkpoint(whole, "whole")), ReadFile(half));
  }
}

TEST_F(TrainerTest, ResumesWithinAnEpochAfterACancel) {
  const Program model = ConvNet(context_);
  const auto data = ConvData();
  TrainerOptions options = Options(2);
  std::vector<double> losses, resumed;
  options.on_epoch = [&](const EpochReport& r) { losses.push_back(r.training.loss); };
  Trainer whole(model, options);
  whole.Fit(*data);

  CancelToken cancel;
  options.cancel = &cancel;
  options.checkpoint = StrCat(folder_.path(), "/run");
  options.on_epoch = {};
  options.on_step = [&](const StepReport& r) {
    if (r.step == 4) cancel.Cancel();
  };
  Trainer first(model, options);
  EXPECT_EQ(first.Fit(*data), FitResult::kCancelled);
  EXPECT_EQ(first.step(), 4);
  options.cancel = nullptr;
  options.on_epoch = [&](const EpochReport& r) { resumed.push_back(r.training.loss); };
  Trainer second(model, options);
  second.Resume(first.CheckpointPath());
  second.Fit(*data);
  EXPECT_EQ(losses, resumed);
  EXPECT_EQ(ReadFile(Checkpoint(whole, "whole")), ReadFile(second.CheckpointPath()));
}

TEST_F(TrainerTest, HasTheSameBitsForAnyNumberOfThreads) {
  const auto data = ConvData();
  std::vector<std::string> files;
  for (const int threads : {1, 2, 3}) {
    TrainerOptions options = Options();
    options.compile.threads = threads;
    Trainer trainer(ConvNet(context_), options);
    trainer.Fit(*data);
    files.push_back(ReadFile(Checkpoint(trainer, StrCat(threads))));
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[0], files[2]);
}

TEST_F(TrainerTest, LeavesFrozenParametersAlone) {
  TrainerOptions options = Options();
  options.recipe.freeze = {"conv*"};
  const Program model = ConvNet(context_);
  Trainer trainer(model, options);
  trainer.Fit(*ConvData());
  const Program trained = trainer.Trained();
  for (const auto& [name, variable] : model.parameters()) {
    const bool is_frozen = name.value().starts_with("conv");
    EXPECT_EQ(trained.parameters().Find(name.value())->data == variable.data, is_frozen)
        << name.value();
  }
  options.recipe.freeze = {"convv*"};
  EXPECT_EQ(ErrorOf([&] { Trainer(model, options); }).id(), "gradient/variable");
}

// What `lathe compile --train` writes, run without the compiler.
TEST_F(TrainerTest, ExecutableFileTrainsWithTheSameBits) {
  TrainerOptions options = Options(1);
  options.shuffle = false;
  options.batch = 8;
  const Program model = ConvNet(context_);
  const std::string path = StrCat(folder_.path(), "/step.lx");
  (void)CompileToFile(MakeTrainingProgram(model, options.recipe).step, options.compile, path);
  const Executable step = Executable::Load(path);
  Trainer trainer(model, options);
  EXPECT_TRUE(trainer.executable().obstacles().empty());
  const auto data = ConvData();
  trainer.Fit(*data);
  for (int64_t at = 0; at < 32; at += 8) {
    const int64_t rows[] = {at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7};
    const NamedTensors batch = data->Read(rows);
    (void)step.Run({{"x", batch[0].second}, {"labels", batch[1].second}});
  }
  EXPECT_EQ(step.MutableParameters(), trainer.executable().MutableParameters());
  for (const std::string& name : step.MutableParameters()) {
    EXPECT_EQ(step.GetParameter(name), trainer.executable().GetParameter(name)) << name;
  }
}

// ---- checkpoints ----

// x f32[N, 1, H, W] to scores f32[N, 5]; the gradient of the second convolution needs H and W.
constexpr const char* kOpenSizes = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 1, H, W], f32>
  %v = builtin.get_parameter() {name = "v"} : () -> v_tensor<[4, 1, 3, 3], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[5, 4, 3, 3], f32>
  %c = nn.conv(%x, %v) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (v_tensor<[N, 1, H, W], f32>, v_tensor<[4, 1, 3, 3], f32>) -> v_tensor<[N, 4, H, W], f32>
  %r = nn.relu(%c) : (v_tensor<[N, 4, H, W], f32>) -> v_tensor<[N, 4, H, W], f32>
  %d = nn.conv(%r, %w) {kernel_shape = [3, 3], strides = [2, 2]} : (v_tensor<[N, 4, H, W], f32>, v_tensor<[5, 4, 3, 3], f32>) -> v_tensor<[N, 5, ?, ?], f32>
  %g = nn.global_average_pool(%d) : (v_tensor<[N, 5, ?, ?], f32>) -> v_tensor<[N, 5, 1, 1], f32>
  %f = nn.flatten(%g) {axis = 1} : (v_tensor<[N, 5, 1, 1], f32>) -> v_tensor<[N, 5], f32>
  nn.fetch(%f) {name = "scores"} : (v_tensor<[N, 5], f32>) -> ()
)";

TEST_F(TrainerTest, TakesSizesThatTheModelLeavesOpenFromTheData) {
  const std::vector<std::pair<std::string, Tensor>> weights = {{"v", NumbersOf({4, 1, 3, 3}, 1)},
                                                               {"w", NumbersOf({5, 4, 3, 3}, 2)}};
  std::string fixed = kOpenSizes;
  for (const auto& [open, size] :
       {std::pair(", H,", ", 8,"), std::pair(", W]", ", 8]"), std::pair("?, ?", "3, 3")}) {
    for (size_t at; (at = fixed.find(open)) != std::string::npos;) fixed.replace(at, 4, size);
  }
  Trainer trainer(ProgramOf(context_, kOpenSizes, weights), Options());
  EXPECT_EQ(ErrorOf([&] { (void)trainer.programs(); }).id(), "gradient/unknown-shape");
  const auto data = ConvData();
  // Other pictures are evaluated as well as those of the training.
  const auto larger = FromTensors({{"x", NumbersOf({6, 1, 12, 9}, 11)}, {"labels", Labels(6, 5)}});
  trainer.Fit(*data, larger.get());
  EXPECT_TRUE(std::isfinite(trainer.Evaluate(*larger).loss));
  Trainer other(ProgramOf(context_, fixed, weights), Options());
  other.Fit(*data);
  const Program trained = trainer.Trained(), same = other.Trained();
  for (const auto& [name, variable] : trained.parameters()) {
    EXPECT_EQ(variable.data, same.parameters().Find(name.value())->data) << name.value();
  }
  const auto x = trained.feeds()[0]->result(0).type().cast<AnyTensorType>();
  EXPECT_FALSE(x.dims()[2].is_constant());
}

TEST_F(TrainerTest, RefusesCheckpointsOfOtherTrainings) {
  const Program model = ConvNet(context_);
  Trainer trainer(model, Options());
  trainer.Fit(*ConvData());
  const std::string path = Checkpoint(trainer, "c");
  const auto resume = [&](const Program& program, const TrainerOptions& options) {
    return ErrorOf([&] { Trainer(program, options).Resume(path); });
  };
  EXPECT_EQ(resume(model, Options()).id(), "");
  const Error other_model = resume(Mlp(context_, 4), Options());
  EXPECT_EQ(other_model.id(), "train/checkpoint");
  EXPECT_EQ(other_model.message(), "this checkpoint is of another model");
  TrainerOptions options = Options();
  options.seed = 6;
  EXPECT_EQ(resume(model, options).message(),
            "this checkpoint is of a training with seed 5, not 6");
  options = Options();
  options.batch = 7;
  EXPECT_EQ(resume(model, options).id(), "train/checkpoint");
  options = Options();
  options.recipe.optimizer = "sgd{lr=0.1}";
  EXPECT_EQ(resume(model, options).id(), "train/checkpoint-parameter");
  WriteSafeTensors(path, {{{"x", NumbersOf({2}, 1)}}, {}});
  EXPECT_EQ(resume(model, Options()).message(), "this file is not a checkpoint of a training");
  WriteFile(path, "nothing");
  EXPECT_EQ(resume(model, Options()).id(), "parse/safetensors");
}

// ---- wrong input ----

TEST_F(TrainerTest, RefusesWhatCannotBeTrained) {
  const auto made = [&](const Program& program, TrainingRecipe recipe) {
    return ErrorOf([&] { (void)MakeTrainingProgram(program, recipe); });
  };
  const Program mlp = Mlp(context_, 4);
  const Error loss = made(mlp, {.loss = "cross_entropi"});
  EXPECT_EQ(loss.id(), "loss/kind");
  EXPECT_EQ(loss.hints()[0], "did you mean 'cross_entropy'?");
  EXPECT_EQ(made(mlp, {.output = "score"}).id(), "loss/output");
  EXPECT_EQ(made(mlp, {.class_axis = 2}).id(), "loss/shape");
  EXPECT_EQ(made(mlp, {.loss = "scores"}).id(), "loss/shape");
  EXPECT_EQ(made(mlp, {.target = "x"}).id(), "loss/target");
  EXPECT_EQ(made(mlp, {.optimizer = "adamv"}).id(), "pass/unknown");
  EXPECT_EQ(made(mlp, {.optimizer = "dead_code"}).id(), "train/optimizer");
  EXPECT_EQ(made(mlp, {.freeze = {"*"}}).message(),
            "there is nothing to train: all 4 parameters are frozen, or unread");
  const Program none = ProgramOf(context_, R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 4], f32>
  nn.fetch(%x) {name = "y"} : (v_tensor<[N, 4], f32>) -> ()
)",
                                 {});
  EXPECT_EQ(made(none, {}).message(), "there is nothing to train: the model has no parameters");
  const Program integers = ProgramOf(context_, R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 4], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[4], i8>
  %f = nn.cast(%w) {to = f32} : (v_tensor<[4], i8>) -> v_tensor<[4], f32>
  %y = nn.mul(%x, %f) : (v_tensor<[N, 4], f32>, v_tensor<[4], f32>) -> v_tensor<[N, 4], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[N, 4], f32>) -> ()
)",
                                     {{"w", Tensor(ElementType::kI8, {4})}});
  EXPECT_EQ(made(integers, {}).message(),
            "there is nothing to train: no parameter is of floats; 'w' is i8[4]");
}

TEST_F(TrainerTest, RefusesBatchesThatDoNotFit) {
  TrainerOptions options = Options();
  options.batch = 33;
  const Error large = FitError(ConvNet(context_), options, *ConvData());
  EXPECT_EQ(large.id(), "train/batch");
  EXPECT_EQ(large.message(), "a batch of 33 samples is more than the data has: 32");
  options.batch = 0;
  EXPECT_EQ(FitError(ConvNet(context_), options, *ConvData()).id(), "train/option");
  const auto labels = FromTensors({{"x", NumbersOf({32, 1, 8, 8}, 11)}, {"labels", Labels(32, 6)}});
  EXPECT_EQ(FitError(ConvNet(context_), Options(), *labels).id(), "train/label");
}

// ---- losses that are not finite ----

TEST_F(TrainerTest, NamesTheOperationThatMadeTheFirstValueThatIsNotFinite) {
  const std::string log =
      R"(  %p = nn.log(%y) : (v_tensor<[N, 1], f32>) -> v_tensor<[N, 1], f32> loc("the_log")
  nn.fetch(%p) {name = "p"} : (v_tensor<[N, 1], f32>) -> ()
)";
  const auto data =
      FromTensors({{"x", NumbersOf({32, 8}, 10)}, {"targets", NumbersOf({32, 1}, 12)}});
  TrainerOptions options = Options();
  options.recipe.loss = "mse";
  const Error error = FitError(Mlp(context_, 1, log), options, *data);
  EXPECT_EQ(error.id(), "train/not-finite");
  EXPECT_NE(error.where().find("the_log"), std::string::npos) << error.Render();
  ASSERT_EQ(error.notes().size(), 1U);
  EXPECT_NE(error.notes()[0].text.find("nn.log makes nan"), std::string::npos) << error.Render();
}

// The rate throws the weights out of range in one step, the loss shows it in a later one.
TEST_F(TrainerTest, GoesBackToTheStepBefore) {
  TrainerOptions options = Options(50);
  options.recipe = {.loss = "mse", .optimizer = "sgd{lr=1e12}"};
  options.snapshot_every = 3;
  const auto data =
      FromTensors({{"x", NumbersOf({32, 8}, 10)}, {"targets", NumbersOf({32, 1}, 12)}});
  const Error error = FitError(Mlp(context_, 1), options, *data);
  EXPECT_EQ(error.id(), "train/not-finite");
  ASSERT_EQ(error.notes().size(), 1U) << error.Render();
}

// Which elements a dropout makes zero differs from step to step: the interpreter draws those of the
// step, not of the first.
TEST_F(TrainerTest, DrawsTheMaskOfTheStepAgain) {
  const char* body = R"(  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 1], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[1], f32>
  %r = builtin.constant() {value = tensor<[], f32> [0.1]} : () -> v_tensor<[], f32>
  %y = nn.mul(%x, %w) : (v_tensor<[N, 1], f32>, v_tensor<[1], f32>) -> v_tensor<[N, 1], f32>
  %d = nn.dropout(%y, %r) : (v_tensor<[N, 1], f32>, v_tensor<[], f32>) -> v_tensor<[N, 1], f32>
  %p = nn.log(%d) : (v_tensor<[N, 1], f32>) -> v_tensor<[N, 1], f32> loc("the_log")
  nn.fetch(%p) {name = "p"} : (v_tensor<[N, 1], f32>) -> ()
)";
  const Program model = ProgramOf(context_, body, {{"w", Tensor::Of<float>({1}, {1})}});
  const Tensor ones = Tensor::Of<float>({64, 1}, std::vector<float>(64, 1));
  TrainerOptions options = Options(10);
  options.recipe = {.loss = "mse", .optimizer = "sgd{lr=1e-9}"};
  options.batch = 1;
  int64_t steps = 0;
  options.on_step = [&](const StepReport&) { ++steps; };
  const Error error = FitError(model, options, *FromTensors({{"x", ones}, {"targets", ones}}));
  EXPECT_EQ(error.id(), "train/not-finite") << error.Render();
  EXPECT_GT(steps, 0) << "another seed is wanted: the first step is as the interpreter's";
  ASSERT_EQ(error.notes().size(), 1U) << error.Render();
  EXPECT_NE(error.notes()[0].text.find("nn.log makes -inf"), std::string::npos) << error.Render();
}

TEST_F(TrainerTest, NamesDataThatIsNotFinite) {
  Tensor x = NumbersOf({32, 8}, 10);
  x.mutable_data<float>()[8 * 7 + 2] = std::numeric_limits<float>::infinity();
  TrainerOptions options = Options();
  options.shuffle = false;
  const auto data = FromTensors({{"x", x}, {"labels", Labels(32, 4)}});
  const Error error = FitError(Mlp(context_, 4), options, *data);
  EXPECT_EQ(error.id(), "train/not-finite");
  ASSERT_EQ(error.notes().size(), 1U);
  EXPECT_EQ(error.notes()[0].text, "step 2: the data for 'x' have inf at [1,2] of f32[6,8]");
}

// ---- training mode ----

TEST_F(TrainerTest, BatchNormalizationFollowsTheBatchesUnlessFrozen) {
  const char* body = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 2], f32>
  %s = builtin.get_parameter() {name = "bn.scale"} : () -> v_tensor<[2], f32>
  %b = builtin.get_parameter() {name = "bn.bias"} : () -> v_tensor<[2], f32>
  %m = builtin.get_parameter() {name = "bn.mean"} : () -> v_tensor<[2], f32>
  %v = builtin.get_parameter() {name = "bn.var"} : () -> v_tensor<[2], f32>
  %y = nn.batch_normalization(%x, %s, %b, %m, %v) {momentum = 0.5} : (v_tensor<[N, 2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[N, 2], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[N, 2], f32>) -> ()
)";
  const Tensor one = Tensor::Of<float>({2}, {1, 1}), zero = Tensor::Of<float>({2}, {0, 0});
  const Program model = ProgramOf(
      context_, body, {{"bn.scale", one}, {"bn.bias", zero}, {"bn.mean", zero}, {"bn.var", one}});
  const auto data = FromTensors({{"x", Tensor::Of<float>({2, 2}, {1, 10, 3, 30})},
                                 {"labels", Tensor::Of<int64_t>({2}, {0, 1})}});
  TrainerOptions options = Options(1);
  options.batch = 2;
  Trainer trainer(model, options);
  trainer.Fit(*data);
  const Program trained = trainer.Trained();
  EXPECT_EQ(trained.parameters().Find("bn.mean")->data, Tensor::Of<float>({2}, {1, 10}));
  EXPECT_EQ(trained.parameters().Find("bn.var")->data, Tensor::Of<float>({2}, {1, 50.5}));
  options.recipe.freeze = {"bn.mean", "bn.var"};
  Trainer frozen(model, options);
  frozen.Fit(*data);
  const Program kept = frozen.Trained();
  EXPECT_EQ(kept.parameters().Find("bn.mean")->data, zero);
  EXPECT_EQ(kept.parameters().Find("bn.var")->data, one);
  EXPECT_FALSE(kept.parameters().Find("bn.scale")->data == one);
}

// ---- history ----

TEST_F(TrainerTest, HistoryIsReadBackUpToAStep) {
  History history;
  TrainerOptions options = Options();
  options.on_step = [&](const StepReport& r) { history.Add(r); };
  options.on_epoch = [&](const EpochReport& r) { history.Add(r); };
  const auto data = ConvData();
  Trainer(ConvNet(context_), options).Fit(*data, data.get());
  const std::string path = StrCat(folder_.path(), "/m.jsonl");
  WriteFile(path, history.ToJsonLines());
  EXPECT_EQ(History::Read(path, 1000).ToJsonLines(), history.ToJsonLines());
  const History half = History::Read(path, 6);
  EXPECT_EQ(half.loss().steps.size(), 6U);
  EXPECT_EQ(half.loss().evaluations.size(), 1U);
  EXPECT_EQ(half.accuracy().epochs.size(), 1U);
  const std::string svg = history.ToSvg("a <model> & more");
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a &lt;model> &amp; more"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  WriteFile(path, "{\"kind\"");
  EXPECT_EQ(ErrorOf([&] { History::Read(path, 1); }).id(), "parse/metrics");
}

}  // namespace
}  // namespace lathe::train::testing
