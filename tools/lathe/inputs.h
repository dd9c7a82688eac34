#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/executable.h"
#include "lathe/runtime/plan.h"
#include "lathe/train/data.h"
#include "tools/lathe/command.h"

namespace lathe::command {

/// An input of a model.
struct InputPort {
  std::string name;
  Type type;
};

/// Options of every subcommand that feeds a model: files, pictures, numbers or random data.
struct InputOptions {
  std::vector<std::string> given;  ///< NAME=FILE, NAME=VALUE or FILE
  bool cast = false;
  std::string normalize = "unit";
  bool bgr = false;
  bool random = false;
  bool show = false;
  uint64_t seed = 0;

  /// With `random_by_default` there is no option to ask for random data.
  void AddTo(CLI::App& app, bool random_by_default);
  /// Those that Load reads.
  std::vector<std::string> Files() const;
  /// A value for each input of the model. Errors: run/input-name, run/input-missing, those of
  /// the files.
  NamedValues Load(const ModelOptions& model, const std::vector<InputPort>& ports) const;
};

/// What `--dim` and `--shape` say of the symbols of the inputs; a UsageError for what is none of
/// them, or contradicts itself.
std::vector<Dim::Binding> GivenSizes(const ModelOptions& model,
                                     const std::vector<InputPort>& ports);

/// For data sets that feed a model with these inputs: pictures are for the first one of floats.
train::DataOptions DataOptionsFor(const std::vector<InputPort>& ports, const ImageOptions& image);

std::vector<InputPort> InputsOf(const Program& program);
std::vector<InputPort> InputsOf(const Executable& executable, IrContext& context);
std::vector<InputPort> InputsOf(const runtime::Plan& plan, IrContext& context);

}  // namespace lathe::command
