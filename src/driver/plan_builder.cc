#include "src/driver/plan_builder.h"

#include <algorithm>
#include <deque>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "lathe/support/pack_blocks.h"
#include "lathe/transform/keep_constraints.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/driver/find_constraints.h"
#include "src/driver/object_values.h"
#include "src/driver/plan_homes.h"
#include "src/driver/plan_operations.h"
#include "src/driver/taken_objects.h"
#include "src/lower/pack.h"

namespace lathe {
namespace {

using runtime::kNone;
using runtime::Plan;
using runtime::PlanStep;
using runtime::PlanValue;
using Spot = PlanHomes::Spot;

class PlanBuilder {
 public:
  PlanBuilder(const Program& program, const PlannedFunctions& functions,
              const ObjectValues& objects, const PackedConstants& packed,
              std::span<const runtime::PlanConstraint> conditional,
              std::vector<const Operation*>& evaluated)
      : program_(program),
        functions_(functions),
        objects_(objects),
        packed_(packed),
        conditional_(conditional),
        evaluated_(evaluated) {}

  Plan Build() {
    plan_.symbols = SymbolsOf(program_);
    const std::vector<Operation*> operations = NeededOperations(program_, functions_, objects_);
    AddComputedSymbols(operations);
    symbol_names_ = NamesOf(plan_.symbols);
    for (Operation* feed : program_.feeds()) AddInput(feed);
    for (Operation* op : operations) Visit(op);
    AddUpdates();
    homes_.Finish(plan_, spots_);
    MarkTakenObjects(plan_);
    for (auto& [name, text] : MetadataOf(program_)) {
      plan_.metadata.push_back({std::move(name), std::move(text)});
    }
    return std::move(plan_);
  }

 private:
  // In the order in which blocks bind them, for the last time: both regions of an `if` may say one.
  // But what a loop carries is placed before what its iterations make of it.
  void AddComputedSymbols(std::span<Operation* const> operations) {
    num_input_symbols_ = plan_.symbols.size();
    BoundNames bound;
    for (const Operation* op : operations) {
      for (const std::string& name : bound.Of(op)) AddComputedSymbol(name);
      if (op->isa<cf::WhileOp>()) {
        AddSymbolsOfLoop(op);
      } else if (!op->isa<cf::IfOp>()) {
        AddSymbolsOfObjects(op);
      }
      const Operation* parent = op->isa<cf::YieldOp>() ? op->parent_op() : nullptr;
      if (parent == nullptr) continue;
      if (parent->isa<cf::WhileOp>()) {
        for (const cf::LoopSize& size : cf::LoopSizes(parent)) AddComputedSymbol(size.end);
        for (const cf::StackSize& size : cf::StackSizes(parent)) AddComputedSymbol(size.end);
      }
      AddSymbolsOfObjects(parent);
    }
  }

  void AddSymbolsOfLoop(const Operation* op) {
    for (const cf::LoopSize& size : PlacedSizes(op)) AddComputedSymbol(NextName(size));
    for (const cf::StackSize& size : PlacedStacks(op)) AddComputedSymbol(NextName(size));
    for (const cf::LoopSize& size : cf::LoopSizes(op)) AddComputedSymbol(size.round);
    const Block* body = op->region(0).front();
    for (size_t i = 0; i < body->num_arguments(); ++i) AddSymbolsOf(body->argument(i));
  }

  void AddSymbolsOfObjects(const Operation* op) {
    for (size_t i = 0; i < op->num_results(); ++i) AddSymbolsOf(op->result(i));
  }

  void AddSymbolsOf(Value v) {
    for (const auto& [axis, name] : objects_.SizesOf(v)) AddComputedSymbol(name);
  }

  // Of what lies in memory, which must be as large as that.
  std::vector<cf::LoopSize> PlacedSizes(const Operation* loop) const {
    std::vector<cf::LoopSize> sizes = cf::LoopSizes(loop);
    std::erase_if(sizes, [&](const cf::LoopSize& size) {
      return objects_.contains(loop->result(size.carried));
    });
    return sizes;
  }

  std::vector<cf::StackSize> PlacedStacks(const Operation* loop) const {
    std::vector<cf::StackSize> sizes = cf::StackSizes(loop);
    std::erase_if(sizes, [&](const cf::StackSize& size) {
      return objects_.contains(loop->result(size.result));
    });
    return sizes;
  }

  void AddComputedSymbol(const std::string& name) {
    if (name.empty()) return;
    std::erase_if(plan_.symbols, [&](const auto& s) { return s.is_computed() && s.name == name; });
    plan_.symbols.push_back({name, kNone});
  }

  // Which stage of a run places what is of this size: a later one for a larger number.
  size_t StageOf(const Dim& dim) const {
    if (plan_.symbols.size() == num_input_symbols_) return 0;
    std::vector<std::string> names;
    dim.CollectSymbols(names);
    size_t stage = 0;
    for (size_t i = num_input_symbols_; i < plan_.symbols.size(); ++i) {
      if (std::ranges::find(names, plan_.symbols[i].name) != names.end()) stage = i;
    }
    return stage;
  }

  void AddInput(Operation* feed) {
    const auto index = static_cast<uint32_t>(plan_.inputs.size());
    const Value v = feed->result(0);
    spot_of_[v] = objects_.contains(v)
                      ? NewObject()
                      : homes_.Outside(PlanValue::Place::kInput, index, BytesOf(TensorOf(v)));
    plan_.inputs.push_back({std::string(feed->cast<nn::FeedOp>().name()), ValueOf(v)});
  }

  void Visit(Operation* op) {
    if (op->isa<nn::FeedOp>()) return;
    if (op->isa<nn::FetchOp>()) return AddOutput(op);
    if (op->isa<cf::IfOp>()) return BeginIf(op);
    if (op->isa<cf::WhileOp>()) return BeginLoop(op);
    if (op->isa<cf::YieldOp>()) return EndRegion(op);
    if (op->isa<nn::BindSizesOp>()) return AddBinding(op);
    if (const auto set = op->dyn_cast<builtin::SetParameterOp>()) return AddSet(set);
    const PlannedFunction* f = CalleeOf(op, functions_);
    if (f == nullptr) return AddConstant(op);
    if (objects_.IsEvaluated(op)) return AddFunction(op, *f);
    if (!f->data) return AddKernel(op, *f);
    for (size_t i = 0; i < op->num_results(); ++i) AddData(op, i, f->data->results[i]);
  }

  // A step for each number.
  void AddBinding(Operation* op) {
    spot_of_[op->result(0)] = spot_of_.at(op->operand(0));
    const Spot sizes = InMemory(op, op->operand(0));
    const std::vector<std::string> names = bound_names_.Of(op);
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      const Spot spot{sizes.home, sizes.offset + i * sizeof(int64_t)};
      AddControl(op, PlanStep::Kind::kBind, {AddValue(ElementType::kI64, {}, spot)}, 0,
                 SymbolOf(names[i]));
      bound_.insert(names[i]);
    }
    if (!frames_.empty()) AddRequired(frames_.back());
  }

  uint32_t SymbolOf(const std::string& name) const {
    const auto symbol = std::ranges::find(plan_.symbols, name, &runtime::PlanSymbol::name);
    return static_cast<uint32_t>(symbol - plan_.symbols.begin());
  }

  void AddResize(const Operation* op, const std::string& name, const Dim& size,
                 PlanStep::Kind kind = PlanStep::Kind::kResize) {
    AddControl(op, kind, {}, 0, SymbolOf(name));
    plan_.steps.back().size = size;
    bound_.insert(name);
  }

  // An `if` or a loop whose regions are being planned.
  struct Frame {
    Operation* op = nullptr;
    std::vector<Spot> results;
    uint32_t first_home = 0;         // made within the region
    std::vector<uint32_t> exits;     // steps that lead to the one after the region
    std::vector<uint32_t> required;  // constraints that must hold, once their symbols are bound
    std::set<std::string> bound_before, bound_in_first;  // symbols; in the first region of an if
    // Of a loop:
    uint32_t first_step = 0;  // of each round
    uint32_t iteration = 0;   // a value
    Spot condition = {};      // if there is one
  };

  void AddControl(const Operation* op, PlanStep::Kind kind, std::vector<uint32_t> values,
                  size_t writes = 0, uint32_t target = kNone) {
    static constexpr const char* kLabels[] = {"",      "if",        "else",   "require",   "below",
                                              "count", "put row",   "repeat", "bind size", "resize",
                                              "grow",  "bind size", "list",   "stack"};
    const auto reads = static_cast<uint32_t>(values.size() - writes);
    AddStep(op, {.values = std::move(values),
                 .reads = reads,
                 .label = kLabels[static_cast<size_t>(kind)],
                 .origin = {},
                 .flops = 0,
                 .bytes = 0,
                 .kind = kind,
                 .target = target});
  }

  void AddExit(Frame& frame, PlanStep::Kind kind, std::vector<uint32_t> values) {
    frame.exits.push_back(NumSteps());
    AddControl(frame.op, kind, std::move(values));
  }

  void BeginIf(Operation* op) {
    Frame frame;
    frame.op = op;
    AddExit(frame, PlanStep::Kind::kBranch, {ValueOf(op->operand(0))});
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value result = op->result(i);
      frame.results.push_back(
          objects_.contains(result) ? NewObject() : homes_.Storage(BytesOf(TensorOf(result))));
    }
    BeginRegion(std::move(frame), 0);
  }

  // ---- objects ----

  Spot NewObject() {
    return homes_.Outside(PlanValue::Place::kObject, plan_.num_objects++, Dim::Unknown());
  }

  bool IsObject(Spot spot) const { return homes_.IsObject(spot); }

  // The symbols that the plan does not have say nothing.
  uint32_t AddObjectValue(Type type, Spot spot) {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    if (!tensor || !tensor.has_rank()) {
      const uint32_t value =
          AddValue(tensor ? tensor.element() : ElementType::kUndefined, {}, spot);
      plan_.values[value].type = type.ToString();
      return value;
    }
    std::vector<Dim> dims(tensor.dims().begin(), tensor.dims().end());
    for (Dim& dim : dims) {
      std::vector<std::string> used;
      dim.CollectSymbols(used);
      const auto is_known = [&](const auto& name) { return symbol_names_.contains(name); };
      if (!std::ranges::all_of(used, is_known)) dim = Dim::Unknown();
    }
    return AddValue(tensor.element(), dims, spot);
  }

  // Behind the step that makes it.
  void AddSizesOf(const Operation* op, Value v) {
    for (const auto& [axis, name] : objects_.SizesOf(v)) AddAxisSize(op, v, axis, name);
  }

  void AddAxisSize(const Operation* op, Value v, size_t axis, const std::string& name) {
    AddControl(op, PlanStep::Kind::kBindAxis, {ValueOf(v)}, 0, SymbolOf(name));
    plan_.steps.back().size = static_cast<int64_t>(axis);
    bound_.insert(name);
  }

  // A value as bytes: an object is copied.
  Spot InMemory(const Operation* op, Value v) {
    const Spot spot = spot_of_.at(v);
    if (!IsObject(spot)) return spot;
    const AnyTensorType type = TensorOf(v);
    const Spot copy = homes_.Storage(BytesOf(type));
    const uint32_t into = AddValue(type.element(), type.dims(), copy);
    AddCopyStep(op, ValueOf(v), into, Dim::Unknown());
    return copy;
  }

  // Where one side at least is an object, as which both are seen.
  void AddObjectCopy(const Operation* op, Value from, Type type, Spot into) {
    AddObjectCopy(op, ValueOf(from), type, into);
  }
  void AddObjectCopy(const Operation* op, uint32_t from, Type type, Spot into) {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    const uint32_t value = IsObject(into) ? AddObjectValue(type, into)
                                          : AddValue(tensor.element(), tensor.dims(), into);
    AddCopyStep(op, from, value, Dim::Unknown());
  }

  void AddFunction(Operation* op, const PlannedFunction& f) {
    std::vector<uint32_t> values;
    for (size_t i = 0; i < op->num_operands(); ++i) values.push_back(ValueOf(op->operand(i)));
    const auto reads = static_cast<uint32_t>(values.size());
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value v = op->result(i);
      spot_of_[v] = objects_.contains(v) ? NewObject() : homes_.Storage(BytesOf(TensorOf(v)));
      values.push_back(ValueOf(v));
    }
    const auto next = static_cast<uint32_t>(evaluated_.size());
    const auto [known, is_new] = function_index_.emplace(f.function, next);
    if (is_new) evaluated_.push_back(f.function);
    AddStep(op, {.function = known->second,
                 .values = std::move(values),
                 .reads = reads,
                 .label = f.label,
                 .origin = {},
                 .flops = f.flops,
                 .bytes = f.bytes});
    first_safe_step_ = NumSteps();
    for (size_t i = 0; i < op->num_results(); ++i) AddSizesOf(op, op->result(i));
    if (!frames_.empty()) AddRequired(frames_.back());
  }

  // What the other region binds is open in this one.
  void BeginRegion(Frame frame, size_t region) {
    if (region == 0) frame.bound_before = bound_;
    bound_ = frame.bound_before;
    frame.first_home = homes_.size();
    frame.required = ReliedOn(frame.op, region);
    AddRequired(frame);
    frames_.push_back(std::move(frame));
  }

  void EndRegion(Operation* yield) {
    Frame frame = frames_.back();
    if (frame.op->isa<cf::WhileOp>()) {
      EndRound(frame, yield);
      frames_.pop_back();
      return EndFrame(frame);
    }
    for (size_t i = 0; i < yield->num_operands(); ++i) {
      const Value v = yield->operand(i);
      if (IsObject(spot_of_.at(v)) || IsObject(frame.results[i])) {
        AddObjectCopy(yield, v, frame.op->result(i).type(), frame.results[i]);
        continue;
      }
      const Piece piece{spot_of_.at(v), frame.results[i], BytesOf(TensorOf(v))};
      Join(yield, {&piece, 1});
    }
    frames_.pop_back();
    if (yield->block() != frame.op->region(0).front()) return EndFrame(frame);
    const uint32_t branch = frame.exits.back();
    frame.exits.clear();
    AddExit(frame, PlanStep::Kind::kJump, {});
    plan_.steps[branch].target = NumSteps();
    frame.bound_in_first = bound_;
    BeginRegion(std::move(frame), 1);
  }

  void EndFrame(const Frame& frame) {
    for (const uint32_t step : frame.exits) plan_.steps[step].target = NumSteps();
    for (size_t i = 0; i < frame.results.size(); ++i) {
      spot_of_[frame.op->result(i)] = frame.results[i];
    }
    // There may be no round of a loop; an if binds what both of its regions bind.
    if (frame.op->isa<cf::WhileOp>()) {
      bound_ = frame.bound_before;
      BindSizesOfNoRows(frame);
      EndSizesOfLoop(frame.op);
    } else {
      std::erase_if(bound_, [&](const auto& name) { return !frame.bound_in_first.contains(name); });
    }
    for (size_t i = 0; i < frame.results.size(); ++i) AddSizesOf(frame.op, frame.op->result(i));
    if (!frames_.empty()) AddRequired(frames_.back());
  }

  // Extents of stacked rows that only the rounds bind are 0 where there was none.
  void BindSizesOfNoRows(const Frame& frame) {
    const std::vector<std::string> names = SizesOfRows(frame.op);
    if (names.empty()) return;
    const Spot one = Literal(Tensor::Scalar<int64_t>(1));
    const uint32_t test = NumSteps();
    AddControl(frame.op, PlanStep::Kind::kBelow,
               {frame.iteration, AddValue(ElementType::kI64, {}, one)});
    for (const std::string& name : names) AddResize(frame.op, name, 0);
    plan_.steps[test].target = NumSteps();
  }

  std::vector<std::string> SizesOfRows(const Operation* loop) const {
    std::vector<std::string> names;
    for (size_t i = LoopOperands(loop).carried.size(); i < loop->num_results(); ++i) {
      const auto stack = loop->result(i).type().dyn_cast<AnyTensorType>();
      if (!stack || !stack.has_rank()) continue;
      for (const Dim& dim : stack.dims().subspan(1)) dim.CollectSymbols(names);
    }
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    std::erase_if(names, [&](const std::string& name) {
      const bool is_computed = symbol_names_.contains(name) && SymbolOf(name) >= num_input_symbols_;
      return !is_computed || bound_.contains(name);
    });
    return names;
  }

  void EndSizesOfLoop(const Operation* loop) {
    for (size_t i = LoopOperands(loop).carried.size(); i < loop->num_results(); ++i) {
      if (objects_.contains(loop->result(i)))
        AddControl(loop, PlanStep::Kind::kStack, {ValueOf(loop->result(i))}, 1);
    }
    for (const cf::LoopSize& size : PlacedSizes(loop)) {
      AddResize(loop, size.end, Dim::Symbol(NextName(size)));
    }
    for (const cf::StackSize& size : PlacedStacks(loop)) {
      AddResize(loop, size.end, Dim::Symbol(NextName(size)));
    }
    for (const cf::LoopSize& size : cf::LoopSizes(loop)) {
      const Value result = loop->result(size.carried);
      if (objects_.contains(result)) AddAxisSize(loop, result, size.axis, size.end);
    }
    for (const cf::StackSize& size : cf::StackSizes(loop)) {
      const Value result = loop->result(size.result);
      if (objects_.contains(result)) AddAxisSize(loop, result, 0, size.end);
    }
  }

  // The carried values lie in the storages of the results from the start.
  void BeginLoop(Operation* op) {
    const LoopOperands operands(op);
    const Block& body = *op->region(0).front();
    Frame frame;
    frame.op = op;
    const std::vector<cf::LoopSize> sizes = PlacedSizes(op);
    for (const cf::LoopSize& size : sizes) {
      const AnyTensorType start = TensorOf(operands.carried[size.carried]);
      AddResize(op, NextName(size), start.dims()[size.axis]);
    }
    const std::vector<cf::StackSize> stacks = PlacedStacks(op);
    for (const cf::StackSize& size : stacks) AddResize(op, NextName(size), 0);
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (objects_.contains(op->result(i))) {
        frame.results.push_back(NewObject());
        BeginObject(op, i, frame.results.back());
        continue;
      }
      if (i >= operands.carried.size()) {
        const Dim bytes = InStorage(BytesOf(TensorOf(op->result(i))), stacks);
        frame.results.push_back(homes_.Storage(bytes));
        continue;
      }
      const Value start = operands.carried[i], argument = body.argument(kLoopArguments + i);
      const Dim bytes = InStorage(BytesOf(TensorOf(argument)), sizes);
      const Spot result = homes_.Storage(bytes);
      frame.results.push_back(result);
      AddCopy(op, {spot_of_.at(start), result, BytesOf(TensorOf(start)), bytes});
      spot_of_[argument] = result;
    }
    if (operands.condition) {
      const Value next = body.back()->operand(0);
      const bool is_object = objects_.contains(operands.condition) || objects_.contains(next);
      frame.condition = is_object ? NewObject() : homes_.Storage(1);
      CopyCondition(op, operands.condition, frame.condition);
    }
    spot_of_[body.argument(1)] = Literal(Tensor::Scalar(true));
    AddIteration(frame, body.argument(0));
    for (const Spot result : frame.results) homes_.Touch(result, NumSteps() - 1);
    frame.first_step = NumSteps();
    if (operands.trip_count) {
      const uint32_t trips = ValueOf(operands.trip_count);
      AddExit(frame, PlanStep::Kind::kBelow, {frame.iteration, trips});
    }
    if (operands.condition) {
      const uint32_t go = AddValue(ElementType::kBool, {}, frame.condition);
      AddExit(frame, PlanStep::Kind::kBranch, {go});
    }
    BeginRegion(std::move(frame), 0);
    for (const cf::LoopSize& size : sizes) AddResize(op, size.round, Dim::Symbol(NextName(size)));
    for (const cf::LoopSize& size : cf::LoopSizes(op)) {
      const Value argument = body.argument(kLoopArguments + size.carried);
      if (objects_.contains(argument)) AddAxisSize(op, argument, size.axis, size.round);
    }
    for (size_t i = 0; i < body.num_arguments(); ++i) AddSizesOf(op, body.argument(i));
    AddRequired(frames_.back());
  }

  // One element, of whatever rank.
  void CopyCondition(const Operation* op, Value from, Spot into) {
    if (IsObject(into)) return AddObjectCopy(op, from, from.type(), into);
    AddCopy(op, {spot_of_.at(from), into, 1});
  }

  // What a loop carries as an object, or the list that it stacks in the end.
  void BeginObject(const Operation* op, size_t i, Spot result) {
    const LoopOperands operands(op);
    if (i >= operands.carried.size()) {
      AddControl(op, PlanStep::Kind::kList, {AddObjectValue(op->result(i).type(), result)}, 1);
      return;
    }
    const Value argument = op->region(0).front()->argument(kLoopArguments + i);
    AddObjectCopy(op, operands.carried[i], argument.type(), result);
    spot_of_[argument] = result;
  }

  // A dim as the storage has it: of a carried value when the iteration is over, too, of a stack
  // before it ends.
  template <class Sizes>
  static Dim InStorage(const Dim& dim, const Sizes& sizes) {
    return dim.Substitute([&](std::string_view name) -> std::optional<Dim> {
      for (const auto& size : sizes) {
        if (OuterName(size) == name) return Dim::Symbol(NextName(size));
      }
      return std::nullopt;
    });
  }
  static const std::string& OuterName(const cf::LoopSize& size) { return size.round; }
  static const std::string& OuterName(const cf::StackSize& size) { return size.end; }

  // The number of the round, from 0.
  void AddIteration(Frame& frame, Value argument) {
    const Dim bytes = sizeof(int64_t);
    const Spot from = Literal(Tensor::Scalar<int64_t>(0));
    spot_of_[argument] = homes_.Storage(bytes);
    frame.iteration = ValueOf(argument);
    AddCopyStep(frame.op, AddValue(ElementType::kI64, {}, from), frame.iteration, bytes);
  }

  Spot Literal(Tensor tensor) {
    const auto index = static_cast<uint32_t>(plan_.constants.size());
    const Dim bytes = static_cast<int64_t>(tensor.byte_size());
    plan_.constant_names.push_back(ConstantName({}));
    plan_.constants.push_back(std::move(tensor));
    return homes_.Outside(PlanValue::Place::kConstant, index, bytes);
  }

  // What the body yields goes to where the next round, or whoever comes after the loop, reads it.
  void EndRound(Frame& frame, Operation* yield) {
    const size_t carried = LoopOperands(frame.op).carried.size();
    const std::vector<cf::StackSize> stacks = PlacedStacks(frame.op);
    for (const cf::StackSize& size : stacks) {
      const Dim count = Dim::Symbol(NextName(size));
      AddResize(frame.op, NextName(size), count + 1, PlanStep::Kind::kGrow);
    }
    for (size_t i = carried; i < frame.results.size(); ++i) {
      if (IsObject(frame.results[i])) {
        const uint32_t whole = AddObjectValue(frame.op->result(i).type(), frame.results[i]);
        AddControl(frame.op, PlanStep::Kind::kPutRow,
                   {ValueOf(yield->operand(i + 1)), frame.iteration, whole}, 1);
        continue;
      }
      const AnyTensorType type = TensorOf(frame.op->result(i));
      std::vector<Dim> dims;
      for (const Dim& dim : type.dims()) dims.push_back(InStorage(dim, stacks));
      const uint32_t whole = AddValue(type.element(), dims, frame.results[i]);
      const Value row = yield->operand(i + 1);
      const uint32_t piece =
          AddValue(TensorOf(row).element(), TensorOf(row).dims(), InMemory(frame.op, row));
      AddControl(frame.op, PlanStep::Kind::kPutRow, {piece, frame.iteration, whole}, 1);
    }
    if (LoopOperands(frame.op).condition) {
      CopyCondition(frame.op, yield->operand(0), frame.condition);
    }
    Carry(frame, yield, carried);
    AddControl(frame.op, PlanStep::Kind::kCount, {frame.iteration}, 1);
    const uint32_t last = NumSteps();
    AddControl(frame.op, PlanStep::Kind::kRepeat, {}, 0, frame.first_step);
    homes_.EndLoop(frame.first_home, frame.first_step, last);
  }

  // All at once: what lies where another one goes is first put aside, and so is what was made of a
  // part of it.
  void Carry(const Frame& frame, Operation* yield, size_t carried) {
    const auto results = std::span(frame.results).first(carried);
    const std::vector<cf::LoopSize> sizes = PlacedSizes(frame.op);
    const Block& body = *yield->block();
    std::vector<Piece> pieces;
    std::vector<std::pair<std::string, Dim>> next;
    const std::vector<Moved> objects = MovedObjects(frame, yield, results);
    for (size_t i = 0; i < carried; ++i) {
      if (IsObject(results[i])) continue;
      const Value v = yield->operand(i + 1);
      const AnyTensorType argument = TensorOf(body.argument(kLoopArguments + i));
      Piece piece{homes_.Resolve(InMemory(yield, v)), results[i], BytesOf(TensorOf(v)),
                  InStorage(BytesOf(argument), sizes)};
      const bool stays = std::ranges::equal(TensorOf(v).dims(), argument.dims(), ProvablyEqual);
      if (piece.from.home == piece.into.home && piece.from.offset == 0 && stays) continue;
      const auto is_there = [&](Spot spot) { return spot.home == piece.from.home; };
      if (std::ranges::any_of(results, is_there)) {
        const Spot aside = homes_.Storage(piece.bytes);
        AddCopy(yield, {piece.from, aside, piece.bytes});
        piece.from = aside;
      }
      pieces.push_back(std::move(piece));
      for (const cf::LoopSize& size : sizes) {
        if (size.carried == i) next.emplace_back(NextName(size), TensorOf(v).dims()[size.axis]);
      }
    }
    for (const auto& [name, size] : next) AddResize(frame.op, name, size);
    for (const Piece& piece : pieces) AddCopy(yield, piece);
    for (const Moved& object : objects)
      AddObjectCopy(yield, object.value, object.type, object.into);
  }

  // An object on its way to the next round.
  struct Moved {
    uint32_t value;
    Type type;
    Spot into;
  };

  // What lies in memory becomes an object before any of that is written.
  std::vector<Moved> MovedObjects(const Frame& frame, Operation* yield,
                                  std::span<const Spot> results) {
    std::vector<Moved> moved;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!IsObject(results[i])) continue;
      const Value v = yield->operand(i + 1);
      const Spot from = spot_of_.at(v);
      if (from.home == results[i].home) continue;
      const Type type = frame.op->result(i).type();
      uint32_t value = ValueOf(v);
      const auto is_there = [&](Spot spot) { return spot.home == from.home; };
      if (!IsObject(from) || std::ranges::any_of(results, is_there)) {
        const Spot aside = NewObject();
        AddObjectCopy(yield, value, v.type(), aside);
        value = AddObjectValue(v.type(), aside);
      }
      moved.push_back({value, type, results[i]});
    }
    return moved;
  }

  // The constraints of a region, now of the plan.
  std::vector<uint32_t> ReliedOn(Operation* op, size_t region) {
    const Operation* end = op->region(region).front()->back();
    const auto relies_on = end->attribute(kConditionsAttr).cast<ArrayAttribute>().AsInts();
    std::vector<uint32_t> constraints;
    for (const int64_t index : *relies_on) {
      const runtime::PlanConstraint& constraint = conditional_[static_cast<size_t>(index)];
      if (constraint.condition.Decide() == true) continue;
      if (!AreKnown(symbol_names_, constraint.condition)) continue;
      constraints.push_back(static_cast<uint32_t>(plan_.constraints.size()));
      plan_.constraints.push_back(constraint);
    }
    return constraints;
  }

  // What a region relies on must hold where it begins, or where the sizes have been computed.
  void AddRequired(Frame& frame) {
    std::vector<uint32_t> open;
    for (const uint32_t constraint : frame.required) {
      if (IsOpen(plan_.constraints[constraint].condition)) {
        open.push_back(constraint);
      } else {
        AddControl(frame.op, PlanStep::Kind::kRequire, {}, 0, constraint);
      }
    }
    frame.required = std::move(open);
  }

  bool IsOpen(const SizeCondition& condition) const {
    std::vector<std::string> names;
    condition.a.CollectSymbols(names);
    condition.b.CollectSymbols(names);
    const auto computed = std::span(plan_.symbols).subspan(num_input_symbols_);
    return std::ranges::any_of(computed, [&](const runtime::PlanSymbol& symbol) {
      return !bound_.contains(symbol.name) && std::ranges::find(names, symbol.name) != names.end();
    });
  }

  uint32_t NumSteps() const { return static_cast<uint32_t>(plan_.steps.size()); }

  void AddConstant(Operation* op) {
    const auto read = op->dyn_cast<builtin::GetParameterOp>();
    if (read && program_.parameters().Find(read.name())->is_mutable) {
      spot_of_[op->result(0)] = VariableOf(read.name(), TensorOf(op->result(0))).value;
      return;
    }
    const auto next = static_cast<uint32_t>(plan_.constants.size());
    uint32_t index = next;
    if (read) index = parameters_.emplace(read.name(), next).first->second;
    if (index == next) {
      plan_.constant_names.push_back(ConstantName(read));
      plan_.constants.push_back(read ? program_.parameters().Find(read.name())->data
                                     : op->attribute("value").cast<TensorAttribute>().value());
    }
    const Value v = op->result(0);
    spot_of_[v] = homes_.Outside(PlanValue::Place::kConstant, index, BytesOf(TensorOf(v)));
  }

  // A mutable parameter.
  struct Variable {
    Spot home;
    Spot value;  // as the program has it where the builder is
    const Operation* last_set = nullptr;
  };

  // `constant` is where it begins.
  Variable& AddVariable(std::string_view name, uint32_t constant) {
    const auto index = static_cast<uint32_t>(plan_.variables.size());
    const Dim bytes = static_cast<int64_t>(plan_.constants[constant].byte_size());
    const Spot home = homes_.Outside(PlanValue::Place::kVariable, index, bytes);
    plan_.variables.push_back({constant});
    variable_of_.emplace(name, index);
    return variables_.emplace_back(home, home);
  }

  Variable& VariableOf(std::string_view name, AnyTensorType type) {
    const auto known = variable_of_.find(name);
    if (known != variable_of_.end()) return variables_[known->second];
    const lathe::Variable* held = program_.parameters().Find(name);
    const bool has_value = held != nullptr && held->data.is_defined();
    const auto constant = static_cast<uint32_t>(plan_.constants.size());
    plan_.constant_names.emplace_back(name);
    // What the program sets and does not read needs no value.
    plan_.constants.push_back(has_value ? held->data
                                        : Tensor(type.element(), *type.shape().Constants()));
    return AddVariable(name, constant);
  }

  void AddSet(builtin::SetParameterOp set) {
    const Value v = set.value();
    Variable& variable = VariableOf(set.name(), TensorOf(v));
    variable.value = spot_of_.at(v);
    variable.last_set = set;
  }

  // What parameters were set to goes to their variables, in place where that is right; what another
  // one held before is put aside if it is written over.
  void AddUpdates() {
    homes_.SpreadTouches();
    const std::set<uint32_t> read = ReadByUpdates();
    std::vector<std::pair<Variable*, Piece>> copies;
    for (Variable& variable : variables_) {
      const Spot from = homes_.Resolve(variable.value);
      if (from.home == variable.home.home) continue;
      if (!read.contains(variable.home.home) &&
          homes_.MayUpdate(variable.home, from, first_safe_step_)) {
        homes_.MoveInto(from, variable.home);
      } else {
        copies.emplace_back(&variable, Piece{from, variable.home, homes_.BytesAt(variable.home)});
      }
    }
    for (auto& [variable, piece] : copies) {
      const auto is_source = [&](const auto& copy) {
        return copy.second.into.home == piece.from.home;
      };
      if (std::ranges::none_of(copies, is_source)) continue;
      const Spot aside = homes_.Storage(piece.bytes);
      AddCopy(variable->last_set, {piece.from, aside, piece.bytes});
      piece.from = aside;
    }
    for (const auto& [variable, piece] : copies) AddCopy(variable->last_set, piece);
  }

  // Variables whose old value others are set to.
  std::set<uint32_t> ReadByUpdates() const {
    std::set<uint32_t> read;
    for (const Variable& variable : variables_) {
      const Spot from = homes_.Resolve(variable.value);
      if (from.home != variable.home.home) read.insert(from.home);
    }
    return read;
  }

  // A parameter's name, one that no parameter has for other constants.
  std::string ConstantName(builtin::GetParameterOp read) {
    if (read) return std::string(read.name());
    std::string name;
    do {
      name = StrCat("constant_", num_unnamed_++);
    } while (program_.parameters().Find(name) != nullptr);
    return name;
  }

  void AddKernel(Operation* op, const PlannedFunction& f) {
    std::vector<uint32_t> values;
    for (size_t i = 0; i < op->num_operands(); ++i) values.push_back(OperandOf(op, i));
    const auto reads = static_cast<uint32_t>(values.size());
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value v = op->result(i);
      spot_of_[v] = homes_.Storage(BytesOf(TensorOf(v)));
      values.push_back(ValueOf(v));
    }
    for (const Dim& bytes : f.workspaces) {
      values.push_back(AddValue(ElementType::kU8, {bytes}, homes_.Storage(bytes)));
    }
    AddCall(op, f);
    AddStep(op, {.kernel = f.kernel,
                 .values = std::move(values),
                 .reads = reads,
                 .label = f.label,
                 .origin = {},
                 .checks = f.checks,
                 .flops = f.flops,
                 .bytes = f.bytes});
    if (f.may_fail) first_safe_step_ = NumSteps();
  }

  // What the kernel of a call reads.
  uint32_t OperandOf(Operation* op, size_t i) {
    const auto index = packed_.Find(op, i);
    if (!index) return ValueOf(op->operand(i));
    const auto [at, is_new] = packed_values_.try_emplace(*index, 0);
    if (is_new) at->second = AddPacked(packed_.all()[*index]);
    return at->second;
  }

  uint32_t AddPacked(const PackedConstants::Packed& packed) {
    const auto index = static_cast<uint32_t>(plan_.constants.size());
    plan_.constant_names.push_back(packed.name);
    plan_.constants.push_back(packed.tensor);
    const Value raw = packed.source->result(0);
    const AnyTensorType type =
        lower::PackedType(TensorOf(raw), packed.layout).cast<AnyTensorType>();
    const Spot spot = homes_.Outside(PlanValue::Place::kConstant, index, BytesOf(type));
    return AddValue(type.element(), type.dims(), spot);
  }

  void AddCall(Operation* op, const PlannedFunction& f) {
    if (f.in_place.empty()) return;
    PlanHomes::Call call{static_cast<uint32_t>(plan_.steps.size()), {}, {}, f.in_place};
    for (size_t i = 0; i < op->num_operands(); ++i) {
      call.reads.push_back(spots_[OperandOf(op, i)]);
    }
    for (size_t i = 0; i < op->num_results(); ++i)
      call.writes.push_back(spot_of_.at(op->result(i)));
    homes_.AddCall(std::move(call));
  }

  void AddStep(const Operation* op, runtime::PlanStep step) {
    const auto index = static_cast<uint32_t>(plan_.steps.size());
    for (const uint32_t v : step.values) homes_.Touch(spots_[v], index);
    const Location place = op->location();
    if (!place.is_unknown()) step.origin = place.ToString(program_.context());
    if (step.is_control()) first_safe_step_ = index + 1;
    plan_.steps.push_back(std::move(step));
  }

  void AddCopyStep(const Operation* op, uint32_t from, uint32_t into, const Dim& bytes) {
    AddStep(op, {.kernel = kNone,
                 .values = {from, into},
                 .reads = 1,
                 .label = "copy",
                 .origin = {},
                 .flops = 0,
                 .bytes = 2 * bytes});
  }

  void AddData(Operation* op, size_t result, const std::vector<DataFunction::Part>& parts) {
    const auto spot_of = [&](const DataFunction::Part& part) {
      const Spot from = spot_of_.at(op->operand(part.argument));
      return Spot{from.home, from.offset + part.offset};
    };
    const Value v = op->result(result);
    if (parts.size() == 1) {
      spot_of_[v] = spot_of(parts[0]);
      return;
    }
    const Spot whole = homes_.Storage(BytesOf(TensorOf(v)));
    spot_of_[v] = whole;
    std::vector<Piece> pieces;
    uint64_t offset = 0;
    for (const DataFunction::Part& part : parts) {
      pieces.push_back({spot_of(part), {whole.home, offset}, part.bytes});
      if (part.bytes.is_constant()) offset += static_cast<uint64_t>(part.bytes.value());
    }
    Join(op, pieces);
  }

  struct Piece {
    Spot from, into;
    Dim bytes;
    Dim room = Dim::Unknown();  // the same bytes by the symbols of `into`, if these are others
  };

  // A storage from its first byte to its last, of the region that is being planned: what has been
  // there before may be read after it. To where there is memory by then.
  bool MayMove(Spot root, const Dim& bytes, size_t stage) const {
    const uint32_t first = frames_.empty() ? 0 : frames_.back().first_home;
    return root.home >= first && homes_.IsWholeStorage(root, bytes) && StageOf(bytes) >= stage;
  }

  // Storages that are wanted whole, one or more pieces in their order, move; the rest is copied.
  void Join(const Operation* op, std::span<const Piece> pieces) {
    for (size_t i = 0; i < pieces.size();) {
      if (pieces[i].bytes.IsConstant(0)) {  // nothing to move: it may lie in the whole already
        ++i;
        continue;
      }
      const Spot root = homes_.Resolve(pieces[i].from);
      const size_t stage = StageOf(homes_.BytesAt(pieces[i].into));
      Dim bytes = pieces[i].bytes;
      size_t end = i + 1;
      while (end < pieces.size() && !MayMove(root, bytes, stage)) {
        const Spot next = homes_.Resolve(pieces[end].from);
        if (next.home != root.home || !(bytes == Dim(static_cast<int64_t>(next.offset)))) break;
        bytes += pieces[end++].bytes;
      }
      if (MayMove(root, bytes, stage)) {
        homes_.MoveInto(root, pieces[i].into);
        i = end;
      } else {
        AddCopy(op, pieces[i++]);
      }
    }
  }

  void AddCopy(const Operation* op, const Piece& piece) {
    if (piece.bytes.IsConstant(0)) return;
    const uint32_t from = AddValue(ElementType::kU8, {piece.bytes}, piece.from);
    const Dim& room = piece.room.is_unknown() ? piece.bytes : piece.room;
    const uint32_t into = AddValue(ElementType::kU8, {room}, piece.into);
    AddCopyStep(op, from, into, piece.bytes);
  }

  void AddOutput(Operation* fetch) {
    const auto index = static_cast<uint32_t>(plan_.outputs.size());
    const Value v = fetch->operand(0);
    if (objects_.contains(v)) {
      plan_.outputs.push_back({std::string(fetch->cast<nn::FetchOp>().name()), ValueOf(v)});
      return;
    }
    const Dim bytes = BytesOf(TensorOf(v));
    const Spot root = homes_.Resolve(spot_of_.at(v));
    uint32_t value;
    if (homes_.IsWholeStorage(root, bytes)) {
      homes_.MoveToOutput(root, index);
      value = ValueOf(v);
    } else {
      const Spot out = homes_.Outside(PlanValue::Place::kOutput, index, bytes);
      value = AddValue(TensorOf(v).element(), TensorOf(v).dims(), out);
      if (!bytes.IsConstant(0)) AddCopyStep(fetch, ValueOf(v), value, bytes);
    }
    plan_.outputs.push_back({std::string(fetch->cast<nn::FetchOp>().name()), value});
  }

  uint32_t ValueOf(Value v) {
    const auto found = value_of_.find(v);
    if (found != value_of_.end()) return found->second;
    const Spot spot = spot_of_.at(v);
    if (IsObject(spot)) return value_of_[v] = AddObjectValue(v.type(), spot);
    const AnyTensorType type = TensorOf(v);
    return value_of_[v] = AddValue(type.element(), type.dims(), spot);
  }

  uint32_t AddValue(ElementType element, std::span<const Dim> dims, Spot spot) {
    plan_.values.push_back({element, {dims.begin(), dims.end()}});
    spots_.push_back(spot);
    return static_cast<uint32_t>(spots_.size() - 1);
  }
  uint32_t AddValue(ElementType element, std::initializer_list<Dim> dims, Spot spot) {
    return AddValue(element, std::span(dims.begin(), dims.size()), spot);
  }

  const Program& program_;
  const PlannedFunctions& functions_;
  const ObjectValues& objects_;
  const PackedConstants& packed_;
  const std::span<const runtime::PlanConstraint> conditional_;
  std::vector<const Operation*>& evaluated_;
  std::vector<Frame> frames_;  // one within the other
  Plan plan_;
  PlanHomes homes_;
  std::vector<Spot> spots_;  // parallel to plan_.values
  // Looked up, never iterated.
  std::unordered_map<Value, Spot> spot_of_;
  std::unordered_map<Value, uint32_t> value_of_;
  std::unordered_map<std::string_view, uint32_t> parameters_;
  std::unordered_map<std::string_view, size_t> variable_of_;  // by name
  std::unordered_map<size_t, uint32_t> packed_values_;
  std::unordered_map<const Operation*, uint32_t> function_index_;
  SymbolSet symbol_names_;       // of the plan
  std::set<std::string> bound_;  // of the computed symbols
  BoundNames bound_names_;
  std::deque<Variable> variables_;  // parallel to plan_.variables
  uint32_t first_safe_step_ = 0;    // from there on no step can fail
  size_t num_input_symbols_ = 0;
  size_t num_unnamed_ = 0;
};

}  // namespace

Plan BuildPlan(const Program& program, const PlannedFunctions& functions,
               const ObjectValues& objects, const PackedConstants& packed,
               std::span<const runtime::PlanConstraint> conditional,
               std::vector<const Operation*>& evaluated) {
  return PlanBuilder(program, functions, objects, packed, conditional, evaluated).Build();
}

PlanMemory MemoryOf(const Plan& plan, std::span<const Dim::Binding> symbols) {
  std::vector<MemoryBlock> blocks;
  for (const runtime::PlanStorage& s : plan.storages) {
    const int64_t bytes = s.bytes.Evaluate(symbols).value_or(0);
    blocks.push_back({static_cast<size_t>(bytes), s.begin, s.end});
  }
  PlanMemory memory;
  memory.lower_bound = MaxLiveBytes(blocks, runtime::kStorageAlignment);
  memory.peak = PackBlocks(blocks, runtime::kStorageAlignment);
  return memory;
}

}  // namespace lathe
