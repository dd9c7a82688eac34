#include "lathe/driver/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/support/printable.h"
#include "tools/lathe/command.h"

namespace lathe::command {
namespace {

struct TuneArguments {
  ModelOptions model;
  TuneOptions tune;
  std::string output = "tuned.jsonl";
  bool json = false;
};

std::string Milliseconds(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }

int TuneModel(const TuneArguments& o) {
  IrContext context;
  const Program program = o.model.Load(context);
  double before = 0, after = 0;
  auto functions = nlohmann::ordered_json::array();
  Progress bar("tuning");
  size_t function = 0, trial = 0;
  const auto progress = [&](size_t index, size_t count, const std::string&, const std::string&) {
    trial = index == function ? std::min(trial + 1, o.tune.max_trials - 1) : 0;
    function = index;
    bar.Update(index * o.tune.max_trials + trial, count * o.tune.max_trials);
  };
  const auto result = [&](const TunedFunction& f, const TuningRecords&) {
    const auto calls = static_cast<double>(f.calls);
    before += f.first_seconds * calls;
    after += f.best_seconds * calls;
    const bool better = f.best != f.first;
    if (o.json) {
      functions.push_back({{"operations", f.operations},
                           {"calls", f.calls},
                           {"first", f.first},
                           {"first_ms", f.first_seconds * 1e3},
                           {"best", f.best},
                           {"best_ms", f.best_seconds * 1e3},
                           {"trials", f.trials}});
      return;
    }
    Out(fmt::format("{}x {}  {} {}{}  ({} trials)\n", f.calls, f.operations, f.first,
                    Milliseconds(f.first_seconds),
                    better ? fmt::format(" -> {} {}", f.best, Milliseconds(f.best_seconds)) : "",
                    f.trials));
  };
  TuneToFile(program, o.tune, o.output, progress, result);
  if (o.json) {
    const nlohmann::ordered_json json = {{"records", o.output},
                                         {"first_ms", before * 1e3},
                                         {"best_ms", after * 1e3},
                                         {"functions", functions}};
    Out(JsonText(json, 2) + "\n");
    return kFine;
  }
  Out(fmt::format("all functions: {} -> {}; the records are in {}\n", Milliseconds(before),
                  Milliseconds(after), o.output));
  return kFine;
}

}  // namespace

Run AddTune(CLI::App& app) {
  auto o = std::make_shared<TuneArguments>();
  o->model.AddTo(app);
  AddCompileOptions(app, o->tune.compile);
  app.add_option(
         "--output,-o", o->output,
         "records, a JSON object a line; those of a file that is there are kept, and what they "
         "hold is not measured again")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--trials", o->tune.max_trials, "implementations measured per function")
      ->check(CountBetween(1, 100000))
      ->capture_default_str();
  app.add_option("--seconds", o->tune.seconds, "of repeated runs per trial; at least three runs")
      ->check(NumberBetween(0, 3600))
      ->capture_default_str();
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return TuneModel(*o); };
}

}  // namespace lathe::command
