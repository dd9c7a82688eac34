#include "lathe/driver/emit.h"

#include <array>

#include "lathe/codegen/code_generator.h"
#include "lathe/ir/text_format.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "src/driver/planned_program.h"
#include "src/runtime/plan_check.h"

namespace lathe {
namespace {

using codegen::CodeGenerator;
using codegen::KernelSource;

constexpr std::array<std::string_view, 4> kStages = {"loops", "llvm", "asm", "obj"};

}  // namespace

std::span<const std::string_view> StageNames() { return kStages; }

Stage ParseStage(const std::string& name) {
  for (size_t i = 0; i < kStages.size(); ++i) {
    if (name == kStages[i]) return static_cast<Stage>(i);
  }
  Error error(ErrorCode::kNotFound, "compile/stage", StrCat("there is no stage '", name, "'"));
  const std::string near = DidYouMean(name, kStages);
  throw error.Hint(near.empty() ? "loops, llvm, asm or obj" : near);
}

std::string EmitStage(const Program& program, const CompileOptions& options, Stage stage) {
  CompileOptions loops = options;
  loops.machine_code = false;
  const auto compiled = CompileProgram(program, loops);
  if (stage == Stage::kLoops) return Print(compiled->program);
  std::vector<KernelSource> sources;
  for (size_t i = 0; i < compiled->functions.size(); ++i) {
    const CompiledFunctionInfo& info = compiled->infos[i];
    if (compiled->functions[i].data || info.strategy.empty()) continue;
    const CompiledFunction& f = compiled->functions[i];
    sources.push_back(
        {info.name, f.function->region(0).front(), f.in_place, options.check_accesses});
  }
  CodeGenerator& generator = CodeGenerator::Get();
  if (stage == Stage::kObject) return generator.EmitObject(sources, *compiled->target);
  return generator.EmitText(
      sources, *compiled->target,
      stage == Stage::kLlvm ? codegen::CodeText::kOptimizedLlvm : codegen::CodeText::kAssembly);
}

std::shared_ptr<const runtime::Plan> CompileToFile(const Program& program,
                                                   const CompileOptions& options,
                                                   const std::string& path) {
  return RunUnder(LimitsOf(options), [&]() -> std::shared_ptr<const runtime::Plan> {
    const auto compiled = CompileProgram(program, options);
    PlannedProgram planned = PlanProgram(*compiled);
    planned.CheckSaves(path);
    runtime::CheckPlan(*planned.plan, planned.plan->code.entries.size());
    runtime::SavePlan(*planned.plan, path);
    return planned.plan;
  });
}

}  // namespace lathe
