#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "lathe/driver/emit.h"
#include "lathe/driver/generate.h"
#include "lathe/driver/plan_summary.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/clock.h"
#include "lathe/support/file.h"
#include "lathe/support/text.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/recipe.h"
#include "tools/lathe/sandboxed.h"

namespace lathe::command {
namespace {

struct CompileArguments {
  ModelOptions model;
  RecipeOptions recipe;
  bool train = false;
  MemoryOption memory;
  bool decoder = false;
  uint64_t seed = 0;
  CompileOptions compile;
  OutputOptions outputs;
  std::string output;
  std::string stage;
  bool json = false;
  bool sandbox = false;
};

FileKind KindOf(Stage stage) {
  switch (stage) {
    case Stage::kLoops:
      return FileKind::kText;
    case Stage::kLlvm:
      return FileKind::kLlvm;
    case Stage::kAssembly:
      return FileKind::kAssembly;
    case Stage::kObject:
      return FileKind::kObject;
  }
  return FileKind::kText;
}

void CheckFiles(const CompileArguments& o, const std::vector<OutputFile>& outputs) {
  std::vector<std::string> inputs = o.model.Files();
  if (!o.compile.records.empty()) inputs.push_back(o.compile.records);
  o.outputs.Check(outputs, inputs);
}

// The model, or the training step of it.
Program LoadProgram(const CompileArguments& o, IrContext& context) {
  Program program = o.recipe.Load(o.model, context, o.seed);
  if (o.decoder) BindDecoderSizes(program);
  if (!o.train) return program;
  return std::move(train::MakeTrainingProgram(program, o.recipe.recipe).step);
}

// A training step within the memory that it may take.
CompileOptions Fitted(const CompileArguments& o, const Program& program, CompileOptions compile) {
  const uint64_t bytes = o.memory.Bytes();
  if (bytes > 0) Words(TextOf(train::FitMemory(program, {}, bytes, compile)) + "\n");
  return compile;
}

int Emit(const CompileArguments& o) {
  const Stage stage = ParseStage(o.stage);
  if (!o.output.empty()) CheckFiles(o, {{o.output, KindOf(stage)}});
  IrContext context;
  const Program program = LoadProgram(o, context);
  const std::string text = EmitStage(program, Fitted(o, program, o.compile), stage);
  if (!o.output.empty()) {
    WriteFile(o.output, text);
  } else if (stage == Stage::kObject) {
    throw UsageError("--emit obj needs a file: -o FILE");
  } else {
    Out(text);
  }
  return kFine;
}

std::shared_ptr<const runtime::Plan> CompileHere(const CompileArguments& o,
                                                 const std::string& output) {
  IrContext context;
  Progress progress("compiling");
  const Program program = LoadProgram(o, context);
  return CompileToFile(program, Fitted(o, program, Shown(o.compile, progress)), output);
}

// What comes out of the sandbox is checked as any file is, and written anew. Nothing without an
// exit code of kFine.
std::shared_ptr<const runtime::Plan> CompileSandboxed(const CompileArguments& o, int& code) {
  const SandboxedResult result;
  code = RunSandboxed(o.model, o.compile, {}, &result, [&](const CompileOptions& compile) {
    CompileArguments inside = o;
    inside.compile = compile;
    (void)CompileHere(inside, "-");
    return kFine;
  });
  if (code != kFine) return nullptr;
  auto plan = runtime::LoadPlan(result.Read(), "the result of the sandbox");
  runtime::SavePlan(*plan, o.output);
  return plan;
}

int Compile(const CompileArguments& o) {
  if (o.sandbox && !o.stage.empty()) throw UsageError("--sandbox makes executables: no --emit");
  if (!o.stage.empty()) return Emit(o);
  if (o.output.empty()) throw UsageError("where to? -o FILE.lx, or --emit STAGE to look at it");
  CheckFiles(o, ExecutableFiles(o.output));
  const double start = SecondsNow();
  int code = kFine;
  const auto plan = o.sandbox ? CompileSandboxed(o, code) : CompileHere(o, o.output);
  if (plan == nullptr) return code;
  const PlanSummary s = Summarize(*plan);
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
  auto o = std::make_shared<CompileArguments>();
  o->model.AddTo(app);
  app.add_option("--output,-o", o->output,
                 "the executable: FILE.lx, or FILE.json and beside it a library and parameters; "
                 "or what --emit gives")
      ->type_name("FILE");
  AddCompileOptions(app, o->compile);
  CLI::Option* decoder = app.add_flag("--decoder", o->decoder,
                                      "a decoder for 'lathe generate': batch, ids, cache and mask "
                                      "have the sizes that it feeds");
  CLI::Option* train = app.add_flag("--train", o->train,
                                    "a training step instead: it reads targets too, gives the "
                                    "loss, and updates the parameters it holds");
  train->excludes(decoder);
  CLI::App* recipe = app.add_option_group("Training");
  o->recipe.AddTo(*recipe);
  recipe->add_option("--seed", o->seed, "of fresh parameters")->capture_default_str();
  o->memory.AddTo(*recipe);
  for (CLI::Option* option : recipe->get_options()) option->needs(train);
  app.add_option("--emit", o->stage,
                 "show a stage instead: loops, llvm, asm; obj writes an object file")
      ->type_name("STAGE");
  o->outputs.AddTo(app);
  AddSandboxOption(app, o->sandbox);
  app.add_flag("--json", o->json, "what was written, machine-readable, to stdout");
  return [o] { return Compile(*o); };
}

}  // namespace lathe::command
