#include "src/driver/interpreted_run.h"

#include <algorithm>
#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/runtime/kernel_error.h"
#include "lathe/support/budget.h"
#include "lathe/transform/keep_constraints.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/driver/find_constraints.h"
#include "src/driver/plan_operations.h"
#include "src/runtime/stoppable_team.h"
#include "src/runtime/variables.h"

namespace lathe {
namespace {

// What dims are for arguments of given shapes.
class Extents {
 public:
  // False if the arguments are not what the types say, or two of them contradict each other.
  bool Bind(AnyTensorType type, const Shape& shape) {
    if (type.rank() != shape.size()) return false;
    for (size_t a = 0; a < shape.size(); ++a) {
      const Dim& dim = type.dims()[a];
      const auto known = Of(dim);
      if (known && *known != shape[a]) return false;
      if (known) continue;
      bound_.emplace_back(dim, shape[a]);
      Solve(dim, shape[a]);
    }
    return true;
  }

  // Nothing if it is not made of symbols that are known, nor of an extent and a number.
  std::optional<int64_t> Of(const Dim& dim) const {
    if (dim.is_unknown()) return std::nullopt;
    if (const auto extent = dim.Evaluate(symbols_)) return extent;
    for (const auto& [known, extent] : bound_) {
      const Dim more = dim - known;
      if (more.is_constant()) return extent + more.value();
    }
    return std::nullopt;
  }

  // Whether it holds; nothing if that does not follow.
  std::optional<bool> Decide(const SizeCondition& condition) const {
    const auto a = Of(condition.a), b = Of(condition.b);
    if (!a || !b) return std::nullopt;
    return SizeCondition{condition.kind, *a, *b}.Decide();
  }

 private:
  // A symbol follows from a multiple of it beside what is known.
  void Solve(const Dim& dim, int64_t extent) {
    const Dim rest = dim.Substitute([this](std::string_view name) -> std::optional<Dim> {
      const auto at = std::ranges::find(symbols_, name, &Dim::Binding::first);
      return at == symbols_.end() ? std::nullopt : std::optional(Dim(at->second));
    });
    std::vector<std::string> names;
    rest.CollectSymbols(names);
    if (names.size() != 1) return;
    const auto at = [&](int64_t n) {
      return rest.Substitute([n](std::string_view) { return std::optional(Dim(n)); });
    };
    const Dim begin = at(0), step = at(1) - begin;
    if (!begin.is_constant() || !step.is_constant() || step.IsConstant(0)) return;
    if (!(rest == begin + step * Dim::Symbol(names[0]))) return;
    const int64_t left = extent - begin.value();
    if (left % step.value() == 0) symbols_.emplace_back(names[0], left / step.value());
  }

  std::vector<Dim::Binding> symbols_;
  std::vector<std::pair<Dim, int64_t>> bound_;  // expressions as they stand
};

// Nothing if the arguments are not what the function says.
std::optional<Extents> ExtentsOf(const CompiledFunction& f, std::span<const RtValue> arguments) {
  const Block* body = FunctionTable::Body(f.function);
  Extents extents;
  for (int pass = 0; pass < 2; ++pass) {  // an expression may come before its symbols
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto type = body->argument(i).type().dyn_cast<AnyTensorType>();
      if (!type || !type.has_rank()) continue;
      if (!extents.Bind(type, arguments[i].tensor().shape())) return std::nullopt;
    }
  }
  return extents;
}

// Of arguments of given shapes; nothing if they do not follow.
std::optional<std::vector<Shape>> ResultShapes(const CompiledFunction& f,
                                               std::span<const Shape> arguments) {
  Extents extents;
  for (int pass = 0; pass < 2; ++pass) {  // an expression may come before its symbols
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!extents.Bind(f.arguments[i], arguments[i])) return std::nullopt;
    }
  }
  std::vector<Shape> shapes;
  for (const AnyTensorType type : f.results) {
    Shape& shape = shapes.emplace_back();
    for (const Dim& dim : type.dims()) {
      const auto extent = extents.Of(dim);
      if (!extent) return std::nullopt;
      shape.push_back(*extent);
    }
  }
  return shapes;
}

std::vector<AnyTensorType> SignatureOf(const CompiledFunction& f) {
  std::vector<AnyTensorType> types(f.arguments.begin(), f.arguments.end());
  types.insert(types.end(), f.results.begin(), f.results.end());
  return types;
}

// Whether the extents of arguments and results say how large the workspaces are.
bool TellWorkspaces(const CompiledFunction& f) {
  if (f.workspaces.empty()) return true;
  std::vector<std::string> needed, told;
  for (const Dim& bytes : f.workspaces) bytes.CollectSymbols(needed);
  for (const AnyTensorType type : SignatureOf(f)) {
    for (const Dim& dim : type.dims()) {
      if (dim.is_symbol()) told.emplace_back(dim.symbol_name());
    }
  }
  return std::ranges::all_of(
      needed, [&](const std::string& name) { return std::ranges::find(told, name) != told.end(); });
}

std::vector<SizeCondition> ReliedOn(Program& program, const CompiledFunction& f) {
  std::vector<SizeCondition> conditions;
  for (const SizeConstraint& c : FindSizeConstraints(program, FunctionTable::Body(f.function))) {
    conditions.push_back(c.condition);
  }
  return conditions;
}

std::vector<Operation*> AllOperations(const Program& program) {
  std::vector<Operation*> all;
  for (OpWalker w(program.block()); Operation* op = w.Next();) all.push_back(op);
  return all;
}

}  // namespace

InterpretedRun::InterpretedRun(CompiledProgram& compiled, std::shared_ptr<runtime::WorkerTeam> team,
                               InterpreterOptions options)
    : compiled_(compiled),
      packed_(PackedFor(compiled, AllOperations(compiled.program))),
      team_(std::move(team)),
      interpreter_(
          compiled.program,
          [&] {
            options.observer = [this, given = std::move(options.observer)](const RanOp& ran) {
              if (given) given(ran);
              CheckComputed(ran);
            };
            options.at_begin = [this](const Block* block, std::span<const RtValue> arguments) {
              BindIteration(block, arguments);
            };
            options.at_end = [this](const Operation* end) { CheckRegion(end); };
            options.run_call = [this](const Operation* call, std::span<const RtValue> arguments,
                                      std::span<RtValue> results) {
              return RunCall(call, arguments, results);
            };
            return std::move(options);
          }()),
      symbols_(SymbolsOf(compiled.program)) {
  packed_.Pack(compiled.threads);
  for (const CompiledFunction& f : compiled.functions) {
    relied_on_.push_back(f.has_code() ? ReliedOn(compiled.program, f)
                                      : std::vector<SizeCondition>());
  }
}

void InterpretedRun::CheckSizes(const NamedValues& inputs) {
  bound_.clear();
  computed_.clear();
  regional_.clear();
  const std::vector<Operation*> feeds = compiled_.program.feeds();
  for (const runtime::PlanSymbol& s : symbols_) {
    const std::string_view input = feeds[s.input]->cast<nn::FeedOp>().name();
    const RtValue* value = Find(inputs, input);
    const bool has_axis =
        value != nullptr && value->is_tensor() && s.axis < value->tensor().shape().size();
    if (has_axis) bound_.push_back({s.name, value->tensor().shape()[s.axis], input});
  }
  runtime::CheckConstraints(compiled_.constraints, bound_);
}

namespace {

using NamedSizes = std::vector<std::pair<std::string, int64_t>>;

// The extents of what a loop gives that only its end tells.
NamedSizes SizesAtEnd(const RanOp& loop) {
  NamedSizes sizes;
  const auto add = [&](size_t result, size_t axis, const std::string& name) {
    const RtValue& value = loop.outputs[result];
    if (value.is_tensor() && axis < value.tensor().shape().size())
      sizes.emplace_back(name, value.tensor().shape()[axis]);
  };
  for (const cf::LoopSize& size : cf::LoopSizes(loop.op)) add(size.carried, size.axis, size.end);
  for (const cf::StackSize& size : cf::StackSizes(loop.op)) add(size.result, 0, size.end);
  return sizes;
}

NamedSizes SizesBoundBy(const RanOp& ran) {
  auto* op = const_cast<Operation*>(ran.op);
  if (op->isa<cf::WhileOp>()) return SizesAtEnd(ran);
  const auto bind = op->dyn_cast<nn::BindSizesOp>();
  if (!bind) return {};
  NamedSizes sizes;
  const std::span<const int64_t> values = ran.outputs[0].tensor().data<int64_t>();
  const auto names = bind.names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) sizes.emplace_back(names[i], values[i]);
  }
  return sizes;
}

}  // namespace

// As a plan does.
void InterpretedRun::CheckComputed(const RanOp& ran) {
  const NamedSizes sizes = SizesBoundBy(ran);
  if (sizes.empty()) return;
  const bool is_regional = ran.op->block() != compiled_.program.block();
  for (const auto& [name, size] : sizes) {
    if (is_regional) {
      regional_[name] = size;
    } else {
      bound_.push_back({computed_.emplace_back(name), size, {}});
    }
  }
  if (!is_regional) runtime::CheckConstraints(compiled_.constraints, bound_);
}

void InterpretedRun::BindIteration(const Block* block, std::span<const RtValue> arguments) {
  const Operation* loop = block->parent_op();
  if (loop == nullptr || !loop->isa<cf::WhileOp>()) return;
  for (const cf::LoopSize& size : cf::LoopSizes(loop)) {
    const RtValue& value = arguments[cf::kLoopArguments + size.carried];
    if (value.is_tensor() && size.axis < value.tensor().shape().size())
      regional_[size.round] = value.tensor().shape()[size.axis];
  }
}

// A region has bound again what its constraints are made of, or one around it has.
void InterpretedRun::CheckRegion(const Operation* end) const {
  const auto marks = end->attribute(kConditionsAttr).dyn_cast<ArrayAttribute>();
  if (!marks) return;
  std::vector<runtime::BoundSymbol> bound = bound_;
  for (const auto& [name, size] : regional_) bound.push_back({name, size, {}});
  const std::vector<int64_t> indices = *marks.AsInts();
  if (indices.empty()) return;
  for (const int64_t index : indices) {
    runtime::CheckConstraints({&compiled_.conditional[static_cast<size_t>(index)], 1}, bound);
  }
}

NamedValues InterpretedRun::Run(const NamedValues& inputs) {
  const std::lock_guard lock(mutex_);
  CheckSizes(inputs);
  const runtime::WorkerTeam::InRun in_run(*team_);
  ParameterMap before = compiled_.program.parameters();  // shares the data
  try {
    return interpreter_.Run(inputs);
  } catch (...) {
    compiled_.program.parameters() = std::move(before);
    throw;
  }
}

std::vector<std::string> InterpretedRun::MutableParameters() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const ParameterMap::Entry& e : compiled_.program.parameters()) {
    if (e.variable.is_mutable) names.emplace_back(e.name.value());
  }
  std::ranges::sort(names);
  return names;
}

Variable& InterpretedRun::Named(std::string_view name) {
  ParameterMap& parameters = compiled_.program.parameters();
  if (Variable* found = parameters.Find(name)) return *found;
  Error error(ErrorCode::kNotFound, "parameter/missing",
              StrCat("the program has no parameter '", name, "'"));
  std::vector<std::string_view> names;
  for (const ParameterMap::Entry& e : parameters) names.push_back(e.name.value());
  if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
  throw std::move(error);
}

Tensor InterpretedRun::GetParameter(std::string_view name) {
  const std::lock_guard lock(mutex_);
  return Named(name).data.Clone();
}

void InterpretedRun::SetParameter(std::string_view name, const Tensor& value) {
  const std::lock_guard lock(mutex_);
  Variable& variable = Named(name);
  if (!variable.is_mutable) throw runtime::ConstantParameter(name);
  runtime::CheckParameterFits(name, value, variable.data);
  variable.data = value;
}

namespace {

// As in Executor: a kernel may have astronomically many rows of nothing.
bool IsIdle(const CompiledFunction& f, std::span<const Tensor> outputs) {
  return !f.checks && !outputs.empty() &&
         std::ranges::all_of(outputs, [](const Tensor& t) { return t.num_elements() == 0; });
}

}  // namespace

void InterpretedRun::CheckRequired(const CompiledFunction& f, std::span<const RtValue> arguments) {
  if (f.required.empty()) return;
  const std::optional<Extents> extents = ExtentsOf(f, arguments);
  if (!extents) return;
  for (const SizeConstraint& c : f.required) {
    if (extents->Decide(c.condition) == false) throw c.error;
  }
}

// Sizes of inputs are looked at before a run, those that it computes nowhere else: code takes them
// as they are.
bool InterpretedRun::Fits(size_t function, std::span<const RtValue> arguments) const {
  if (relied_on_[function].empty()) return true;
  const std::optional<Extents> extents = ExtentsOf(compiled_.functions[function], arguments);
  return extents && std::ranges::all_of(relied_on_[function], [&](const SizeCondition& c) {
           return extents->Decide(c) == true;
         });
}

std::optional<std::vector<Shape>> InterpretedRun::ShapesOfResults(const Operation* call) const {
  const auto size_of = [this](std::string_view name) -> std::optional<int64_t> {
    if (const auto at = regional_.find(std::string(name)); at != regional_.end()) return at->second;
    const auto at = std::ranges::find(bound_, name, &runtime::BoundSymbol::name);
    return at == bound_.end() ? std::nullopt : std::optional(at->value);
  };
  std::vector<Shape> shapes;
  for (size_t i = 0; i < call->num_results(); ++i) {
    const auto type = call->result(i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return std::nullopt;
    Shape& shape = shapes.emplace_back();
    for (const Dim& dim : type.dims()) {
      const auto extent = dim.is_unknown() ? std::nullopt : dim.Evaluate(size_of);
      if (!extent || *extent < 0) return std::nullopt;
      shape.push_back(*extent);
    }
  }
  return shapes;
}

bool InterpretedRun::RunCall(const Operation* call, std::span<const RtValue> arguments,
                             std::span<RtValue> results) {
  const std::string_view callee = builtin::CallOp(call).callee();
  const CompiledFunction* f = compiled_.Find(callee);
  if (f == nullptr) return false;
  CheckRequired(*f, arguments);
  if (!f->has_code()) return false;
  if (!Fits(static_cast<size_t>(f - compiled_.functions.data()), arguments)) return false;
  std::vector<KernelBuffer> buffers;
  std::vector<Shape> argument_shapes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto packed = packed_.Find(call, i);
    const Tensor& t = packed ? packed_.all()[*packed].tensor : arguments[i].tensor();
    buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
    argument_shapes.push_back(t.shape());
  }
  auto shapes = ResultShapes(*f, argument_shapes);
  if (!shapes) shapes = ShapesOfResults(call);
  if (!shapes || !TellWorkspaces(*f)) return false;
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.emplace_back(f->results[i].element(), (*shapes)[i]);
  }
  if (IsIdle(*f, outputs)) {
    std::ranges::move(outputs, results.begin());
    return true;
  }
  for (Tensor& t : outputs) buffers.push_back({t.mutable_raw(), t.shape().data()});
  std::vector<Shape> all_shapes = std::move(argument_shapes);
  std::ranges::copy(*shapes, std::back_inserter(all_shapes));
  codegen::Workspaces scratch(f->workspaces, SignatureOf(*f), all_shapes);
  scratch.AddTo(buffers);
  const Budget* budget = Budget::Current();
  runtime::StoppableTeam stoppable(budget, team_->for_kernels());
  const bool stops = budget != nullptr && budget->within_kernels();
  f->Call(buffers.data(), stops ? &stoppable : team_->for_kernels());
  if (stoppable.has_stopped()) {
    budget->Check();
    throw Stopped(Cancelled());
  }
  if (f->checks) {
    const auto* status = static_cast<const KernelStatus*>(buffers.back().data);
    const std::string place =
        call->location().is_unknown() ? "" : call->location().ToString(*call->context());
    if (status->failed != 0)
      throw runtime::KernelError(*status, compiled_.infos[compiled_.by_name.at(callee)].operations,
                                 place);
  }
  std::ranges::move(outputs, results.begin());
  return true;
}

}  // namespace lathe
