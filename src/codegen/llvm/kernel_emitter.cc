#include "src/codegen/llvm/kernel_emitter.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/codegen/llvm/emit.h"

namespace lathe::codegen {
namespace {

constexpr int64_t kMaxStackBytes = 1 << 20;
constexpr const char* kToVTensor = "builtin.to_vtensor";
constexpr const char* kReshape = "nn.view_reshape";
constexpr const char* kConstant = "builtin.constant";

// Where a tensor lies: a pointer and an extent per axis.
struct Memory {
  llvm::Value* data = nullptr;
  std::vector<llvm::Value*> extents;
  ElementType element = ElementType::kUndefined;
};

// A scalar or vector in a register, or memory.
struct Slot {
  llvm::Value* value = nullptr;
  Memory memory;
};

// Emits one LLVM function from a block: a kernel, or the body of a parallel loop, which becomes a
// function of its own that gets what it captures as arguments.
class FunctionEmitter {
 public:
  FunctionEmitter(llvm::Module& module, llvm::Function* function, llvm::Value* team, int& outlined)
      : module_(module),
        context_(module.getContext()),
        b_(context_),
        function_(function),
        team_(team),
        outlined_(outlined) {
    entry_ = llvm::BasicBlock::Create(context_, "entry", function);
    b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "body", function));
    start_ = b_.GetInsertBlock();
  }

  std::unordered_map<Value, Slot>& slots() { return slots_; }
  llvm::IRBuilder<>& builder() { return b_; }

  void EmitBlock(const Block& block);
  /// A loop from `begin` to `end` around `body`, whose first argument is the counter.
  std::vector<llvm::Value*> EmitLoop(const Block& body, llvm::Value* begin, llvm::Value* end,
                                     bool runs, std::vector<llvm::Value*> carried);
  void Finish() {
    b_.CreateRetVoid();
    b_.SetInsertPoint(entry_);
    b_.CreateBr(start_);
  }

 private:
  void EmitOp(Operation* op);
  void EmitFor(Operation* op);
  void EmitParallel(Operation* op, llvm::Value* extent);
  llvm::Function* NewFunction(std::span<llvm::Type* const> types, const char* suffix);
  void CallTeam(llvm::Function* part, std::span<llvm::Value* const> fields, llvm::Value* extent);
  void EmitAlloc(Operation* op);
  void EmitReshape(Operation* op);
  void EmitLoad(Operation* op);
  void EmitStore(Operation* op);
  void EmitConstant(Operation* op);
  void EmitIndex(Operation* op);
  void EmitElementwise(Operation* op);

  llvm::Value* ValueOf(Value v) {
    llvm::Value* value = slots_.at(v).value;
    LATHE_CHECK(value != nullptr, "a tensor where a scalar or a vector is expected");
    return value;
  }
  const Memory& MemoryOf(Value v) { return slots_.at(v).memory; }
  llvm::Value* Address(const Memory& memory, const Operation* op, size_t first_index);
  llvm::Value* LaneMask(llvm::Value* live, unsigned lanes);
  llvm::Type* ValueType(Value v);
  llvm::Value* Widen(llvm::Value* value, llvm::Type* type);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_;
  llvm::Value* team_;
  int& outlined_;
  llvm::BasicBlock* entry_ = nullptr;
  llvm::BasicBlock* start_ = nullptr;
  std::unordered_map<Value, Slot> slots_;  // looked up, never iterated
};

llvm::Type* FunctionEmitter::ValueType(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  llvm::Type* scalar = type ? RegisterType(context_, type.element()) : nullptr;
  if (scalar == nullptr || !type.is_static() || type.rank() > 1) {
    FailUnsupported(v.defining_op(), StrCat("a value of type ", v.type().ToString(),
                                            " is neither a scalar nor a vector"));
  }
  if (type.rank() == 0) return scalar;
  return llvm::FixedVectorType::get(scalar, static_cast<unsigned>(type.dims()[0].value()));
}

llvm::Value* FunctionEmitter::Widen(llvm::Value* value, llvm::Type* type) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (vector == nullptr || value->getType()->isVectorTy()) return value;
  return b_.CreateVectorSplat(vector->getNumElements(), value);
}

void FunctionEmitter::EmitBlock(const Block& block) {
  for (Operation& op : block) {
    if (!op.HasTrait<Terminator>()) EmitOp(&op);
  }
}

void FunctionEmitter::EmitOp(Operation* op) {
  if (op->isa<loop::ForOp>()) return EmitFor(op);
  if (op->isa<loop::LoadOp>()) return EmitLoad(op);
  if (op->isa<loop::StoreInplaceOp>()) return EmitStore(op);
  if (op->isa<loop::AllocOp>()) return EmitAlloc(op);
  if (op->isa<loop::IndexOp>()) return EmitIndex(op);
  if (op->isa<loop::DimOp>()) {
    const auto axis = static_cast<size_t>(loop::DimOp(op).axis());
    slots_[op->result(0)].value = MemoryOf(op->operand(0)).extents[axis];
    return;
  }
  if (op->name() == kConstant) return EmitConstant(op);
  if (op->name() == kReshape) return EmitReshape(op);
  if (op->name() == kToVTensor) {
    slots_[op->result(0)] = slots_.at(op->operand(0));
    return;
  }
  EmitElementwise(op);
}

void FunctionEmitter::EmitElementwise(Operation* op) {
  const Emitter emitter = FindInstruction(op->name());
  if (emitter == nullptr) FailUnsupported(op, "no instructions for this operation");
  llvm::Type* type = ValueType(op->result(0));
  std::vector<llvm::Value*> inputs;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value operand = op->operand(i);
    inputs.push_back(operand ? Widen(ValueOf(operand), type) : nullptr);
  }
  const ElementType element = op->operand(0).type().cast<AnyTensorType>().element();
  EmitContext c{b_, op, element, type, inputs};
  llvm::Value* value = emitter(c);
  if (value == nullptr) FailUnsupported(op, StrCat("not on ", Name(element)));
  slots_[op->result(0)].value = value;
}

void FunctionEmitter::EmitConstant(Operation* op) {
  const Tensor& value = op->attribute("value").cast<TensorAttribute>().value();
  llvm::Type* type = ValueType(op->result(0));
  llvm::Type* scalar = type->getScalarType();
  std::vector<llvm::Constant*> lanes;
  if (scalar->isFloatingPointTy()) {
    for (const double v : ToDoubles(value)) lanes.push_back(llvm::ConstantFP::get(scalar, v));
  } else {
    for (const int64_t v : ToInt64s(value)) {
      lanes.push_back(llvm::ConstantInt::getSigned(scalar, v));
    }
  }
  slots_[op->result(0)].value = type->isVectorTy() ? llvm::ConstantVector::get(lanes) : lanes[0];
}

// ---- memory ----

void FunctionEmitter::EmitAlloc(Operation* op) {
  Slot& slot = slots_[op->result(0)];
  if (slot.memory.data != nullptr) return;  // an output: the caller's memory
  const auto type = op->result(0).type().cast<AnyTensorType>();
  if (!type.is_static()) FailUnsupported(op, "scratch memory of symbolic size");
  int64_t elements = 1;
  for (const Dim& dim : type.dims()) {
    elements *= dim.value();
    slot.memory.extents.push_back(b_.getInt64(static_cast<uint64_t>(dim.value())));
  }
  llvm::Type* memory = MemoryType(context_, type.element());
  if (elements * static_cast<int64_t>(memory->getPrimitiveSizeInBits() / 8) > kMaxStackBytes) {
    FailUnsupported(op, "scratch memory is too large for the stack");
  }
  llvm::IRBuilder<> at_entry(entry_);
  auto* data = at_entry.CreateAlloca(llvm::ArrayType::get(memory, static_cast<uint64_t>(elements)));
  data->setAlignment(llvm::Align(64));
  slot.memory.data = data;
  slot.memory.element = type.element();
}

// The same memory with other extents, of which one may be open.
void FunctionEmitter::EmitReshape(Operation* op) {
  const Memory& old = MemoryOf(op->operand(0));
  Memory memory = old;
  memory.extents.clear();
  const auto shape = op->attribute("shape").cast<ArrayAttribute>().AsInts().value();
  int64_t known = 1;
  for (const int64_t extent : shape) known *= extent == -1 ? 1 : extent;
  for (const int64_t extent : shape) {
    if (extent != -1) {
      memory.extents.push_back(b_.getInt64(static_cast<uint64_t>(extent)));
      continue;
    }
    llvm::Value* elements = b_.getInt64(1);
    for (llvm::Value* e : old.extents) elements = b_.CreateNSWMul(elements, e);
    memory.extents.push_back(b_.CreateExactSDiv(
        elements, b_.getInt64(static_cast<uint64_t>(std::max<int64_t>(known, 1)))));
  }
  slots_[op->result(0)].memory = std::move(memory);
}

llvm::Value* FunctionEmitter::Address(const Memory& memory, const Operation* op,
                                      size_t first_index) {
  llvm::Value* at = b_.getInt64(0);
  for (size_t i = 0; i < memory.extents.size(); ++i) {
    llvm::Value* index = ValueOf(op->operand(first_index + i));
    at = i == 0 ? index : b_.CreateNSWAdd(b_.CreateNSWMul(at, memory.extents[i]), index);
  }
  return b_.CreateGEP(MemoryType(context_, memory.element), memory.data, at);
}

llvm::Value* FunctionEmitter::LaneMask(llvm::Value* live, unsigned lanes) {
  std::vector<llvm::Constant*> numbers;
  for (unsigned i = 0; i < lanes; ++i) numbers.push_back(b_.getInt64(i));
  return b_.CreateICmpSLT(llvm::ConstantVector::get(numbers), b_.CreateVectorSplat(lanes, live));
}

void FunctionEmitter::EmitLoad(Operation* op) {
  const Memory& memory = MemoryOf(op->operand(loop::LoadOp::kMemory));
  llvm::Value* address = Address(memory, op, loop::LoadOp::kIndices);
  llvm::Type* element = MemoryType(context_, memory.element);
  const llvm::Align align(element->getPrimitiveSizeInBits() / 8);
  const auto lanes = static_cast<unsigned>(loop::LoadOp(op).lanes());
  const Value live = op->operand(loop::LoadOp::kLive);
  llvm::Type* type = lanes == 0 ? element : llvm::FixedVectorType::get(element, lanes);
  llvm::Value* value = nullptr;
  if (live && lanes > 0) {
    value = b_.CreateMaskedLoad(type, address, align, LaneMask(ValueOf(live), lanes),
                                llvm::Constant::getNullValue(type));
  } else {
    value = b_.CreateAlignedLoad(type, address, align);
  }
  if (memory.element == ElementType::kBool) {
    value = b_.CreateICmpNE(value, llvm::Constant::getNullValue(type));
  }
  slots_[op->result(0)].value = value;
}

void FunctionEmitter::EmitStore(Operation* op) {
  const Value target = op->operand(loop::StoreInplaceOp::kMemory);
  const Memory& memory = MemoryOf(target);
  llvm::Value* address = Address(memory, op, loop::StoreInplaceOp::kIndices);
  llvm::Value* value = ValueOf(op->operand(loop::StoreInplaceOp::kValue));
  llvm::Type* element = MemoryType(context_, memory.element);
  const llvm::Align align(element->getPrimitiveSizeInBits() / 8);
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  if (memory.element == ElementType::kBool) {
    llvm::Type* type = element;
    if (vector != nullptr) type = llvm::FixedVectorType::get(element, vector->getNumElements());
    value = b_.CreateZExt(value, type);
  }
  const Value live = op->operand(loop::StoreInplaceOp::kLive);
  if (live && vector != nullptr) {
    b_.CreateMaskedStore(value, address, align, LaneMask(ValueOf(live), vector->getNumElements()));
  } else {
    b_.CreateAlignedStore(value, address, align);
  }
  slots_[op->result(0)] = slots_.at(target);
}

// ---- integers ----

void FunctionEmitter::EmitIndex(Operation* op) {
  std::vector<llvm::Value*> symbols;
  for (size_t i = 0; i < op->num_operands(); ++i) symbols.push_back(ValueOf(op->operand(i)));
  const Dim& expr = op->attribute("expr").cast<DimAttribute>().value();
  slots_[op->result(0)].value = EmitDim(b_, expr, symbols);
}

// ---- loops ----

std::vector<llvm::Value*> FunctionEmitter::EmitLoop(const Block& body, llvm::Value* begin,
                                                    llvm::Value* end, bool runs,
                                                    std::vector<llvm::Value*> carried) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(context_, "loop", function_);
  auto* exit = llvm::BasicBlock::Create(context_, "exit", function_);
  if (runs) {
    b_.CreateBr(head);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, exit);
  }
  b_.SetInsertPoint(head);
  llvm::PHINode* counter = b_.CreatePHI(b_.getInt64Ty(), 2);
  counter->addIncoming(begin, before);
  slots_[body.argument(0)].value = counter;
  std::vector<llvm::PHINode*> phis;
  for (size_t i = 0; i < carried.size(); ++i) {
    phis.push_back(b_.CreatePHI(carried[i]->getType(), 2));
    phis[i]->addIncoming(carried[i], before);
    slots_[body.argument(1 + i)].value = phis[i];
  }
  EmitBlock(body);
  llvm::BasicBlock* last = b_.GetInsertBlock();
  llvm::Value* next = b_.CreateNSWAdd(counter, b_.getInt64(1));
  counter->addIncoming(next, last);
  std::vector<llvm::Value*> yields;
  for (size_t i = 0; i < carried.size(); ++i) {
    yields.push_back(ValueOf(body.back()->operand(i)));
    phis[i]->addIncoming(yields[i], last);
  }
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, exit);
  b_.SetInsertPoint(exit);
  for (size_t i = 0; i < carried.size(); ++i) {
    llvm::PHINode* result = b_.CreatePHI(carried[i]->getType(), 2);
    if (!runs) result->addIncoming(carried[i], before);
    result->addIncoming(yields[i], last);
    yields[i] = result;
  }
  return yields;
}

void FunctionEmitter::EmitFor(Operation* op) {
  const loop::ForOp loop(op);
  const auto extent = loop.extent();
  llvm::Value* end = extent ? b_.getInt64(static_cast<uint64_t>(*extent)) : ValueOf(loop.size());
  if (loop.parallel() && team_ != nullptr) return EmitParallel(op, end);
  std::vector<llvm::Value*> carried;
  for (size_t i = loop::ForOp::kCarried; i < op->num_operands(); ++i) {
    carried.push_back(ValueOf(op->operand(i)));
  }
  if (!extent || *extent > 0) {
    carried = EmitLoop(*op->region(0).front(), b_.getInt64(0), end, extent.has_value(), carried);
  }
  for (size_t i = 0; i < carried.size(); ++i) slots_[op->result(i)].value = carried[i];
}

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

// The loop becomes a function of (begin, end, what it captures) that the team calls on ranges.
void FunctionEmitter::EmitParallel(Operation* op, llvm::Value* extent) {
  const std::vector<Value> captured = CapturedBy(op->region(0));
  std::vector<llvm::Value*> fields;
  for (const Value v : captured) {
    const Slot& slot = slots_.at(v);
    fields.push_back(slot.value != nullptr ? slot.value : slot.memory.data);
    fields.insert(fields.end(), slot.memory.extents.begin(), slot.memory.extents.end());
  }
  std::vector<llvm::Type*> types{b_.getInt64Ty(), b_.getInt64Ty()};
  for (llvm::Value* field : fields) types.push_back(field->getType());
  llvm::Function* part = NewFunction(types, "part");
  part->addFnAttr(llvm::Attribute::AlwaysInline);
  FunctionEmitter emitter(module_, part, nullptr, outlined_);
  unsigned next = 2;
  for (const Value v : captured) {
    Slot slot = slots_.at(v);
    llvm::Argument* argument = part->getArg(next++);
    (slot.value != nullptr ? slot.value : slot.memory.data) = argument;
    if (slot.value == nullptr) argument->addAttr(llvm::Attribute::NoAlias);
    for (llvm::Value*& extent_of : slot.memory.extents) extent_of = part->getArg(next++);
    emitter.slots()[v] = slot;
  }
  emitter.EmitLoop(*op->region(0).front(), part->getArg(0), part->getArg(1), false, {});
  emitter.Finish();
  CallTeam(part, fields, extent);
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

// ---- the kernel around it ----

// The tensors of a kernel in the order of its buffers: arguments, then the memory of its outputs.
std::vector<Value> BuffersOf(const KernelSource& source) {
  std::vector<Value> buffers;
  for (size_t i = 0; i < source.body->num_arguments(); ++i) {
    buffers.push_back(source.body->argument(i));
  }
  const Operation* end = source.body->terminator();
  LATHE_CHECK(end != nullptr, "a kernel without a terminator");
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const Operation* copy = end->operand(i).defining_op();
    LATHE_CHECK(copy != nullptr && copy->name() == kToVTensor &&
                    copy->operand(0).defining_op() != nullptr &&
                    copy->operand(0).defining_op()->isa<loop::AllocOp>(),
                "output ", i, " of kernel ", source.name, " is no loop.alloc");
    buffers.push_back(copy->operand(0));
  }
  return buffers;
}

// One argument per pointer and per symbolic extent; the values behind them, from the structure that
// the caller hands over.
class KernelShell {
 public:
  KernelShell(llvm::Module& module, const KernelSource& source)
      : module_(module), source_(source), buffers_(BuffersOf(source)), b_(module.getContext()) {}

  void Emit() {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy()}, false);
    shell_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, source_.name, module_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", shell_));
    arguments_ = {shell_->getArg(1)};
    for (size_t i = 0; i < buffers_.size(); ++i) Unpack(i);
    std::vector<llvm::Type*> types;
    for (llvm::Value* v : arguments_) types.push_back(v->getType());
    auto* inner =
        llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                               llvm::Function::InternalLinkage, source_.name + ".inner", module_);
    inner->addFnAttr(llvm::Attribute::AlwaysInline);
    EmitInner(inner);
    b_.CreateCall(inner, arguments_);
    b_.CreateRetVoid();
  }

 private:
  void Unpack(size_t i) {
    auto* buffer = llvm::StructType::get(module_.getContext(), {b_.getPtrTy(), b_.getPtrTy()});
    llvm::Value* at = b_.CreateConstInBoundsGEP1_64(buffer, shell_->getArg(0), i);
    arguments_.push_back(b_.CreateLoad(b_.getPtrTy(), at));
    const auto type = buffers_[i].type().cast<AnyTensorType>();
    llvm::Value* shape = nullptr;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      if (type.dims()[axis].is_constant()) continue;
      if (shape == nullptr) {
        shape = b_.CreateLoad(b_.getPtrTy(), b_.CreateStructGEP(buffer, at, 1));
      }
      arguments_.push_back(b_.CreateLoad(
          b_.getInt64Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), shape, axis)));
    }
  }

  void EmitInner(llvm::Function* inner) {
    int outlined = 0;
    FunctionEmitter emitter(module_, inner, inner->getArg(0), outlined);
    unsigned next = 1;
    for (const Value v : buffers_) {
      const auto type = v.type().cast<AnyTensorType>();
      Memory& memory = emitter.slots()[v].memory;
      memory.element = type.element();
      if (MemoryType(module_.getContext(), type.element()) == nullptr) {
        FailUnsupported(source_.body->terminator(), StrCat("tensors of ", type.ToString()));
      }
      inner->getArg(next)->addAttr(llvm::Attribute::NoAlias);
      memory.data = inner->getArg(next++);
      for (const Dim& dim : type.dims()) {
        memory.extents.push_back(dim.is_constant()
                                     ? b_.getInt64(static_cast<uint64_t>(dim.value()))
                                     : static_cast<llvm::Value*>(inner->getArg(next++)));
      }
    }
    emitter.EmitBlock(*source_.body);
    emitter.Finish();
  }

  llvm::Module& module_;
  const KernelSource& source_;
  std::vector<Value> buffers_;
  llvm::IRBuilder<> b_;
  llvm::Function* shell_ = nullptr;
  std::vector<llvm::Value*> arguments_;
};

}  // namespace

void EmitKernel(llvm::Module& module, const KernelSource& source) {
  KernelShell(module, source).Emit();
}

}  // namespace lathe::codegen
