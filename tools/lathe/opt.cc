#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/driver/model_file.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/driver/pass_report.h"
#include "lathe/driver/summary.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/instrumentation.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"
#include "lathe/transform/keep_constraints.h"
#include "tools/lathe/command.h"
#include "tools/lathe/crash_note.h"
#include "tools/lathe/opt_json.h"
#include "tools/lathe/shell.h"
#include "tools/lathe/structure.h"

namespace lathe::command {

namespace {

using Json = nlohmann::ordered_json;

struct OptOptions {
  ModelOptions model;
  OutputOptions outputs;
  std::string output;
  std::string passes;
  std::string bisect;
  std::string reproducer;
  std::string viz;
  std::vector<std::string> print_before, print_after;
  PassManagerOptions manager;
  int level = -1;  ///< negative: not given
  bool list_passes = false;
  bool markdown = false;
  bool locations = false;
  bool no_print = false;
  bool timing = false;
  bool stats = false;
  bool check_numerics = false;
  bool print_after_change = false;
  bool json = false;
};

int ListPasses(const OptOptions& o) {
  IrContext context;
  for (const std::string& plugin : o.model.plugins) context.LoadPlugin(plugin);
  Out(o.json ? JsonText(PassListJson(), 2) + "\n" : o.markdown ? PassPage() : PassList());
  return kFine;
}

/// The pipeline asked for; a reproducer file brings its own.
std::string PipelineOf(const OptOptions& o) {
  if (!o.passes.empty()) return o.passes;
  if (o.level >= 0) return "inference";
  if (o.model.path == "-" || !o.model.path.ends_with(".lathe")) return "";
  return ReproducerPipeline(ReadFile(o.model.path)).value_or("");
}

/// Whether `command` succeeds on the program printed to a file whose name is appended to it.
bool CommandHolds(const std::string& command, const Program& program) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/program.lathe";
  SaveModel(program, path);
  return RunShell(StrCat(command, " ", ShellQuoted(path))) == 0;
}

/// The options of the run: those of the command line, with its level.
PassManagerOptions ManagerOptions(const OptOptions& o) {
  PassManagerOptions options = o.manager;
  if (o.level >= 0) options.level = o.level;
  return options;
}

int Bisect(const OptOptions& o, const Program& program, const std::string& pipeline) {
  std::string why;  // the check failed last: for the pass that is found
  const auto holds = [&](const Program& after) {
    std::string now;
    if (o.bisect == "verify") {
      const std::vector<Error> errors = Verify(after);
      if (!errors.empty()) now = errors.front().Render();
    } else if (o.bisect == "numerics") {
      now = CompareNumerically(program, after);
    } else if (!CommandHolds(o.bisect, after)) {
      return false;
    }
    if (!now.empty()) why = now;
    return now.empty();
  };
  const BisectResult result = BisectPasses(program, pipeline, holds, ManagerOptions(o));
  if (o.json) {
    const Json json = {{"holds", result.passes < 0},
                       {"passes", result.passes},
                       {"pass", result.pass},
                       {"why", result.error.empty() ? why : result.error}};
    Out(JsonText(json, 2) + "\n");
    return result.passes < 0 ? kFine : kCheckFailed;
  }
  if (result.passes < 0) {
    Out("the check holds after every pass\n");
    return kFine;
  }
  Out(result.passes == 0
          ? "the check fails before the first pass\n"
          : StrCat("the check fails after pass ", result.passes, ": ", result.pass, "\n"));
  if (!result.error.empty()) why = result.error;
  if (!why.empty()) Out(why.back() == '\n' ? why : why + "\n");
  return kCheckFailed;
}

/// The last two parts of a path: many models are called model.onnx.
std::string ShortPath(const std::string& path) {
  const size_t name = path.rfind('/');
  if (name == std::string::npos || name == 0) return path;
  return path.substr(path.rfind('/', name - 1) + 1);
}

/// Also a run that fails leaves its report.
void RunReported(const OptOptions& o, PassManager& manager, Program& program) {
  const auto report = std::make_shared<PassReport>(ShortPath(o.model.path));
  manager.AddInstrumentation(report);
  try {
    manager.Run(program);
  } catch (const Error&) {
    report->Write(o.viz);
    throw;
  }
  report->SetRemarks(manager.remarks());
  report->Write(o.viz);
}

/// `json` gets what there is to say of the run, if it is wanted so.
void RunPasses(const OptOptions& o, Program& program, const std::string& pipeline, Json& json) {
  const auto kept = std::make_shared<KeptConstraints>(program);
  PassManager manager(ManagerOptions(o));
  manager.Add(pipeline);
  if (o.print_after_change || !o.print_before.empty() || !o.print_after.empty()) {
    manager.AddInstrumentation(MakePrinting(
        {o.print_before, o.print_after, o.print_after_change, {.locations = o.locations}, Words}));
  }
  if (!o.reproducer.empty()) {
    manager.AddInstrumentation(MakeReproducer(o.reproducer));
    manager.AddInstrumentation(MakeCrashNote(o.reproducer));
  }
  const auto counts = std::make_shared<OpCountInstrumentation>();
  if (o.stats || o.json) manager.AddInstrumentation(counts);
  if (o.manager.verify_each) manager.AddInstrumentation(MakeChangeCheck());
  if (o.check_numerics) manager.AddInstrumentation(MakeNumericCheck(program));
  manager.AddInstrumentation(kept);
  if (o.viz.empty()) {
    manager.Run(program);
  } else {
    RunReported(o, manager, program);
  }
  kept->Finish(program);
  kept->State(program);
  if (o.json) {
    json.update(RunJson(manager, *counts));
    return;
  }
  if (o.timing) Words(RenderTimings(manager));
  if (o.stats) Words(RenderStatistics(manager) + RenderOpCounts(counts->changes()));
  if (o.manager.remarks) Words(RenderRemarks(manager.remarks()));
}

/// Prints the time of each phase to stderr when asked.
class PhaseTimer {
 public:
  explicit PhaseTimer(bool enabled) : enabled_(enabled) {}
  void Done(const char* phase) {
    const double now = SecondsNow();
    if (enabled_) Words(StrCat("time ", phase, " ", now - last_, " s\n"));
    last_ = now;
  }

 private:
  bool enabled_;
  double last_ = SecondsNow();
};

void CheckFiles(const OptOptions& o) {
  std::vector<OutputFile> outputs;
  if (!o.output.empty()) outputs = ModelFiles(o.output);
  if (!o.reproducer.empty()) outputs.push_back({o.reproducer, FileKind::kText});
  if (!o.viz.empty()) outputs.push_back({PassReport::PathIn(o.viz), FileKind::kReport});
  if (outputs.empty()) return;
  std::vector<std::string> inputs = o.model.Files();
  for (std::string& file : DataFilesOf(o.model.path)) inputs.push_back(std::move(file));
  o.outputs.Check(outputs, inputs);
}

/// A misspelled pass would have no effect, silently.
void CheckPassNames(const OptOptions& o) {
  for (const auto* names : {&o.print_before, &o.print_after, &o.manager.disabled}) {
    for (const std::string& name : *names) {
      if (name != "all") (void)PassRegistry::Global().Find(name);
    }
  }
}

/// What the program is now: where it was written, or its text.
void OutAsJson(const OptOptions& o, const Program& program, Json json) {
  json["model"] = Json::parse(SummaryToJson(Summarize(program)));
  if (!o.output.empty()) {
    json["output"] = o.output;
  } else if (!o.no_print) {
    json["program"] = Print(program, {.locations = o.locations});
  }
  Out(JsonText(json, 2) + "\n");
}

int RunOpt(const OptOptions& o) {
  if (o.list_passes) return ListPasses(o);
  CheckPassNames(o);
  if (o.model.path.empty()) throw UsageError("a model is required");
  CheckFiles(o);
  IrContext context;
  PhaseTimer timer(o.timing);
  Program program = LoadStructure(o.model, context);
  timer.Done("read+verify");
  const std::string pipeline = PipelineOf(o);
  if (!o.bisect.empty()) return Bisect(o, program, pipeline);
  Json json = {{"pipeline", pipeline}};
  if (!pipeline.empty()) {
    RunPasses(o, program, pipeline, json);
    timer.Done("passes");
    VerifyOrThrow(program, {.after = pipeline});
    timer.Done("verify");
  }
  if (!o.output.empty()) SaveModel(program, o.output);
  if (o.json) {
    OutAsJson(o, program, std::move(json));
  } else if (o.output.empty() && !o.no_print) {
    PrintTo(program, {.locations = o.locations}, Out);
  }
  timer.Done("write");
  return kFine;
}

void AddPassOptions(CLI::App& app, OptOptions& o) {
  app.add_option(
         "--passes,-p", o.passes,
         "passes and named pipelines to run, as text: simplify,fuse{level=2},cf.if(simplify)")
      ->type_name("PIPELINE");
  app.add_flag("--list-passes", o.list_passes,
               "list passes with their options, and named pipelines");
  app.add_flag("--markdown", o.markdown, "with --list-passes: as the page docs/passes.md")
      ->needs("--list-passes");
  app.add_option("-O", o.level,
                 "level 0..3 of named pipelines (default 2); without --passes: run 'inference'")
      ->check(CLI::Range(0, 3))
      ->type_name("LEVEL");
  app.add_flag("--stats", o.stats, "print what each pass counted and how it changed the op counts");
  app.add_option("--print-before", o.print_before, "print the program before this pass; all: each")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_option("--print-after", o.print_after, "print the program after this pass; all: each")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_flag("--print-after-change", o.print_after_change, "print what each pass changed");
  app.add_flag("--verify-each", o.manager.verify_each,
               "verify after each pass that changed something");
  app.add_option("--threads", o.manager.threads,
                 "threads for pipelines nested by op kind, such as builtin.func(simplify); 0: all; "
                 "results do not depend on it")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  app.add_option("--stop-after", o.manager.stop_after, "run only the first N passes")
      ->check(CLI::Range(0, 1 << 30))
      ->type_name("N");
  app.add_option("--disable", o.manager.disabled, "leave this pass out")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_option("--enable", o.manager.enabled,
                 "run this pass of a named pipeline though its level is higher")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_flag("--explain", o.manager.remarks,
               "print what was rewritten, and what almost was and why not");
  app.add_flag("--check-numerics", o.check_numerics,
               "compare with the interpreter on sampled inputs after each pass");
  app.add_option(
         "--bisect", o.bisect,
         "find the first pass after which a check fails: verify, numerics, or a command that gets "
         "the program's file as its last argument")
      ->type_name("CHECK");
  app.add_option("--viz", o.viz,
                 "write DIR/report.html: the graph before and after each pass that changed it")
      ->type_name("DIR");
  app.add_option(
         "--reproducer", o.reproducer,
         "when a pass fails, write the program before it and the pass here; lathe opt FILE runs it")
      ->type_name("FILE");
}

}  // namespace

Run AddOpt(CLI::App& app) {
  auto o = std::make_shared<OptOptions>();
  o->model.AddTo(app);
  app.get_option("model")->required(false);
  AddPassOptions(app, *o);
  app.add_option(
         "-o,--output", o->output,
         "write FILE.lathe (weights beside it in FILE.lathe.weights.safetensors) or FILE.onnx "
         "instead of printing")
      ->type_name("FILE");
  o->outputs.AddTo(app);
  app.add_flag("--locations", o->locations, "print where each op comes from");
  app.add_flag("--no-print", o->no_print, "do not print the program");
  app.add_flag("--timing", o->timing, "print the time of each phase and pass to stderr");
  app.add_flag("--json", o->json, "what passes did, and the program or where it is, as JSON");
  return [o] { return RunOpt(*o); };
}

}  // namespace lathe::command
