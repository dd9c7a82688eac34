#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lathe/support/clock.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"
#include "tools/lathe/rates.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct Options {
  MeasureOptions measure;
  double seconds = 3;
};

struct Figures {
  double load_ms = 0, compile_ms = 0, peak_rss_mb = 0;
  std::vector<double> runs_ms;  // sorted
  // Of what has a plan.
  std::optional<PlanSummary> plan;
  MachinePeak machine;
  WorkDone work;
  std::vector<std::pair<std::string, size_t>> interpreted;

  double Percentile(double p) const {
    const auto last = static_cast<double>(runs_ms.size() - 1);
    return runs_ms[static_cast<size_t>(p * last + 0.5)];
  }
  double ShareOfPeak() const {
    return machine.gflops > 0 ? work.GflopPerSecond() / machine.gflops : -1;
  }
};

// Of this program, in 10^6 bytes: what getrusage says includes whoever started it.
double PeakMegabytes() {
  constexpr double kUnit = 1024;  // the system's "kB"
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * kUnit * 1e-6;
  }
  return 0;
}

// What a run takes at least: the sum over the steps, in the time that it took.
WorkDone WorkOfRun(const runtime::Executor& executor, const NamedValues& inputs, double ms,
                   const MachinePeak& machine) {
  runtime::NamedTensors tensors;
  for (const auto& [name, value] : inputs) tensors.emplace_back(name, value.tensor());
  runtime::Profile profile;
  executor.Run(tensors, {.cancel = nullptr, .profile = &profile});
  WorkDone work = WorkDone::None();
  for (const runtime::Profile::Event& e : profile.events()) {
    work.Add({.ms = 0,
              .gflop = e.flops * 1e-9,
              .gigabytes = e.bytes * 1e-9,
              .bound = BoundOf(e.flops * 1e-9, e.bytes * 1e-9, machine)});
  }
  work.ms = ms;
  return work;
}

// After all that counts: measuring the machine takes memory.
void Compare(const Runnable& runnable, const NamedValues& inputs, const Options& o, Figures& f) {
  const Executable* executable = runnable.executable();
  if (executable == nullptr) return;
  f.interpreted = executable->interpreted();
  const runtime::Executor* executor = executable->executor();
  if (executor == nullptr) return;
  f.plan = Summarize(executor->plan(), BindSymbols(executable->inputs(), inputs));
  f.machine = MeasureMachineFor(*executable, o.measure.runnable.compile);
  f.work = WorkOfRun(*executor, inputs, f.Percentile(0.5), f.machine);
}

Figures Measure(const Options& o) {
  Figures figures;
  const double start = SecondsNow();
  Runnable runnable(o.measure.model, o.measure.runnable);
  figures.compile_ms = runnable.compile_seconds() * 1e3;
  figures.load_ms = (SecondsNow() - start) * 1e3 - figures.compile_ms;
  const NamedValues inputs = o.measure.inputs.Load(o.measure.model, runnable.inputs());
  runnable.Run(inputs);
  const double first = SecondsNow();
  while (figures.runs_ms.size() < 5 || SecondsNow() - first < o.seconds) {
    const double before = SecondsNow();
    runnable.Run(inputs);
    figures.runs_ms.push_back((SecondsNow() - before) * 1e3);
  }
  std::ranges::sort(figures.runs_ms);
  figures.peak_rss_mb = PeakMegabytes();
  Compare(runnable, inputs, o, figures);
  return figures;
}

nlohmann::ordered_json ToJson(const Figures& f) {
  nlohmann::ordered_json json = {
      {"p50_ms", f.Percentile(0.5)}, {"p90_ms", f.Percentile(0.9)}, {"p99_ms", f.Percentile(0.99)},
      {"compile_ms", f.compile_ms},  {"load_ms", f.load_ms},        {"peak_rss_mb", f.peak_rss_mb},
      {"runs", f.runs_ms.size()},
  };
  json["interpreted"] = nlohmann::ordered_json::object();
  for (const auto& [what, count] : f.interpreted) json["interpreted"][what] = count;
  if (!f.plan) return json;
  AddRates(json, f.work);
  json["machine"] = MachineToJson(f.machine);
  json["share_of_peak"] = NumberOrNull(f.ShareOfPeak());
  json["memory"] = MemoryToJson(*f.plan);
  json["weight_bytes"] = f.plan->constant_bytes;
  return json;
}

void Print(const Figures& f) {
  Out(
      fmt::format("p50 {:.3f} ms   p90 {:.3f} ms   p99 {:.3f} ms   of {} runs\n"
                  "load {:.1f} ms   compile {:.1f} ms   peak memory {:.0f} MB\n",
                  f.Percentile(0.5), f.Percentile(0.9), f.Percentile(0.99), f.runs_ms.size(),
                  f.load_ms, f.compile_ms, f.peak_rss_mb));
  for (const auto& [what, count] : f.interpreted) {
    Out(fmt::format("interpreted {}x {}\n", count, what));
  }
  if (!f.plan) return;
  Out(PlanText(*f.plan));
  if (f.work.gflop >= 0) {
    Out(fmt::format("{:.3f} GFLOP and {} a run: {:.1f} GFLOP/s, {:.1f} GB/s\n", f.work.gflop,
                    Megabytes(f.work.gigabytes * 1e9), f.work.GflopPerSecond(),
                    f.work.GbPerSecond()));
  }
  Out(MachineText(f.machine) + "\n");
  if (f.work.Share() >= 0) {
    Out(fmt::format("{:.0f}% of peak; {:.0f}% of the roofline, {:.3f} ms\n", 100 * f.ShareOfPeak(),
                    100 * f.work.Share(), f.work.bound.ms));
  }
}

int Bench(const Options& o) {
  const Figures figures = Measure(o);
  if (o.measure.json) {
    Out(JsonText(ToJson(figures)) + "\n");
  } else {
    Print(figures);
  }
  return kFine;
}

}  // namespace

Run AddBench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->measure.AddTo(app);
  app.add_option("--seconds", o->seconds, "to repeat for; at least five runs")
      ->check(SecondsBetween(0, 86400))
      ->capture_default_str();
  return [o] { return Bench(*o); };
}

}  // namespace lathe::command
