#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct Options {
  ModelOptions model;
  RunnableOptions runnable;
  InputOptions inputs;
  double seconds = 3;
  bool json = false;
};

struct Figures {
  double load_ms = 0, compile_ms = 0, peak_rss_mb = 0;
  std::vector<double> runs_ms;  // sorted

  double Percentile(double p) const {
    const auto last = static_cast<double>(runs_ms.size() - 1);
    return runs_ms[static_cast<size_t>(p * last + 0.5)];
  }
};

// Of this program: what getrusage says includes whoever started it.
double PeakMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

Figures Measure(const Options& o) {
  Figures figures;
  const double start = SecondsNow();
  Runnable runnable(o.model, o.runnable);
  figures.compile_ms = runnable.compile_seconds() * 1e3;
  figures.load_ms = (SecondsNow() - start) * 1e3 - figures.compile_ms;
  const NamedValues inputs = o.inputs.Load(o.model.path, runnable.inputs());
  runnable.Run(inputs);
  const double first = SecondsNow();
  while (figures.runs_ms.size() < 5 || SecondsNow() - first < o.seconds) {
    const double before = SecondsNow();
    runnable.Run(inputs);
    figures.runs_ms.push_back((SecondsNow() - before) * 1e3);
  }
  std::ranges::sort(figures.runs_ms);
  figures.peak_rss_mb = PeakMegabytes();
  return figures;
}

int Bench(const Options& o) {
  const Figures f = Measure(o);
  if (o.json) {
    const nlohmann::ordered_json json = {
        {"p50_ms", f.Percentile(0.5)},  {"p90_ms", f.Percentile(0.9)},
        {"p99_ms", f.Percentile(0.99)}, {"compile_ms", f.compile_ms},
        {"load_ms", f.load_ms},         {"peak_rss_mb", f.peak_rss_mb},
        {"runs", f.runs_ms.size()},
    };
    Out(json.dump() + "\n");
    return kFine;
  }
  Out(
      fmt::format("p50 {:.3f} ms   p90 {:.3f} ms   p99 {:.3f} ms   of {} runs\n"
                  "load {:.1f} ms   compile {:.1f} ms   peak memory {:.0f} MB\n",
                  f.Percentile(0.5), f.Percentile(0.9), f.Percentile(0.99), f.runs_ms.size(),
                  f.load_ms, f.compile_ms, f.peak_rss_mb));
  return kFine;
}

}  // namespace

Run AddBench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx)");
  o->runnable.AddTo(app);
  o->inputs.AddTo(app, /*random_by_default=*/true);
  app.add_option("--seconds", o->seconds, "to repeat for; at least five runs")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return Bench(*o); };
}

}  // namespace lathe::command
