#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "lathe/support/kernel.h"
#include "src/codegen/llvm/byte_table.h"
#include "src/codegen/llvm/function_emitter.h"

namespace lathe::codegen {
namespace {

constexpr int64_t kMaxStackBytes = 1 << 20;
constexpr int64_t kMaxShuffledStride = 4;  // of loads that are put together from neighbors
constexpr const char* kReshape = nn::kViewReshape;
constexpr const char* kSlice = nn::kViewSlice;

llvm::Align AlignOf(llvm::Type* type) {
  return llvm::Align(type->getScalarType()->getPrimitiveSizeInBits() / 8);
}

}  // namespace

bool FunctionEmitter::EmitMemoryOp(Operation* op) {
  if (op->isa<loop::LoadOp>()) {
    EmitLoad(op);
  } else if (op->isa<loop::StoreInplaceOp>()) {
    EmitStore(op);
  } else if (op->isa<loop::GatherOp>()) {
    EmitGather(op);
  } else if (op->isa<loop::AllocOp>()) {
    EmitAlloc(op);
  } else if (op->isa<loop::PrefetchOp>()) {
    EmitPrefetch(op);
  } else if (op->isa<loop::ExpectOp>()) {
    EmitExpect(op);
  } else if (op->name() == kReshape) {
    EmitReshape(op);
  } else if (op->name() == kSlice) {
    EmitSlice(op);
  } else {
    return false;
  }
  return true;
}

// Outputs and workspaces are the caller's memory; all else lies on the stack.
void FunctionEmitter::EmitAlloc(Operation* op) {
  Memory& memory = slots_[op->result(0)].memory;
  const auto type = op->result(0).type().cast<AnyTensorType>();
  if (memory.extents.size() < type.rank()) {
    for (size_t i = 0; i < type.rank(); ++i) {
      const Dim& dim = type.dims()[i];
      memory.extents.push_back(dim.is_constant() ? b_.getInt64(static_cast<uint64_t>(dim.value()))
                                                 : ValueOf(op->operand(i)));
    }
  }
  memory.element = type.element();
  if (memory.data != nullptr) return;
  memory.data = StackMemory(op, type);
  if (faults_ == nullptr) return;
  const int64_t bytes = type.shape().NumElements().value() * BitWidth(type.element()) / 8;
  memory.bytes = b_.getInt64(static_cast<uint64_t>(bytes));
  memory.name = StrCat("memory on the stack, ", type.ToString());
}

llvm::Value* FunctionEmitter::StackMemory(const Operation* op, AnyTensorType type) {
  llvm::Type* element = MemoryType(context_, type.element());
  if (element == nullptr) FailUnsupported(op, StrCat("memory of ", Name(type.element())));
  const Dim elements = type.shape().NumElements();
  if (!elements.is_constant()) FailUnsupported(op, "memory of symbolic size in a parallel loop");
  const auto count = static_cast<uint64_t>(elements.value());
  const bool fits = elements.value() <= kMaxStackBytes;
  if (fits) stack_bytes_ += elements.value() * BitWidth(type.element()) / 8;
  if (!fits || stack_bytes_ > kMaxStackBytes) {
    FailUnsupported(op, StrCat("more than ", HumanBytes(kMaxStackBytes), " in a parallel loop"));
  }
  llvm::IRBuilder<> at_entry(entry_);
  auto* data = at_entry.CreateAlloca(llvm::ArrayType::get(element, count));
  data->setAlignment(llvm::Align(64));
  return data;
}

// The extents of a view by groups of neighboring axes.
std::vector<llvm::Value*> FunctionEmitter::GroupedExtents(const Memory& memory,
                                                          std::span<const int64_t> groups) {
  std::vector<llvm::Value*> extents;
  size_t next = 0;
  for (const int64_t group : groups) {
    IndexSum extent(1);
    for (int64_t i = 0; i < group; ++i) {
      extent = indices_.Product(extent, indices_.Of(memory.extents[next++]));
    }
    extents.push_back(indices_.ValueOf(extent));
  }
  return extents;
}

// The same memory with other extents, of which one may be open.
void FunctionEmitter::EmitReshape(Operation* op) {
  const Memory& old = MemoryOf(op->operand(0));
  Memory memory = old;
  memory.extents.clear();
  const auto shape = op->attribute("shape").cast<ArrayAttribute>().AsInts().value();
  if (const Attribute groups = op->attribute("groups")) {
    memory.extents = GroupedExtents(old, groups.cast<ArrayAttribute>().AsInts().value());
    slots_[op->result(0)].memory = std::move(memory);
    return;
  }
  int64_t known = 1;
  for (const int64_t extent : shape) known *= extent == -1 ? 1 : extent;
  for (const int64_t extent : shape) {
    if (extent != -1) {
      memory.extents.push_back(b_.getInt64(static_cast<uint64_t>(extent)));
      continue;
    }
    IndexSum elements(1);
    for (llvm::Value* e : old.extents) elements = indices_.Product(elements, indices_.Of(e));
    const IndexSum symbols[] = {elements, std::max<int64_t>(known, 1)};
    const Dim open = FloorDiv(Dim::Symbol("d0"), Dim::Symbol("d1"));
    memory.extents.push_back(indices_.ValueOf(indices_.Of(open, symbols)));
  }
  slots_[op->result(0)].memory = std::move(memory);
}

// Neighboring elements of memory with one axis.
void FunctionEmitter::EmitSlice(Operation* op) {
  const Memory& old = MemoryOf(op->operand(0));
  const auto type = op->operand(0).type().cast<AnyTensorType>();
  const auto bounds = [&](const char* name) {
    return op->attribute(name).cast<ArrayAttribute>().AsInts().value();
  };
  const int64_t begin = bounds("starts")[0], end = bounds("ends")[0];
  const bool is_plain = type.is_static() && type.rank() == 1 && !op->attribute("steps") &&
                        0 <= begin && begin <= end && end <= type.dims()[0].value();
  if (!is_plain) FailUnsupported(op, "a view of elements that are not neighbors along one axis");
  Memory memory = old;
  memory.data = indices_.Base(old.data, MemoryType(context_, old.element), begin);
  memory.extents = {b_.getInt64(static_cast<uint64_t>(end - begin))};
  if (old.bytes != nullptr) {
    const int64_t bytes = (end - begin) * BitWidth(type.element()) / 8;
    memory.bytes = b_.getInt64(static_cast<uint64_t>(bytes));
  }
  slots_[op->result(0)].memory = std::move(memory);
}

// The number of an element in row-major order.
IndexSum FunctionEmitter::ElementAt(const Memory& memory, const Operation* op, size_t first_index) {
  IndexSum at;
  for (size_t i = 0; i < memory.extents.size(); ++i) {
    if (i > 0) at = indices_.Product(at, indices_.Of(memory.extents[i]));
    at.Add(IndexOf(op->operand(first_index + i)));
  }
  return at;
}

llvm::Value* FunctionEmitter::AddressOf(const Memory& memory, const IndexSum& element) {
  return indices_.Address(memory.data, MemoryType(context_, memory.element), element);
}

// Compared in integers as wide as the elements, so that the mask needs no conversion.
llvm::Value* FunctionEmitter::LaneMask(llvm::Value* live, const llvm::FixedVectorType* vector) {
  const unsigned lanes = vector->getNumElements();
  const unsigned least = lanes < 128 ? 8 : 16;  // that tell the lanes apart
  const unsigned bits = std::clamp(vector->getScalarSizeInBits(), least, 64U);
  live = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, live, b_.getInt64(0));
  live = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, live, b_.getInt64(lanes));
  live = b_.CreateTrunc(live, b_.getIntNTy(bits));
  std::vector<llvm::Constant*> numbers;
  for (unsigned i = 0; i < lanes; ++i) numbers.push_back(b_.getIntN(bits, i));
  return b_.CreateICmpSLT(llvm::ConstantVector::get(numbers), b_.CreateVectorSplat(lanes, live));
}

llvm::Value* FunctionEmitter::MaskOrAll(Value live, const llvm::FixedVectorType* vector) {
  if (live) return LaneMask(ValueOf(live), vector);
  return llvm::Constant::getAllOnesValue(
      llvm::FixedVectorType::get(b_.getInt1Ty(), vector->getNumElements()));
}

llvm::Value* FunctionEmitter::FromMemory(llvm::Value* value, ElementType element) {
  if (element != ElementType::kBool) return value;
  return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

llvm::Value* FunctionEmitter::LoadNeighbors(llvm::Value* address, llvm::FixedVectorType* type,
                                            llvm::Value* live) {
  if (live == nullptr) return b_.CreateAlignedLoad(type, address, AlignOf(type));
  return b_.CreateMaskedLoad(type, address, AlignOf(type), LaneMask(live, type),
                             llvm::Constant::getNullValue(type));
}

namespace {

bool IsLast(const Memory& memory, int64_t axis) {
  return axis < 0 || static_cast<size_t>(axis) + 1 == memory.extents.size();
}

}  // namespace

// Neighbors are loaded, none of them beyond the last element, and shuffled.
llvm::Value* FunctionEmitter::LoadStrided(llvm::Value* address, llvm::FixedVectorType* type,
                                          int64_t stride, llvm::Value* live) {
  const int64_t lanes = type->getNumElements(), span = (lanes - 1) * stride + 1;
  llvm::Value* live_span = nullptr;  // from the first to the last live element
  if (live != nullptr) {
    live_span = b_.CreateAdd(b_.CreateMul(b_.CreateSub(live, b_.getInt64(1)),
                                          b_.getInt64(static_cast<uint64_t>(stride))),
                             b_.getInt64(1));
  }
  llvm::Value* result = nullptr;
  for (int64_t piece = 0; piece < stride; ++piece) {
    const int64_t begin = std::min(piece * lanes, span - lanes);
    llvm::Value* at = b_.CreateConstGEP1_64(type->getElementType(), address, begin);
    llvm::Value* rest = live_span;
    if (rest != nullptr) rest = b_.CreateSub(rest, b_.getInt64(static_cast<uint64_t>(begin)));
    llvm::Value* loaded = LoadNeighbors(at, type, rest);
    std::vector<int> mask;
    for (int64_t i = 0; i < lanes; ++i) {
      const bool here = i * stride / lanes == piece;
      mask.push_back(static_cast<int>(here ? lanes + i * stride - begin : i));
    }
    if (result == nullptr) result = llvm::PoisonValue::get(type);
    result = b_.CreateShuffleVector(result, loaded, mask);
  }
  return result;
}

// How many elements after the first one each lane along an axis lies.
llvm::Value* FunctionEmitter::LanesAlong(const Memory& memory, unsigned lanes, int64_t axis,
                                         int64_t stride) {
  IndexSum step(stride);
  for (size_t a = memory.extents.size(); axis >= 0 && a-- > static_cast<size_t>(axis) + 1;) {
    step = indices_.Product(step, indices_.Of(memory.extents[a]));
  }
  std::vector<llvm::Constant*> numbers;
  for (unsigned i = 0; i < lanes; ++i) numbers.push_back(b_.getInt64(i));
  return b_.CreateMul(llvm::ConstantVector::get(numbers),
                      b_.CreateVectorSplat(lanes, indices_.ValueOf(step)));
}

void FunctionEmitter::EmitLoad(Operation* op) {
  const loop::LoadOp load(op);
  const Memory& memory = MemoryOf(load.memory());
  const IndexSum first = ElementAt(memory, op, loop::LoadOp::kIndices);
  llvm::Type* element = MemoryType(context_, memory.element);
  const auto lanes = static_cast<unsigned>(load.lanes());
  llvm::Value* value = nullptr;
  if (lanes == 0) {
    CheckRun(op, memory, first);
    value = b_.CreateAlignedLoad(element, AddressOf(memory, first), AlignOf(element));
  } else if (IsLast(memory, load.axis()) && load.stride() <= kMaxShuffledStride) {
    auto* type = llvm::FixedVectorType::get(element, lanes);
    llvm::Value* live = load.live() ? ValueOf(load.live()) : nullptr;
    CheckRun(op, memory, first, lanes, load.live(), load.stride());
    llvm::Value* address = AddressOf(memory, first);
    value = load.stride() == 1 ? LoadNeighbors(address, type, live)
                               : LoadStrided(address, type, load.stride(), live);
  } else {
    llvm::Value* along = LanesAlong(memory, lanes, load.axis(), load.stride());
    value = LoadApart(op, memory, first, along, load.live());
  }
  slots_[op->result(0)].value = FromMemory(value, memory.element);
}

// `lanes` are elements from the first one on.
llvm::Value* FunctionEmitter::LoadApart(const Operation* op, const Memory& memory,
                                        const IndexSum& first, llvm::Value* lanes, Value live) {
  llvm::Type* element = MemoryType(context_, memory.element);
  const auto count = llvm::cast<llvm::FixedVectorType>(lanes->getType())->getNumElements();
  auto* type = llvm::FixedVectorType::get(element, count);
  llvm::Value* mask = MaskOrAll(live, type);
  CheckLanes(op, memory, first, lanes, mask);
  llvm::Value* addresses = b_.CreateGEP(element, AddressOf(memory, first), lanes);
  return b_.CreateMaskedGather(type, addresses, AlignOf(element), mask,
                               llvm::Constant::getNullValue(type));
}

void FunctionEmitter::EmitGather(Operation* op) {
  const loop::GatherOp gather(op);
  const Memory& memory = MemoryOf(gather.memory());
  const auto result = op->result(0).type().cast<AnyTensorType>();
  const auto lanes = static_cast<unsigned>(result.dims()[0].value());
  auto* wide = llvm::FixedVectorType::get(b_.getInt64Ty(), lanes);
  llvm::Value* at = nullptr;
  for (size_t i = 0; i < memory.extents.size(); ++i) {
    llvm::Value* index = Widen(ValueOf(op->operand(loop::GatherOp::kIndices + i)), wide);
    index = b_.CreateSExt(index, wide);
    if (at != nullptr) {
      at = b_.CreateMul(at, b_.CreateVectorSplat(lanes, memory.extents[i]));
      index = b_.CreateAdd(at, index);
    }
    at = index;
  }
  llvm::Value* value = nullptr;
  if (IsByteTable(gather)) {
    CheckLanes(op, memory, 0, at, nullptr);
    auto* bytes = llvm::FixedVectorType::get(b_.getInt8Ty(), lanes);
    value = EntriesOfBytes(b_, target_, AddressOf(memory, 0), b_.CreateTrunc(at, bytes));
  } else {
    value = LoadApart(op, memory, 0, at, gather.live());
  }
  slots_[op->result(0)].value = FromMemory(value, memory.element);
}

// Of one entry for each byte.
bool FunctionEmitter::IsByteTable(const loop::GatherOp& gather) const {
  const AnyTensorType table = TensorOf(gather.memory());
  const AnyTensorType result = TensorOf(gather.value());
  return target_.permutes_words() && !gather.live() && table.rank() == 1 &&
         table.dims()[0].IsConstant(256) && BitWidth(table.element()) == 8 &&
         result.dims()[0].value() <= 64;
}

void FunctionEmitter::EmitStore(Operation* op) {
  const loop::StoreInplaceOp store(op);
  const Memory& memory = MemoryOf(store.memory());
  const IndexSum first = ElementAt(memory, op, loop::StoreInplaceOp::kIndices);
  llvm::Value* value = ValueOf(store.value());
  llvm::Type* element = MemoryType(context_, memory.element);
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  const unsigned lanes = vector == nullptr ? 0 : vector->getNumElements();
  if (memory.element == ElementType::kBool) {
    value = b_.CreateZExt(value, value->getType()->getWithNewType(element));
  }
  if (lanes > 0 && !(IsLast(memory, store.axis()) && store.stride() == 1)) {
    llvm::Value* along = LanesAlong(memory, lanes, store.axis(), store.stride());
    llvm::Value* mask = MaskOrAll(store.live(), vector);
    CheckLanes(op, memory, first, along, mask);
    llvm::Value* addresses = b_.CreateGEP(element, AddressOf(memory, first), along);
    b_.CreateMaskedScatter(value, addresses, AlignOf(element), mask);
  } else if (lanes > 0 && store.live()) {
    CheckRun(op, memory, first, lanes, store.live());
    b_.CreateMaskedStore(value, AddressOf(memory, first), AlignOf(element),
                         LaneMask(ValueOf(store.live()), vector));
  } else {
    CheckRun(op, memory, first, std::max(lanes, 1U));
    b_.CreateAlignedStore(value, AddressOf(memory, first), AlignOf(element));
  }
  slots_[op->result(0)] = slots_.at(store.memory());
}

void FunctionEmitter::EmitPrefetch(Operation* op) {
  const Memory& memory = MemoryOf(op->operand(0));
  llvm::Value* address = AddressOf(memory, ElementAt(memory, op, loop::PrefetchOp::kIndices));
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                     {address, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
}

// An index that is wrong ends the kernel; the first lane that has one is told.
void FunctionEmitter::EmitExpect(Operation* op) {
  const loop::ExpectOp expect(op);
  LATHE_CHECK(status_ != nullptr, "loop.expect in a parallel loop");
  llvm::Value* index = ValueOf(expect.index());
  llvm::Value* extent = ValueOf(expect.extent());
  llvm::Value* bound = Widen(extent, index->getType());
  // index + extent < 2 * extent without a sign: extents are far below 2^62.
  llvm::Value* wrong = b_.CreateICmpUGE(b_.CreateAdd(index, bound), b_.CreateAdd(bound, bound));
  llvm::Value* any = wrong;
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(index->getType())) {
    if (expect.live()) {
      wrong = b_.CreateAnd(wrong, LaneMask(ValueOf(expect.live()), vector));
    }
    any = b_.CreateOrReduce(wrong);
  }
  auto* fail = llvm::BasicBlock::Create(context_, "fail", function_);
  auto* fine = llvm::BasicBlock::Create(context_, "fine", function_);
  b_.CreateCondBr(any, fail, fine, llvm::MDBuilder(context_).createBranchWeights(1, 1 << 20));
  b_.SetInsertPoint(fail);
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(index->getType())) {
    index = FirstWhere(wrong, index, vector->getNumElements());
  }
  llvm::Value* fields[] = {b_.getInt64(KernelStatus::kIndex),
                           b_.getInt64(static_cast<uint64_t>(expect.axis())), index, extent};
  for (unsigned i = 0; i < std::size(fields); ++i) {
    b_.CreateStore(fields[i], b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), status_, i));
  }
  b_.CreateRetVoid();
  b_.SetInsertPoint(fine);
}

}  // namespace lathe::codegen
