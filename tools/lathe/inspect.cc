#include <memory>

#include "lathe/driver/model_file.h"
#include "lathe/driver/plan_summary.h"
#include "lathe/driver/summary.h"
#include "lathe/runtime/lx_file.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"

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
    std::vector<std::string> dims;
  };
  auto o = std::make_shared<Options>();
  o->model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx, .json)");
  app.add_flag("--json", o->json, "machine-readable output");
  AddDimOption(app, o->dims);
  return [o] {
    IrContext context;
    if (DetectModelFormat(o->model.path) == ModelFormat::kExecutable) {
      const auto plan = runtime::LoadPlan(o->model.path);
      return Show(Summarize(*plan, ParseDims(o->dims, InputsOf(*plan, context))), o->json);
    }
    const Program program = o->model.Load(context);
    return Show(Summarize(program, ParseDims(o->dims, InputsOf(program))), o->json);
  };
}

}  // namespace lathe::command
