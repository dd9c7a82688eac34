#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lathe/train/memory_budget.h"
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

/// The option --memory of a subcommand that makes training steps.
struct MemoryOption {
  std::string size;  ///< "2GB"; empty: any

  void AddTo(CLI::App& app);
  /// In bytes; 0: any. UsageError if it is not a size.
  uint64_t Bytes() const;
};

/// "a step takes 1.2 GiB of 2 GiB".
std::string TextOf(const train::MemoryTrade& trade);

}  // namespace lathe::command
