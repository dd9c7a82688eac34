#include <memory>

#include "lathe/driver/summary.h"
#include "tools/lathe/command.h"

namespace lathe::command {

Run AddInspect(CLI::App& app) {
  struct Options {
    ModelOptions model;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  o->model.AddTo(app);
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] {
    IrContext context;
    const Program program = o->model.Load(context);
    const ModelSummary summary = Summarize(program);
    Out(o->json ? SummaryToJson(summary) : RenderSummary(summary));
    return kFine;
  };
}

}  // namespace lathe::command
