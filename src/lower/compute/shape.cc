#include "lathe/dialect/nn/shape.h"

#include <algorithm>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/dialect/nn/term.h"
#include "src/lower/compute/compute.h"

// Reshapes, transposes, and tensors made of numbers.
namespace lathe::lower {
namespace {

// The same element under another shape. Axes that both shapes have at either end keep their index.
Place Renumber(IndexSpace& space, const Place& at, const std::vector<Dim>& from,
               const std::vector<Dim>& to) {
  size_t first = 0, last = 0;
  const size_t common = std::min(from.size(), to.size());
  while (first < common && from[first] == to[first]) ++first;
  while (last + first < common && from[from.size() - 1 - last] == to[to.size() - 1 - last]) ++last;
  const auto middle = [&](const std::vector<Dim>& dims) {
    return std::vector<Dim>(dims.begin() + static_cast<std::ptrdiff_t>(first),
                            dims.end() - static_cast<std::ptrdiff_t>(last));
  };
  Place place(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(first));
  const Place moved = space.Unflatten(space.Flatten(middle(at), middle(from)), middle(to));
  place.insert(place.end(), moved.begin(), moved.end());
  place.insert(place.end(), at.end() - static_cast<std::ptrdiff_t>(last), at.end());
  return place;
}

Value Reshaped(const ElementOf& c) {
  return c.Operand(0, Renumber(c.e.space(), c.at, c.ResultDims(), c.Dims(0)));
}

Value Transposed(const ElementOf& c) {
  const nn::TransposeOp op(c.op);
  const auto perm = op.perm();
  Place place(c.at.size());
  for (size_t i = 0; i < c.at.size(); ++i) {
    place[perm ? AxisOf((*perm)[i], c.at.size()) : c.at.size() - 1 - i] = c.at[i];
  }
  return c.Operand(0, place);
}

Value Expanded(const ElementOf& c) {
  return c.Operand(0, BroadcastPlace(c.at, c.Dims(0), c.ResultDims(), &c.e.space()));
}

Value Filled(const ElementOf& c) {
  const Attribute value = c.op->attribute("value");
  if (!value) return c.Zero();
  return c.e.lb().Constant(value.cast<TensorAttribute>().value().Reshaped({}));
}

Value Diagonal(const ElementOf& c) {
  Builder& b = c.e.lb().b();
  const nn::EyeLikeOp op(c.op);
  const Value row = c.e.Int(c.at[0]), column = c.e.Int(c.at[1]);
  const Value shifted = nn::AddOp::Create(b, row, c.e.lb().Int(op.k())).c();
  return c.e.lb().As(nn::EqualOp::Create(b, column, shifted).c(), c.Element());
}

// start + i * delta in f64, of which 16 bits may keep a step in their own precision.
Value InFloatRange(const ElementOf& c) {
  Builder& b = c.e.lb().b();
  const ElementType element = c.Element();
  const auto wide = [&](Value v) { return c.e.lb().As(v, ElementType::kF64); };
  Value step =
      nn::MulOp::Create(b, wide(c.e.Int(c.at[0])), wide(c.Scalar(nn::RangeOp::kDelta))).c();
  const bool is_narrow = element == ElementType::kF16 || element == ElementType::kBF16;
  const nn::RangeOp op(c.op);
  if (is_narrow && op.stash_type() == element) step = wide(c.e.lb().As(step, element));
  return c.e.lb().As(nn::AddOp::Create(b, wide(c.Scalar(nn::RangeOp::kStart)), step).c(), element);
}

// start + i * delta, as the type has it.
Value InRange(const ElementOf& c) {
  if (IsFloat(c.Element())) return InFloatRange(c);
  Builder& b = c.e.lb().b();
  const auto scalar = [&](size_t i) { return c.e.lb().As(c.Scalar(i), ElementType::kI64); };
  const Value offset = nn::MulOp::Create(b, c.e.Int(c.at[0]), scalar(nn::RangeOp::kDelta)).c();
  const Value value = nn::AddOp::Create(b, scalar(nn::RangeOp::kStart), offset).c();
  return c.e.lb().As(value, c.Element());
}

Value Extents(const ElementOf& c) {
  const nn::ShapeOp op(c.op);
  const std::vector<Dim> dims = c.Dims(0);
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t start =
      std::clamp<int64_t>(op.start() < 0 ? op.start() + rank : op.start(), 0, rank);
  const int64_t count = c.ResultDims()[0].value();
  if (c.at[0].is_constant()) {
    return c.e.Int(dims[static_cast<size_t>(start + c.at[0].value())]);
  }
  const Value index = c.e.Int(c.at[0]);
  Value value = c.e.Int(dims[static_cast<size_t>(start)]);
  for (int64_t i = 1; i < count; ++i) {
    const Value matches = nn::EqualOp::Create(c.e.lb().b(), index, c.e.lb().Int(i)).c();
    value = Where(c.e, matches, c.e.Int(dims[static_cast<size_t>(start + i)]), value);
  }
  return value;
}

std::string RefuseExtents(const Operation& op) {
  return DimsOf(op.result(0))[0].is_constant() ? "" : "how many extents there are is not known";
}

Value Count(const ElementOf& c) { return c.e.Int(ProductOf(c.Dims(0))); }

constexpr Compute kShapeComputes[] = {
    {nn::kReshape, Reshaped},
    {nn::kFlatten, Reshaped},
    {nn::kSqueeze, Reshaped},
    {nn::kUnsqueeze, Reshaped},
    {nn::kTranspose, Transposed},
    {nn::kExpand, Expanded},
    {nn::kConstantOfShape, Filled},
    {nn::kEyeLike, Diagonal},
    {nn::kRange, InRange},
    {nn::kShape, Extents, RefuseExtents},
    {nn::kSize, Count},
};

}  // namespace

bool CountsRange(const Operation& op) {
  const Tensor* delta = ConstantOf(op.operand(nn::RangeOp::kDelta));
  return delta != nullptr && delta->num_elements() == 1 && ToDoubles(*delta)[0] != 0;
}

Value RangeCountAt(Elements& e, const Operation& op) {
  Builder& b = e.lb().b();
  const auto bound = [&](size_t i) { return e.At(op.operand(i), {}); };
  if (!IsFloat(TensorOf(op.result(0)).element())) {
    const int64_t step = (*ConstantInts(op, nn::RangeOp::kDelta))[0];
    return StepsBetween(e, ToInt64(e, bound(nn::RangeOp::kStart)),
                        ToInt64(e, bound(nn::RangeOp::kLimit)), step);
  }
  const auto wide = [&](size_t i) {
    return nn::Term(b, nn::CastOp::Create(b, bound(i), {.to = ElementType::kF64}).output());
  };
  const double step = ToDoubles(*ConstantOf(op.operand(nn::RangeOp::kDelta)))[0];
  const nn::Term exact = (wide(nn::RangeOp::kLimit) - wide(nn::RangeOp::kStart)) / step;
  return ToInt64(e, Greatest(exact.Call(nn::kCeil), 0));
}

std::span<const Compute> ShapeComputes() { return kShapeComputes; }

}  // namespace lathe::lower
