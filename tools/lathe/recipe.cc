#include "tools/lathe/recipe.h"

#include "lathe/dialect/interpreter.h"
#include "lathe/driver/model_file.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/text.h"

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

}  // namespace lathe::command
