#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lathe/driver/code_checks.h"
#include "lathe/driver/every_way.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/printable.h"
#include "tools/lathe/against.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/precision_table.h"

namespace lathe::command {
namespace {

struct CheckArguments {
  ModelOptions model;
  CompileOptions compile;
  bool with_cache = false;  // that `compile` names, beside one that is empty at first
  int64_t dim = 2;
  int samples = 1;
  bool list = false;
  bool loops = false;
  bool json = false;
  bool all_levels = false;  // of precision
  double seconds = 1;
  InputOptions inputs;
  AgainstOptions against;
  std::vector<std::string> tiers;
  std::vector<int> threads;
};

void List(const Executable& executable, bool loops) {
  size_t compiled = 0, calls = 0;
  for (const CompiledFunctionInfo& f : executable.functions()) {
    calls += f.calls;
    if (f.calls == 0) continue;
    if (!f.strategy.empty()) compiled += f.calls;
    Out(StrCat(f.calls, "x ", f.strategy.empty() ? "interpreted" : f.strategy, "  ", f.operations,
               f.why_not.empty() || !f.strategy.empty() ? "" : StrCat("\n     ", f.why_not), "\n"));
  }
  for (const auto& [name, count] : executable.interpreted_operations()) {
    Out(StrCat(count, "x interpreted  ", name, "\n"));
  }
  Out(StrCat(compiled, " of ", calls, " calls run as ", loops ? "loops" : "machine code", "\n"));
  if (loops) return;
  for (const std::string& why : executable.obstacles()) Words(StrCat("no plan: ", why, "\n"));
}

// The largest finite number in a tensor: sums that nearly cancel err by what their terms err.
double LargestOf(const RtValue& value) {
  if (!value.is_tensor() || value.tensor().element_type() == ElementType::kString ||
      IsComplex(value.tensor().element_type())) {
    return 0;
  }
  double largest = 0;
  for (const double v : ToDoubles(value.tensor())) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  }
  return largest;
}

// What the interpreter gives on sampled inputs, one run after the other: outputs, then the
// parameters that the program sets.
struct Reference {
  std::vector<NamedValues> inputs, wanted;
  std::vector<std::string> parameters;  // sorted
  Tolerance tolerance;
};

std::vector<std::string> ParametersSetBy(const Program& program) {
  std::set<std::string> names;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    if (op->name() != "builtin.set_parameter") continue;
    names.emplace(op->attribute("name").cast<StrAttribute>().value());
  }
  return {names.begin(), names.end()};
}

// Those that are given, or as many random ones as are wanted.
std::vector<NamedValues> InputsFor(const Program& program, const CheckArguments& o) {
  if (!o.inputs.given.empty()) return {o.inputs.Load(o.model, InputsOf(program))};
  NumericOptions numeric;
  numeric.symbol_extent = o.dim;
  std::vector<NamedValues> all;
  for (int i = 0; i < o.samples; ++i) {
    all.push_back(SampleInputs(program, numeric, numeric.seed + static_cast<uint64_t>(i)));
  }
  return all;
}

NamedValues RunInterpreted(Program& program, const NamedValues& inputs, const std::string& path) {
  try {
    return Interpreter(program).Run(inputs);
  } catch (Error& error) {
    NameModel(error, path);
    throw;
  }
}

Reference Interpret(const Program& program, const CheckArguments& o) {
  Reference r{InputsFor(program, o),
              {},
              ParametersSetBy(program),
              ToleranceOf(program, o.compile.precision)};
  Program copy = program.Clone();
  PassManager manager;
  manager.Add("random_state");  // each run draws what a compiled program draws
  manager.Run(copy);
  for (const NamedValues& inputs : r.inputs) {
    r.wanted.push_back(RunInterpreted(copy, inputs, o.model.path));
    for (const std::string& name : r.parameters) {
      r.wanted.back().emplace_back(name, copy.parameters().Find(name)->data);
    }
  }
  return r;
}

// The same of an executable, which has not run before; it is left as it was.
std::vector<NamedValues> RunAll(const Executable& executable, const Reference& reference) {
  NamedValues before;
  for (const std::string& name : executable.MutableParameters()) {
    before.emplace_back(name, executable.GetParameter(name));
  }
  std::vector<NamedValues> all;
  for (const NamedValues& inputs : reference.inputs) {
    all.push_back(executable.Run(inputs));
    for (const std::string& name : reference.parameters) {
      all.back().emplace_back(name, executable.GetParameter(name));
    }
  }
  for (const auto& [name, value] : before) executable.SetParameter(name, value.tensor());
  return all;
}

// What differs; empty if nothing does.
std::string Difference(const NamedValues& got, const NamedValues& wanted, Tolerance tolerance) {
  for (size_t k = 0; k < wanted.size(); ++k) {
    const double atol = tolerance.atol * std::max(1.0, LargestOf(wanted[k].second));
    const Closeness close = AllClose(got[k].second, wanted[k].second, tolerance.rtol, atol);
    if (!close) return StrCat("'", wanted[k].first, "' differs: ", close.description);
  }
  return {};
}

// The ways to run a program, each against the interpreter; those of one target, which differ in
// threads, and in whether they were saved, against one another, bit by bit.
class Checker {
 public:
  Checker(const CheckArguments& o, const Program& program)
      : o_(o), program_(program), reference_(Interpret(program, o)) {}

  bool CheckLoops(const std::string& target) {
    CompileOptions loops = o_.compile;
    loops.target = target;
    loops.machine_code = false;
    const Executable executable(program_, loops);
    if (o_.list && !std::exchange(listed_, true)) List(executable, /*loops=*/true);
    return IsClose(executable, loops, "loops");
  }

  bool CheckTarget(const std::string& target) {
    CompileOptions compile = o_.compile;
    compile.target = target;
    const std::vector<int> threads = o_.threads.empty() ? std::vector{compile.threads} : o_.threads;
    compile.threads = threads[0];
    std::vector<NamedValues> first;
    const std::string code = target.empty() ? "code" : target;
    const EveryWay ways(program_, compile);
    if (o_.list && !std::exchange(listed_, true)) List(ways.made(), /*loops=*/false);
    if (!IsClose(ways.made(), compile, code)) return false;
    for (const auto& [way, executable] : ways.all()) {
      if (!IsSame(executable, first, StrCat(code, " ", way))) return false;
    }
    if (o_.with_cache && !IsSameWithCache(compile, first, code)) return false;
    compile.cache = ways.cache();
    for (size_t i = 1; i < threads.size(); ++i) {
      compile.threads = threads[i];
      const std::string name = StrCat(code, ", ", threads[i], " threads");
      if (!IsSame(Executable(program_, compile), first, name)) return false;
    }
    return true;
  }

  /// What differed; empty as long as nothing has.
  const std::string& failure() const { return failure_; }

 private:
  void Fail(std::string what) {
    Words(what + "\n");
    failure_ = std::move(what);
  }

  bool IsClose(const Executable& executable, const CompileOptions& compile,
               const std::string& name) {
    const std::vector<NamedValues> got = RunAll(executable, reference_);
    for (size_t i = 0; i < reference_.inputs.size(); ++i) {
      const std::string what = Difference(got[i], reference_.wanted[i], reference_.tolerance);
      if (what.empty()) continue;
      Fail(StrCat(name, ": ", what));
      const std::string call =
          FirstDifferentCall(program_, compile, reference_.inputs[i], reference_.tolerance.rtol,
                             10 * reference_.tolerance.atol);
      if (!call.empty()) Words(StrCat("first in ", call, "\n"));
      return false;
    }
    return true;
  }

  bool IsSame(const Executable& executable, std::vector<NamedValues>& first,
              const std::string& name) {
    const std::vector<NamedValues> all = RunAll(executable, reference_);
    if (first.empty()) first = all;
    if (all == first) return true;
    Fail(StrCat(name, ": other bits than before"));
    return false;
  }

  // By kernels that the cache holds already, then by all of them.
  bool IsSameWithCache(const CompileOptions& compile, std::vector<NamedValues>& first,
                       const std::string& code) {
    for (const char* way : {"as it was", "filled"}) {
      const std::string name = StrCat(code, " with the cache in ", compile.cache, " ", way);
      if (!IsSame(Executable(program_, compile), first, name)) return false;
    }
    return true;
  }

  const CheckArguments& o_;
  const Program& program_;
  const Reference reference_;
  bool listed_ = false;
  std::string failure_;
};

std::vector<std::string> TargetsOf(const CheckArguments& o) {
  if (o.tiers.empty()) return {o.compile.target};
  if (o.tiers != std::vector<std::string>{"all"}) return o.tiers;
  std::vector<std::string> names;
  for (const codegen::Target& target : codegen::Target::All()) {
    if (target.RunsHere()) names.push_back(target.name);
  }
  return names;
}

int Report(const CheckArguments& o, const std::string& failure, const std::string& only_loops) {
  if (o.json) {
    nlohmann::ordered_json json = {{"agrees", failure.empty()}};
    if (!failure.empty()) json["difference"] = failure;
    Out(JsonText(json, 2) + "\n");
  } else if (failure.empty()) {
    Out(StrCat(only_loops.empty()
                   ? "the compiled program gives"
                   : StrCat("the program, as loops alone for ", only_loops, ", gives"),
               " what the interpreter gives\n"));
  }
  return failure.empty() ? kFine : kCheckFailed;
}

// Exit code 3 if a level has a larger error than it promises.
int CheckLevels(const CheckArguments& o) {
  IrContext context;
  const Program program = o.model.Load(context);
  const bool differs = !o.tiers.empty() || o.loops || !o.threads.empty() || o.list;
  if (differs || !o.against.reference.empty()) {
    throw UsageError(
        "--precision all compares levels of one target; it goes without --tiers, --loops, "
        "--each-threads, --list and --against");
  }
  PrecisionReportOptions options{.compile = o.compile, .seconds = o.seconds};
  Progress progress("levels of precision");
  size_t done = 0;
  options.progress = [&](const std::string& what) {
    progress.Update(done++, 2 * PrecisionNames().size() + 2, what);
  };
  const PrecisionReport report = ReportPrecision(program, InputsFor(program, o), options);
  Out(o.json ? PrecisionJson(report) : PrecisionText(report));
  return std::ranges::all_of(report.levels, &LevelReport::keeps_promise) ? kFine : kCheckFailed;
}

int Check(const CheckArguments& o) {
  if (o.all_levels) return CheckLevels(o);
  if (!o.against.reference.empty()) {
    return CheckAgainst(o.against, o.model, o.inputs, o.compile, o.json);
  }
  IrContext context;
  const Program program = o.model.Load(context);
  Checker checker(o, program);
  std::string only_loops;  // targets whose code cannot be run here
  for (const std::string& target : TargetsOf(o)) {
    const bool runs = target.empty() || !o.loops || codegen::Target::Named(target).RunsHere();
    const bool fine =
        (!runs || checker.CheckTarget(target)) && (!o.loops || checker.CheckLoops(target));
    if (!fine) break;
    if (!runs) only_loops += StrCat(only_loops.empty() ? "" : ", ", target);
  }
  return Report(o, checker.failure(), only_loops);
}

}  // namespace

Run AddCheck(CLI::App& app) {
  auto o = std::make_shared<CheckArguments>();
  o->model.AddTo(app);
  AddCompileOptions(app, o->compile, &o->all_levels);
  app.add_option("--extent", o->dim, "size of every dim of the inputs that stays symbolic")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--samples", o->samples, "sets of random inputs")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--tiers", o->tiers, "each of these targets; all: those that run here")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--each-threads", o->threads, "with each of these numbers of threads")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024))
      ->type_name("N,...");
  app.add_flag(
      "--loops", o->loops,
      "the loops in the interpreter, too: slow; alone for a target that does not run here");
  o->inputs.AddTo(app, /*random_by_default=*/true);
  o->against.AddTo(app);
  app.add_option("--seconds", o->seconds, "to measure for, with --precision all")
      ->check(NumberBetween(0, 86400))
      ->capture_default_str();
  app.add_flag("--json", o->json, "machine-readable output");
  app.add_flag("--list", o->list, "list the functions, how each runs, and why not faster");
  CLI::Option* cache = app.get_option("--cache");
  cache
      ->description(
          "one to check, too, as it is and filled; otherwise only one that is empty at first")
      ->default_str("");
  return [o, cache] {
    o->with_cache = cache->count() != 0 && !o->compile.cache.empty();
    return Check(*o);
  };
}

}  // namespace lathe::command
