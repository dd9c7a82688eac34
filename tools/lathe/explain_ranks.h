#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "tools/lathe/inputs.h"
#include "tools/lathe/recipe.h"

namespace lathe::command {

/// Options of `lathe explain` for a training step of many ranks.
struct RankOptions {
  RecipeOptions recipe;
  int64_t ranks = 0;  ///< 0: no training
  std::string network = "20us,10GB/s";
  bool shard = false;

  void AddTo(CLI::App& app);
};

/// Prints what a step of one of the ranks takes. The inputs are those of one rank.
void ExplainRanks(const RankOptions& options, const ModelOptions& model, const InputOptions& inputs,
                  const CompileOptions& compile, int runs, bool json);

}  // namespace lathe::command
