#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lathe/train/training_program.h"
#include "tools/lathe/command.h"

namespace lathe::command {

/// Options of every subcommand that makes a training program.
struct RecipeOptions {
  train::TrainingRecipe recipe;
  std::string initialize;  ///< how parameters begin; empty: as the model has them

  void AddTo(CLI::App& app);
  /// The model, with fresh parameters that `seed` decides if they are asked for.
  Program Load(const ModelOptions& model, IrContext& context, uint64_t seed) const;
};

}  // namespace lathe::command
