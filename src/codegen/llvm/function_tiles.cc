#include <llvm/IR/IntrinsicsX86.h>

#include "lathe/dialect/loop/tile.h"
#include "lathe/support/text.h"
#include "src/codegen/llvm/function_emitter.h"
#include "src/codegen/llvm/halves.h"

// Tiles: on a target with a tile unit values of LLVM's type for its registers, whose configuration
// and spills are LLVM's; elsewhere arrays of vectors, a row each.
namespace lathe::codegen {
namespace {

struct TileShape {
  int64_t rows, columns;
  ElementType element;
  int64_t row_bytes() const { return columns * BitWidth(element) / 8; }
};

TileShape ShapeOf(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  if (!type.is_static() || type.rank() != 2) {
    FailUnsupported(v.defining_op(), StrCat(type.ToString(), " is no tile"));
  }
  return {type.dims()[0].value(), type.dims()[1].value(), type.element()};
}

llvm::Value* I16(llvm::IRBuilder<>& b, int64_t value) {
  return b.getInt16(static_cast<uint16_t>(value));
}

// ---- without a unit ----

// Every group-th lane of a row of the right tile, from lane `place` on.
llvm::Value* Place(llvm::IRBuilder<>& b, llvm::Value* row, int64_t columns, int64_t group,
                   int64_t place) {
  std::vector<int> lanes;
  for (int64_t n = 0; n < columns; ++n) lanes.push_back(static_cast<int>(n * group + place));
  return b.CreateShuffleVector(row, lanes);
}

// Products of elements of 8 bits fit into 16.
class TileProduct {
 public:
  TileProduct(llvm::IRBuilder<>& b, const Target& target, const Operation* op)
      : b_(b),
        target_(target),
        left_(ShapeOf(op->operand(loop::TileMmaOp::kA))),
        right_(ShapeOf(op->operand(loop::TileMmaOp::kB))),
        sum_(ShapeOf(op->operand(loop::TileMmaOp::kC))),
        group_(32 / BitWidth(left_.element)),
        is_float_(IsFloat(left_.element)) {}

  llvm::Value* Emit(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
    std::vector<llvm::Value*> places;  // of the right tile, in the order of the depth
    for (int64_t k = 0; k < left_.columns; ++k) {
      llvm::Value* row = b_.CreateExtractValue(b, static_cast<unsigned>(k / group_));
      places.push_back(Widened(Place(b_, row, sum_.columns, group_, k % group_), right_.element));
    }
    for (int64_t m = 0; m < sum_.rows; ++m) {
      const auto number = static_cast<unsigned>(m);
      llvm::Value* sum =
          Row(b_.CreateExtractValue(a, number), places, b_.CreateExtractValue(c, number));
      c = b_.CreateInsertValue(c, sum, number);
    }
    return c;
  }

 private:
  llvm::Value* Row(llvm::Value* left, const std::vector<llvm::Value*>& places, llvm::Value* sum) {
    std::vector<llvm::Value*> parts(is_float_ ? 2 : 1,
                                    llvm::Constant::getNullValue(sum->getType()));
    for (size_t k = 0; k < places.size(); ++k) {
      llvm::Value* x = Widened(b_.CreateExtractElement(left, k), left_.element);
      x = b_.CreateVectorSplat(static_cast<unsigned>(sum_.columns), x);
      llvm::Value*& part = parts[k % parts.size()];
      part = MulAdd(x, places[k], part);
    }
    if (!is_float_) return b_.CreateAdd(sum, parts[0]);
    return b_.CreateFAdd(sum, b_.CreateFAdd(parts[0], parts[1]));
  }
  llvm::Value* MulAdd(llvm::Value* x, llvm::Value* y, llvm::Value* sum) {
    if (!is_float_) {
      const bool is_signed = IsSigned(left_.element) || IsSigned(right_.element);
      llvm::Value* product = b_.CreateMul(x, y);
      return b_.CreateAdd(sum, is_signed ? b_.CreateSExt(product, sum->getType())
                                         : b_.CreateZExt(product, sum->getType()));
    }
    // Products of bf16 are exact.
    if (!target_.has_fma) return b_.CreateFAdd(b_.CreateFMul(x, y), sum);
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
  }
  llvm::Value* Widened(llvm::Value* x, ElementType element) {
    if (is_float_) return FromHalf(b_, target_, element, x);
    llvm::Type* wide = x->getType()->getWithNewType(b_.getInt16Ty());
    return IsSigned(element) ? b_.CreateSExt(x, wide) : b_.CreateZExt(x, wide);
  }

  llvm::IRBuilder<>& b_;
  const Target& target_;
  TileShape left_, right_, sum_;
  int64_t group_;
  bool is_float_;
};

llvm::Intrinsic::ID UnitProduct(ElementType left, ElementType right) {
  if (IsFloat(left)) return llvm::Intrinsic::x86_tdpbf16ps_internal;
  if (IsSigned(left)) {
    return IsSigned(right) ? llvm::Intrinsic::x86_tdpbssd_internal
                           : llvm::Intrinsic::x86_tdpbsud_internal;
  }
  return IsSigned(right) ? llvm::Intrinsic::x86_tdpbusd_internal
                         : llvm::Intrinsic::x86_tdpbuud_internal;
}

}  // namespace

bool FunctionEmitter::EmitTileOp(Operation* op) {
  if (op->isa<loop::TileZeroOp>()) {
    EmitTileZero(op);
  } else if (op->isa<loop::TileLoadOp>()) {
    EmitTileLoad(op);
  } else if (op->isa<loop::TileStoreInplaceOp>()) {
    EmitTileStore(op);
  } else if (op->isa<loop::TileMmaOp>()) {
    EmitTileMma(op);
  } else {
    return false;
  }
  return true;
}

void FunctionEmitter::EmitTileZero(Operation* op) {
  const TileShape tile = ShapeOf(op->result(0));
  llvm::Value*& value = slots_[op->result(0)].value;
  if (target_.has_tiles()) {
    value = b_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero_internal, {},
                               {I16(b_, tile.rows), I16(b_, tile.row_bytes())});
    return;
  }
  auto* row = llvm::FixedVectorType::get(RegisterType(context_, tile.element),
                                         static_cast<unsigned>(tile.columns));
  value = llvm::Constant::getNullValue(llvm::ArrayType::get(row, static_cast<uint64_t>(tile.rows)));
}

// From one row of a tile to the next.
llvm::Value* FunctionEmitter::RowBytes(const Memory& memory, int64_t axis) {
  IndexSum bytes(BitWidth(memory.element) / 8);
  for (size_t a = static_cast<size_t>(axis) + 1; a < memory.extents.size(); ++a) {
    bytes = indices_.Product(bytes, indices_.Of(memory.extents[a]));
  }
  return indices_.ValueOf(bytes);
}

void FunctionEmitter::EmitTileLoad(Operation* op) {
  const loop::TileLoadOp load(op);
  const Memory& memory = MemoryOf(load.memory());
  const TileShape tile = ShapeOf(op->result(0));
  const IndexSum first = ElementAt(memory, op, loop::TileLoadOp::kIndices);
  llvm::Value* pitch = RowBytes(memory, load.axis());
  CheckRows(op, memory, first, pitch, tile.rows, tile.row_bytes());
  llvm::Value* address = AddressOf(memory, first);
  if (target_.has_tiles()) {
    slots_[op->result(0)].value =
        b_.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64_internal, {},
                           {I16(b_, tile.rows), I16(b_, tile.row_bytes()), address, pitch});
    return;
  }
  llvm::Type* element = MemoryType(context_, memory.element);
  auto* row = llvm::FixedVectorType::get(element, static_cast<unsigned>(tile.columns));
  llvm::Value* value =
      llvm::PoisonValue::get(llvm::ArrayType::get(row, static_cast<uint64_t>(tile.rows)));
  const llvm::Align align(static_cast<uint64_t>(BitWidth(memory.element) / 8));
  for (int64_t r = 0; r < tile.rows; ++r) {
    llvm::Value* at = b_.CreateGEP(b_.getInt8Ty(), address,
                                   b_.CreateNSWMul(pitch, b_.getInt64(static_cast<uint64_t>(r))));
    value =
        b_.CreateInsertValue(value, b_.CreateAlignedLoad(row, at, align), static_cast<unsigned>(r));
  }
  slots_[op->result(0)].value = value;
}

void FunctionEmitter::EmitTileStore(Operation* op) {
  const loop::TileStoreInplaceOp store(op);
  const Memory& memory = MemoryOf(store.memory());
  const TileShape tile = ShapeOf(store.tile());
  llvm::Value* value = ValueOf(store.tile());
  const IndexSum first = ElementAt(memory, op, loop::TileStoreInplaceOp::kIndices);
  llvm::Value* pitch = RowBytes(memory, store.axis());
  CheckRows(op, memory, first, pitch, tile.rows, tile.row_bytes());
  llvm::Value* address = AddressOf(memory, first);
  const llvm::Align align(static_cast<uint64_t>(BitWidth(memory.element) / 8));
  if (target_.has_tiles()) {
    b_.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64_internal, {},
                       {I16(b_, tile.rows), I16(b_, tile.row_bytes()), address, pitch, value});
  } else {
    for (int64_t r = 0; r < tile.rows; ++r) {
      llvm::Value* at = b_.CreateGEP(b_.getInt8Ty(), address,
                                     b_.CreateNSWMul(pitch, b_.getInt64(static_cast<uint64_t>(r))));
      b_.CreateAlignedStore(b_.CreateExtractValue(value, static_cast<unsigned>(r)), at, align);
    }
  }
  slots_[op->result(0)] = slots_.at(store.memory());
}

void FunctionEmitter::EmitTileMma(Operation* op) {
  const loop::TileMmaOp mma(op);
  llvm::Value *a = ValueOf(mma.a()), *b = ValueOf(mma.b()), *c = ValueOf(mma.c());
  llvm::Value*& value = slots_[op->result(0)].value;
  if (!target_.has_tiles()) {
    value = TileProduct(b_, target_, op).Emit(a, b, c);
    return;
  }
  const TileShape left = ShapeOf(mma.a()), sum = ShapeOf(mma.c());
  value = b_.CreateIntrinsic(
      UnitProduct(left.element, ShapeOf(mma.b()).element), {},
      {I16(b_, sum.rows), I16(b_, sum.row_bytes()), I16(b_, left.row_bytes()), c, a, b});
}

}  // namespace lathe::codegen
