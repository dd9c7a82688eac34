#include "lathe/dialect/interpreter.h"

#include <bit>
#include <new>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/budget.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"
#include "lathe/support/processors.h"
#include "lathe/support/random.h"
#include "src/dialect/prepared.h"
#include "src/dialect/run_checks.h"
#include "src/dialect/run_plan.h"
#include "src/dialect/size_scope.h"
#include "src/dialect/stated_sizes.h"
#include "src/dialect/views.h"

namespace lathe {
namespace {

// Bytes of the values that are alive. Data shared by several values counts once; buffers of at most
// kSmall bytes count for each value, because looking them up costs more than computing with them.
class MemoryMeter {
 public:
  void Add(const RtValue& value) { Count(value, true); }
  void Remove(const RtValue& value) { Count(value, false); }
  uint64_t bytes() const { return bytes_; }

 private:
  void Count(const RtValue& value, bool added) {
    if (value.is_tensor()) return CountTensor(value.tensor(), added);
    if (value.is_list()) {
      for (const RtValue& v : value.list()) Count(v, added);
    }
  }
  void CountTensor(const Tensor& tensor, bool added) {
    if (tensor.element_type() == ElementType::kString) {
      const uint64_t size = static_cast<uint64_t>(tensor.num_elements()) * sizeof(std::string);
      bytes_ = added ? bytes_ + size : bytes_ - size;
      return;
    }
    const Buffer* buffer = tensor.buffer().get();
    if (buffer == nullptr || !buffer->is_writable()) return;
    if (buffer->size() <= kSmall) {
      bytes_ = added ? bytes_ + buffer->size() : bytes_ - buffer->size();
      return;
    }
    uint32_t& holders = holders_[buffer];
    if (added && holders++ == 0) bytes_ += buffer->size();
    if (!added && --holders == 0) {
      bytes_ -= buffer->size();
      holders_.erase(buffer);
    }
  }

  static constexpr size_t kSmall = 256;
  std::unordered_map<const Buffer*, uint32_t> holders_;  // looked up, never iterated
  uint64_t bytes_ = 0;
};

void RunEval(Operation* op, EvalContext& c) {
  const auto where = [&] { return op->location().ToString(*op->context()); };
  try {
    CheckBudget();
    op->dyn_cast<EvalInterface>().Eval(c);
  } catch (Stopped& stopped) {
    if (stopped.error().where().empty() && !op->location().is_unknown())
      stopped.error().At(where());
    if (stopped.error().notes().empty())
      stopped.error().Note(StrCat("while evaluating ", op->name()));
    throw;
  } catch (Error& error) {
    if (error.where().empty() && !op->location().is_unknown()) error.At(where());
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kLimit, "limit/memory", StrCat(op->name(), ": out of memory"))
        .At(where());
  } catch (const std::length_error&) {
    throw Error(ErrorCode::kLimit, "limit/memory", StrCat(op->name(), ": a size is too large"))
        .At(where());
  }
}

// For an op that runs by itself, outside of any program.
class LoneContext : public EvalContext, public PreparedScope {
 public:
  LoneContext(Operation* op, std::span<RtValue> inputs, std::span<RtValue> outputs, Draws& draws,
              PreparedOps& prepared)
      : draws_(draws), prepared_(prepared) {
    op_ = op;
    inputs_ = inputs;
    outputs_ = outputs;
  }
  std::vector<RtValue> RunRegion(Region&, std::span<const RtValue>) override {
    Fail("run/region", "an op with regions cannot run by itself");
  }
  ParameterMap* parameters() override { return nullptr; }
  uint64_t RandomSeed(std::optional<double> attribute) override {
    return SeedOfDraw(attribute, draws_.seed, draws_.count++);
  }
  const RtValue* Feed(std::string_view) override { return nullptr; }
  void Fetch(std::string_view, const RtValue&) override {}
  PreparedOps& prepared() override { return prepared_; }

 private:
  Draws& draws_;
  PreparedOps& prepared_;
};

}  // namespace

const RtValue* Find(const NamedValues& values, std::string_view name) {
  for (const auto& [key, value] : values) {
    if (key == name) return &value;
  }
  return nullptr;
}

// ---- one run ----

namespace {

struct State {
  State(Program& p, InterpreterOptions o) : program(p), options(std::move(o)), plan(p), stated(p) {
    if (options.max_bytes == 0) options.max_bytes = UsableMemory() / 5 * 4;
  }

  Program& program;
  InterpreterOptions options;
  RunPlan plan;
  PreparedOps prepared;
  StatedSizes stated;

  // State of a run.
  std::vector<RtValue> slots;
  MemoryMeter memory;
  uint64_t steps = 0;
  uint64_t draws = 0;
  uint32_t depth = 0;
  const NamedValues* inputs = nullptr;
  NamedValues outputs;
  NamedValues given_back;                  // of fetches with `aliases`
  std::vector<std::string> given_back_of;  // the inputs that they are the contents of

  /// A block that is being run, and the call that it was entered by.
  struct Activation {
    const RunPlan::BlockPlan* block;
    size_t next = 0;
    const RunPlan::Step* call = nullptr;
    std::vector<RtValue> arguments = {};  ///< for the observer
  };
  std::vector<Activation> active;

  NamedValues RunProgram(const NamedValues& given);
  void GiveBackInputs();
  std::vector<RtValue> RunBlock(const Block* block, std::span<const RtValue> arguments);
  void Enter(Activation activation, std::span<const RtValue> arguments);
  void Call(const RunPlan::Step& step);
  void FinishCall(const RunPlan::Step& call, std::span<const RtValue> arguments,
                  std::vector<RtValue> results);
  void Return(std::vector<RtValue> results);
  void CountStep(const Operation* op);
  void RunStep(const RunPlan::Step& step);
  void StoreResults(const RunPlan::Step& step, std::span<const RtValue> values,
                    const std::optional<Shape>& written, std::span<RtValue> results);
  void Store(uint32_t slot, RtValue value);
  RtValue LoadOne(uint32_t slot, uint32_t indices) const;
  std::optional<Shape> ReleaseWrittenOperand(const RunPlan::Step& step);
  void Write(const RunPlan::Step& step, const std::optional<Shape>& written, RtValue value);
  RtValue ViewIndices(const RunPlan::Step& step, std::span<const RtValue> values);
  std::vector<RtValue> Load(const RunPlan::Step& step) const;
  void Drop(const RunPlan::Step& step);
  void CheckResult(const Operation* op, size_t i, const RtValue& value) const;
  void CheckMemory(const Operation* op) const;
  void CheckResultSizes(const Operation* op) const;
  size_t Remaining() const {
    return options.max_bytes > memory.bytes() ? options.max_bytes - memory.bytes() : 0;
  }
};

[[noreturn]] void LimitReached(const Operation* op, std::string id, std::string message,
                               std::string hint) {
  throw Error(ErrorCode::kLimit, std::move(id), std::move(message))
      .At(op->location().ToString(*op->context()))
      .Hint(std::move(hint));
}

// The context of one op of a running program.
class ProgramContext : public EvalContext, public SizeScope, public PreparedScope {
 public:
  ProgramContext(State& run, Operation* op, std::span<RtValue> inputs, std::span<RtValue> outputs)
      : run_(run) {
    op_ = op;
    inputs_ = inputs;
    outputs_ = outputs;
  }
  std::vector<RtValue> RunRegion(Region& region, std::span<const RtValue> args) override {
    if (run_.depth >= run_.options.max_depth) {
      LimitReached(op_, "limit/depth",
                   StrCat("regions are nested deeper than ", run_.options.max_depth),
                   "raise InterpreterOptions::max_depth");
    }
    LATHE_CHECK(!region.empty(), op_->Describe(), " runs a region without a block");
    ++run_.depth;
    if (run_.options.at_begin) run_.options.at_begin(region.front(), args);
    std::vector<RtValue> results = run_.RunBlock(region.front(), args);
    --run_.depth;
    return results;
  }
  ParameterMap* parameters() override { return &run_.program.parameters(); }
  uint64_t RandomSeed(std::optional<double> attribute) override {
    return SeedOfDraw(attribute, run_.options.seed, run_.draws++);
  }
  const RtValue* Feed(std::string_view name) override { return Find(*run_.inputs, name); }
  void Fetch(std::string_view name, const RtValue& value) override {
    const auto input = op_->attribute("aliases").dyn_cast<StrAttribute>();
    NamedValues& to = input ? run_.given_back : run_.outputs;
    to.emplace_back(std::string(name), value);
    if (input) run_.given_back_of.emplace_back(input.value());
  }
  PreparedOps& prepared() override { return run_.prepared; }
  std::optional<int64_t> SizeOf(std::string_view symbol) const override {
    if (const auto size = SizeOfRead(symbol)) return size;
    return IsInFunction() ? std::nullopt : SizeOfFed(symbol);
  }

 private:
  /// By what the regions read from outside; values of their own may be there no more.
  std::optional<int64_t> SizeOfRead(std::string_view symbol) const {
    for (OpWalker walk(op_); Operation* inner = walk.Next();) {
      for (const Region& region : inner->regions()) {
        for (const RunPlan::Step& step : run_.plan.block(region.front()).steps) {
          if (const auto size = SizeOfOperands(step, symbol)) return size;
        }
      }
    }
    return std::nullopt;
  }

  std::optional<int64_t> SizeOfOperands(const RunPlan::Step& step, std::string_view symbol) const {
    for (size_t i = 0; i < step.op->num_operands(); ++i) {
      const Value operand = step.op->operand(i);
      if (!operand || run_.plan.operand_indices(step)[i] != RunPlan::kNone) continue;
      const RtValue& value = run_.slots[run_.plan.operands(step)[i]];
      if (const auto size = SizeIn(operand.type(), value, symbol)) return size;
    }
    return std::nullopt;
  }

  /// A function has symbols of its own.
  bool IsInFunction() const {
    const Operation* outer = op_;
    while (outer != nullptr && outer->name() != builtin::kFunc) outer = outer->parent_op();
    return outer != nullptr;
  }

  std::optional<int64_t> SizeOfFed(std::string_view symbol) const {
    for (Operation* feed : run_.program.feeds()) {
      const RtValue* value = Find(*run_.inputs, nn::FeedOp(feed).name());
      if (value == nullptr) continue;
      if (const auto size = SizeIn(feed->result(0).type(), *value, symbol)) return size;
    }
    return std::nullopt;
  }

  State& run_;
};

NamedValues State::RunProgram(const NamedValues& given) {
  CheckInputs(program.feeds(), given);
  stated.Begin(program.feeds(), given);
  slots.assign(plan.num_slots(), RtValue());
  memory = {};
  steps = draws = depth = 0;
  active.clear();
  inputs = &given;
  outputs.clear();
  given_back.clear();
  given_back_of.clear();
  RunBlock(program.block(), {});
  GiveBackInputs();
  slots.clear();
  return std::move(outputs);
}

/// Behind the outputs, in the order of the inputs, what these hold now: those written as tensors,
/// and those whose new contents a fetch gives.
void State::GiveBackInputs() {
  if (given_back.empty() && plan.written_inputs().empty()) return;
  for (const Operation* feed : program.feeds()) {
    const auto name = feed->attribute("name").cast<StrAttribute>().value();
    for (size_t i = 0; i < given_back.size(); ++i) {
      if (given_back_of[i] == name) outputs.push_back(std::move(given_back[i]));
    }
    for (const RunPlan::WrittenInput& input : plan.written_inputs()) {
      if (input.feed == feed) outputs.emplace_back(std::string(name), slots[input.slot]);
    }
  }
}

// Calls are kept on a stack of their own: their depth is not a depth of C++ calls.
std::vector<RtValue> State::RunBlock(const Block* block, std::span<const RtValue> arguments) {
  const size_t bottom = active.size();
  Enter({&plan.block(block)}, arguments);
  while (true) {
    Activation& now = active.back();
    std::vector<RtValue> results;
    if (now.next < now.block->steps.size()) {
      const RunPlan::Step& step = now.block->steps[now.next++];
      CountStep(step.op);
      if (step.callee != RunPlan::kNone) {
        Call(step);
        continue;
      }
      if (!step.op->HasTrait<Terminator>()) {
        RunStep(step);
        continue;
      }
      stated.AtEnd(step.op);
      if (options.at_end) options.at_end(step.op);
      results = Load(step);
      Drop(step);
    }
    if (active.size() == bottom + 1) {
      active.pop_back();
      return results;
    }
    Return(std::move(results));
  }
}

void State::CountStep(const Operation* op) {
  CheckBudget();
  if (++steps <= options.max_steps) return;
  LimitReached(op, "limit/steps", StrCat("more than ", options.max_steps, " ops ran"),
               "does a loop end? The limit is InterpreterOptions::max_steps");
}

void State::Enter(Activation activation, std::span<const RtValue> arguments) {
  const RunPlan::BlockPlan& b = *activation.block;
  LATHE_CHECK(arguments.size() == b.arguments.size(), "a region got ", arguments.size(),
              " arguments instead of ", b.arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) Store(b.arguments[i], arguments[i]);
  active.push_back(std::move(activation));
}

void State::Call(const RunPlan::Step& step) {
  std::vector<RtValue> arguments = Load(step);
  if (options.run_call) {
    std::vector<RtValue> results(step.op->num_results());
    if (options.run_call(step.op, arguments, results)) {
      return FinishCall(step, arguments, std::move(results));
    }
  }
  Enter({&plan.callee(step), 0, &step}, arguments);
  if (options.observer) active.back().arguments = std::move(arguments);
}

// Back to the caller, with the results of the call.
void State::Return(std::vector<RtValue> results) {
  const Activation done = std::move(active.back());
  active.pop_back();
  FinishCall(*done.call, done.arguments, std::move(results));
}

void State::FinishCall(const RunPlan::Step& call, std::span<const RtValue> arguments,
                       std::vector<RtValue> results) {
  for (size_t i = 0; i < results.size(); ++i) CheckResult(call.op, i, results[i]);
  if (options.observer) options.observer({call.op, arguments, results, steps - 1});
  const std::span<const uint32_t> to = plan.results(call);
  for (size_t i = 0; i < results.size(); ++i) Store(to[i], std::move(results[i]));
  CheckMemory(call.op);
  Drop(call);
}

std::vector<RtValue> State::Load(const RunPlan::Step& step) const {
  std::vector<RtValue> values;
  values.reserve(step.op->num_operands());
  const std::span<const uint32_t> from = plan.operands(step);
  const std::span<const uint32_t> indices = plan.operand_indices(step);
  for (size_t i = 0; i < from.size(); ++i) values.push_back(LoadOne(from[i], indices[i]));
  return values;
}

RtValue State::LoadOne(uint32_t slot, uint32_t indices) const {
  if (slot == RunPlan::kNone) return RtValue();
  if (indices == RunPlan::kNone) return slots[slot];
  return GatherElements(slots[slot].tensor(), slots[indices].tensor());
}

// A view, as the index in the viewed tensor of each of its elements: what the op gives when it is
// applied to these indices instead of the elements.
RtValue State::ViewIndices(const RunPlan::Step& step, std::span<const RtValue> values) {
  std::vector<RtValue> operands(values.begin(), values.end());
  const uint32_t of = plan.operand_indices(step)[0];
  operands[0] = of == RunPlan::kNone ? ElementIndices(values[0].tensor().shape()) : slots[of];
  std::vector<RtValue> results(step.op->num_results());
  ProgramContext context(*this, step.op, operands, results);
  RunEval(step.op, context);
  return results[0];
}

// Empties the slot that an in-place op writes, so that the op holds the only reference and writes
// without a copy; returns the shape of what was there. With an observer, which is shown the operand
// as it was, the slot keeps its reference.
std::optional<Shape> State::ReleaseWrittenOperand(const RunPlan::Step& step) {
  if (!step.op->HasTrait<Inplace>() || step.op->num_operands() == 0) return std::nullopt;
  const uint32_t slot = plan.operands(step)[0], indices = plan.operand_indices(step)[0];
  if (slot == RunPlan::kNone) return std::nullopt;
  const RtValue& old = slots[indices == RunPlan::kNone ? slot : indices];
  if (!old.is_tensor()) return std::nullopt;
  std::optional<Shape> shape = old.tensor().shape();
  if (indices == RunPlan::kNone && !options.observer) Store(slot, RtValue());
  return shape;
}

void State::Write(const RunPlan::Step& step, const std::optional<Shape>& written, RtValue value) {
  const Operation* op = step.op;
  if (written && value.is_tensor() && *written != value.tensor().shape()) {
    throw Error(ErrorCode::kShape, "shape/inplace",
                StrCat(op->name(), ": the result ", Describe(value),
                       " does not have the shape of the tensor that it is written to, ",
                       ShapeToString(*written)))
        .At(op->location().ToString(*op->context()));
  }
  const uint32_t slot = plan.results(step)[0], indices = plan.result_indices(step)[0];
  if (indices == RunPlan::kNone) return Store(slot, std::move(value));
  Tensor base = slots[slot].tensor();
  ScatterElements(base, slots[indices].tensor(), value.tensor());
  Store(slot, std::move(base));
}

void State::RunStep(const RunPlan::Step& step) {
  const uint64_t number = steps - 1;
  std::vector<RtValue> values = Load(step);
  std::vector<RtValue> results(step.op->num_results());
  CheckResultSizes(step.op);
  const size_t remaining = Remaining();  // what is written counts until its result is stored
  const std::optional<Shape> written = ReleaseWrittenOperand(step);
  const std::vector<RtValue> shown = options.observer ? values : std::vector<RtValue>();
  ProgramContext context(*this, step.op, values, results);
  {
    const AllocationLimit limit(remaining);
    RunEval(step.op, context);
  }
  for (size_t i = 0; i < results.size(); ++i) CheckResult(step.op, i, results[i]);
  stated.AfterOp(step.op, results);
  if (options.observer) options.observer({step.op, shown, results, number});
  StoreResults(step, values, written, results);
  values.clear();
  CheckMemory(step.op);
  Drop(step);
}

void State::StoreResults(const RunPlan::Step& step, std::span<const RtValue> values,
                         const std::optional<Shape>& written, std::span<RtValue> results) {
  const std::span<const uint32_t> to = plan.results(step);
  const std::span<const uint32_t> indices = plan.result_indices(step);
  for (size_t i = 0; i < results.size(); ++i) {
    if (i == 0 && RunPlan::IsMutableView(step.op)) {
      Store(indices[0], ViewIndices(step, values));
    } else if (i == 0 && step.op->HasTrait<Inplace>()) {
      Write(step, written, std::move(results[0]));
    } else {
      Store(to[i], std::move(results[i]));
    }
  }
}

void State::Store(uint32_t slot, RtValue value) {
  memory.Remove(slots[slot]);
  slots[slot] = std::move(value);
  memory.Add(slots[slot]);
}

void State::Drop(const RunPlan::Step& step) {
  for (const uint32_t slot : plan.drops(step)) Store(slot, RtValue());
}

void State::CheckMemory(const Operation* op) const {
  if (memory.bytes() <= options.max_bytes) return;
  LimitReached(op, "limit/memory",
               StrCat(op->name(), ": values take ", HumanBytes(memory.bytes()), "; the limit is ",
                      HumanBytes(options.max_bytes)),
               "raise InterpreterOptions::max_bytes");
}

// Whether a static type may take more than `bytes`: an upper bound, without allocating.
bool MayExceed(AnyTensorType type, uint64_t bytes) {
  double all = sizeof(std::string);
  for (const Dim& dim : type.dims()) {
    if (!dim.is_constant()) return false;
    all *= static_cast<double>(dim.value());
  }
  return all > static_cast<double>(bytes);
}

// Before an op computes: many collect what they give in memory that nobody counts.
void State::CheckResultSizes(const Operation* op) const {
  for (size_t i = 0; i < op->num_results(); ++i) {
    const auto tensor = op->result(i).type().dyn_cast<AnyTensorType>();
    if (!tensor || !MayExceed(tensor, options.max_bytes)) continue;
    const auto shape = tensor.shape().Constants();
    if (!shape) continue;
    const auto bytes = StorageBytes(tensor.element(), static_cast<size_t>(NumElements(*shape)));
    if (bytes <= options.max_bytes) continue;
    LimitReached(op, "limit/memory",
                 StrCat(op->name(), ": a result of shape ", ShapeToString(*shape), " takes ",
                        HumanBytes(bytes), "; the limit is ", HumanBytes(options.max_bytes)),
                 "raise InterpreterOptions::max_bytes");
  }
}

void State::CheckResult(const Operation* op, size_t i, const RtValue& value) const {
  const Value result = op->result(i);
  if (value.is_none()) {
    LATHE_CHECK(
        result.use_empty() || result.type().isa<NoneType>() || result.type().isa<TokenType>(),
        op->Describe(), " did not compute result ", i);
    return;
  }
  if (Fits(value, result.type())) return;
  throw Error(ErrorCode::kType, "run/result-type",
              StrCat(op->name(), ": result ", i, " is ", Describe(value), " but was declared ",
                     result.type().ToString()))
      .At(op->location().ToString(*op->context()));
}

}  // namespace

// ---- the class ----

struct Interpreter::Impl : State {
  using State::State;
};

Interpreter::Interpreter(Program& program, InterpreterOptions options) {
  if (options.verify) VerifyOrThrow(program);
  impl_ = std::make_unique<Impl>(program, std::move(options));
}

Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;

NamedValues Interpreter::Run(const NamedValues& inputs) { return impl_->RunProgram(inputs); }

void RunStartup(Program& startup, Program& main, InterpreterOptions options) {
  if (&startup.context() != &main.context()) {
    throw Error(ErrorCode::kInvalidArgument, "run/contexts",
                "the startup program and the main program are of different contexts");
  }
  Interpreter(startup, std::move(options)).Run({});
  ParameterMap moved = std::move(startup.parameters());
  startup.parameters() = ParameterMap();
  if (main.parameters().empty()) {
    main.parameters() = std::move(moved);
  } else {
    for (ParameterMap::Entry& e : moved) main.parameters().Set(e.name, std::move(e.variable));
  }
  main.RefreshMutability();
}

std::vector<RtValue> EvalOp(Operation* op, std::span<const RtValue> inputs, uint64_t seed) {
  PreparedOps prepared;
  Draws draws{.seed = seed};
  return EvalOp(op, {inputs.begin(), inputs.end()}, draws, prepared);
}

std::vector<RtValue> EvalOp(Operation* op, std::vector<RtValue> inputs, Draws& draws,
                            PreparedOps& prepared) {
  std::vector<RtValue> results(op->num_results());
  LoneContext context(op, inputs, results, draws, prepared);
  LATHE_CHECK(op->HasInterface<EvalInterface>(), op->name(), " has no Eval");
  RunEval(op, context);
  return results;
}

}  // namespace lathe
