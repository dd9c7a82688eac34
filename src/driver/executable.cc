#include "lathe/driver/executable.h"

#include <array>
#include <map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "src/driver/compiled_program.h"
#include "src/driver/interpreted_kernel.h"
#include "src/driver/interpreted_run.h"

namespace lathe {
namespace {

using Kernels = std::vector<runtime::Executor::Kernel>;

// What the plan must know of the functions; their kernels, code or not, are added to `kernels`.
PlannedFunctions Planned(const CompiledProgram& compiled, Kernels& kernels) {
  PlannedFunctions planned;
  for (size_t i = 0; i < compiled.functions.size(); ++i) {
    const CompiledFunction& f = compiled.functions[i];
    if (!f.data && f.code == nullptr && !WhyNotInterpreted(f.function).empty()) continue;
    PlannedFunction& p = planned[f.function->cast<builtin::FuncOp>().name()];
    p.label = compiled.infos[i].operations;
    p.data = f.data;
    if (f.data) continue;
    p.workspaces = f.workspaces;
    p.kernel = static_cast<uint32_t>(kernels.size());
    kernels.push_back(f.code != nullptr ? f.code : InterpretedKernel(f.function));
  }
  return planned;
}

runtime::NamedTensors TensorsOf(const NamedValues& values) {
  runtime::NamedTensors tensors;
  for (const auto& [name, value] : values) {
    if (!value.is_tensor()) {
      throw Error(ErrorCode::kType, "run/input-type",
                  StrCat("input '", name, "' is a ", value.KindName(), ", not a tensor"));
    }
    tensors.emplace_back(name, value.tensor());
  }
  return tensors;
}

// A few in place, more on the heap.
template <class T>
class ViewList {
 public:
  explicit ViewList(size_t size) : size_(size), more_(size > few_.size() ? size : 0) {}
  T& operator[](size_t i) { return more_.empty() ? few_[i] : more_[i]; }
  std::span<const T> span() const { return {more_.empty() ? few_.data() : more_.data(), size_}; }

 private:
  size_t size_;
  std::array<T, 32> few_;
  std::vector<T> more_;
};

}  // namespace

struct Executable::Impl {
  Impl(const Program& source, const CompileOptions& options)
      : compiled(CompileProgram(source, options)),
        team(std::make_shared<runtime::WorkerTeam>(options.threads)) {
    if (options.machine_code) MakePlan(options);
    if (executor) return;
    InterpreterOptions run = options.interpreter;
    run.max_bytes = options.max_bytes;
    interpreted = std::make_unique<InterpretedRun>(*compiled, team, std::move(run));
  }

  void MakePlan(const CompileOptions& options) {
    Kernels kernels;
    const PlannedFunctions planned = Planned(*compiled, kernels);
    for (const PlanObstacle& o : FindObstacles(compiled->program, planned)) {
      obstacles.push_back(StrCat(o.op->Describe(), ": ", o.why));
    }
    if (!obstacles.empty()) return;
    auto plan = std::make_shared<runtime::Plan>(BuildPlan(compiled->program, planned));
    compiled->program.parameters() = {};
    executor.emplace(std::move(kernels), std::move(plan),
                     runtime::ExecutorOptions{.team = team, .max_bytes = options.max_bytes});
  }

  std::unique_ptr<CompiledProgram> compiled;
  std::shared_ptr<runtime::WorkerTeam> team;
  std::vector<std::string> obstacles;
  std::optional<runtime::Executor> executor;
  std::unique_ptr<InterpretedRun> interpreted;  // without executor
};

Executable::Executable(const Program& program, CompileOptions options)
    : impl_(std::make_unique<Impl>(program, options)) {}

Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;

NamedValues Executable::Run(const NamedValues& inputs) const {
  if (impl_->interpreted) return impl_->interpreted->Run(inputs);
  NamedValues outputs;
  for (auto& [name, tensor] : impl_->executor->Run(TensorsOf(inputs))) {
    outputs.emplace_back(name, std::move(tensor));
  }
  return outputs;
}

void Executable::Run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                     const runtime::RunOptions& options) const {
  if (!impl_->executor) {
    throw Error(ErrorCode::kUnsupported, "run/no-plan",
                "this program runs on names only: the interpreter goes through it")
        .Note(impl_->obstacles.empty() ? "it was compiled without code" : impl_->obstacles[0]);
  }
  ViewList<runtime::InputView> in(inputs.size());
  ViewList<runtime::OutputView> out(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i] = {inputs[i].element_type(), inputs[i].raw(), inputs[i].shape()};
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    out[i] = {outputs[i].mutable_raw(), outputs[i].byte_size()};
  }
  impl_->executor->Run(in.span(), out.span(), options);
}

const runtime::Executor* Executable::executor() const {
  return impl_->executor ? &*impl_->executor : nullptr;
}

const std::vector<std::string>& Executable::obstacles() const { return impl_->obstacles; }

const std::vector<CompiledFunctionInfo>& Executable::functions() const {
  return impl_->compiled->infos;
}

const Program& Executable::program() const { return impl_->compiled->program; }

std::vector<std::pair<std::string, size_t>> Executable::interpreted_operations() const {
  std::map<std::string, size_t> counts;
  for (const Operation& op : *program().block()) {
    const bool is_data = op.HasTrait<ConstantLike>() || op.isa<builtin::CallOp>() ||
                         op.isa<builtin::FuncOp>() || op.isa<builtin::GetParameterOp>() ||
                         op.isa<nn::FeedOp>() || op.isa<nn::FetchOp>();
    if (!is_data) ++counts[std::string(op.name())];
  }
  return {counts.begin(), counts.end()};
}

}  // namespace lathe
