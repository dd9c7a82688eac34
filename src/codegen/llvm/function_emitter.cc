#include "src/codegen/llvm/function_emitter.h"

#include <algorithm>
#include <bit>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/loop/vector.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "lathe/support/float_types.h"
#include "src/codegen/llvm/bf16.h"
#include "src/codegen/llvm/dot.h"
#include "src/codegen/llvm/small_floats.h"
#include "src/codegen/llvm/vectors.h"

namespace lathe::codegen {
namespace {

constexpr const char* kConstant = builtin::kConstant;

// Whether elements are loaded from a constant, instead of it being a vector.
bool IsTable(Value constant) {
  return std::ranges::any_of(constant.uses(), [](OpOperand use) {
    const bool loads = use.owner()->isa<loop::LoadOp>() || use.owner()->isa<loop::GatherOp>();
    return loads && use.index() == 0;
  });
}

}  // namespace

FunctionEmitter::FunctionEmitter(llvm::Module& module, llvm::Function* function, llvm::Value* team,
                                 const Target& target, int& outlined)
    : module_(module),
      context_(module.getContext()),
      b_(context_),
      function_(function),
      team_(team),
      target_(target),
      outlined_(outlined),
      indices_(b_) {
  entry_ = llvm::BasicBlock::Create(context_, "entry", function);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "body", function));
  start_ = b_.GetInsertBlock();
}

void FunctionEmitter::Finish() {
  b_.CreateRetVoid();
  b_.SetInsertPoint(entry_);
  b_.CreateBr(start_);
}

llvm::Value* FunctionEmitter::ValueOf(Value v) {
  Slot& slot = slots_.at(v);
  if (slot.value == nullptr && slot.index) slot.value = indices_.ValueOf(*slot.index);
  LATHE_CHECK(slot.value != nullptr, "a tensor where a scalar or a vector is expected");
  return slot.value;
}

IndexSum FunctionEmitter::IndexOf(Value v) {
  Slot& slot = slots_.at(v);
  if (!slot.index) {
    const auto depth = depths_.find(v.parent_block());
    slot.index = indices_.Of(ValueOf(v), depth == depths_.end() ? 0 : depth->second);
  }
  return *slot.index;
}

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
  if (op->isa<loop::IndexOp>()) return EmitIndex(op);
  if (op->isa<loop::DimOp>()) {
    const auto axis = static_cast<size_t>(loop::DimOp(op).axis());
    slots_[op->result(0)].value = MemoryOf(op->operand(0)).extents[axis];
    return;
  }
  if (op->isa<loop::NumThreadsOp>()) {
    slots_[op->result(0)].value = NumThreads();
    return;
  }
  if (op->isa<loop::ReduceOp>()) return EmitReduce(op);
  if (op->isa<loop::TransposeOp>()) return EmitTransposed(op);
  if (op->isa<loop::InterleaveOp>()) return EmitInterleaved(op);
  if (op->isa<loop::DotOp>()) return EmitDot(op);
  if (op->isa<loop::NarrowOp>()) return EmitNarrow(op);
  if (op->isa<loop::DotPairsOp>()) return EmitDotPairs(op);
  if (op->name() == kConstant) return EmitConstant(op);
  if (op->name() == builtin::kToVtensor) {
    slots_[op->result(0)] = slots_.at(op->operand(0));
    return;
  }
  if (!EmitMemoryOp(op) && !EmitTileOp(op)) EmitElementwise(op);
}

void FunctionEmitter::EmitElementwise(Operation* op) {
  llvm::Type* type = ValueType(op->result(0));
  std::vector<llvm::Value*> inputs;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value operand = op->operand(i);
    inputs.push_back(operand ? Widen(ValueOf(operand), type) : nullptr);
  }
  slots_[op->result(0)].value = EmitInstruction(b_, target_, op, type, std::move(inputs));
}

// Halves are combined until one lane is left. Whether any of floats is NaN, of which the greatest
// and the least is NaN, is asked of all lanes at once, beside that.
void FunctionEmitter::EmitReduce(Operation* op) {
  const std::string_view kind = loop::ReduceOp(op).kind();
  const ElementType element = TensorOf(op->operand(0)).element();
  llvm::Value* x = ValueOf(op->operand(0));
  auto lanes = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  LATHE_CHECK(std::has_single_bit(lanes), "a vector of ", lanes, " lanes");
  const bool is_extreme = kind == "max" || kind == "min";
  const bool asks_apart = is_extreme && x->getType()->isFPOrFPVectorTy() && lanes > 2;
  llvm::Value* is_none = asks_apart ? b_.CreateOrReduce(b_.CreateFCmpUNO(x, x)) : nullptr;
  for (; lanes > 1; lanes /= 2) {
    llvm::Value* low = Lanes(b_, x, 0, lanes / 2);
    llvm::Value* high = Lanes(b_, x, lanes / 2, lanes / 2);
    x = asks_apart ? b_.CreateSelect(
                         kind == "max" ? b_.CreateFCmpOGT(high, low) : b_.CreateFCmpOLT(high, low),
                         high, low)
                   : EmitCombination(b_, target_, kind, element, low, high);
  }
  x = b_.CreateExtractElement(x, uint64_t{0});
  if (asks_apart) x = b_.CreateSelect(is_none, llvm::ConstantFP::getNaN(x->getType()), x);
  slots_[op->result(0)].value = x;
}

void FunctionEmitter::EmitTransposed(Operation* op) {
  std::vector<llvm::Value*> rows;
  for (size_t i = 0; i < op->num_operands(); ++i) rows.push_back(ValueOf(op->operand(i)));
  rows = Transposed(b_, std::move(rows));
  for (size_t i = 0; i < op->num_results(); ++i) slots_[op->result(i)].value = rows[i];
}

void FunctionEmitter::EmitInterleaved(Operation* op) {
  std::vector<llvm::Value*> parts;
  for (size_t i = 0; i < op->num_operands(); ++i) parts.push_back(ValueOf(op->operand(i)));
  slots_[op->result(0)].value = TakingTurns(b_, parts);
}

void FunctionEmitter::EmitDot(Operation* op) {
  const loop::DotOp dot(op);
  slots_[op->result(0)].value =
      Dot(b_, target_, ValueOf(dot.a()), ValueOf(dot.b()), ValueOf(dot.c()));
}

void FunctionEmitter::EmitNarrow(Operation* op) {
  std::vector<llvm::Value*> parts;
  for (size_t i = 0; i < op->num_operands(); ++i) parts.push_back(ValueOf(op->operand(i)));
  slots_[op->result(0)].value = loop::NarrowOp(op).cut() ? UpperHalves(b_, std::move(parts))
                                                         : Narrow(b_, target_, std::move(parts));
}

void FunctionEmitter::EmitDotPairs(Operation* op) {
  const loop::DotPairsOp dot(op);
  const bool is_exact = TensorOf(dot.a()).element() == ElementType::kI16;
  slots_[op->result(0)].value = (is_exact ? DotWords : DotPairs)(
      b_, target_, ValueOf(dot.a()), ValueOf(dot.b()), ValueOf(dot.c()));
}

void FunctionEmitter::EmitConstant(Operation* op) {
  const Tensor& value = op->attribute("value").cast<TensorAttribute>().value();
  llvm::Type* type = ValueType(op->result(0));
  llvm::Type* scalar = type->getScalarType();
  std::vector<llvm::Constant*> lanes;
  if (value.element_type() == ElementType::kF16) {
    for (const Half v : value.data<Half>()) lanes.push_back(b_.getInt16(v.bits));
  } else if (value.element_type() == ElementType::kBF16) {
    for (const BFloat16 v : value.data<BFloat16>()) lanes.push_back(b_.getInt16(v.bits));
  } else if (IsSmallFloat(value.element_type())) {
    for (const std::byte v : value.bytes()) lanes.push_back(b_.getInt8(static_cast<uint8_t>(v)));
  } else if (scalar->isFloatingPointTy()) {
    for (const double v : ToDoubles(value)) lanes.push_back(llvm::ConstantFP::get(scalar, v));
  } else {
    for (const int64_t v : ToInt64s(value)) {
      lanes.push_back(llvm::ConstantInt::getSigned(scalar, v));
    }
  }
  if (IsTable(op->result(0))) return EmitTable(op, lanes);
  slots_[op->result(0)].value = type->isVectorTy() ? llvm::ConstantVector::get(lanes) : lanes[0];
}

// Data that lies beside the code.
void FunctionEmitter::EmitTable(Operation* op, std::span<llvm::Constant* const> elements) {
  const AnyTensorType type = TensorOf(op->result(0));
  llvm::Type* element = MemoryType(context_, type.element());
  std::vector<llvm::Constant*> stored;
  for (llvm::Constant* e : elements) {
    const bool is_bool = type.element() == ElementType::kBool;
    stored.push_back(is_bool ? llvm::ConstantInt::get(element, e->isOneValue() ? 1 : 0) : e);
  }
  auto* array = llvm::ArrayType::get(element, stored.size());
  auto* table = new llvm::GlobalVariable(module_, array, true, llvm::GlobalValue::PrivateLinkage,
                                         llvm::ConstantArray::get(array, stored), "table");
  table->setAlignment(llvm::Align(64));
  Memory& memory = slots_[op->result(0)].memory;
  memory = {table, {b_.getInt64(stored.size())}, type.element()};
  if (faults_ == nullptr) return;
  memory.bytes = b_.getInt64(stored.size() * static_cast<uint64_t>(BitWidth(type.element()) / 8));
  memory.name = StrCat("a constant, ", type.ToString());
}

void FunctionEmitter::EmitIndex(Operation* op) {
  std::vector<IndexSum> symbols;
  for (size_t i = 0; i < op->num_operands(); ++i) symbols.push_back(IndexOf(op->operand(i)));
  slots_[op->result(0)].index =
      indices_.Of(op->attribute("expr").cast<DimAttribute>().value(), symbols);
}

std::vector<llvm::Value*> FunctionEmitter::EmitLoop(const Block& body, llvm::Value* begin,
                                                    llvm::Value* end, bool runs,
                                                    std::vector<llvm::Value*> carried,
                                                    int64_t stop_interval) {
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
  const bool is_innermost =
      std::ranges::none_of(body, [](const Operation& op) { return op.isa<loop::ForOp>(); });
  indices_.Enter(counter, begin, is_innermost);
  depths_[&body] = indices_.depth();
  slots_[body.argument(0)].value = counter;
  std::vector<llvm::PHINode*> phis;
  for (size_t i = 0; i < carried.size(); ++i) {
    phis.push_back(b_.CreatePHI(carried[i]->getType(), 2));
    phis[i]->addIncoming(carried[i], before);
    slots_[body.argument(1 + i)].value = phis[i];
  }
  EmitBlock(body);
  std::vector<llvm::Value*> yields;
  for (size_t i = 0; i < carried.size(); ++i) {
    yields.push_back(ValueOf(body.back()->operand(i)));
  }
  llvm::Value* next = b_.CreateNSWAdd(counter, b_.getInt64(1));
  if (stop_interval > 0) EmitStop(next, stop_interval);
  indices_.Leave();
  llvm::BasicBlock* last = b_.GetInsertBlock();
  counter->addIncoming(next, last);
  for (size_t i = 0; i < carried.size(); ++i) phis[i]->addIncoming(yields[i], last);
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

}  // namespace lathe::codegen
