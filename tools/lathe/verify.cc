#include <memory>

#include "lathe/runtime/lx_file.h"
#include "lathe/runtime/plan.h"
#include "lathe/support/text.h"
#include "tools/lathe/command.h"

namespace lathe::command {

Run AddVerify(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  app.add_option("executable", *path, "an executable (.lx, or the .json of one in three parts)")
      ->required();
  return [path] {
    runtime::VerifyFile(*path);
    const auto plan = runtime::LoadPlan(*path);
    uint64_t weights = 0;
    for (const Tensor& t : plan->constants) weights += t.byte_size();
    Out(StrCat(*path, ": ", plan->steps.size(), " steps, ", HumanBytes(plan->code.bytes.size()),
               " of code, ", HumanBytes(weights), " of weights: intact\n"));
    return kFine;
  };
}

}  // namespace lathe::command
