#include "src/functions/program_function.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/block.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "src/dialect/prepared.h"
#include "src/dialect/run_checks.h"

namespace lathe {
namespace {

using runtime::FunctionArgument;
using runtime::FunctionRun;

Shape ShapeOf(const FunctionArgument& a) { return {a.buffer.shape, a.buffer.shape + a.rank}; }

// The tensor in memory of somebody else's, which outlives the call but not what it gives.
Tensor View(const FunctionArgument& a) {
  Shape shape = ShapeOf(a);
  const size_t bytes = StorageBytes(a.element, static_cast<size_t>(NumElements(shape)));
  if (bytes == 0) return Tensor(a.element, std::move(shape));
  return Tensor::FromBuffer(a.element, std::move(shape),
                            Buffer::Wrap(a.buffer.data, bytes, nullptr));
}

// Whether the bytes of a tensor are those of an argument.
bool IsView(const Tensor& tensor, std::span<const FunctionArgument> reads) {
  const auto is_in = [&](const FunctionArgument& a) {
    if (a.object != nullptr || a.buffer.data == nullptr) return false;
    const auto* begin = static_cast<const std::byte*>(a.buffer.data);
    const size_t bytes = StorageBytes(a.element, static_cast<size_t>(NumElements(ShapeOf(a))));
    return tensor.raw() >= begin && tensor.raw() < begin + bytes;
  };
  return tensor.byte_size() > 0 && std::ranges::any_of(reads, is_in);
}

bool HasView(const RtValue& value, std::span<const FunctionArgument> reads) {
  const auto has = [&](const RtValue& item) { return HasView(item, reads); };
  if (value.is_tensor()) return IsView(value.tensor(), reads);
  if (value.is_list()) return std::ranges::any_of(value.list(), has);
  return value.is_dict() && std::ranges::any_of(value.dict() | std::views::values, has);
}

// Has no bytes of the arguments, which end before it.
RtValue Kept(RtValue value, std::span<const FunctionArgument> reads) {
  if (!HasView(value, reads)) return value;
  if (value.is_tensor()) return value.tensor().Clone();
  if (value.is_list()) {
    for (RtValue& item : value.mutable_list()) item = Kept(std::move(item), reads);
  } else if (value.is_dict()) {
    for (auto& [key, item] : value.mutable_dict()) item = Kept(std::move(item), reads);
  }
  return value;
}

void Put(RtValue value, const FunctionArgument& into, std::span<const FunctionArgument> reads) {
  if (into.object != nullptr) {
    *into.object = Kept(std::move(value), reads);
    return;
  }
  const Tensor& t = value.tensor();
  const Shape planned = ShapeOf(into);
  if (t.element_type() != into.element || t.shape() != planned) {
    throw Error(ErrorCode::kShape, "run/result-type",
                StrCat("a result is ", t.TypeString(), "; expected ", Name(into.element),
                       ShapeToString(planned)));
  }
  if (t.byte_size() > 0) std::memcpy(into.buffer.data, t.raw(), t.byte_size());
}

std::vector<RtValue> Read(std::span<FunctionArgument> reads) {
  std::vector<RtValue> values;
  for (const FunctionArgument& a : reads) {
    values.push_back(a.object == nullptr ? RtValue(View(a)) : std::move(*a.object));
  }
  return values;
}

// The operations of one function, and when each value is read for the last time: what nobody else
// holds may then be changed in place.
class Evaluation {
 public:
  explicit Evaluation(const Operation* function) : body_(FunctionTable::Body(function)) {
    for (size_t i = 0; i < body_->num_arguments(); ++i) AddSlot(body_->argument(i));
    for (Operation& op : *body_) {
      Step& step = steps_.emplace_back();
      step.op = &op;
      step.first_result = num_slots_;
      for (size_t i = 0; i < op.num_operands(); ++i) {
        const Value v = op.operand(i);
        step.operands.push_back(v ? slots_.at(v) : kNoSlot);
      }
      for (size_t i = 0; i < op.num_results(); ++i) AddSlot(op.result(i));
    }
    MarkLastReads();
  }

  void Call(std::span<FunctionArgument> reads, std::span<FunctionArgument> writes,
            FunctionRun& run) {
    std::vector<RtValue> slots = Read(reads);
    for (size_t i = 0; i < reads.size(); ++i) {
      if (reads[i].object != nullptr) CheckArgument(i, slots[i]);
    }
    slots.resize(num_slots_);
    for (const Step& step : steps_) {
      std::vector<RtValue> operands = Operands(step, slots);
      if (step.op->HasTrait<Terminator>()) {
        for (size_t i = 0; i < writes.size(); ++i) Put(std::move(operands[i]), writes[i], reads);
        return;
      }
      Run(step, std::move(operands), slots, run);
    }
  }

 private:
  static constexpr size_t kNoSlot = ~size_t{0};
  struct Step {
    Operation* op;
    std::vector<size_t> operands;
    std::vector<bool> is_last;  // parallel
    size_t first_result = 0;
  };

  void AddSlot(Value v) { slots_.emplace(v, num_slots_++); }

  void MarkLastReads() {
    std::vector<bool> is_read(num_slots_);
    for (size_t i = steps_.size(); i-- > 0;) {
      Step& step = steps_[i];
      step.is_last.resize(step.operands.size());
      for (size_t k = step.operands.size(); k-- > 0;) {
        const size_t slot = step.operands[k];
        if (slot == kNoSlot) continue;
        step.is_last[k] = !is_read[slot];
        is_read[slot] = true;
      }
    }
  }

  static std::vector<RtValue> Operands(const Step& step, std::vector<RtValue>& slots) {
    std::vector<RtValue> operands;
    operands.reserve(step.operands.size());
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const size_t slot = step.operands[k];
      if (slot == kNoSlot) {
        operands.emplace_back();
      } else {
        operands.push_back(step.is_last[k] ? std::move(slots[slot]) : slots[slot]);
      }
    }
    return operands;
  }

  void CheckArgument(size_t i, const RtValue& value) const {
    const Type type = body_->argument(i).type();
    if (Fits(value, type)) return;
    throw Error(ErrorCode::kType, "run/result-type",
                StrCat("a value is ", Describe(value), "; expected ", type.ToString()));
  }

  void Run(const Step& step, std::vector<RtValue> operands, std::vector<RtValue>& slots,
           FunctionRun& run) {
    Draws draws{run.seed, run.draws};
    std::vector<RtValue> results = EvalOp(step.op, std::move(operands), draws, prepared_);
    run.draws = draws.count;
    for (size_t i = 0; i < results.size(); ++i) {
      slots[step.first_result + i] = std::move(results[i]);
    }
  }

  const Block* body_;
  std::vector<Step> steps_;
  size_t num_slots_ = 0;
  std::unordered_map<Value, size_t> slots_;  // looked up, never iterated
  PreparedOps prepared_;
};

// The function, and behind it those that it calls.
std::vector<const Operation*> WithCallees(const Operation* function) {
  std::vector<const Operation*> needed{function};
  std::optional<FunctionTable> table;  // of the whole program, for the few that call
  for (size_t i = 0; i < needed.size(); ++i) {
    for (OpWalker w(const_cast<Operation*>(needed[i])); const Operation* op = w.Next();) {
      if (!op->isa<builtin::CallOp>()) continue;
      if (!table) table.emplace(const_cast<Operation*>(function->parent_op()));
      const Operation* callee = table->Callee(op);
      const bool is_new = callee != nullptr && std::ranges::find(needed, callee) == needed.end();
      if (is_new) needed.push_back(callee);
    }
  }
  return needed;
}

Program Alone(const Operation* function) {
  Program alone(*function->context());
  for (const Operation* needed : WithCallees(function)) {
    IrMapping mapping;
    alone.block()->PushBack(Clone(needed, mapping));
  }
  return alone;
}

// A function whose operations have regions, as a program: the interpreter goes through it. Runs of
// several threads have an interpreter each.
class InterpretedFunction {
 public:
  explicit InterpretedFunction(const Operation* function) : program_(Alone(function)) {
    Builder b = Builder::AtEnd(program_.block());
    const Block* body = FunctionTable::Body(function);
    std::vector<Value> arguments;
    for (size_t i = 0; i < body->num_arguments(); ++i) {
      const NamedAttribute name = b.Named(nn::FeedOp::kNameAttr, b.Attr(Name(i)));
      const Type type = body->argument(i).type();
      arguments.push_back(
          b.Create(b.context().GetOp<nn::FeedOp>(), {}, {&name, 1}, {&type, 1})->result(0));
    }
    std::vector<Type> types;
    const Operation* end = body->back();
    for (size_t i = 0; i < end->num_operands(); ++i) types.push_back(end->operand(i).type());
    const NamedAttribute callee =
        b.Named(builtin::CallOp::kCalleeAttr, b.Attr(FunctionTable::NameOf(function)));
    const Operation* call =
        b.Create(b.context().GetOp<builtin::CallOp>(), arguments, {&callee, 1}, types);
    for (size_t i = 0; i < call->num_results(); ++i) {
      const NamedAttribute name = b.Named(nn::FetchOp::kNameAttr, b.Attr(Name(i)));
      const Value result = call->result(i);
      b.Create(b.context().GetOp<nn::FetchOp>(), {&result, 1}, {&name, 1}, {});
    }
  }

  void Call(std::span<FunctionArgument> reads, std::span<FunctionArgument> writes,
            FunctionRun& run) {
    NamedValues inputs;
    for (RtValue& value : Read(reads)) inputs.emplace_back(Name(inputs.size()), std::move(value));
    std::unique_ptr<Interpreter> interpreter = Take(run);
    NamedValues outputs = interpreter->Run(inputs);
    for (size_t i = 0; i < writes.size(); ++i) Put(std::move(outputs[i].second), writes[i], reads);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(interpreter));
  }

 private:
  static std::string Name(size_t i) { return StrCat("value ", i); }

  std::unique_ptr<Interpreter> Take(const FunctionRun& run) {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      return std::make_unique<Interpreter>(
          program_,
          InterpreterOptions{.verify = false, .seed = run.seed, .max_bytes = run.max_bytes});
    }
    std::unique_ptr<Interpreter> interpreter = std::move(idle_.back());
    idle_.pop_back();
    return interpreter;
  }

  Program program_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Interpreter>> idle_;
};

bool HasRegions(const Operation* function) {
  const auto has = [](const Operation& op) { return op.num_regions() != 0; };
  return std::ranges::any_of(*FunctionTable::Body(function), has);
}

// Functions by themselves, each the first of a program of its own.
struct LoadedFunctions {
  explicit LoadedFunctions(const std::vector<std::string>& texts) {
    LoadAllDialects(context);
    programs.reserve(texts.size());
    for (const std::string& text : texts) {
      programs.push_back(
          ParseProgram(context, text, {.file_name = "function", .file_locations = false}));
      VerifyOrThrow(programs.back());
      const FunctionTable table(programs.back());
      if (table.empty()) {
        throw Error(ErrorCode::kParse, "lx/plan", "a function of the plan is not a function");
      }
      functions.push_back(FunctionOf(table.functions()[0]));
    }
  }

  IrContext context;
  std::vector<Program> programs;
  std::vector<runtime::Function> functions;
};

template <class How>
runtime::Function FunctionBy(const Operation* function) {
  const size_t num_arguments = FunctionTable::Body(function)->num_arguments();
  const size_t num_results = FunctionTable::Return(function)->num_operands();
  return
      [how = std::make_shared<How>(function), num_arguments, num_results](
          std::span<FunctionArgument> reads, std::span<FunctionArgument> writes, FunctionRun& run) {
        if (reads.size() != num_arguments || writes.size() != num_results) {
          throw Error(ErrorCode::kParse, "lx/plan",
                      StrCat("a step has ", reads.size(), " operands and ", writes.size(),
                             " results; its function has ", num_arguments, " and ", num_results));
        }
        std::optional<AllocationLimit> limit;
        if (run.max_bytes > 0) limit.emplace(run.max_bytes);
        how->Call(reads, writes, run);
      };
}

}  // namespace

std::string WhyNotEvaluated(const Operation* function) {
  for (const Operation& op : *function->region(0).front()) {
    if (op.HasTrait<Terminator>()) continue;
    if (!op.HasInterface<EvalInterface>()) return StrCat(op.name(), " has no value");
    if (op.HasTrait<SideEffect>()) return StrCat(op.name(), " has a side effect");
    if (op.isa<builtin::CallOp>()) return "it calls another function";
  }
  return {};
}

runtime::Function FunctionOf(const Operation* function) {
  return HasRegions(function) ? FunctionBy<InterpretedFunction>(function)
                              : FunctionBy<Evaluation>(function);
}

std::vector<std::string> ForeignOperations(std::span<const Operation* const> functions) {
  std::vector<std::string> foreign;
  if (functions.empty()) return foreign;
  IrContext own;
  LoadAllDialects(own);
  const auto add = [&](const Operation* op) {
    const std::string name(op->name());
    const bool is_new = std::ranges::find(foreign, name) == foreign.end();
    if (is_new && !own.FindOp(name)) foreign.push_back(name);
  };
  for (const Operation* function : functions) {
    for (const Operation* needed : WithCallees(function)) {
      for (OpWalker w(const_cast<Operation*>(needed)); const Operation* op = w.Next();) add(op);
    }
  }
  return foreign;
}

std::string FunctionText(const Operation* function) { return Print(Alone(function)); }

std::vector<runtime::Function> FunctionsFromText(const std::vector<std::string>& texts) {
  const auto loaded = std::make_shared<LoadedFunctions>(texts);
  std::vector<runtime::Function> functions;
  for (size_t i = 0; i < texts.size(); ++i) {
    functions.emplace_back(
        [loaded, i](std::span<FunctionArgument> reads, std::span<FunctionArgument> writes,
                    FunctionRun& run) { loaded->functions[i](reads, writes, run); });
  }
  return functions;
}

}  // namespace lathe
