// A program that uses MPI itself and trains a network on all of its ranks.
//
//   mpirun -n 2 example_train_mpi FOLDER     with net.lathe, train.npz and test.npz

#define OMPI_SKIP_MPICXX 1  // the C interface is what every MPI has
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <memory>
#include <string>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/communicator.h"
#include "lathe/support/error.h"
#include "lathe/train.h"

namespace {

namespace train = lathe::train;

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

// The loss on samples held out, after training on the ranks of the communicator.
double Train(const std::string& folder, lathe::Communicator& ranks) {
  lathe::IrContext context;
  lathe::LoadAllDialects(context);
  const lathe::Program network = FreshNetwork(context, folder + "/net.lathe");
  const std::string files[] = {folder + "/train.npz", folder + "/test.npz"};
  const auto data = train::OpenData({files, 1});
  const auto held_out = train::OpenData({files + 1, 1});

  train::TrainerOptions options{.recipe = {.optimizer = "adamw{lr=3e-3}"}, .epochs = 2};
  options.batch = 64;
  options.compile.threads = 1;
  options.ranks = &ranks;
  if (ranks.rank() == 0) {
    options.on_epoch = [](const train::EpochReport& report) {
      std::printf("epoch %d: loss %.4f\n", static_cast<int>(report.epoch), report.training.loss);
    };
  }
  train::Trainer trainer(network, options);
  trainer.Fit(*data);
  return trainer.Evaluate(*held_out).loss;
}

}  // namespace

int main(int argc, char** argv) {
  // A thread of Lathe's own reduces gradients while the backward pass goes on.
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int code = 0;
  try {
    const std::unique_ptr<lathe::Communicator> ranks = lathe::OpenMpi();
    double loss = Train(argc > 1 ? argv[1] : ".", *ranks);
    // MPI goes on being the program's own: all ranks have the loss of all samples.
    double least = 0;
    MPI_Reduce(&loss, &least, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    if (ranks->rank() == 0) {
      std::printf("%d ranks: loss of those held out %.4f\n", ranks->size(), loss);
      code = loss == least && loss < 0.5 ? 0 : 1;
    }
  } catch (const lathe::Error& error) {
    std::fputs(error.Render().c_str(), stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
