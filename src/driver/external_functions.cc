#include "src/driver/external_functions.h"

#include "lathe/lower/external.h"
#include "lathe/lower/lower_function.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "src/driver/collective_kernel.h"

namespace lathe {
namespace {

constexpr size_t kFewOperations = 8;  // that are named one by one: it may be a part of the program

}  // namespace

void MarkExternal(Program& program, const CompileOptions& options) {
  if (options.external.empty()) return;
  (void)ExternalCompilers::Global().Find(options.external);
  if (!options.machine_code) return;
  PassManager manager;
  manager.Add(StrCat("partition_external{compiler=", options.external, "}"));
  manager.Run(program);
}

void CompileExternal(CompiledProgram& compiled) {
  for (size_t i = 0; i < compiled.functions.size(); ++i) {
    CompiledFunction& f = compiled.functions[i];
    if (CompilerOf(f.function) != kCollectives) continue;
    f.external = CollectiveKernel(f.function);
    ReadTypes(f);
    compiled.infos[i].operations = lower::OperationNames(f.function, kFewOperations);
    compiled.infos[i].strategy = kCollectives;
  }
  for (ExternalModule& module : CompileExternalFunctions(compiled.program)) {
    const size_t at = compiled.by_name.at(module.symbol);
    CompiledFunction& f = compiled.functions[at];
    CompiledFunctionInfo& info = compiled.infos[at];
    f.external = std::move(module.kernel.run);
    f.workspaces.assign(module.kernel.workspaces.begin(), module.kernel.workspaces.end());
    ReadTypes(f);
    info.operations = lower::OperationNames(f.function, kFewOperations);
    info.strategy = module.compiler;
    info.candidates = std::move(module.kernel.steps);
  }
}

}  // namespace lathe
