#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"

namespace lathe::command {

/// Options of `lathe check` for a comparison with somebody else's results.
struct AgainstOptions {
  std::string reference;  ///< "onnxruntime", or results; empty: none
  std::string python;
  std::optional<double> rtol, atol;

  void AddTo(CLI::App& app);
};

/// Runs the compiled model on `inputs` and compares its outputs with those of the reference. Prints
/// a line per output, or JSON.
int CheckAgainst(const AgainstOptions& o, const ModelOptions& model, const InputOptions& inputs,
                 const CompileOptions& compile, bool json);

}  // namespace lathe::command
