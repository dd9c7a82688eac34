#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "lathe/support/clock.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"
#include "tools/lathe/rates.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct BenchArguments {
  MeasureOptions measure;
  double seconds = 3;
  uint64_t iterations = 0;  // of each stream; 0: as many as `seconds` allow
  size_t streams = 1;
};

struct Figures {
  double load_ms = 0, compile_ms = 0, peak_rss_mb = 0;
  std::vector<double> runs_ms;  // of all streams, sorted
  size_t streams = 1;
  double elapsed_s = 0;
  // Of what has a plan.
  std::optional<PlanSummary> plan;
  MachinePeak machine;
  WorkDone work;
  std::vector<std::pair<std::string, size_t>> interpreted;

  double Percentile(double p) const {
    const auto last = static_cast<double>(runs_ms.size() - 1);
    return runs_ms[static_cast<size_t>(p * last + 0.5)];
  }
  double Mean() const {
    return std::accumulate(runs_ms.begin(), runs_ms.end(), 0.0) /
           static_cast<double>(runs_ms.size());
  }
  double RunsPerSecond() const { return static_cast<double>(runs_ms.size()) / elapsed_s; }
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
void Compare(const Runnable& runnable, const NamedValues& inputs, const BenchArguments& o,
             Figures& f) {
  const Executable* executable = runnable.executable();
  if (executable == nullptr) return;
  f.interpreted = executable->interpreted();
  const runtime::Executor* executor = executable->executor();
  if (executor == nullptr) return;
  f.plan = Summarize(executor->plan(), BindSymbols(executable->inputs(), inputs));
  f.machine = MeasureMachineFor(*executable, o.measure.runnable.compile);
  f.work = WorkOfRun(*executor, inputs, f.Percentile(0.5), f.machine);
}

// One run after the other; the times that they take, in milliseconds.
std::vector<double> Repeat(Runnable& runnable, const NamedValues& inputs, const BenchArguments& o) {
  constexpr size_t kLeast = 5;
  std::vector<double> times;
  const double first = SecondsNow();
  const auto is_done = [&] {
    if (o.iterations > 0) return times.size() >= o.iterations;
    return times.size() >= kLeast && SecondsNow() - first >= o.seconds;
  };
  while (!is_done()) {
    const double before = SecondsNow();
    runnable.Run(inputs);
    times.push_back((SecondsNow() - before) * 1e3);
  }
  return times;
}

// As many threads as there are streams, each with runs of its own. The first error ends it.
std::vector<double> RepeatInStreams(Runnable& runnable, const NamedValues& inputs,
                                    const BenchArguments& o) {
  if (o.streams == 1) return Repeat(runnable, inputs, o);
  std::vector<std::future<std::vector<double>>> streams;
  for (size_t i = 0; i < o.streams; ++i) {
    streams.push_back(std::async(std::launch::async, [&] { return Repeat(runnable, inputs, o); }));
  }
  std::vector<double> all;
  for (auto& stream : streams) {
    const std::vector<double> times = stream.get();
    all.insert(all.end(), times.begin(), times.end());
  }
  return all;
}

Figures Measure(const BenchArguments& o) {
  Figures figures;
  const double start = SecondsNow();
  Runnable runnable(o.measure.model, o.measure.runnable);
  figures.compile_ms = runnable.compile_seconds() * 1e3;
  figures.load_ms = (SecondsNow() - start) * 1e3 - figures.compile_ms;
  if (o.streams > 1 && runnable.executable() == nullptr) {
    throw UsageError("--streams is for compiled programs; the interpreter has one run at a time");
  }
  const NamedValues inputs = o.measure.inputs.Load(o.measure.model, runnable.inputs());
  runnable.Run(inputs);
  const double first = SecondsNow();
  figures.runs_ms = RepeatInStreams(runnable, inputs, o);
  figures.elapsed_s = SecondsNow() - first;
  figures.streams = o.streams;
  std::ranges::sort(figures.runs_ms);
  figures.peak_rss_mb = PeakMegabytes();
  Compare(runnable, inputs, o, figures);
  return figures;
}

nlohmann::ordered_json FiguresToJson(const Figures& f) {
  nlohmann::ordered_json json = {
      {"p50_ms", f.Percentile(0.5)},
      {"p90_ms", f.Percentile(0.9)},
      {"p99_ms", f.Percentile(0.99)},
      {"min_ms", f.runs_ms.front()},
      {"max_ms", f.runs_ms.back()},
      {"mean_ms", f.Mean()},
      {"streams", f.streams},
      {"seconds", f.elapsed_s},
      {"runs_per_s", f.RunsPerSecond()},
      {"compile_ms", f.compile_ms},
      {"load_ms", f.load_ms},
      {"peak_rss_mb", f.peak_rss_mb},
      {"runs", f.runs_ms.size()},
  };
  json["interpreted"] = nlohmann::ordered_json::object();
  for (const auto& [what, count] : f.interpreted) json["interpreted"][what] = count;
  if (!f.plan) return json;
  AddRates(json, f.work);
  json["machine"] = MachineToJson(f.machine);
  json["share_of_peak"] = NumberOrNull(f.ShareOfPeak());
  json["memory"] = MemoryToJson(*f.plan);
  json["precision"] = f.plan->precision;
  json["weight_bytes"] = f.plan->constant_bytes;
  return json;
}

void Print(const Figures& f) {
  Out(
      fmt::format("p50 {:.3f} ms   p90 {:.3f} ms   p99 {:.3f} ms   of {} runs\n"
                  "min {:.3f} ms   mean {:.3f} ms   max {:.3f} ms   {:.1f} runs/s by {} stream{}\n"
                  "load {:.1f} ms   compile {:.1f} ms   peak memory {:.0f} MB\n",
                  f.Percentile(0.5), f.Percentile(0.9), f.Percentile(0.99), f.runs_ms.size(),
                  f.runs_ms.front(), f.Mean(), f.runs_ms.back(), f.RunsPerSecond(), f.streams,
                  f.streams == 1 ? "" : "s", f.load_ms, f.compile_ms, f.peak_rss_mb));
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

int Bench(const BenchArguments& o) {
  const Figures figures = Measure(o);
  if (o.measure.json) {
    Out(JsonText(FiguresToJson(figures)) + "\n");
  } else {
    Print(figures);
  }
  return kFine;
}

}  // namespace

Run AddBench(CLI::App& app) {
  auto o = std::make_shared<BenchArguments>();
  o->measure.AddTo(app);
  app.add_option("--seconds", o->seconds, "to repeat for; at least five runs")
      ->check(NumberBetween(0, 86400))
      ->capture_default_str();
  app.add_option("--iterations,-n", o->iterations, "runs of each stream instead")
      ->check(CountBetween(1, uint64_t{1} << 40))
      ->type_name("N");
  app.add_option("--streams", o->streams,
                 "runs at once, each after another in a thread of its own; with --threads 1 a "
                 "processor each")
      ->check(CountBetween(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  return [o] { return Bench(*o); };
}

}  // namespace lathe::command
