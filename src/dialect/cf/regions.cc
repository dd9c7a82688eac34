#include "src/dialect/cf/regions.h"

#include <algorithm>
#include <memory>

#include "lathe/dialect/cf/cf.h"
#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/dialect/size_scope.h"

namespace lathe::cf {

Operation* YieldOf(const Region& region) {
  const Block* block = region.front();
  Operation* last = block == nullptr ? nullptr : block->back();
  return last != nullptr && last->isa<YieldOp>() ? last : nullptr;
}

Type YieldType(const Region& region, size_t i) {
  const Operation* yield = YieldOf(region);
  if (yield == nullptr || i >= yield->num_operands() || !yield->operand(i)) return {};
  return yield->operand(i).type();
}

Type OperandType(const Operation* op, size_t i) {
  const Value value = op->operand(i);
  return value ? value.type() : Type();
}

// ---- types ----

namespace {

SymShape JoinShapes(const SymShape& a, const SymShape& b) {
  if (!a.ranked || !b.ranked || a.rank() != b.rank()) return SymShape::Unranked();
  SymShape result = a;
  for (size_t i = 0; i < a.rank(); ++i) {
    if (!ProvablyEqual(a.dims[i], b.dims[i])) result.dims[i] = Dim::Unknown();
  }
  return result;
}

Type JoinTensors(AnyTensorType a, AnyTensorType b) {
  if (a.element() != b.element() || a.is_value() != b.is_value()) return {};
  return a.With(a.element(), JoinShapes(a.shape(), b.shape()));
}

template <class T>
Type Wrap(Type inner) {
  if (!inner) return {};
  return T::Get(*inner.context(), std::span<const Type>(&inner, 1));
}

}  // namespace

Type Join(Type a, Type b) {
  if (!a || !b || a == b) return a == b ? a : Type();
  if (a.isa<AnyTensorType>() && b.isa<AnyTensorType>()) {
    return JoinTensors(a.cast<AnyTensorType>(), b.cast<AnyTensorType>());
  }
  if (a.isa<ListType>() && b.isa<ListType>()) {
    return Wrap<ListType>(Join(a.cast<ListType>().elements()[0], b.cast<ListType>().elements()[0]));
  }
  if (!a.isa<OptionalType>() && b.isa<OptionalType>()) std::swap(a, b);
  if (!a.isa<OptionalType>()) return {};
  const Type other = b.isa<OptionalType>() ? b.cast<OptionalType>().elements()[0] : b;
  return Wrap<OptionalType>(Join(a.cast<OptionalType>().elements()[0], other));
}

Type Weaken(Type type) {
  if (type.isa<AnyTensorType>()) {
    const auto tensor = type.cast<AnyTensorType>();
    return tensor.With(tensor.element(), SymShape::Unranked());
  }
  if (type.isa<ListType>()) return Wrap<ListType>(Weaken(type.cast<ListType>().elements()[0]));
  if (type.isa<OptionalType>()) {
    return Wrap<OptionalType>(Weaken(type.cast<OptionalType>().elements()[0]));
  }
  return type;
}

// ---- verification ----

void VerifyFail(Operation* op, std::string id, std::string_view message) {
  throw Error(ErrorCode::kVerify, std::move(id), StrCat(op->name(), ": ", message))
      .At(op->location().ToString(*op->context()));
}

void CheckRegion(Operation* op, const Region& region, const char* name, size_t arguments,
                 size_t yields) {
  if (region.NumBlocks() != 1) {
    VerifyFail(op, "verify/region", StrCat("region '", name, "' must hold one block"));
  }
  if (region.front()->num_arguments() != arguments) {
    VerifyFail(op, "verify/region-arguments",
               StrCat("region '", name, "' has ", region.front()->num_arguments(),
                      " arguments; expected ", arguments));
  }
  const Operation* yield = YieldOf(region);
  if (yield == nullptr) {
    VerifyFail(op, "verify/terminator", StrCat("region '", name, "' must end in cf.yield"));
  }
  if (yield->num_operands() != yields) {
    VerifyFail(
        op, "verify/yield-count",
        StrCat("region '", name, "' yields ", yield->num_operands(), " values; expected ", yields));
  }
}

void CheckCovered(Operation* op, Type actual, Type expected, std::string_view what) {
  if (!actual || !expected) return;
  if (Compatible(actual, expected)) return;
  const auto optional = expected.dyn_cast<OptionalType>();
  if (optional && Compatible(actual, optional.elements()[0])) return;
  VerifyFail(op, "verify/yield-type",
             StrCat(what, " has type ", actual.ToString(), "; expected ", expected.ToString()));
}

// ---- inference ----

bool SetArgument(Block& block, size_t i, Type type) {
  if (!type || i >= block.num_arguments() || block.argument(i).type() == type) return false;
  block.argument(i).set_type(type);
  return true;
}

bool SetCarried(const Region& region, RegionRound round, size_t argument, Type initial,
                size_t yield, const std::string& name) {
  Block& block = *region.front();
  if (argument >= block.num_arguments()) return false;
  switch (round) {
    case RegionRound::kFirst:
      return SetArgument(block, argument, initial);
    case RegionRound::kAgain:
      return SetArgument(
          block, argument,
          InRound(Join(block.argument(argument).type(), YieldType(region, yield)), name));
    case RegionRound::kWeakest:
      return SetArgument(block, argument, Weaken(initial));
  }
  return false;
}

void InferCarried(InferShapeContext& c, const Region& region, size_t result, size_t operand,
                  size_t yield, const std::string& name) {
  const Type from = c.HasInput(operand) ? c.input_type(operand) : Type();
  const Type to = YieldType(region, yield);
  const Type type = Join(from, to);
  if (from && to && !type) {
    c.Fail("type/carried", StrCat("the carried value starts as ", from.ToString(),
                                  " and the region yields ", to.ToString()));
  }
  c.SetType(result, AtEnd(type, name));
}

// ---- evaluation ----

bool TruthOf(EvalContext& c, const RtValue& value, std::string_view what) {
  if (!value.is_tensor() || value.tensor().element_type() != ElementType::kBool ||
      value.tensor().num_elements() != 1) {
    c.Fail("shape/condition",
           StrCat(what, " must be a bool with one element, not ",
                  value.is_tensor() ? value.tensor().TypeString() : std::string(value.KindName())));
  }
  return value.tensor().data<bool>()[0];
}

int64_t CountOf(EvalContext& c, size_t operand, std::string_view what) {
  const Tensor& value = c.input(operand);
  if (value.element_type() != ElementType::kI64 || value.num_elements() != 1) {
    c.Fail("shape/count",
           StrCat(what, " must be an i64 with one element, not ", value.TypeString()));
  }
  return value.data<int64_t>()[0];
}

void AssumeOneElement(const InferShapeContext& c, size_t operand, const char* id,
                      std::string_view what) {
  const SymShape shape = c.HasInput(operand) ? c.shape(operand) : SymShape::Unranked();
  if (!shape.ranked) return;
  Assume(SizeCondition::Equal(shape.NumElements(), 1), id, [&] {
    return StrCat(what, " must have one element, but its shape is ", shape.ToString());
  });
}

Tensor NoPieces(EvalContext& c, size_t result, size_t axis) {
  const auto type = c.op()->result(result).type().dyn_cast<AnyTensorType>();
  if (!type) c.Fail("type/scan", "a scan output must be a tensor");
  Shape shape;
  for (const Dim& d : type.dims()) {
    const Dim known = d.Substitute([&](std::string_view name) -> std::optional<Dim> {
      const auto value = SizeOf(c, name);
      return value ? std::optional<Dim>(*value) : std::nullopt;
    });
    shape.push_back(known.is_constant() ? known.value() : 0);
  }
  if (axis >= shape.size()) shape.resize(axis + 1, 0);
  shape[axis] = 0;
  return Tensor(type.element(), std::move(shape));
}

namespace {

struct Blocks {
  int64_t outer = 1;
  int64_t inner = 1;
};

Blocks SplitAt(std::span<const int64_t> shape, size_t axis) {
  return {NumElements(shape.first(axis)), NumElements(shape.subspan(axis))};
}

template <class T>
Tensor StackAs(const std::vector<RtValue>& pieces, size_t axis) {
  const Shape& piece = pieces[0].tensor().shape();
  const Blocks blocks = SplitAt(piece, axis);
  const auto count = static_cast<int64_t>(pieces.size());
  Shape shape = piece;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), count);
  const auto total = static_cast<size_t>(NumElements(shape));
  const auto out = std::make_unique<T[]>(total);
  for (int64_t p = 0; p < count; ++p) {
    const Elements<T> from(pieces[static_cast<size_t>(p)].tensor());
    for (int64_t o = 0; o < blocks.outer; ++o) {
      std::copy_n(from.begin() + o * blocks.inner, blocks.inner,
                  out.get() + (o * count + p) * blocks.inner);
    }
  }
  return Tensor::Of<T>(std::move(shape), std::span<const T>(out.get(), total));
}

template <class T>
Tensor SliceAs(const Tensor& x, size_t axis, int64_t i) {
  Shape shape = x.shape();
  const int64_t length = shape[axis];
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  const Blocks blocks = SplitAt(shape, axis);
  const auto total = static_cast<size_t>(NumElements(shape));
  const auto out = std::make_unique<T[]>(total);
  const Elements<T> from(x);
  for (int64_t o = 0; o < blocks.outer; ++o) {
    std::copy_n(from.begin() + (o * length + i) * blocks.inner, blocks.inner,
                out.get() + o * blocks.inner);
  }
  return Tensor::Of<T>(std::move(shape), std::span<const T>(out.get(), total));
}

}  // namespace

Tensor Stack(EvalContext& c, const std::vector<RtValue>& pieces, size_t axis) {
  for (const RtValue& piece : pieces) {
    if (!piece.is_tensor()) c.Fail("type/scan", "a scan output must be a tensor");
    if (piece.tensor().shape() == pieces[0].tensor().shape() &&
        piece.tensor().element_type() == pieces[0].tensor().element_type()) {
      continue;
    }
    c.Fail("shape/scan-pieces", StrCat("iterations give ", pieces[0].tensor().TypeString(), " and ",
                                       piece.tensor().TypeString(), ", which do not stack"));
  }
  return VisitElementType(pieces[0].tensor().element_type(),
                          [&]<class T>(std::type_identity<T>) { return StackAs<T>(pieces, axis); });
}

Tensor SliceAt(const Tensor& x, size_t axis, int64_t i) {
  return VisitElementType(x.element_type(),
                          [&]<class T>(std::type_identity<T>) { return SliceAs<T>(x, axis, i); });
}

}  // namespace lathe::cf
