#include "tools/lathe/runnable.h"

#include "lathe/driver/intermediate_values.h"
#include "lathe/driver/model_file.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "lathe/support/safetensors.h"

namespace lathe::command {
void RunnableOptions::AddTo(CLI::App& app) {
  app.add_flag("--interpret", interpret, "run by the interpreter instead of compiled");
  AddCompileOptions(app, compile);
}

void MeasureOptions::AddTo(CLI::App& app) {
  model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx)");
  runnable.AddTo(app);
  inputs.AddTo(app, /*random_by_default=*/true);
  app.add_flag("--json", json, "machine-readable output");
}

Runnable::Runnable(const ModelOptions& model, const RunnableOptions& options) : path_(model.path) {
  if (DetectModelFormat(model.path) == ModelFormat::kExecutable) {
    if (options.interpret) throw UsageError("--interpret takes a model, not an executable");
    if (!options.compile.target.empty()) {
      throw UsageError("--target is for models; an executable is compiled already");
    }
    if (!options.compile.external.empty()) {
      throw UsageError("--external is for models; an executable is compiled already");
    }
    if (!options.fetched.empty()) {
      throw UsageError("--dump is for models; an executable has no intermediate values");
    }
    if (options.compile.precision != CompileOptions().precision) {
      throw UsageError("--precision is for models; an executable is compiled already");
    }
    LoadOptions load{.threads = options.compile.threads, .max_bytes = options.compile.max_bytes};
    if (!options.parameters.empty()) load.parameters = ReadSafeTensors(options.parameters).tensors;
    executable_ = Executable::Load(model.path, load);
    inputs_ = InputsOf(*executable_, context_);
    return;
  }
  if (!options.parameters.empty()) {
    throw UsageError("--parameters is for executables; a model has its own");
  }
  Program program = model.Load(context_);
  if (options.prepare) options.prepare(program);
  FetchValues(program, options.fetched);
  inputs_ = InputsOf(program);
  if (options.interpret) {
    Interpret(std::move(program), options);
  } else {
    Compile(std::move(program), options);
  }
}

void Runnable::Interpret(Program program, const RunnableOptions& options) {
  InterpreterOptions run = options.compile.interpreter;
  run.verify = false;  // Load has
  run.max_bytes = options.compile.max_bytes;
  program_ = std::move(program);
  interpreter_.emplace(*program_, std::move(run));
}

// What the program holds and the executable does not, such as weights in their old order, goes.
void Runnable::Compile(Program program, const RunnableOptions& options) {
  const double start = SecondsNow();
  try {
    Progress progress("compiling");
    executable_.emplace(program, Shown(options.compile, progress));
  } catch (const Error& error) {
    if (error.id() != "codegen/missing" || !options.compile.target.empty()) throw;
    Words(StrCat("note: ", error.message(), "; interpreting\n"));
    return Interpret(std::move(program), options);
  }
  compile_seconds_ = SecondsNow() - start;
}

NamedValues Runnable::Run(const NamedValues& inputs) {
  try {
    return interpreter_ ? interpreter_->Run(inputs) : executable_->Run(inputs);
  } catch (Error& error) {
    NameModel(error, path_);
    if (error.id() == "run/input-type") error.Hint("--cast converts what files hold");
    if (error.id().starts_with("run/input")) {
      error.Hint(StrCat("`lathe inspect ", path_, "` shows what it takes"));
    }
    throw;
  }
}

}  // namespace lathe::command
