#include "lathe/driver/explain.h"

#include <algorithm>
#include <map>

#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/processors.h"
#include "src/driver/compiled_program.h"
#include "src/driver/fusion_boundaries.h"

namespace lathe {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return -1;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double MillisecondsNow() { return 1e3 * SecondsNow(); }

struct Measured {
  double run_ms = -1;
  std::map<uint32_t, double> ms;                 // by kernel: all its steps of a run
  std::map<uint32_t, double> evaluated_ms = {};  // the same of functions of the plan
};

bool IsCopy(const runtime::PlanStep& step) {
  return step.kernel == runtime::kNone && step.function == runtime::kNone && !step.is_control();
}

// Of one run, by step: a loop comes to a step several times, a branch perhaps never.
std::vector<double> StepTimes(const runtime::Profile& profile, size_t steps) {
  std::vector<double> ms(steps, 0);
  for (const runtime::Profile::Event& e : profile.events()) {
    ms[e.step] += static_cast<double>(e.end_ns - e.begin_ns) * 1e-6;
  }
  return ms;
}

Measured MeasureRuns(const runtime::Executor& executor, const ExplainOptions& options) {
  executor.RunValues(options.inputs);
  std::vector<double> runs;
  std::vector<std::vector<double>> steps(executor.plan().steps.size());
  for (int i = 0; i < options.runs; ++i) {
    runtime::Profile profile;
    const double before = MillisecondsNow();
    executor.RunValues(options.inputs, {.cancel = nullptr, .profile = &profile});
    runs.push_back(MillisecondsNow() - before);
    const std::vector<double> ms = StepTimes(profile, steps.size());
    for (size_t step = 0; step < ms.size(); ++step) steps[step].push_back(ms[step]);
  }
  Measured measured{Median(runs), {}};
  for (size_t i = 0; i < steps.size(); ++i) {
    const runtime::PlanStep& step = executor.plan().steps[i];
    const bool is_evaluated = step.function != runtime::kNone;
    (is_evaluated ? measured.evaluated_ms[step.function] : measured.ms[step.kernel]) +=
        Median(steps[i]);
  }
  return measured;
}

// "f32[1,64,56,56]": what the first step of each kernel writes.
std::map<uint32_t, std::string> ResultsOf(const runtime::Plan& plan,
                                          std::span<const Dim::Binding> symbols) {
  std::map<uint32_t, std::string> results;
  for (const runtime::PlanStep& step : plan.steps) {
    const bool writes = !step.is_control() && step.reads < step.values.size();
    if (results.contains(step.kernel) || !writes || step.function != runtime::kNone) continue;
    const runtime::PlanValue& v = plan.values[step.values[step.reads]];
    SymShape shape(v.dims);
    for (Dim& d : shape.dims) {
      if (const auto extent = d.Evaluate(symbols)) d = *extent;
    }
    results[step.kernel] = StrCat(Name(v.element), shape.ToString());
  }
  return results;
}

// Steps without kernels, as if they were a function.
CompiledFunctionInfo CopiesOf(const runtime::Plan& plan) {
  CompiledFunctionInfo copies;
  copies.operations = "copy";
  copies.strategy = kMemoryStrategy;
  copies.flops = copies.bytes = 0;
  for (const runtime::PlanStep& step : plan.steps) {
    if (!IsCopy(step)) continue;
    ++copies.calls;
    copies.bytes += step.bytes;
  }
  return copies;
}

double Billions(const Dim& dim, size_t times, std::span<const Dim::Binding> symbols) {
  const auto number = dim.Evaluate(symbols);
  return number ? static_cast<double>(*number) * static_cast<double>(times) * 1e-9 : -1;
}

// A function's row: what it takes at least, and what a run took.
ExplainedFunction Explained(const CompiledFunctionInfo& info, const Explanation& all,
                            const Measured& measured,
                            const std::map<uint32_t, std::string>& results) {
  ExplainedFunction f;
  f.info = info;
  const bool is_copies = info.name.empty();
  f.gflop = Billions(info.flops, info.calls, all.symbols);
  f.gigabytes = Billions(info.bytes, is_copies ? 1 : info.calls, all.symbols);
  f.bound = BoundOf(f.gflop, f.gigabytes, all.machine);
  const auto evaluated = measured.evaluated_ms.find(info.function);
  if (evaluated != measured.evaluated_ms.end()) f.ms = evaluated->second;
  if (info.kernel == runtime::kNone && !is_copies) return f;
  if (const auto at = measured.ms.find(info.kernel); at != measured.ms.end()) f.ms = at->second;
  if (const auto at = results.find(info.kernel); at != results.end()) f.results = at->second;
  return f;
}

}  // namespace

Explanation Explain(const Program& program, const ExplainOptions& options) {
  CompileOptions compile = options.compile;
  compile.cache.clear();
  compile.engine = nullptr;
  const codegen::Target& target = TargetOf(compile);
  const bool runs_here = target.RunsHere();
  if (!runs_here && options.runs == 0) compile.machine_code = false;
  FusionBoundaries boundaries = FindFusionBoundaries(program, compile);
  const Executable executable(program, compile);
  const runtime::Executor* executor = executable.executor();
  Explanation e;
  e.target = target.name;
  e.precision = compile.precision;
  e.runs_here = runs_here;
  e.symbols = BindSymbols(executable.inputs(), options.inputs);
  e.interpreted = executable.interpreted();
  e.obstacles = executable.obstacles();
  e.boundaries = std::move(boundaries.all);
  Measured measured;
  if (options.runs > 0 && executor != nullptr) measured = MeasureRuns(*executor, options);
  e.run_ms = measured.run_ms;
  const int threads = compile.threads > 0 ? compile.threads : UsableCores();
  if (runs_here) e.machine = MeasureMachine(target, threads);
  if (!runs_here) e.obstacles = {StrCat("this machine cannot run code for '", target.name, "'")};
  std::map<uint32_t, std::string> results;
  std::vector<CompiledFunctionInfo> functions = executable.functions();
  if (executor != nullptr) {
    e.plan = Summarize(executor->plan(), e.symbols);
    results = ResultsOf(executor->plan(), e.symbols);
    functions.push_back(CopiesOf(executor->plan()));
  }
  for (const CompiledFunctionInfo& info : functions) {
    if (info.calls == 0) continue;
    ExplainedFunction& f = e.functions.emplace_back(Explained(info, e, measured, results));
    f.ends = std::move(boundaries.ends[info.name]);
    f.begins = std::move(boundaries.begins[info.name]);
  }
  std::ranges::stable_sort(e.functions, std::greater<>(), [](const ExplainedFunction& f) {
    return f.ms >= 0 ? f.ms : f.bound.ms;
  });
  return e;
}

}  // namespace lathe
