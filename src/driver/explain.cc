#include "lathe/driver/explain.h"

#include <algorithm>
#include <map>

#include "lathe/driver/machine_peak.h"
#include "lathe/lower/fusion.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/processors.h"
#include "src/driver/compiled_program.h"

namespace lathe {
namespace {

constexpr double kReadBytes = 256 << 20;  // more than caches hold

std::vector<std::pair<std::string, size_t>> RefusalsOf(const Program& source,
                                                       const CompileOptions& options) {
  Program program = source.Clone();
  OptimizeFor(options, program);
  std::map<std::string, size_t> counts;
  for (const FusionRefusal& r : PlanFusion(program.block(), {.explain = true}).refusals) {
    const std::string with = r.into == nullptr ? "nothing" : std::string(r.into->name());
    ++counts[StrCat(r.op->name(), " with ", with, ": ", r.why)];
  }
  std::vector<std::pair<std::string, size_t>> refusals(counts.begin(), counts.end());
  std::ranges::stable_sort(refusals, std::greater<>(), [](const auto& r) { return r.second; });
  return refusals;
}

// Milliseconds and gigabytes of a run, by kernel.
struct Measured {
  std::map<uint32_t, double> ms, gigabytes;
};

Measured MeasureRuns(const runtime::Executor& executor, const ExplainOptions& options) {
  runtime::NamedTensors inputs;
  for (const auto& [name, value] : options.inputs) inputs.emplace_back(name, value.tensor());
  executor.Run(inputs);
  runtime::Profile profile;
  for (int i = 0; i < options.runs; ++i) {
    executor.Run(inputs, {.cancel = nullptr, .profile = &profile});
  }
  Measured measured;
  for (const runtime::Profile::Event& e : profile.events()) {
    const uint32_t kernel = executor.plan().steps[e.step].kernel;
    measured.ms[kernel] += static_cast<double>(e.end_ns - e.begin_ns) * 1e-6 / options.runs;
    measured.gigabytes[kernel] += static_cast<double>(e.bytes) * 1e-9 / options.runs;
  }
  return measured;
}

void Bound(ExplainedFunction& f, const Explanation& e) {
  const double compute = f.gflop >= 0 ? f.gflop / e.peak_gflops * 1e3 : -1;
  const double memory = f.gigabytes >= 0 ? f.gigabytes / e.read_gbytes * 1e3 : -1;
  if (f.gflop < 0 || f.gigabytes < 0) return;
  f.bound_ms = std::max(compute, memory);
  f.by_memory = memory > compute;
}

}  // namespace

Explanation Explain(const Program& program, const ExplainOptions& options) {
  CompileOptions compile = options.compile;
  compile.cache.clear();
  Explanation e;
  e.refusals = RefusalsOf(program, compile);
  const Executable executable(program, compile);
  e.interpreted = executable.interpreted_operations();
  e.obstacles = executable.obstacles();
  const codegen::Target& target = TargetOf(compile);
  const int threads = compile.threads > 0 ? compile.threads : UsableCores();
  e.peak_gflops = PeakGflops(program.context(), target) * threads;
  e.read_gbytes = ReadGbytes(program.context(), target, kReadBytes);
  Measured measured;
  if (options.runs > 0 && executable.executor() != nullptr) {
    measured = MeasureRuns(*executable.executor(), options);
  }
  for (const CompiledFunctionInfo& info : executable.functions()) {
    if (info.calls == 0) continue;
    const auto calls = static_cast<double>(info.calls);
    ExplainedFunction& f = e.functions.emplace_back(ExplainedFunction{info});
    if (info.flops >= 0) f.gflop = info.flops * calls * 1e-9;
    if (info.bytes >= 0) f.gigabytes = info.bytes * calls * 1e-9;
    if (const auto at = measured.ms.find(info.kernel); at != measured.ms.end()) {
      f.ms = at->second;
      if (f.gigabytes < 0) f.gigabytes = measured.gigabytes.at(info.kernel);
    }
    Bound(f, e);
  }
  std::ranges::stable_sort(e.functions, std::greater<>(), [](const ExplainedFunction& f) {
    return f.ms >= 0 ? f.ms : f.bound_ms;
  });
  return e;
}

}  // namespace lathe
