#include "src/driver/external_functions.h"

#include <algorithm>
#include <map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/traits.h"
#include "lathe/lower/external.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

// "conv relu", or of many operations "53 conv, 49 relu": such a function is a part of the program.
std::string OperationsOf(const Operation* function) {
  constexpr size_t kFew = 8;
  std::vector<std::string> names;
  std::map<std::string, size_t> counts;
  for (const Operation& op : *function->region(0).front()) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    if (op.isa<builtin::GetParameterOp>()) continue;
    names.emplace_back(op.name().substr(op.name().find('.') + 1));
    ++counts[names.back()];
  }
  std::string text;
  if (names.size() <= kFew) {
    for (const std::string& name : names) text += StrCat(text.empty() ? "" : " ", name);
    return text;
  }
  std::vector<std::pair<std::string, size_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& c) { return c.second; });
  for (const auto& [name, count] : sorted) {
    text += StrCat(text.empty() ? "" : ", ", count, " ", name);
  }
  return text;
}

}  // namespace

std::string_view CompilerOf(const Operation* function) {
  const auto compiler = function->attribute(kCompilerAttr).dyn_cast<StrAttribute>();
  return compiler ? compiler.value() : std::string_view();
}

void MarkExternal(Program& program, const CompileOptions& options) {
  if (options.external.empty()) return;
  (void)ExternalCompilers::Global().Find(options.external);
  if (!options.machine_code) return;
  PassManager manager;
  manager.Add(StrCat("partition_external{compiler=", options.external, "}"));
  manager.Run(program);
}

void CompileExternal(CompiledProgram& compiled) {
  for (ExternalModule& module : CompileExternalFunctions(compiled.program)) {
    const size_t at = compiled.by_name.at(module.symbol);
    CompiledFunction& f = compiled.functions[at];
    CompiledFunctionInfo& info = compiled.infos[at];
    f.external = std::move(module.kernel.run);
    f.workspaces.assign(module.kernel.workspaces.begin(), module.kernel.workspaces.end());
    ReadTypes(f);
    info.operations = OperationsOf(f.function);
    info.strategy = module.compiler;
    info.candidates = std::move(module.kernel.steps);
  }
}

}  // namespace lathe
