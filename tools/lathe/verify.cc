#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/runtime/lx_file.h"
#include "lathe/runtime/plan.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"
#include "tools/lathe/command.h"

namespace lathe::command {

Run AddVerify(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false;
  };
  const auto o = std::make_shared<Options>();
  app.add_option("executable", o->path, "an executable (.lx, or the .json of one in three parts)")
      ->required();
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] {
    runtime::VerifyFile(o->path);
    const auto plan = runtime::LoadPlan(o->path);
    uint64_t weights = 0;
    for (const Tensor& t : plan->constants) weights += t.byte_size();
    if (o->json) {
      const nlohmann::ordered_json json = {{"path", o->path},
                                           {"intact", true},
                                           {"steps", plan->steps.size()},
                                           {"code_bytes", plan->code.bytes.size()},
                                           {"weight_bytes", weights}};
      Out(JsonText(json, 2) + "\n");
      return kFine;
    }
    Out(StrCat(o->path, ": ", plan->steps.size(), " steps, ", HumanBytes(plan->code.bytes.size()),
               " of code, ", HumanBytes(weights), " of weights: intact\n"));
    return kFine;
  };
}

}  // namespace lathe::command
