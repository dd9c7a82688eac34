// Trains a network of examples/train_digits on pictures that a callback moves by a pixel.
//
//     example_train_digits examples/train_digits [EPOCHS]

#include <cstdio>
#include <cstdlib>
#include <string>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/train.h"

namespace {

using lathe::NamedTensors;
using lathe::Tensor;
namespace train = lathe::train;

constexpr int64_t kSide = 8, kPixels = kSide * kSide;

// The network with fresh weights.
lathe::Program FreshNetwork(lathe::IrContext& context, const std::string& path) {
  lathe::Program program = lathe::ParseProgramFile(context, path);
  lathe::Program startup = program.Clone();
  lathe::PassManager initialize;
  initialize.Add("initialize{seed=7}");
  initialize.Run(startup);
  RunStartup(startup, program);
  return program;
}

// A picture moved by up to one pixel each way, which the number of the sample decides. What comes
// in from outside is dark.
void CopyMoved(const uint8_t* from, uint8_t* to, lathe::RandomStream& random) {
  const int64_t down = random.Int(-1, 1), right = random.Int(-1, 1);
  for (int64_t y = 0; y < kSide; ++y) {
    for (int64_t x = 0; x < kSide; ++x) {
      const int64_t v = y - down, u = x - right;
      const bool inside = v >= 0 && v < kSide && u >= 0 && u < kSide;
      to[y * kSide + x] = inside ? from[v * kSide + u] : uint8_t{0};
    }
  }
}

// Each picture of `data` as it is and moved `copies` times.
std::shared_ptr<const train::DataSet> WithMoved(std::shared_ptr<const train::DataSet> data,
                                                int64_t copies) {
  const int64_t size = data->size();
  const auto read = [data, size](std::span<const int64_t> rows) {
    std::vector<int64_t> originals;
    for (const int64_t row : rows) originals.push_back(row % size);
    NamedTensors batch = data->Read(originals);
    const Tensor still = batch[0].second;
    uint8_t* moved = batch[0].second.mutable_data<uint8_t>().data();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < size) continue;
      lathe::RandomStream random(1, static_cast<uint64_t>(rows[i]));
      const size_t at = i * static_cast<size_t>(kPixels);
      CopyMoved(still.data<uint8_t>().data() + at, moved + at, random);
    }
    return batch;
  };
  return train::FromCallback(size * (copies + 1), data->columns(), read);
}

int Run(const std::string& folder, int64_t epochs) {
  lathe::IrContext context;
  lathe::LoadAllDialects(context);
  const lathe::Program network = FreshNetwork(context, folder + "/net.lathe");
  const std::string files[] = {folder + "/train.npz", folder + "/test.npz"};
  const auto data = WithMoved(train::OpenData({files, 1}), 3);
  const auto test = train::OpenData({files + 1, 1});

  constexpr int64_t kBatch = 64;
  const int64_t steps = epochs * ((data->size() + kBatch - 1) / kBatch);
  const std::string optimizer =
      lathe::StrCat("adamw{lr=5e-3,schedule=cosine,total_steps=", steps, "}");
  train::TrainerOptions options{.recipe = {.loss = "cross_entropy", .optimizer = optimizer},
                                .epochs = epochs,
                                .batch = kBatch,
                                .seed = 7};
  options.on_epoch = [](const train::EpochReport& r) {
    std::printf("epoch %d: loss %.3f, right of those held out %.2f%%\n", static_cast<int>(r.epoch),
                r.training.loss, 100 * *r.evaluation->accuracy);
  };
  train::Trainer trainer(network, std::move(options));
  trainer.Fit(*data, test.get());
  return *trainer.Evaluate(*test).accuracy > 0.98 ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string folder = argc > 1 ? argv[1] : "examples/train_digits";
    return Run(folder, argc > 2 ? std::atoi(argv[2]) : 8);
  } catch (const lathe::Error& error) {
    std::fputs(error.Render().c_str(), stderr);
    return 1;
  }
}
