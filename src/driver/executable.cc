#include "lathe/driver/executable.h"

#include <algorithm>
#include <array>
#include <map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/runtime/artifacts.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/background_communication.h"
#include "lathe/support/error.h"
#include "lathe/support/processors.h"
#include "src/driver/interpreted_run.h"
#include "src/driver/planned_program.h"
#include "src/driver/program_ports.h"

namespace lathe {
namespace {

std::vector<Port> PortsOf(const runtime::Plan& plan, const std::vector<runtime::PlanPort>& ports) {
  std::vector<Port> all;
  for (const runtime::PlanPort& p : ports) {
    const runtime::PlanValue& v = plan.values[p.value];
    all.push_back({p.name, v.element, v.dims});
  }
  return all;
}

bool IsOfStrings(const Tensor& t) { return t.element_type() == ElementType::kString; }

uint64_t CapOr(uint64_t max_bytes) { return max_bytes > 0 ? max_bytes : UsableMemory() / 5 * 4; }

// What a run has started on its memory ends with it.
class EndOfCollectives {
 public:
  EndOfCollectives() = default;
  EndOfCollectives(const EndOfCollectives&) = delete;
  EndOfCollectives& operator=(const EndOfCollectives&) = delete;
  ~EndOfCollectives() {
    if (BackgroundCommunication* background = CurrentBackground()) background->Abandon();
  }
};

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

std::vector<Dim::Binding> BindSymbols(std::span<const Port> ports, const NamedValues& inputs) {
  std::vector<Dim::Binding> symbols;
  for (const Port& port : ports) {
    const auto at = std::ranges::find(inputs, port.name, [](const auto& i) { return i.first; });
    if (at == inputs.end() || !at->second.is_tensor()) continue;
    const Shape& shape = at->second.tensor().shape();
    for (size_t i = 0; i < std::min(port.dims.size(), shape.size()); ++i) {
      if (!port.dims[i].is_symbol()) continue;
      const std::string name(port.dims[i].symbol_name());
      const auto known = std::ranges::find(symbols, name, &Dim::Binding::first);
      if (known == symbols.end()) symbols.emplace_back(name, shape[i]);
    }
  }
  return symbols;
}

struct Executable::Impl {
  Impl(const Program& source, const CompileOptions& options, std::shared_ptr<const void> o)
      : owner(std::move(o)),
        compiled(CompileProgram(source, options.machine_code ? CheckHost(options) : options)),
        team(options.team != nullptr ? options.team
                                     : std::make_shared<runtime::WorkerTeam>(options.threads)) {
    if (options.machine_code) planned = PlanProgram(*compiled);
    if (!options.machine_code) planned.obstacles.push_back("it was compiled without code");
    if (planned.plan != nullptr) {
      executor.emplace(
          std::move(planned).MakeExecutor({.team = team,
                                           .max_bytes = CapOr(options.max_bytes),
                                           .allocate = options.allocate,
                                           .max_steps = options.interpreter.max_steps}));
      ReadPorts();
    } else {
      PrepareInterpreter(options);
    }
  }

  void PrepareInterpreter(const CompileOptions& options) {
    const Program& program = compiled->program;
    inputs = InputPorts(program);
    outputs = OutputPorts(program);
    InterpreterOptions run = options.interpreter;
    run.max_bytes = options.max_bytes;
    run_by_interpreter = std::make_unique<InterpretedRun>(*compiled, team, std::move(run));
  }

  Impl(const std::string& path, const LoadOptions& options) {
    std::shared_ptr<const runtime::Plan> plan = runtime::LoadPlan(path);
    try {
      if (!options.parameters.empty()) plan = runtime::WithParameters(*plan, options.parameters);
      executor.emplace(std::move(plan),
                       runtime::ExecutorOptions{.threads = options.threads,
                                                .team = options.team,
                                                .max_bytes = CapOr(options.max_bytes)});
    } catch (Error& error) {
      if (error.where() != path) {
        error.At(error.where().empty() ? path : StrCat(path, ", ", error.where()));
      }
      throw;
    }
    ReadPorts();
  }

  void ReadPorts() {
    inputs = PortsOf(executor->plan(), executor->plan().inputs);
    outputs = PortsOf(executor->plan(), executor->plan().outputs);
  }

  std::shared_ptr<const void> owner;          // outlives what follows
  std::unique_ptr<CompiledProgram> compiled;  // null if loaded
  std::shared_ptr<runtime::WorkerTeam> team;
  std::vector<Port> inputs, outputs;
  PlannedProgram planned;
  std::optional<runtime::Executor> executor;
  std::unique_ptr<InterpretedRun> run_by_interpreter;  // without executor
};

Executable::Executable(const Program& program, CompileOptions options,
                       std::shared_ptr<const void> owner)
    : impl_(RunUnder(LimitsOf(options),
                     [&] { return std::make_unique<Impl>(program, options, std::move(owner)); })) {}

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;

Executable Executable::Load(const std::string& path, const LoadOptions& options) {
  return Executable(std::make_unique<Impl>(path, options));
}

void Executable::Save(const std::string& path) const {
  impl_->planned.CheckSaves(path);
  runtime::SavePlan(*impl_->executor->CurrentPlan(), path);
}

bool Executable::CanSave() const { return impl_->planned.saves(); }

NamedValues Executable::Run(const NamedValues& inputs, const runtime::RunOptions& options) const {
  if (impl_->run_by_interpreter) {
    return RunUnder({.seconds = options.timeout_seconds, .cancel = options.cancel},
                    [&] { return impl_->run_by_interpreter->Run(inputs); });
  }
  const EndOfCollectives end;
  return impl_->executor->RunValues(inputs, options);
}

void Executable::Run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                     const runtime::RunOptions& options) const {
  if (!impl_->executor) {
    throw Error(ErrorCode::kUnsupported, "run/no-plan",
                "this program runs on names only: the interpreter goes through it")
        .Note(impl_->planned.obstacles[0]);
  }
  ViewList<runtime::InputView> in(inputs.size());
  ViewList<runtime::OutputView> out(outputs.size());
  std::vector<RtValue> strings;  // which have no memory to view
  if (std::ranges::any_of(inputs, IsOfStrings)) strings.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i] = {inputs[i].element_type(), inputs[i].raw(), inputs[i].shape()};
    if (IsOfStrings(inputs[i])) in[i].object = &strings.emplace_back(inputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    out[i] = {outputs[i].mutable_raw(), outputs[i].byte_size()};
  }
  const EndOfCollectives end;
  impl_->executor->Run(in.span(), out.span(), options);
}

std::vector<std::string> Executable::MutableParameters() const {
  if (impl_->executor) return impl_->executor->MutableParameters();
  return impl_->run_by_interpreter->MutableParameters();
}

Tensor Executable::GetParameter(std::string_view name) const {
  if (impl_->executor) return impl_->executor->GetParameter(name);
  return impl_->run_by_interpreter->GetParameter(name);
}

void Executable::SetParameter(std::string_view name, const Tensor& value) const {
  if (impl_->executor) return impl_->executor->SetParameter(name, value);
  impl_->run_by_interpreter->SetParameter(name, value);
}

const runtime::Executor* Executable::executor() const {
  return impl_->executor ? &*impl_->executor : nullptr;
}

const std::vector<std::string>& Executable::obstacles() const { return impl_->planned.obstacles; }

const std::vector<Port>& Executable::inputs() const { return impl_->inputs; }
const std::vector<Port>& Executable::outputs() const { return impl_->outputs; }

const std::vector<CompiledFunctionInfo>& Executable::functions() const {
  static const std::vector<CompiledFunctionInfo> none;
  return impl_->compiled ? impl_->compiled->infos : none;
}

const Program& Executable::program() const {
  LATHE_CHECK(impl_->compiled != nullptr, "a loaded executable has no program");
  return impl_->compiled->program;
}

std::vector<std::pair<std::string, size_t>> Executable::interpreted_operations() const {
  std::map<std::string, size_t> counts;
  if (impl_->executor) return {};
  for (OpWalker w(program().block()); const Operation* op = w.Next();) {
    if (op->isa<builtin::FuncOp>()) w.SkipRegions();
    const bool is_data = op->HasTrait<ConstantLike>() || op->isa<builtin::CallOp>() ||
                         op->isa<builtin::FuncOp>() || op->isa<builtin::GetParameterOp>() ||
                         op->isa<nn::FeedOp>() || op->isa<nn::FetchOp>() || op->isa<cf::YieldOp>();
    if (!is_data) ++counts[std::string(op->name())];
  }
  return {counts.begin(), counts.end()};
}

std::vector<std::pair<std::string, size_t>> Executable::interpreted() const {
  std::vector<std::pair<std::string, size_t>> all;
  for (const CompiledFunctionInfo& f : functions()) {
    if (f.calls > 0 && f.strategy.empty()) all.emplace_back(f.operations, f.calls);
  }
  for (auto& operation : interpreted_operations()) all.push_back(std::move(operation));
  return all;
}

}  // namespace lathe
