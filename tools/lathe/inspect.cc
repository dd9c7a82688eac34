#include <memory>

#include "lathe/driver/model_file.h"
#include "lathe/driver/plan_summary.h"
#include "lathe/driver/summary.h"
#include "lathe/runtime/lx_file.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/structure.h"

namespace lathe::command {
namespace {

template <class Summary>
int Show(const Summary& summary, bool json) {
  Out(json ? SummaryToJson(summary) : RenderSummary(summary));
  return kFine;
}

}  // namespace

Run AddInspect(CLI::App& app) {
  struct Options {
    ModelOptions model;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  o->model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx, .json)");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] {
    IrContext context;
    if (DetectModelFormat(o->model.path) == ModelFormat::kExecutable) {
      const auto plan = runtime::LoadPlan(o->model.path);
      return Show(Summarize(*plan, GivenSizes(o->model, InputsOf(*plan, context))), o->json);
    }
    return Show(Summarize(LoadStructure(o->model, context)), o->json);
  };
}

}  // namespace lathe::command
