#include <algorithm>
#include <cmath>
#include <memory>

#include "lathe/driver/pass_checks.h"
#include "lathe/support/error.h"
#include "tools/lathe/command.h"

namespace lathe::command {
namespace {

struct Options {
  ModelOptions model;
  CompileOptions compile;
  int64_t dim = 2;
  int samples = 1;
  bool list = false;
};

void List(const Executable& executable) {
  size_t compiled = 0, calls = 0;
  for (const CompiledFunctionInfo& f : executable.functions()) {
    calls += f.calls;
    if (!f.strategy.empty()) compiled += f.calls;
    Out(StrCat(f.calls, "x ", f.strategy.empty() ? "interpreted" : f.strategy, "  ", f.operations,
               f.why_not.empty() || !f.strategy.empty() ? "" : StrCat("\n     ", f.why_not), "\n"));
  }
  for (const auto& [name, count] : executable.interpreted_operations()) {
    Out(StrCat(count, "x interpreted  ", name, "\n"));
  }
  Out(StrCat(compiled, " of ", calls, " calls run as machine code\n"));
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

int Check(const Options& o) {
  IrContext context;
  const Program program = o.model.Load(context);
  Executable executable(program, o.compile);
  if (o.list) List(executable);
  NumericOptions numeric;
  numeric.symbol_extent = o.dim;
  const Tolerance tolerance = ToleranceOf(program);
  Program reference = program.Clone();
  for (int i = 0; i < o.samples; ++i) {
    const NamedValues inputs =
        SampleInputs(program, numeric, numeric.seed + static_cast<uint64_t>(i));
    const NamedValues wanted = Interpreter(reference).Run(inputs);
    const NamedValues got = executable.Run(inputs);
    for (size_t k = 0; k < wanted.size(); ++k) {
      const double atol = tolerance.atol * std::max(1.0, LargestOf(wanted[k].second));
      const Closeness close = AllClose(got[k].second, wanted[k].second, tolerance.rtol, atol);
      if (close) continue;
      Words(StrCat("output '", wanted[k].first, "' differs: ", close.description, "\n"));
      return kCheckFailed;
    }
  }
  Out("the compiled program gives what the interpreter gives\n");
  return kFine;
}

}  // namespace

Run AddCheck(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->model.AddTo(app);
  AddCompileOptions(app, o->compile);
  app.add_option("--dim", o->dim, "extent of every symbolic dim of the inputs")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--samples", o->samples, "sets of random inputs")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_flag("--list", o->list, "list the functions, how each runs, and why not faster");
  return [o] { return Check(*o); };
}

}  // namespace lathe::command
