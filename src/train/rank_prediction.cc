#include "lathe/train/rank_prediction.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "lathe/support/budget.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "src/train/rank_group.h"
#include "src/train/step_runner.h"

namespace lathe::train {
namespace {

// Rank 0 of a group without others.
class AloneOnNetwork : public Communicator {
 public:
  AloneOnNetwork(int64_t size, const Network& network)
      : size_(static_cast<int>(size)), network_(network) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }

  void Exchange(std::span<const Send> sends, std::span<const Receive> receives,
                std::string_view /*what*/) override {
    const double begin = SecondsNow();
    size_t out = 0, in = 0;
    for (const Send& s : sends) out += s.bytes;
    for (const Receive& r : receives) {
      in += r.bytes;
      if (r.bytes > 0) std::memset(r.data, 0, r.bytes);
    }
    sent_ += out;
    const auto messages = static_cast<double>(std::max(sends.size(), receives.size()));
    const double seconds = messages * network_.seconds +
                           static_cast<double>(std::max(in, out)) / network_.bytes_per_second;
    for (double left = seconds; left > 0; left = begin + seconds - SecondsNow()) {
      CheckBudget();
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kLongestSleep)));
    }
  }
  void Abort(const std::string& /*message*/) noexcept override {}

  uint64_t sent() const { return sent_; }

 private:
  static constexpr double kLongestSleep = 0.1;
  const int size_;
  const Network network_;
  std::atomic<uint64_t> sent_ = 0;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// What the trainer does for each batch.
void RunStep(StepRunner& step, const NamedValues& inputs, const RankGroup& group) {
  (void)group.Any(false);
  (void)step.Run(inputs);
  (void)group.Sum({});
}

}  // namespace

StepPrediction PredictStep(const Program& model, const PredictionOptions& options) {
  AloneOnNetwork ranks(options.ranks, options.network);
  const RankGroup group(&ranks);
  const CommunicatorScope scope(&ranks);
  const TrainingProgram made =
      MakeTrainingProgram(model, options.recipe, options.ranks, options.shard);
  const NamedValues inputs = options.inputs(made.step);
  StepRunner step(made.step, options.compile);
  std::vector<double> seconds, communication, waited;
  StepPrediction prediction;
  for (int run = 0; run <= options.runs; ++run) {
    const CommunicationTimes before = CommunicationSoFar();
    const uint64_t sent = ranks.sent();
    const double begin = SecondsNow();
    RunStep(step, inputs, group);
    const double end = SecondsNow();
    if (run == 0 && options.runs > 0) continue;
    const CommunicationTimes times = CommunicationSoFar() - before;
    seconds.push_back(end - begin);
    communication.push_back(times.seconds);
    waited.push_back(times.waited);
    prediction.sent_bytes = ranks.sent() - sent;
  }
  prediction.seconds = Median(seconds);
  prediction.communication = {Median(communication), Median(waited)};
  prediction.memory = MemoryOf(model, made.step, step.executable());
  return prediction;
}

}  // namespace lathe::train
