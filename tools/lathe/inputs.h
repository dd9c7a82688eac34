#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/executable.h"
#include "lathe/runtime/plan.h"

namespace lathe::command {

/// An input of a model.
struct InputPort {
  std::string name;
  Type type;
};

/// Options of every subcommand that feeds a model: files, pictures or random data.
struct InputOptions {
  std::vector<std::string> files;
  std::vector<std::string> dims;
  std::string normalize = "unit";
  bool bgr = false;
  bool random = false;
  bool show = false;
  uint64_t seed = 0;

  /// With `random_by_default` there is no option to ask for random data.
  void AddTo(CLI::App& app, bool random_by_default);
  /// A value for each input of the model. Errors: run/unknown-input, run/missing-input, those of
  /// the files.
  NamedValues Load(const std::string& model, const std::vector<InputPort>& ports) const;
};

/// --dim NAME=N, for what depends on the sizes of inputs.
void AddDimOption(CLI::App& app, std::vector<std::string>& dims);

/// "NAME=N" of each; a UsageError for what is none, and for a name that is no symbol of the inputs.
std::vector<Dim::Binding> ParseDims(const std::vector<std::string>& texts,
                                    const std::vector<InputPort>& ports);

std::vector<InputPort> InputsOf(const Program& program);
std::vector<InputPort> InputsOf(const Executable& executable, IrContext& context);
std::vector<InputPort> InputsOf(const runtime::Plan& plan, IrContext& context);

}  // namespace lathe::command
