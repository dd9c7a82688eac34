#include "lathe/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lathe/runtime/artifacts.h"
#include "lathe/runtime/kernel_error.h"
#include "lathe/support/error.h"
#include "lathe/support/executable_memory.h"
#include "src/runtime/arguments.h"
#include "src/runtime/float_mode.h"
#include "src/runtime/objects.h"
#include "src/runtime/plan_check.h"
#include "src/runtime/run_context.h"
#include "src/runtime/stoppable_team.h"
#include "src/runtime/variables.h"

namespace lathe::runtime {
namespace {

using Place = PlanValue::Place;

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

std::vector<Executor::Kernel> KernelsAt(const ExecutableMemory& memory,
                                        std::span<const uint64_t> entries) {
  std::vector<Executor::Kernel> kernels;
  for (const uint64_t entry : entries) {
    kernels.emplace_back(memory.FunctionAt<KernelFunction>(entry));
  }
  return kernels;
}

void CheckCode(const PlanCode& code) {
  for (size_t i = 0; i < code.entries.size(); ++i) {
    if (code.entries[i] < code.bytes.size()) continue;
    throw PlanError("plan/code", "kernel ", i, " begins at byte ", code.entries[i], " of ",
                    code.bytes.size());
  }
}

Error ComputedShape(const Plan& plan, const PlanPort& output) {
  return Error(ErrorCode::kUnsupported, "run/output-shape",
               StrCat("output '", output.name, "' is ", TypeOf(plan.values[output.value]),
                      ", whose sizes the program computes from the elements of its inputs"))
      .Hint("give memory when it is asked for: RunInto, lathe_run_options.allocate");
}

int64_t& NumberIn(const KernelBuffer& buffer) { return *static_cast<int64_t*>(buffer.data); }

std::vector<Function> FunctionsOf(const Plan& plan, std::vector<Function> given) {
  if (!given.empty()) return given;
  std::vector<std::string> texts;
  for (const PlanFunction& f : plan.functions) texts.push_back(f.text);
  return MakeFunctions(texts);
}

bool UsesObjects(const Plan& plan, const PlanStep& step) {
  return std::ranges::any_of(step.values, [&](uint32_t v) { return plan.values[v].is_object(); });
}

const Plan& NotNull(const std::shared_ptr<const Plan>& plan) {
  LATHE_CHECK(plan != nullptr);
  return *plan;
}

}  // namespace

struct Executor::Impl {
  // A buffer that points into the caller's memory.
  struct PortBuffer {
    size_t buffer;  // index in RunContext::buffers
    Place place;
    uint32_t port;
    uint64_t offset;
  };
  // What is placed at once.
  struct StageBuffers {
    std::vector<size_t> buffers;
    std::vector<PortBuffer> ports;
    std::vector<uint32_t> outputs;
  };
  struct Step {
    PlanStep::Kind kind;
    const Kernel* kernel;      // null: function, copy or control
    const Function* function;  // null: something else
    bool uses_objects;
    size_t first_buffer;
    size_t status;  // its buffer of a KernelStatus; 0: none
    bool may_fail;  // on what it reads, without a KernelStatus: it is a function, or the kernel of
                    // an external compiler
  };

  Impl(std::shared_ptr<const Plan> p, ExecutorOptions o, size_t num_kernels)
      : plan_owner(std::move(p)),
        plan((CheckPlan(NotNull(plan_owner), num_kernels), *plan_owner)),
        team(o.team != nullptr ? std::move(o.team) : std::make_shared<WorkerTeam>(o.threads)),
        poison(o.poison),
        max_steps(o.max_steps),
        max_bytes(o.max_bytes),
        functions(FunctionsOf(plan, std::move(o.functions))),
        placements(plan, o.max_placements),
        contexts(o.max_bytes, std::move(o.allocate)),
        variables(plan),
        num_input_symbols(placements.symbols().num_inputs()) {}

  void SetKernels(std::vector<Kernel> k);
  void CheckUpdatesSucceed() const;
  std::shared_ptr<const Placement> Bind(std::span<const InputView> inputs,
                                        RunContext& context) const;
  void Prepare(RunContext& context, std::shared_ptr<const Placement> placement) const;
  KernelBuffer BufferOf(const RunContext& context, uint32_t value) const;
  void AddStages();
  static void BeginStages(RunContext& context, bool same);
  void SetBuffers(RunContext& context, uint32_t stage) const;
  void SetPorts(RunContext& context, uint32_t stage) const;
  void Poison(RunContext& context, uint32_t stage) const;
  void BindSize(size_t i, int64_t size, RunContext& context) const;
  int64_t SizeNow(size_t i, const RunContext& context) const;
  void CheckBudgetAt(size_t i) const;
  [[noreturn]] void TooManySteps(size_t i) const;
  void RunSteps(RunContext& context, const RunOptions& options) const;
  void Work(size_t i, RunContext& context, KernelTeam* kernel_team) const;
  void Copy(size_t i, RunContext& context) const;
  void ReadObjects(size_t i, RunContext& context) const;
  const void* OneOf(size_t i, size_t k, const RunContext& context) const;
  int64_t CountOf(size_t i, size_t k, const RunContext& context) const {
    return *static_cast<const int64_t*>(OneOf(i, k, context));
  }
  void PutRow(size_t i, RunContext& context) const;
  size_t RunStep(size_t i, RunContext& context, KernelTeam* kernel_team) const;
  void Record(size_t i, uint64_t begin, RunContext& context) const;
  /// Gets what an output is that is an object.
  using TakeObject = std::function<void(size_t output, RtValue value)>;
  void Run(std::span<const InputView> inputs, const OutputMemory& memory,
           const TakeObject& take_object, const RunOptions& options) const;
  void RunWithin(std::span<const InputView> inputs, const OutputMemory& memory,
                 const TakeObject& take_object, const RunOptions& options) const;
  void RunInto(std::span<const InputView> inputs, const OutputMemory& memory,
               const RunOptions& options) const;

  const std::shared_ptr<const Plan> plan_owner;
  const Plan& plan;
  const std::shared_ptr<WorkerTeam> team;
  const bool poison;
  const uint64_t max_steps, max_bytes;
  const std::vector<Function> functions;
  ExecutableMemory code;
  std::vector<Kernel> kernels;
  std::vector<Step> steps;
  std::vector<uint32_t> buffer_values;  // per buffer, index in Plan::values
  std::vector<StageBuffers> stages;
  mutable Placements placements;
  mutable ContextPool contexts;
  const Variables variables;
  const size_t num_input_symbols;
};

namespace {

// A context of the pool for the time of one run.
class BorrowedContext {
 public:
  explicit BorrowedContext(ContextPool& pool) : pool_(pool), context_(pool.Take()) {}
  BorrowedContext(const BorrowedContext&) = delete;
  BorrowedContext& operator=(const BorrowedContext&) = delete;
  ~BorrowedContext() {
    context_->objects.Clear();
    pool_.GiveBack(std::move(context_));
  }
  RunContext& operator*() const { return *context_; }

 private:
  ContextPool& pool_;
  std::unique_ptr<RunContext> context_;
};

}  // namespace

void Executor::Impl::SetKernels(std::vector<Kernel> k) {
  kernels = std::move(k);
  for (const PlanStep& step : plan.steps) {
    const Kernel* kernel = step.kernel == kNone ? nullptr : &kernels[step.kernel];
    const Function* function = step.function == kNone ? nullptr : &functions[step.function];
    const bool may_fail =
        function != nullptr || (kernel != nullptr && kernel->target<KernelFunction>() == nullptr);
    steps.push_back({step.kind, kernel, function, UsesObjects(plan, step), buffer_values.size(),
                     step.checks ? step.values.size() - 1 : 0, may_fail});
    buffer_values.insert(buffer_values.end(), step.values.begin(), step.values.end());
  }
  CheckUpdatesSucceed();
  AddStages();
  // Nothing else is open without symbols, so faults are found before the first run.
  if (plan.symbols.empty()) placements.For({});
}

// As CheckPlan, of kernels that fail without saying so in the plan.
void Executor::Impl::CheckUpdatesSucceed() const {
  for (size_t i = variables.first_update(); i < steps.size(); ++i) {
    LATHE_CHECK(!steps[i].may_fail, "step ", i, " may fail after a variable has been written");
  }
}

void Executor::Impl::AddStages() {
  stages.resize(placements.num_stages());
  for (size_t i = 0; i < buffer_values.size(); ++i) {
    const PlanValue& value = plan.values[buffer_values[i]];
    StageBuffers& stage = stages[placements.StageOfValue(buffer_values[i])];
    stage.buffers.push_back(i);
    if (value.place == Place::kInput || value.place == Place::kOutput) {
      stage.ports.push_back({i, value.place, value.index, value.offset});
    }
  }
  for (uint32_t i = 0; i < plan.outputs.size(); ++i) {
    if (plan.values[plan.outputs[i].value].is_object()) continue;
    stages[placements.StageOfValue(plan.outputs[i].value)].outputs.push_back(i);
  }
}

std::shared_ptr<const Placement> Executor::Impl::Bind(std::span<const InputView> inputs,
                                                      RunContext& context) const {
  context.symbols.resize(num_input_symbols);
  BindSymbols(plan, inputs, context.symbols);
  const bool same =
      context.placement != nullptr &&
      std::ranges::equal(context.symbols,
                         std::span(context.placement->symbols).first(num_input_symbols));
  std::shared_ptr<const Placement> placement =
      same ? context.placement : placements.For(context.symbols);
  CheckPlaced(placements, *placement, inputs);
  return placement;
}

KernelBuffer Executor::Impl::BufferOf(const RunContext& context, uint32_t v) const {
  const PlanValue& value = plan.values[v];
  const Placement& placement = context.current();
  KernelBuffer buffer{nullptr, placements.ShapeOf(placement, v).data()};
  if (value.place == Place::kConstant) {
    const std::byte* data = plan.constants[value.index].raw();
    if (data != nullptr) buffer.data = const_cast<std::byte*>(data) + value.offset;
  }
  if (value.place == Place::kVariable) {
    buffer.data = variables.data(value.index) + value.offset;
  }
  if (value.place == Place::kArena && placement.value_bytes[v] > 0) {
    const uint64_t offset = placement.storage_offsets[value.index] + value.offset;
    const uint32_t stage = placements.StageOfStorage(value.index);
    // Of a way that is not taken there is no memory.
    if (offset < context.arena_bytes(stage)) {
      buffer.data = context.arenas[stage]->mutable_data() + offset;
    }
  }
  return buffer;
}

void Executor::Impl::Prepare(RunContext& context,
                             std::shared_ptr<const Placement> placement) const {
  const bool same = context.placement == placement;
  if (same && stages.size() == 1) return;
  contexts.Reserve(context, 0, placement->arena_bytes[0]);
  context.placement = std::move(placement);
  if (stages.size() > 1) BeginStages(context, same);
  context.buffers.resize(buffer_values.size());
  SetBuffers(context, 0);
}

// What the run before has placed is looked at where its inputs had the same sizes.
void Executor::Impl::BeginStages(RunContext& context, bool same) {
  std::swap(context.staged, context.before);
  if (!same) context.before.reset();
  if (context.staged == nullptr) context.staged = std::make_unique<Placement>();
  *context.staged = *context.placement;
}

void Executor::Impl::SetBuffers(RunContext& context, uint32_t stage) const {
  for (const size_t i : stages[stage].buffers) {
    context.buffers[i] = BufferOf(context, buffer_values[i]);
  }
}

// Asks for the memory of the outputs that the stage places.
void Executor::Impl::SetPorts(RunContext& context, uint32_t stage) const {
  const Placement& placement = context.current();
  for (const uint32_t i : stages[stage].outputs) {
    const uint32_t value = plan.outputs[i].value;
    const uint64_t bytes = placement.value_bytes[value];
    context.outputs[i] = (*context.memory)(i, placements.ShapeOf(placement, value), bytes);
    CheckOutput(plan, placement, context.inputs, context.outputs, i);
  }
  for (const PortBuffer& p : stages[stage].ports) {
    void* data = p.place == Place::kInput ? const_cast<void*>(context.inputs[p.port].data)
                                          : context.outputs[p.port].data;
    const bool none = data == nullptr;
    context.buffers[p.buffer].data = none ? nullptr : static_cast<std::byte*>(data) + p.offset;
  }
}

void Executor::Impl::Poison(RunContext& context, uint32_t stage) const {
  constexpr int kByte = 0xff;
  const uint64_t arena = context.arena_bytes(stage);
  if (arena > 0) std::memset(context.arenas[stage]->mutable_data(), kByte, arena);
  for (const uint32_t i : stages[stage].outputs) {
    const uint64_t bytes = context.current().value_bytes[plan.outputs[i].value];
    if (bytes > 0) std::memset(context.outputs[i].data, kByte, bytes);
  }
}

// From here on there are the tensors whose sizes the program has computed.
void Executor::Impl::BindSize(size_t i, int64_t size, RunContext& context) const {
  const PlanStep& step = plan.steps[i];
  if (size < 0) {
    throw Error(
        ErrorCode::kShape, "run/size",
        StrCat("the size ", plan.symbols[step.target].name, " that the program computes is ", size))
        .At(step.origin);
  }
  const uint32_t stage = placements.Bind(*context.staged, step.target, size, context.before.get());
  const bool keeps = step.kind == PlanStep::Kind::kGrow && context.arena_bytes(stage) > 0;
  const std::shared_ptr<Buffer> before = keeps ? context.arenas[stage] : nullptr;
  contexts.Reserve(context, stage, context.staged->arena_bytes[stage]);
  if (keeps && context.arenas[stage] != before) {
    std::memcpy(context.arenas[stage]->mutable_data(), before->data(), before->size());
  }
  SetBuffers(context, stage);
  SetPorts(context, stage);
  if (poison && !keeps) Poison(context, stage);
}

// Of a step that resizes.
int64_t Executor::Impl::SizeNow(size_t i, const RunContext& context) const {
  const PlanStep& step = plan.steps[i];
  const auto size = placements.symbols().NumberOf(step.size, context.current().symbols);
  if (size) return *size;
  throw Error(ErrorCode::kShape, "run/size",
              StrCat("the size ", step.size.ToString(), " of what a loop gives has no value"))
      .At(step.origin);
}

void Executor::Impl::Work(size_t i, RunContext& context, KernelTeam* kernel_team) const {
  const Step& step = steps[i];
  if (context.current().states[i] == StepState::kIdle && !step.may_fail) return;
  const KernelBuffer* buffers = context.buffers.data() + step.first_buffer;
  if (step.function != nullptr) {
    return context.objects.Call(*step.function, plan, plan.steps[i], buffers);
  }
  if (step.kernel != nullptr) {
    if (step.uses_objects) ReadObjects(i, context);
    (*step.kernel)(buffers, kernel_team);
    if (step.uses_objects) context.objects.Release(plan, plan.steps[i]);
    if (step.status == 0) return;
    const auto* status = static_cast<const KernelStatus*>(buffers[step.status].data);
    if (status->failed != 0) throw KernelError(*status, plan.steps[i].label, plan.steps[i].origin);
    return;
  }
  if (step.uses_objects) {
    return context.objects.Copy(placements, plan.steps[i], buffers, context.current());
  }
  Copy(i, context);
}

// The kernel's buffers of tensors that are objects.
void Executor::Impl::ReadObjects(size_t i, RunContext& context) const {
  const std::vector<uint32_t>& values = plan.steps[i].values;
  for (size_t k = 0; k < values.size(); ++k) {
    const PlanValue& value = plan.values[values[k]];
    if (!value.is_object()) continue;
    context.buffers[steps[i].first_buffer + k] =
        runtime::BufferOf(context.objects.of(value), value, placements.symbols(),
                          context.current().symbols, plan.steps[i]);
  }
}

const void* Executor::Impl::OneOf(size_t i, size_t k, const RunContext& context) const {
  if (steps[i].uses_objects) {
    const PlanValue& value = plan.values[plan.steps[i].values[k]];
    if (value.is_object()) return OneElement(context.objects.of(value), value, plan.steps[i]);
  }
  return context.buffers[steps[i].first_buffer + k].data;
}

void Executor::Impl::Copy(size_t i, RunContext& context) const {
  const KernelBuffer* buffers = context.buffers.data() + steps[i].first_buffer;
  const std::vector<uint32_t>& values = plan.steps[i].values;
  const uint64_t bytes = context.current().value_bytes[values[0]];
  const uint64_t room = context.current().value_bytes[values[1]];
  if (bytes != room) {
    throw PlanError("plan/copy", "step ", i, " copies ", bytes, " bytes to ", room);
  }
  if (bytes > 0) std::memmove(buffers[1].data, buffers[0].data, bytes);
}

void Executor::Impl::PutRow(size_t i, RunContext& context) const {
  const KernelBuffer* buffers = context.buffers.data() + steps[i].first_buffer;
  if (steps[i].uses_objects) return context.objects.Append(plan, plan.steps[i], buffers);
  const std::vector<uint32_t>& values = plan.steps[i].values;
  const uint64_t bytes = context.current().value_bytes[values[0]];
  const uint64_t room = context.current().value_bytes[values[2]];
  if (bytes == 0) return;
  const int64_t row = NumberIn(buffers[1]);
  if (row < 0 || static_cast<uint64_t>(row) >= room / bytes) {
    throw PlanError("plan/row", "step ", i, " writes row ", row, " of ", room / bytes);
  }
  auto* whole = static_cast<std::byte*>(buffers[2].data);
  std::memcpy(whole + static_cast<uint64_t>(row) * bytes, buffers[0].data, bytes);
}

// Returns the step that is next.
size_t Executor::Impl::RunStep(size_t i, RunContext& context, KernelTeam* kernel_team) const {
  const Step& step = steps[i];
  const uint32_t target = plan.steps[i].target;
  if (context.current().states[i] == StepState::kMisfit) {
    placements.ThrowMisfit(context.current(), static_cast<uint32_t>(i));
  }
  switch (step.kind) {
    case PlanStep::Kind::kWork:
      Work(i, context, kernel_team);
      return i + 1;
    case PlanStep::Kind::kBranch: {
      const bool holds = *static_cast<const uint8_t*>(OneOf(i, 0, context)) != 0;
      return holds ? i + 1 : target;
    }
    case PlanStep::Kind::kJump:
    case PlanStep::Kind::kRepeat:
      return target;
    case PlanStep::Kind::kBelow:
      return CountOf(i, 0, context) < CountOf(i, 1, context) ? i + 1 : target;
    case PlanStep::Kind::kCount:
      ++NumberIn(context.buffers[step.first_buffer]);
      return i + 1;
    case PlanStep::Kind::kPutRow:
      PutRow(i, context);
      return i + 1;
    case PlanStep::Kind::kRequire:
      placements.Require(context.current(), target);
      return i + 1;
    case PlanStep::Kind::kBind:
      BindSize(i, CountOf(i, 0, context), context);
      return i + 1;
    case PlanStep::Kind::kList:
      context.objects.of(plan.values[plan.steps[i].values[0]]) = RtValue::OfList({});
      return i + 1;
    case PlanStep::Kind::kStack:
      context.objects.Stack(placements, plan.steps[i], context.current());
      return i + 1;
    case PlanStep::Kind::kBindAxis: {
      const RtValue& object = context.objects.of(plan.values[plan.steps[i].values[0]]);
      BindSize(i, ExtentOf(object, plan.steps[i]), context);
      return i + 1;
    }
    case PlanStep::Kind::kResize:
    case PlanStep::Kind::kGrow:
      BindSize(i, SizeNow(i, context), context);
      return i + 1;
  }
  LATHE_CHECK(false, "step ", i, " is of no kind");
}

void Executor::Impl::Record(size_t i, uint64_t begin, RunContext& context) const {
  const uint64_t end = Now();
  const PlanStep& step = plan.steps[i];
  const std::vector<int64_t>& symbols = context.current().symbols;
  auto bytes = placements.symbols().NumberOf(step.bytes, symbols);
  if (!bytes) {
    bytes = 0;
    for (const uint32_t v : step.values)
      *bytes += static_cast<int64_t>(context.current().value_bytes[v]);
  }
  const auto flops =
      static_cast<double>(placements.symbols().NumberOf(step.flops, symbols).value_or(-1));
  context.events.push_back(
      {static_cast<uint32_t>(i), 0, begin, end, flops, static_cast<double>(*bytes)});
}

// Throws Stopped if the run is to end; `step` has not begun, or not been finished.
void Executor::Impl::CheckBudgetAt(size_t i) const {
  const Budget* budget = Budget::Current();
  if (budget == nullptr || !budget->stopped()) return;
  WhileDoing(StrCat("running step ", i, " of ", steps.size(), ", '", plan.steps[i].label, "'"),
             [&] { budget->Check(); });
}

void Executor::Impl::TooManySteps(size_t i) const {
  throw Error(ErrorCode::kLimit, "limit/steps", StrCat("more than ", max_steps, " steps ran"))
      .At(plan.steps[i].origin)
      .Hint("does a loop end? The limit is ExecutorOptions::max_steps, --max-steps in the command");
}

void Executor::Impl::RunSteps(RunContext& context, const RunOptions& options) const {
  const FloatMode mode;
  const WorkerTeam::InRun in_run(*team);
  const Budget* budget = Budget::Current();
  StoppableTeam stoppable(budget, team->for_kernels());
  const bool stops = budget != nullptr && budget->within_kernels();
  KernelTeam* kernel_team = stops ? &stoppable : team->for_kernels();
  context.events.clear();
  uint64_t left = max_steps;
  for (size_t i = 0, next = 0; i < steps.size(); i = next) {
    if (i <= variables.first_update()) {
      CheckBudgetAt(i);
      if (left-- == 0) TooManySteps(i);
    }
    if (i == variables.first_update()) kernel_team = team->for_kernels();
    const uint64_t begin = options.profile == nullptr ? 0 : Now();
    next = RunStep(i, context, kernel_team);
    if (stoppable.has_stopped()) {
      CheckBudgetAt(i);
      throw Stopped(
          Cancelled());  // who cancelled it has taken that back; the outputs are unfinished
    }
    if (options.profile != nullptr && steps[i].kind == PlanStep::Kind::kWork) {
      Record(i, begin, context);
    }
  }
  if (options.profile != nullptr) options.profile->Add(context.events);
}

void Executor::Impl::Run(std::span<const InputView> inputs, const OutputMemory& memory,
                         const TakeObject& take_object, const RunOptions& options) const {
  if (options.cancel == nullptr && options.timeout_seconds <= 0) {
    return RunWithin(inputs, memory, take_object, options);
  }
  RunUnder({.seconds = options.timeout_seconds, .cancel = options.cancel},
           [&] { RunWithin(inputs, memory, take_object, options); });
}

void Executor::Impl::RunInto(std::span<const InputView> inputs, const OutputMemory& memory,
                             const RunOptions& options) const {
  const auto put = [&](size_t i, const RtValue& value) { PutOutput(plan, i, value, memory); };
  Run(inputs, memory, put, options);
}

// Under the limits of the options.
void Executor::Impl::RunWithin(std::span<const InputView> inputs, const OutputMemory& memory,
                               const TakeObject& take_object, const RunOptions& options) const {
  const BorrowedContext borrowed(contexts);
  RunContext& context = *borrowed;
  std::shared_ptr<const Placement> placement = Bind(inputs, context);
  CheckInputMemory(plan, *placement, inputs);
  context.inputs = inputs;
  context.memory = &memory;
  context.outputs.assign(plan.outputs.size(), {});
  Prepare(context, std::move(placement));
  context.objects.Begin(plan, inputs, {.seed = plan.seed, .draws = 0, .max_bytes = max_bytes});
  SetPorts(context, 0);
  if (poison) Poison(context, 0);
  const Variables::Turn turn(variables);
  RunSteps(context, options);
  if (plan.num_objects == 0) return;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanValue& value = plan.values[plan.outputs[i].value];
    if (value.is_object()) take_object(i, context.objects.of(value));
  }
}

Executor::Executor(std::shared_ptr<const Plan> plan, ExecutorOptions options) {
  const PlanCode& code = NotNull(plan).code;
  CheckCode(code);
  CheckProcessor(code);
  const size_t num_kernels = code.entries.size();
  impl_ = std::make_unique<Impl>(std::move(plan), std::move(options), num_kernels);
  if (num_kernels > 0) impl_->code = ExecutableMemory(impl_->plan.code.bytes);
  impl_->SetKernels(KernelsAt(impl_->code, impl_->plan.code.entries));
}

Executor::Executor(std::vector<Kernel> kernels, std::shared_ptr<const Plan> plan,
                   ExecutorOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), std::move(options), kernels.size())) {
  impl_->SetKernels(std::move(kernels));
}

Executor::Executor(Executor&&) noexcept = default;
Executor::~Executor() = default;

NamedTensors Executor::Run(const NamedTensors& inputs, const RunOptions& options) const {
  NamedValues values(inputs.begin(), inputs.end());
  NamedTensors results;
  for (auto& [name, value] : RunValues(values, options)) {
    results.emplace_back(std::move(name), value.tensor());
  }
  return results;
}

NamedValues Executor::RunValues(const NamedValues& inputs, const RunOptions& options) const {
  const Plan& plan = impl_->plan;
  const std::vector<InputView> views = ViewsInOrder(plan, inputs);
  NamedValues results;
  for (const PlanPort& port : plan.outputs) results.emplace_back(port.name, RtValue());
  const auto memory = [&](size_t i, std::span<const int64_t> shape, uint64_t /*bytes*/) {
    const ElementType element = plan.values[plan.outputs[i].value].element;
    Tensor tensor(element, Shape(shape.begin(), shape.end()));
    const OutputView view{tensor.mutable_raw(), tensor.byte_size()};
    results[i].second = std::move(tensor);
    return view;
  };
  const auto take = [&](size_t i, RtValue value) { results[i].second = std::move(value); };
  impl_->Run(views, memory, take, options);
  return results;
}

void Executor::RunInto(std::span<const InputView> inputs, const OutputMemory& memory,
                       const RunOptions& options) const {
  impl_->RunInto(inputs, memory, options);
}

void Executor::Run(std::span<const InputView> inputs, std::span<const OutputView> outputs,
                   const RunOptions& options) const {
  if (inputs.size() == impl_->plan.inputs.size()) CheckOutputCount(impl_->plan, outputs);
  const auto memory = [outputs = outputs.data()](size_t i, auto...) { return outputs[i]; };
  impl_->RunInto(inputs, memory, options);
}

std::vector<Shape> Executor::OutputShapes(std::span<const InputView> inputs) const {
  const BorrowedContext context(impl_->contexts);
  const auto placement = impl_->Bind(inputs, *context);
  std::vector<Shape> shapes;
  for (const PlanPort& port : impl_->plan.outputs) {
    const bool is_object = impl_->plan.values[port.value].is_object();
    const bool is_computed = is_object || impl_->placements.StageOfValue(port.value) > 0;
    if (is_computed) throw ComputedShape(impl_->plan, port);
    const std::span<const int64_t> shape = impl_->placements.ShapeOf(*placement, port.value);
    shapes.emplace_back(shape.begin(), shape.end());
  }
  return shapes;
}

std::vector<std::string> Executor::MutableParameters() const { return impl_->variables.Names(); }

Tensor Executor::GetParameter(std::string_view name) const { return impl_->variables.Get(name); }

void Executor::SetParameter(std::string_view name, const Tensor& value) const {
  impl_->variables.Set(name, value);
}

std::shared_ptr<const Plan> Executor::CurrentPlan() const {
  if (impl_->plan.variables.empty()) return impl_->plan_owner;
  return WithParameters(impl_->plan, impl_->variables.GetAll());
}

const Plan& Executor::plan() const { return impl_->plan; }
const std::shared_ptr<WorkerTeam>& Executor::team() const { return impl_->team; }
uint64_t Executor::arena_bytes() const { return impl_->contexts.bytes(); }
void Executor::Trim() const { impl_->contexts.Trim(); }

}  // namespace lathe::runtime
