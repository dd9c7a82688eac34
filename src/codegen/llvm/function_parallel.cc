#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "lathe/dialect/loop/loop.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/codegen/llvm/function_emitter.h"

namespace lathe::codegen {
namespace {

// Operations between two looks at whether a kernel is to stop: some 10 microseconds, in which the
// look is lost.
constexpr double kStopWork = 1 << 16;
// A loop that has no other in it, and does no more than that, is left alone.
constexpr double kTightLoop = 1 << 10;
constexpr double kUnknownExtent = 64;

// Most iterations that there are, where that can be told.
std::optional<int64_t> MostOf(const loop::ForOp& loop) {
  if (const auto extent = loop.extent()) return extent;
  const Operation* size = loop.size().defining_op();
  if (size == nullptr || !size->isa<loop::IndexOp>()) return std::nullopt;
  return size->attribute("expr").cast<DimAttribute>().value().UpperBound();
}

// Operations that run when the block does.
double WorkOf(const Block& block) {
  double work = 0;
  for (const Operation& op : block) {
    work += 1;
    if (!op.isa<loop::ForOp>()) continue;
    const auto most = MostOf(loop::ForOp(&op));
    work += WorkOf(*op.region(0).front()) * (most ? static_cast<double>(*most) : kUnknownExtent);
  }
  return work;
}

// After how many iterations, a power of two, a serial loop looks whether to stop; 0: never.
int64_t StopInterval(const loop::ForOp& loop) {
  const Block& body = *loop.operation()->region(0).front();
  const double work = WorkOf(body);
  const auto most = MostOf(loop);
  if (most && static_cast<double>(*most) * work < kStopWork) return 0;
  const bool is_tight =
      std::ranges::none_of(body, [](const Operation& op) { return op.isa<loop::ForOp>(); });
  if (is_tight && work < kTightLoop) return 0;
  int64_t interval = 1;
  while (static_cast<double>(interval) * work < kStopWork) interval *= 2;
  return interval;
}

// Whether a loop within looks.
bool MayStop(Region& region) {
  for (OpWalker walker(region.front()); Operation* op = walker.Next();) {
    if (op->isa<loop::ForOp>() && StopInterval(loop::ForOp(op)) > 0) return true;
  }
  return false;
}

}  // namespace

void FunctionEmitter::EmitFor(Operation* op) {
  const loop::ForOp loop(op);
  const auto extent = loop.extent();
  llvm::Value* end = extent ? b_.getInt64(static_cast<uint64_t>(*extent)) : ValueOf(loop.size());
  if (!extent) {
    llvm::Value* is_idle = EmitIsIdle(loop);
    if (is_idle != nullptr) end = b_.CreateSelect(is_idle, b_.getInt64(0), end);
  }
  if (loop.parallel() && team_ != nullptr) return EmitParallel(op, end);
  std::vector<llvm::Value*> carried;
  for (size_t i = loop::ForOp::kCarried; i < op->num_operands(); ++i) {
    carried.push_back(ValueOf(op->operand(i)));
  }
  if (!extent || *extent > 0) {
    carried = EmitLoop(*op->region(0).front(), b_.getInt64(0), end, extent.has_value(), carried,
                       team_ == nullptr && question_.team == nullptr ? 0 : StopInterval(loop));
  }
  for (size_t i = 0; i < carried.size(); ++i) slots_[op->result(i)].value = carried[i];
}

namespace {

// Values defined outside of the region that operations inside read, each once, in program order.
std::vector<Value> CapturedBy(Region& region) {
  std::unordered_set<Value> seen;  // looked up, never iterated
  std::vector<Value> captured;
  const auto define_arguments = [&](const Region& r) {
    for (const Block& block : r) {
      for (size_t i = 0; i < block.num_arguments(); ++i) seen.insert(block.argument(i));
    }
  };
  define_arguments(region);
  for (OpWalker walker(region.front()); Operation* op = walker.Next();) {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (v && seen.insert(v).second) captured.push_back(v);
    }
    for (size_t i = 0; i < op->num_results(); ++i) seen.insert(op->result(i));
    for (const Region& inner : op->regions()) define_arguments(inner);
  }
  return captured;
}

}  // namespace

namespace {

// Values of the function around a loop that become arguments of the loop's own, each once: views
// of the same memory share a pointer, which may then be said to have no other name.
class Arguments {
 public:
  void Add(llvm::Value* value) {
    if (value == nullptr || llvm::isa<llvm::Constant>(value)) return;
    if (numbers_.try_emplace(value, static_cast<unsigned>(values_.size())).second) {
      values_.push_back(value);
    }
  }
  const std::vector<llvm::Value*>& values() const { return values_; }
  // The argument of `part`, whose own ones begin after `skipped`, for a value; constants stay.
  llvm::Value* Of(llvm::Value* value, llvm::Function* part, unsigned skipped) const {
    const auto found = numbers_.find(value);
    return found == numbers_.end() ? value : part->getArg(skipped + found->second);
  }

 private:
  std::vector<llvm::Value*> values_;
  std::unordered_map<llvm::Value*, unsigned> numbers_;  // looked up, never iterated
};

}  // namespace

// The loop becomes a function of (begin, end, what it captures) that the team calls on ranges.
void FunctionEmitter::EmitParallel(Operation* op, llvm::Value* extent) {
  const std::vector<Value> captured = CapturedBy(op->region(0));
  Arguments fields;
  for (const Value v : captured) {
    Slot& slot = slots_.at(v);
    if (slot.index) slot.value = ValueOf(v);
    const bool is_tile = slot.value != nullptr && v.type().cast<AnyTensorType>().rank() == 2;
    if (is_tile) FailUnsupported(op, "a parallel loop reads a tile from outside of it");
    fields.Add(slot.value);
    fields.Add(slot.memory.data);
    fields.Add(slot.memory.bytes);
    for (llvm::Value* extent_of : slot.memory.extents) fields.Add(extent_of);
  }
  const bool stops = MayStop(op->region(0));
  if (stops) {
    fields.Add(Question().team);
    fields.Add(Question().function);
  }
  fields.Add(faults_);
  std::vector<llvm::Type*> types{b_.getInt64Ty(), b_.getInt64Ty()};
  for (llvm::Value* field : fields.values()) types.push_back(field->getType());
  llvm::Function* part = NewFunction(types, "part");
  FunctionEmitter emitter(module_, part, nullptr, target_, outlined_);
  for (llvm::Value* field : fields.values()) {
    auto* argument = llvm::cast<llvm::Argument>(fields.Of(field, part, 2));
    if (!argument->getType()->isPointerTy()) continue;
    if (shared_.contains(field)) {
      emitter.shared().insert(argument);
    } else {
      argument->addAttr(llvm::Attribute::NoAlias);
    }
  }
  for (const Value v : captured) {
    Slot slot = slots_.at(v);
    slot.index.reset();
    if (slot.value != nullptr) slot.value = fields.Of(slot.value, part, 2);
    slot.memory.data = fields.Of(slot.memory.data, part, 2);
    slot.memory.bytes = fields.Of(slot.memory.bytes, part, 2);
    for (llvm::Value*& extent_of : slot.memory.extents) extent_of = fields.Of(extent_of, part, 2);
    emitter.slots()[v] = slot;
  }
  if (stops) {
    emitter.question_ = {fields.Of(question_.team, part, 2),
                         fields.Of(question_.function, part, 2)};
  }
  emitter.CheckAccesses(fields.Of(faults_, part, 2));
  emitter.EmitLoop(*op->region(0).front(), part->getArg(0), part->getArg(1), false, {});
  emitter.Finish();
  CallTeam(part, fields.values(), extent);
  EndIfFailed();
}

// A field of the structure (KernelTeam) behind the team, read where the function begins; without a
// team that of one thread, which nobody stops.
llvm::Value* FunctionEmitter::FieldOfTeam(unsigned field) {
  llvm::IRBuilder<> at_entry(entry_);
  auto* type = llvm::StructType::get(context_, {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty()});
  auto* null = llvm::ConstantPointerNull::get(b_.getPtrTy());
  auto* alone = new llvm::GlobalVariable(
      module_, type, true, llvm::GlobalValue::PrivateLinkage,
      llvm::ConstantStruct::get(type, {null, null, b_.getInt64(1)}), "alone");
  llvm::Value* team = at_entry.CreateSelect(at_entry.CreateIsNull(team_), alone, team_);
  return at_entry.CreateLoad(type->getElementType(field),
                             at_entry.CreateStructGEP(type, team, field));
}

llvm::Value* FunctionEmitter::NumThreads() {
  return team_ == nullptr ? b_.getInt64(1) : FieldOfTeam(2);
}

const StopQuestion& FunctionEmitter::Question() {
  if (question_.team != nullptr) return question_;
  LATHE_CHECK(team_ != nullptr, "nobody to ask whether to stop");
  question_.team = team_;
  question_.function = FieldOfTeam(1);
  return question_;
}

// At the end of an iteration, of which `counter` is the next.
void FunctionEmitter::EmitStop(llvm::Value* counter, int64_t interval) {
  const StopQuestion& question = Question();
  auto* ask = llvm::BasicBlock::Create(context_, "ask", function_);
  auto* stop = llvm::BasicBlock::Create(context_, "stop", function_);
  auto* go_on = llvm::BasicBlock::Create(context_, "go_on", function_);
  auto* rare = llvm::MDBuilder(context_).createBranchWeights(1, 1 << 20);
  llvm::Value* asks = b_.CreateIsNotNull(question.function);
  if (interval > 1) {
    llvm::Value* passed = b_.CreateAnd(counter, b_.getInt64(static_cast<uint64_t>(interval - 1)));
    asks = b_.CreateAnd(asks, b_.CreateIsNull(passed));
  }
  b_.CreateCondBr(asks, ask, go_on, rare);
  b_.SetInsertPoint(ask);
  auto* type = llvm::FunctionType::get(b_.getInt8Ty(), {b_.getPtrTy()}, false);
  llvm::CallInst* answer = b_.CreateCall(type, question.function, {question.team});
  answer->setOnlyAccessesInaccessibleMemory();  // none that kernels know
  answer->setDoesNotThrow();
  b_.CreateCondBr(b_.CreateIsNotNull(answer), stop, go_on, rare);
  b_.SetInsertPoint(stop);
  b_.CreateRetVoid();
  b_.SetInsertPoint(go_on);
}

llvm::Function* FunctionEmitter::NewFunction(std::span<llvm::Type* const> types,
                                             const char* suffix) {
  const llvm::ArrayRef<llvm::Type*> arguments(types.data(), types.size());
  return llvm::Function::Create(
      llvm::FunctionType::get(b_.getVoidTy(), arguments, false), llvm::Function::InternalLinkage,
      StrCat(std::string(function_->getName()), ".", suffix, outlined_++), module_);
}

// Puts `fields` into a structure and calls, through the team if there is one, a function that takes
// them out again and calls `part`.
void FunctionEmitter::CallTeam(llvm::Function* part, std::span<llvm::Value* const> fields,
                               llvm::Value* extent) {
  std::vector<llvm::Type*> types;
  for (llvm::Value* field : fields) types.push_back(field->getType());
  auto* structure = llvm::StructType::get(context_, types);
  llvm::Type* of_body[] = {b_.getInt64Ty(), b_.getInt64Ty(), b_.getPtrTy()};
  llvm::Function* body = NewFunction(of_body, "body");
  llvm::IRBuilder<> in_body(llvm::BasicBlock::Create(context_, "entry", body));
  std::vector<llvm::Value*> arguments{body->getArg(0), body->getArg(1)};
  for (unsigned i = 0; i < types.size(); ++i) {
    arguments.push_back(
        in_body.CreateLoad(types[i], in_body.CreateStructGEP(structure, body->getArg(2), i)));
  }
  in_body.CreateCall(part, arguments);
  in_body.CreateRetVoid();

  llvm::IRBuilder<> at_entry(entry_);
  llvm::Value* captured = at_entry.CreateAlloca(structure);
  for (unsigned i = 0; i < types.size(); ++i) {
    b_.CreateStore(fields[i], b_.CreateStructGEP(structure, captured, i));
  }
  auto* alone = llvm::BasicBlock::Create(context_, "alone", function_);
  auto* together = llvm::BasicBlock::Create(context_, "together", function_);
  auto* done = llvm::BasicBlock::Create(context_, "done", function_);
  b_.CreateCondBr(b_.CreateIsNull(team_), alone, together);
  b_.SetInsertPoint(alone);
  b_.CreateCall(body, {b_.getInt64(0), extent, captured});
  b_.CreateBr(done);
  b_.SetInsertPoint(together);
  auto* run_type = llvm::FunctionType::get(
      b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty(), b_.getPtrTy(), b_.getPtrTy()}, false);
  b_.CreateCall(run_type, b_.CreateLoad(b_.getPtrTy(), team_), {team_, extent, body, captured});
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

}  // namespace lathe::codegen
