#include "src/driver/planned_program.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/driver/collective_kernel.h"
#include "src/driver/find_constraints.h"
#include "src/driver/object_values.h"
#include "src/driver/outline_operations.h"
#include "src/driver/plan_builder.h"
#include "src/driver/plan_operations.h"
#include "src/functions/program_function.h"

namespace lathe {
namespace {

// A plan under construction, and what its kernels are.
struct Kernels {
  PlannedFunctions planned;
  std::vector<runtime::Executor::Kernel> calls;  // by PlanStep::kernel
  codegen::CodeImage image;                      // of those with code, an entry each
  std::vector<std::string> external;             // the others: "onednn: conv relu"
};

// Of the program's symbols.
std::vector<Dim> WorkspacesIn(const CompiledFunction& f) {
  std::vector<Dim> bytes = f.workspaces;
  for (Dim& dim : bytes) {
    dim = dim.Substitute([&](std::string_view name) -> std::optional<Dim> {
      const auto own = std::ranges::find(f.own_sizes, name, &std::pair<std::string, Dim>::first);
      return own == f.own_sizes.end() ? std::nullopt : std::optional(own->second);
    });
  }
  return bytes;
}

using Code = CompileEngine::Kernel;
using KernelsByCode = std::unordered_map<const Code*, size_t>;  // looked up only

// Functions that differ only in the names of symbols have one code.
void AddCode(Kernels& kernels, const Code& code, KernelsByCode& by_code) {
  auto& entries = kernels.image.entries;
  const auto [at, is_new] = by_code.emplace(&code, entries.size());
  if (is_new) {
    kernels.image.Append(code.code.image());
  } else {
    entries.push_back(codegen::CodeImage::Entry(entries[at->second]));
  }
}

// What the plan must know of the functions.
Kernels KernelsOf(CompiledProgram& compiled) {
  Kernels kernels;
  KernelsByCode by_code;
  for (size_t i = 0; i < compiled.functions.size(); ++i) {
    const CompiledFunction& f = compiled.functions[i];
    PlannedFunction& p = kernels.planned[f.function->cast<builtin::FuncOp>().name()];
    p.label = compiled.infos[i].operations;
    p.flops = compiled.infos[i].flops;
    p.bytes = compiled.infos[i].bytes;
    p.function = f.function;
    p.why_not_evaluated = WhyNotEvaluated(f.function);
    p.data = f.data;
    if (f.data || !f.has_code()) continue;
    p.kernel = static_cast<uint32_t>(kernels.calls.size());
    compiled.infos[i].kernel = p.kernel;
    p.workspaces = WorkspacesIn(f);
    p.checks = f.checks;
    p.may_fail = f.checks || f.code == nullptr;
    p.is_collective = CompilerOf(f.function) == kCollectives;
    if (f.code != nullptr) {
      p.in_place = f.in_place;
      p.packed = f.packed;
      AddCode(kernels, *compiled.kernels[i], by_code);
      kernels.calls.emplace_back(f.code);
    } else {
      if (p.is_collective) p.in_place = CollectiveInPlace(f.function);
      kernels.external.push_back(StrCat(compiled.infos[i].strategy, ": ", p.label));
      kernels.calls.emplace_back(f.external);
    }
  }
  return kernels;
}

runtime::PlanCode CodeOf(codegen::CodeImage image, const codegen::Target& target) {
  runtime::PlanCode code{target.name, target.processor_flags, std::move(image.bytes), {}};
  for (const codegen::CodeImage::Entry& e : image.entries) code.entries.push_back(e.offset);
  return code;
}

bool HasValue(const Program& program, std::string_view name) {
  const Variable* variable = program.parameters().Find(name);
  return variable != nullptr && variable->data.is_defined();
}

// What a program sets may have no value before, unless it is read before.
void CheckParameterValues(const Program& program) {
  std::unordered_map<std::string_view, Operation*> read;  // before it is set; looked up only
  std::unordered_set<std::string_view> set;               // asked, never iterated
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (const auto reads = op->dyn_cast<builtin::GetParameterOp>()) {
      if (!set.contains(reads.name())) read.emplace(reads.name(), op);
    }
    const auto sets = op->dyn_cast<builtin::SetParameterOp>();
    if (!sets) continue;
    set.insert(sets.name());
    if (!read.contains(sets.name()) || HasValue(program, sets.name())) continue;
    throw Error(ErrorCode::kInvalidArgument, "parameter/no-value",
                StrCat("parameter '", sets.name(), "', which the program reads, has no value yet"))
        .At(read.at(sets.name())->location().ToString(program.context()))
        .Hint("run its startup program first (RunStartup), or load weights");
  }
}

// The program keeps those parameters that calls of the plan read as they are.
PackedConstants TakePacked(CompiledProgram& compiled, const PlannedFunctions& planned,
                           const ObjectValues& objects) {
  const std::vector<Operation*> needed = NeededOperations(compiled.program, planned, objects);
  std::vector<Operation*> by_kernels = needed;
  std::erase_if(by_kernels, [&](const Operation* op) { return objects.IsEvaluated(op); });
  PackedConstants constants = PackedFor(compiled, by_kernels);
  std::unordered_set<std::string_view> kept;  // asked, never iterated
  for (Operation* op : needed) {
    if (const auto read = op->dyn_cast<builtin::GetParameterOp>()) kept.insert(read.name());
  }
  for (auto& [name, variable] : compiled.program.parameters()) {
    if (!kept.contains(name.value())) variable.data = Tensor();
  }
  constants.Pack(compiled.threads);
  return constants;
}

// How often the plan has a call of each function.
void CountCalls(CompiledProgram& compiled, const PlannedFunctions& planned,
                const ObjectValues& objects) {
  for (CompiledFunctionInfo& info : compiled.infos) info.calls = 0;
  for (Operation* op : NeededOperations(compiled.program, planned, objects)) {
    const auto call = op->dyn_cast<builtin::CallOp>();
    if (call) ++compiled.infos[compiled.by_name.at(call.callee())].calls;
  }
}

}  // namespace

PlannedProgram PlanProgram(CompiledProgram& compiled) {
  PlannedProgram result;
  CheckParameterValues(compiled.program);
  OutlineOperations(compiled);
  Kernels kernels = KernelsOf(compiled);
  const ObjectValues objects(compiled.program, kernels.planned);
  for (const PlanObstacle& o : FindObstacles(compiled.program, kernels.planned, objects)) {
    result.obstacles.push_back(StrCat(o.op->Describe(), ": ", o.why));
  }
  if (!result.obstacles.empty()) return result;
  CountCalls(compiled, kernels.planned, objects);
  {
    const PackedConstants packed = TakePacked(compiled, kernels.planned, objects);
    result.plan =
        std::make_shared<runtime::Plan>(BuildPlan(compiled.program, kernels.planned, objects,
                                                  packed, compiled.conditional, result.functions));
  }
  for (uint32_t i = 0; i < result.functions.size(); ++i) {
    const Operation* f = result.functions[i];
    compiled.infos[compiled.by_name.at(builtin::FuncOp(f).name())].function = i;
    result.plan->functions.push_back({FunctionText(f)});
  }
  result.plan->seed = compiled.seed;
  result.foreign = ForeignOperations(result.functions);
  for (runtime::PlanConstraint& c : ConstraintsOn(result.plan->symbols, compiled.constraints)) {
    result.plan->constraints.push_back(std::move(c));
  }
  compiled.program.parameters() = {};
  result.external = std::move(kernels.external);
  if (result.obstacles.empty() && result.external.empty()) {
    result.plan->code = CodeOf(std::move(kernels.image), *compiled.target);
    result.plan->precision = Name(compiled.precision);
    compiled.kernels.clear();
  } else {
    result.kernels = std::move(kernels.calls);
  }
  return result;
}

runtime::Executor PlannedProgram::MakeExecutor(runtime::ExecutorOptions options) && {
  for (const Operation* f : functions) options.functions.push_back(FunctionOf(f));
  if (kernels.empty()) return runtime::Executor(std::move(plan), options);
  return runtime::Executor(std::move(kernels), std::move(plan), options);
}

void PlannedProgram::CheckSaves(const std::string& path) const {
  if (saves()) return;
  if (obstacles.empty() && external.empty()) {
    throw Error(ErrorCode::kUnsupported, "save/plug-in",
                "parts of this program are evaluated by a plug-in, which no file can hold")
        .At(path)
        .Note(foreign[0])
        .Hint("run it from the model, or give the operation a decomposition or a strategy");
  }
  if (obstacles.empty()) {
    if (external[0].starts_with(kCollectives)) {
      throw Error(ErrorCode::kUnsupported, "save/collective",
                  "this program joins ranks, which no file can do")
          .At(path)
          .Note(external[0])
          .Hint("train on several ranks from the model; what is trained can be saved");
    }
    throw Error(ErrorCode::kUnsupported, "save/external",
                "parts of this program are code of an external compiler, which no file can hold")
        .At(path)
        .Note(external[0])
        .Hint("compile it without one (--external, CompileOptions::external) to save it");
  }
  Error error(ErrorCode::kUnsupported, "save/interpreted",
              "parts of this program need the interpreter, which a saved one does without");
  error.At(path);
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(obstacles.size(), kShown); ++i) error.Note(obstacles[i]);
  if (obstacles.size() > kShown) error.Note(StrCat("and ", obstacles.size() - kShown, " more"));
  throw error.Hint("run it from the model: whoever loads that has the interpreter, too");
}

}  // namespace lathe
