#include <llvm/IR/MDBuilder.h>

#include "lathe/support/error.h"
#include "lathe/support/kernel.h"
#include "src/codegen/llvm/function_emitter.h"

// Accesses that are checked: what a kernel reads and writes lies within its arguments, workspaces,
// stack memory and constants, whatever its indices are.
namespace lathe::codegen {
namespace {

llvm::Value* FieldOf(llvm::IRBuilder<>& b, llvm::Value* status, unsigned field) {
  return b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), status, field);
}

// 0, 1, ..., count - 1
llvm::Value* Iota(llvm::IRBuilder<>& b, int64_t count) {
  std::vector<llvm::Constant*> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(b.getInt64(static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(numbers);
}

}  // namespace

llvm::Value* FunctionEmitter::BytesOf(const Memory& memory, llvm::Value* elements) {
  auto* bytes = llvm::ConstantInt::get(elements->getType(),
                                       static_cast<uint64_t>(BitWidth(memory.element) / 8));
  return b_.CreateMul(elements, bytes);
}

// `lanes` elements, or the first `live` of them, that lie `stride` apart.
void FunctionEmitter::CheckRun(const Operation* op, const Memory& memory, const IndexSum& first,
                               unsigned lanes, Value live, int64_t stride) {
  if (faults_ == nullptr) return;
  llvm::Value* count = b_.getInt64(lanes);
  llvm::Value* some = nullptr;
  if (live) {
    count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ValueOf(live), count);
    some = b_.CreateICmpSGT(count, b_.getInt64(0));
  }
  llvm::Value* steps =
      b_.CreateMul(b_.CreateSub(count, b_.getInt64(1)), b_.getInt64(static_cast<uint64_t>(stride)));
  llvm::Value* span = BytesOf(memory, b_.CreateAdd(steps, b_.getInt64(1)));
  CheckBytes(op, memory, BytesOf(memory, indices_.ValueOf(first)), span, some);
}

// Elements of their own: lane i is `lanes[i]` elements from the first one on.
void FunctionEmitter::CheckLanes(const Operation* op, const Memory& memory, const IndexSum& first,
                                 llvm::Value* lanes, llvm::Value* mask) {
  if (faults_ == nullptr) return;
  lanes = b_.CreateAdd(lanes, Widen(indices_.ValueOf(first), lanes->getType()));
  CheckBytes(op, memory, BytesOf(memory, lanes), BytesOf(memory, b_.getInt64(1)), mask);
}

// The rows of a tile, `pitch` bytes apart.
void FunctionEmitter::CheckRows(const Operation* op, const Memory& memory, const IndexSum& first,
                                llvm::Value* pitch, int64_t rows, int64_t row_bytes) {
  if (faults_ == nullptr) return;
  llvm::Value* offsets = Iota(b_, rows);
  offsets = b_.CreateMul(offsets, Widen(pitch, offsets->getType()));
  offsets =
      b_.CreateAdd(offsets, Widen(BytesOf(memory, indices_.ValueOf(first)), offsets->getType()));
  CheckBytes(op, memory, offsets, b_.getInt64(static_cast<uint64_t>(row_bytes)), nullptr);
}

// `bytes` bytes from each of `offsets` on, or from those that `mask` selects.
void FunctionEmitter::CheckBytes(const Operation* op, const Memory& memory, llvm::Value* offsets,
                                 llvm::Value* bytes, llvm::Value* mask) {
  llvm::Type* type = offsets->getType();
  LATHE_CHECK(memory.bytes != nullptr, op->name(), " of memory whose size is not known");
  llvm::Value* size = Widen(memory.bytes, type);
  llvm::Value* ends = b_.CreateAdd(offsets, Widen(bytes, type));
  // Where the first comparison is false the sum does not wrap around.
  llvm::Value* wrong = b_.CreateOr(b_.CreateICmpUGT(offsets, size), b_.CreateICmpUGT(ends, size));
  if (mask != nullptr) wrong = b_.CreateAnd(wrong, mask);
  EndIf(wrong, StrCat(op->name(), ": ", memory.name), offsets, memory.bytes);
}

// Ends the function, with the first offset that is wrong.
void FunctionEmitter::EndIf(llvm::Value* wrong, const std::string& text, llvm::Value* offset,
                            llvm::Value* size) {
  llvm::BasicBlock* fault = FaultBlock();
  auto* fine = llvm::BasicBlock::Create(context_, "fine", function_);
  llvm::MDNode* rarely = llvm::MDBuilder(context_).createBranchWeights(1, 1 << 20);
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(offset->getType())) {
    auto* which = llvm::BasicBlock::Create(context_, "which", function_);
    b_.CreateCondBr(b_.CreateOrReduce(wrong), which, fine, rarely);
    b_.SetInsertPoint(which);
    offset = FirstWhere(wrong, offset, vector->getNumElements());
    b_.CreateBr(fault);
  } else {
    b_.CreateCondBr(wrong, fault, fine, rarely);
  }
  llvm::Value* fields[] = {TextOf(text), offset, size};
  for (auto field = fault->phis().begin(); llvm::Value * value : fields) {
    (field++)->addIncoming(value, b_.GetInsertBlock());
  }
  b_.SetInsertPoint(fine);
}

llvm::Value* FunctionEmitter::FirstWhere(llvm::Value* mask, llvm::Value* x, unsigned lanes) {
  llvm::Value* first = b_.CreateExtractElement(x, uint64_t{0});
  for (unsigned lane = lanes; lane-- > 0;) {
    first = b_.CreateSelect(b_.CreateExtractElement(mask, lane), b_.CreateExtractElement(x, lane),
                            first);
  }
  return first;
}

// Of threads that come here the first one writes the status.
llvm::BasicBlock* FunctionEmitter::FaultBlock() {
  if (fault_ != nullptr) return fault_;
  fault_ = llvm::BasicBlock::Create(context_, "fault", function_);
  auto* tell = llvm::BasicBlock::Create(context_, "tell", function_);
  auto* end = llvm::BasicBlock::Create(context_, "end", function_);
  llvm::IRBuilder<> b(fault_);
  llvm::Value* fields[] = {b.CreatePHI(b.getPtrTy(), 0), b.CreatePHI(b.getInt64Ty(), 0),
                           b.CreatePHI(b.getInt64Ty(), 0)};
  llvm::Value* exchange = b.CreateAtomicCmpXchg(
      faults_, b.getInt64(0), b.getInt64(KernelStatus::kAccess), llvm::Align(alignof(int64_t)),
      llvm::AtomicOrdering::Monotonic, llvm::AtomicOrdering::Monotonic);
  b.CreateCondBr(b.CreateExtractValue(exchange, 1), tell, end);
  b.SetInsertPoint(tell);
  for (unsigned i = 0; i < std::size(fields); ++i) {
    b.CreateStore(fields[i], FieldOf(b, faults_, 1 + i));
  }
  b.CreateBr(end);
  b.SetInsertPoint(end);
  b.CreateRetVoid();
  return fault_;
}

// After a parallel loop.
void FunctionEmitter::EndIfFailed() {
  if (faults_ == nullptr) return;
  auto* end = llvm::BasicBlock::Create(context_, "failed", function_);
  auto* fine = llvm::BasicBlock::Create(context_, "fine", function_);
  llvm::Value* failed = b_.CreateLoad(b_.getInt64Ty(), FieldOf(b_, faults_, 0));
  b_.CreateCondBr(b_.CreateIsNull(failed), fine, end);
  b_.SetInsertPoint(end);
  b_.CreateRetVoid();
  b_.SetInsertPoint(fine);
}

// Lies beside the code.
llvm::Constant* FunctionEmitter::TextOf(const std::string& text) {
  llvm::Constant*& found = texts_[text];
  if (found == nullptr) {
    llvm::Constant* bytes = llvm::ConstantDataArray::getString(context_, text);
    found = new llvm::GlobalVariable(module_, bytes->getType(), true,
                                     llvm::GlobalValue::PrivateLinkage, bytes, "text");
  }
  return found;
}

}  // namespace lathe::codegen
