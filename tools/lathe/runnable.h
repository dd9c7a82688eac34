#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <vector>

#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"

namespace lathe::command {

/// Options of every subcommand that runs a model.
struct RunnableOptions {
  CompileOptions compile;
  bool interpret = false;
  std::string parameters;                 ///< file of weights for an executable; empty: its own
  std::vector<std::string> fetched;       ///< intermediate values that become outputs; or "all"
  std::function<void(Program&)> prepare;  ///< changes a model before it is compiled; or none

  void AddTo(CLI::App& app);
};

/// Options of every subcommand that measures a model.
struct MeasureOptions {
  ModelOptions model;
  RunnableOptions runnable;
  InputOptions inputs;
  bool json = false;

  void AddTo(CLI::App& app);
};

/// A model that may run: compiled, interpreted, or loaded from an executable file (.lx).
class Runnable {
 public:
  Runnable(const ModelOptions& model, const RunnableOptions& options);

  const std::vector<InputPort>& inputs() const { return inputs_; }
  /// Errors: as Executable::Run, with the path of the model.
  NamedValues Run(const NamedValues& inputs);
  /// Null if it is interpreted.
  const Executable* executable() const { return executable_ ? &*executable_ : nullptr; }
  double compile_seconds() const { return compile_seconds_; }

 private:
  void Interpret(Program program, const RunnableOptions& options);
  void Compile(Program program, const RunnableOptions& options);

  std::string path_;
  IrContext context_;
  std::optional<Program> program_;  // interpreted
  std::optional<Interpreter> interpreter_;
  std::optional<Executable> executable_;
  std::vector<InputPort> inputs_;
  double compile_seconds_ = 0;
};

}  // namespace lathe::command
