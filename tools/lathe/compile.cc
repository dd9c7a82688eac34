#include <fmt/format.h>

#include <memory>

#include "lathe/driver/emit.h"
#include "lathe/driver/plan_summary.h"
#include "lathe/support/clock.h"
#include "lathe/support/file.h"
#include "lathe/support/text.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"

namespace lathe::command {
namespace {

struct Options {
  ModelOptions model;
  CompileOptions compile;
  std::string output;
  std::string stage;
  std::vector<std::string> dims;
  bool json = false;
};

int Emit(const Options& o) {
  const Stage stage = ParseStage(o.stage);
  IrContext context;
  const Program program = o.model.Load(context);
  ParseDims(o.dims, InputsOf(program));
  const std::string text = EmitStage(program, o.compile, stage);
  if (!o.output.empty()) {
    WriteFile(o.output, text);
  } else if (stage == Stage::kObject) {
    throw UsageError("--emit obj needs a file: -o FILE");
  } else {
    Out(text);
  }
  return kFine;
}

int Compile(const Options& o) {
  if (!o.stage.empty()) return Emit(o);
  if (o.output.empty()) throw UsageError("where to? -o FILE.lx, or --emit STAGE to look at it");
  const double start = SecondsNow();
  IrContext context;
  const Program program = o.model.Load(context);
  const std::vector<Dim::Binding> dims = ParseDims(o.dims, InputsOf(program));
  const auto plan = CompileToFile(program, o.compile, o.output);
  const PlanSummary s = Summarize(*plan, dims);
  if (o.json) {
    Out(SummaryToJson(s));
    return kFine;
  }
  Words(fmt::format("wrote {}: {} steps for {}, {} of code, {} of weights, in {:.1f} s\n", o.output,
                    s.num_steps, s.target, HumanBytes(static_cast<uint64_t>(s.code_bytes)),
                    HumanBytes(static_cast<uint64_t>(s.constant_bytes)), SecondsNow() - start));
  return kFine;
}

}  // namespace

Run AddCompile(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->model.AddTo(app);
  app.add_option("--output,-o", o->output,
                 "the executable: FILE.lx, or FILE.json and beside it a library and parameters; "
                 "or what --emit gives")
      ->type_name("FILE");
  AddCompileOptions(app, o->compile);
  app.add_option("--emit", o->stage,
                 "show a stage instead: loops, llvm, asm; obj writes an object file")
      ->type_name("STAGE");
  AddDimOption(app, o->dims);
  app.add_flag("--json", o->json, "what was written, machine-readable, to stdout");
  return [o] { return Compile(*o); };
}

}  // namespace lathe::command
