#include "tools/lathe/recipe.h"

#include <fmt/format.h>

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/model_file.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/text.h"
#include "tools/lathe/limits.h"

namespace lathe::command {

void RecipeOptions::AddTo(CLI::App& app) {
  app.add_option("--loss", recipe.loss,
                 "cross_entropy, binary_cross_entropy, mse, l1, or an output that is the loss")
      ->capture_default_str();
  app.add_option("--loss-of", recipe.output, "the output that the loss is of")->type_name("OUTPUT");
  app.add_option("--class-axis", recipe.class_axis, "of the scores of cross_entropy")
      ->capture_default_str();
  app.add_option("--optimizer", recipe.optimizer,
                 "passes that update parameters, such as adamw{lr=1e-3}")
      ->capture_default_str();
  app.add_option("--freeze", recipe.freeze,
                 "parameters that stay as they are: a name, or a pattern such as 'encoder.*'")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app.add_option("--loss-scale", recipe.loss_scale,
                 "what the loss of a model of f16 is multiplied by at first; it follows the "
                 "gradients. 0: not")
      ->check(CLI::Range(0.0, 1e12))
      ->capture_default_str();
  app.add_option("--init", initialize,
                 "train from fresh parameters: auto, or an initializer of the pass initialize")
      ->type_name("METHOD");
}

Program RecipeOptions::Load(const ModelOptions& model, IrContext& context, uint64_t seed) const {
  ModelOptions options = model;
  options.without_weights = !initialize.empty();
  Program program = options.Load(context);
  if (initialize.empty()) return program;
  Program startup = program.Clone();
  std::unique_ptr<Pass> pass = PassRegistry::Global().Make("initialize");
  pass->SetOption("method", initialize);
  pass->SetOption("seed", StrCat(seed));
  PassManager manager;
  manager.Add(std::move(pass));
  manager.Run(startup);
  RunStartup(startup, program);
  LoadMissingWeights(program, model.path);
  VerifyOrThrow(program);
  return program;
}

void MemoryOption::AddTo(CLI::App& app) {
  app.add_option("--memory", size,
                 "what parameters, states and a step may take, such as 2GB: values are computed "
                 "twice rather than kept where they do not fit")
      ->type_name("SIZE");
}

uint64_t MemoryOption::Bytes() const { return size.empty() ? 0 : ParseSize("--memory", size); }

std::string TextOf(const train::MemoryTrade& trade) {
  const std::string before = StrCat("a step takes ", HumanBytes(trade.before));
  if (!trade.has_changes()) return StrCat(before, ", which fits into ", HumanBytes(trade.budget));
  return fmt::format("{}; within {} it takes {}, for {:.1f}% more arithmetic", before,
                     HumanBytes(trade.budget), HumanBytes(trade.after), 100 * trade.added_work);
}

}  // namespace lathe::command
