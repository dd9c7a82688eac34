#include "lathe/driver/build.h"

#include "lathe/codegen/target.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/type.h"
#include "lathe/support/error.h"
#include "src/driver/planned_program.h"

namespace lathe {
namespace {

using codegen::Target;

// A scope is a matter of the thread that opened it.
std::string& CurrentTarget() {
  thread_local std::string target;
  return target;
}

const Target& TargetOf(const BuildArguments& arguments) {
  const std::string& name = arguments.target.empty() ? TargetScope::Current() : arguments.target;
  if (name.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "build/target", "there is no target to build for")
        .Hint("give BuildArguments::target, or open a TargetScope");
  }
  const Target& target = Target::Named(name);
  if (arguments.target_host.empty()) return target;
  const Target& host = Target::Named(arguments.target_host);
  if (host.triple == target.triple) return target;
  throw Error(ErrorCode::kInvalidArgument, "build/host",
              StrCat("code for '", target.name, "' does not run on a '", host.name, "'"))
      .Hint("kernels run on the processor that runs the graph");
}

template <class T>
const T* FindNamed(const std::vector<std::pair<std::string, T>>& items, const std::string& name) {
  for (const auto& [key, item] : items) {
    if (key == name) return &item;
  }
  return nullptr;
}

ElementType DtypeOf(const BuildArguments& arguments, const std::string& name) {
  if (const auto* one = std::get_if<ElementType>(&arguments.dtype)) return *one;
  const ElementType* own = FindNamed(std::get<1>(arguments.dtype), name);
  return own == nullptr ? ElementType::kF32 : *own;
}

// A shape, and a type, of a variable with data can only be that of its data.
void CheckData(const BuildArguments& arguments) {
  for (const auto& [name, tensor] : arguments.params) {
    const SymShape* shape = FindNamed(arguments.shape, name);
    if (shape == nullptr) continue;
    const SymShape have = SymShape::FromConstants(tensor.shape());
    const ElementType dtype = DtypeOf(arguments, name);
    if (have == *shape && tensor.element_type() == dtype) continue;
    throw Error(ErrorCode::kShape, "build/shape",
                StrCat("variable '", name, "' is to be ", Name(dtype), shape->ToString(),
                       ", but its data is ", tensor.TypeString()));
  }
}

SymbolBindings BindingsOf(const Symbol& graph, const BuildArguments& arguments) {
  CheckData(arguments);
  SymbolBindings bindings{.parameters = arguments.params};
  for (const auto& [name, shape] : arguments.shape) {
    const Type type = VTensorType::Get(graph.context(), shape, DtypeOf(arguments, name));
    bindings.types.emplace_back(name, type);
  }
  return bindings;
}

void CheckInputs(const Program& program) {
  for (const Operation* feed : program.feeds()) {
    const auto type = feed->result(0).type().dyn_cast<AnyTensorType>();
    if (type && type.has_rank()) continue;
    throw Error(ErrorCode::kShape, "build/shape",
                StrCat("variable '", feed->attribute("name").cast<StrAttribute>().value(),
                       "' has neither a shape nor data"))
        .Hint("give it in BuildArguments::shape or ::params");
  }
}

/// What an operation only reads, such as the mean of a batch normalization, is wrong as zeros; a
/// state that the graph sets may start with them.
void CheckStates(const Program& program, const BuildArguments& arguments) {
  for (const ParameterMap::Entry& e : program.parameters()) {
    if (e.variable.is_mutable || FindNamed(arguments.params, std::string(e.name.value()))) continue;
    throw Error(ErrorCode::kInvalidArgument, "build/state-data",
                StrCat("state '", e.name.value(), "' has no data, and the graph does not set it"))
        .Hint("give it in BuildArguments::params");
  }
}

}  // namespace

TargetScope::TargetScope(const std::string& target) : outer_(CurrentTarget()) {
  CurrentTarget() = Target::Named(target).name;
}
TargetScope::~TargetScope() { CurrentTarget() = outer_; }
const std::string& TargetScope::Current() { return CurrentTarget(); }

runtime::Artifacts Build(const Symbol& graph, const BuildArguments& arguments) {
  const CompileOptions options{.target = TargetOf(arguments).name,
                               .cache = arguments.cache,
                               .level = arguments.opt_level,
                               .disabled = arguments.disabled,
                               .enabled = arguments.enabled};
  const Program program = graph.ToProgram(BindingsOf(graph, arguments));
  CheckInputs(program);
  CheckStates(program, arguments);
  const auto compiled = CompileProgram(program, options);
  const PlannedProgram planned = PlanProgram(*compiled);
  planned.CheckSaves("");
  return runtime::MakeArtifacts(*planned.plan);
}

}  // namespace lathe
