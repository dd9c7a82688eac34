// Training on several ranks, which are threads of this process.

#include <gtest/gtest.h>

#include <mutex>

#include "lathe/dialect/all.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/communicator.h"
#include "lathe/support/file.h"
#include "test/unit/train/networks.h"

namespace lathe::train::testing {
namespace {

struct Result {
  std::vector<double> losses;  // of steps
  Metrics evaluation;
  std::vector<std::string> checkpoints;  // of all ranks, as files

  const std::string& checkpoint() const { return checkpoints[0]; }
};

TrainerOptions OptionsFor(const char* optimizer, int64_t epochs = 2, int64_t batch = 8) {
  TrainerOptions options{.recipe = {.optimizer = optimizer}, .epochs = epochs, .batch = batch};
  options.seed = 5;
  options.compile.threads = 1;
  options.compile.engine = Engine();
  return options;
}

using MakeModel = Program (*)(IrContext&);
Program Net(IrContext& context) { return ConvNet(context); }

// What rank 0 has after training on `size` ranks; 0: without any.
Result Train(int size, const TrainerOptions& given, MakeModel make = Net, std::string resume = "") {
  TemporaryFolder folder;
  Result run;
  std::mutex mutex;
  const auto rank = [&](Communicator* ranks) {
    IrContext context;
    LoadAllDialects(context);
    TrainerOptions options = given;
    options.ranks = ranks;
    std::vector<double> losses;
    options.on_step = [&](const StepReport& r) { losses.push_back(r.metrics.loss); };
    Trainer trainer(make(context), options);
    const auto data = ConvData();
    if (!resume.empty()) trainer.Resume(resume);
    trainer.Fit(*data);
    const Metrics evaluation = trainer.Evaluate(*data);
    const int me = ranks == nullptr ? 0 : ranks->rank();
    const std::string path = StrCat(folder.path(), "/", me);
    trainer.SaveCheckpoint(path);
    const std::lock_guard lock(mutex);
    run.checkpoints.push_back(ReadFile(path));
    if (me == 0) {
      run.losses = losses;
      run.evaluation = evaluation;
    }
  };
  if (size == 0) {
    rank(nullptr);
  } else {
    RunAsThreadRanks(size, [&](Communicator& ranks) { rank(&ranks); }, 60);
  }
  for (const std::string& c : run.checkpoints) EXPECT_EQ(c, run.checkpoints[0]);
  return run;
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i;
}

// 32 samples in batches of 8, and of 5: whatever the number of ranks has of a last batch of 2.
TEST(TrainOnRanks, LossesAreThoseOfOneProcess) {
  for (const char* optimizer :
       {"adamw{lr=1e-2,clip_global_norm=0.5}", "sgd{lr=0.1,momentum=0.9}"}) {
    for (const int64_t batch : {8, 5}) {
      const TrainerOptions options = OptionsFor(optimizer, 2, batch);
      const Result one = Train(0, options);
      for (const int size : {2, 3, 4}) {
        SCOPED_TRACE(StrCat(optimizer, ", batch ", batch, ", ranks ", size));
        const Result many = Train(size, options);
        ExpectNear(many.losses, one.losses, 2e-5);
        EXPECT_NEAR(many.evaluation.loss, one.evaluation.loss, 2e-5);
        EXPECT_EQ(many.evaluation.samples, 32);
      }
    }
  }
}

Program HalfNet(IrContext& context) { return Narrow(ConvNet(context), ElementType::kF16); }

// A gradient that is not finite on one rank is none on any.
TEST(TrainOnRanks, TheLossIsScaledOnAllRanksAlike) {
  TrainerOptions options = OptionsFor("adamw{lr=1e-2,clip_global_norm=0.5}", 4, 8);
  options.recipe.loss_scale = 0x1p36;
  const Result one = Train(0, options, HalfNet);
  EXPECT_EQ(one.losses.size(), 16U);
  for (const bool shard : {false, true}) {
    options.shard = shard;
    const Result many = Train(3, options, HalfNet);
    SCOPED_TRACE(shard ? "shards" : "whole");
    ExpectNear(many.losses, one.losses, 2e-3);
    EXPECT_NEAR(many.evaluation.loss, one.evaluation.loss, 2e-3);
  }
}

constexpr const char* kOptimizers[] = {
    "sgd{lr=0.05,momentum=0.9,clip_global_norm=0.5}",
    "adam{lr=1e-2,clip_norm=0.3}",
    "adamw{lr=1e-2,clip_global_norm=0.5}",
    "adamw{lr=1e-2,accumulate=2,groups=[biases{parameters=[*.bias],weight_decay=0}]}",
    "adagrad{lr=1e-2}",
    "rmsprop{lr=1e-3,momentum=0.5}",
    "lion{lr=1e-3}",
    "lamb{lr=1e-2,clip_global_norm=0.5}",
};

TEST(TrainOnRanks, ShardsGiveTheLossesOfOneProcess) {
  for (const char* optimizer : kOptimizers) {
    TrainerOptions options = OptionsFor(optimizer, 2, 8);
    const Result one = Train(0, options);
    options.shard = true;
    SCOPED_TRACE(optimizer);
    const Result many = Train(3, options);
    ExpectNear(many.losses, one.losses, 2e-5);
    EXPECT_NEAR(many.evaluation.loss, one.evaluation.loss, 2e-5);
  }
}

TEST(TrainOnRanks, ShardsHaveTheSameBitsTwice) {
  TrainerOptions options = OptionsFor("lamb{lr=1e-2,clip_global_norm=0.5}");
  options.shard = true;
  const Result first = Train(4, options), second = Train(4, options);
  EXPECT_EQ(first.checkpoint(), second.checkpoint());
  EXPECT_EQ(first.losses, second.losses);
}

// Whole states go to shards of another size, to whole ones and back.
TEST(TrainOnRanks, ShardsResumeWithAnotherNumberOfRanks) {
  const TemporaryFolder folder;
  const std::string path = StrCat(folder.path(), "/half");
  for (const char* optimizer : kOptimizers) {
    SCOPED_TRACE(optimizer);
    TrainerOptions options = OptionsFor(optimizer, 1);
    options.shard = true;
    WriteFile(path, Train(3, options).checkpoint());
    options.epochs = 0;
    for (const int size : {0, 2}) {
      EXPECT_EQ(Train(size, options, Net, path).checkpoint(), ReadFile(path)) << size;
    }
  }
}

TEST(TrainOnRanks, ShardsTakeLessMemory) {
  const auto states = [](int size, bool shard) {
    uint64_t bytes = 0;
    TrainerOptions options = OptionsFor("adamw{lr=1e-2}", 1);
    options.shard = shard;
    options.on_epoch = [&](const EpochReport& report) { bytes = report.memory.states; };
    RunAsThreadRanks(size, [&](Communicator& ranks) {
      IrContext context;
      LoadAllDialects(context);
      TrainerOptions mine = options;
      mine.ranks = &ranks;
      if (ranks.rank() != 0) mine.on_epoch = {};
      Trainer(Net(context), mine).Fit(*ConvData());
    });
    return bytes;
  };
  const uint64_t whole = states(4, false), shard = states(4, true);
  EXPECT_LT(shard, whole / 3);
  EXPECT_GE(shard, whole / 4);
}

TEST(TrainOnRanks, TheSameBitsTwice) {
  TrainerOptions options = OptionsFor("adamw{lr=1e-2}");
  const Result first = Train(3, options), second = Train(3, options);
  EXPECT_EQ(first.checkpoint(), second.checkpoint());
  EXPECT_EQ(first.losses, second.losses);
  options.compile.threads = 2;
  EXPECT_EQ(Train(3, options).checkpoint(), first.checkpoint());
}

// Another number of ranks goes on with the same state.
TEST(TrainOnRanks, ResumesWithAnotherNumberOfRanks) {
  const TemporaryFolder folder;
  const std::string path = StrCat(folder.path(), "/half");
  TrainerOptions options = OptionsFor("adamw{lr=1e-2}", 1);
  WriteFile(path, Train(4, options).checkpoint());
  options.epochs = 0;
  for (const int size : {0, 2, 3}) {
    EXPECT_EQ(Train(size, options, Net, path).checkpoint(), ReadFile(path)) << size;
  }
  options.epochs = 2;
  const Result whole = Train(0, options), rest = Train(2, options, Net, path);
  ExpectNear(rest.losses, {whole.losses.begin() + 4, whole.losses.end()}, 2e-5);
}

template <class F>
Error ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInternal, "", "no error");
}

// That of training on so many ranks by `optimizer`, with options that `change` makes a rank's own;
// `seen` is told what each rank ends with.
Error ErrorOnRanks(int size, const char* optimizer,
                   const std::function<void(TrainerOptions&, int)>& change = {},
                   const std::function<void(const Error&)>& seen = {}) {
  const auto train = [&](Communicator& ranks) {
    IrContext context;
    LoadAllDialects(context);
    TrainerOptions options = OptionsFor(optimizer);
    options.ranks = &ranks;
    if (change) change(options, ranks.rank());
    try {
      Trainer(Net(context), options).Fit(*ConvData());
    } catch (const Error& e) {
      if (seen) seen(e);
      throw;
    }
  };
  return ErrorOf([&] { RunAsThreadRanks(size, train, 60); });
}

TEST(TrainOnRanks, RanksThatDifferDoNotBegin) {
  const auto error = [](const std::function<void(TrainerOptions&, int)>& change) {
    return ErrorOnRanks(3, "sgd{lr=0.1}", change);
  };
  const Error seed = error([](TrainerOptions& o, int rank) { o.seed = rank == 2 ? 6 : 5; });
  EXPECT_EQ(seed.id(), "train/ranks-differ");
  EXPECT_NE(seed.message().find("rank 2 has another seed"), std::string::npos) << seed.message();
  EXPECT_EQ(error([](TrainerOptions& o, int rank) {
              if (rank == 1) o.recipe.optimizer = "sgd{lr=0.2}";
            }).id(),
            "train/ranks-differ");
  const Error small = error([](TrainerOptions& o, int) { o.batch = 2; });
  EXPECT_EQ(small.id(), "train/option");
}

// One rank fails in the middle of an epoch, by its data or by dying; the others do not wait.
TEST(TrainOnRanks, AFailureOfOneRankEndsAll) {
  std::mutex mutex;
  int ended = 0;
  const auto fail_on_one = [](TrainerOptions& options, int rank) {
    options.on_step = [rank](const StepReport& r) {
      if (r.step == 3 && rank == 1) throw Error(ErrorCode::kIo, "test/disk", "full");
    };
  };
  const auto count = [&](const Error& e) {
    const std::lock_guard lock(mutex);
    ended += e.id() == "rank/failed" ? 1 : 0;
  };
  EXPECT_EQ(ErrorOnRanks(3, "sgd{lr=0.1}", fail_on_one, count).id(), "test/disk");
  EXPECT_EQ(ended, 2);
}

TEST(TrainOnRanks, TheRankWhoseLossIsNotFiniteIsNamed) {
  const Error error = ErrorOnRanks(2, "sgd{lr=1e30}");
  EXPECT_EQ(error.id(), "train/not-finite");
  ASSERT_FALSE(error.notes().empty());
  EXPECT_NE(error.notes()[0].text.find("on rank "), std::string::npos) << error.notes()[0].text;
}

// The program that ranks run passes the check that it is one.
TEST(TrainOnRanks, TheStepReducesWhatItTrains) {
  IrContext context;
  LoadAllDialects(context);
  const TrainingProgram made = MakeTrainingProgram(Net(context), {.optimizer = "adamw"}, 4);
  Program step = made.step.Clone();
  PassManager manager;
  manager.Add("all_reduce_deps,multi_devices_check_pass{nranks=4}");
  manager.Run(step);
  EXPECT_EQ(made.target, MakeTrainingProgram(Net(context), {.optimizer = "adamw"}).target);
}

}  // namespace
}  // namespace lathe::train::testing
