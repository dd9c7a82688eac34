#include "src/dialect/infer_util.h"

#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"

namespace lathe {

SymShape ShapeOf(Value value) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  return type ? type.shape() : SymShape();
}

void InferShapeOf(InferShapeContext& c, size_t from, size_t result) {
  c.SetShape(result, c.shape(from));
}

SymShape ExpectRank(const InferShapeContext& c, size_t i, size_t rank, const char* what) {
  SymShape shape = c.shape(i);
  if (!shape.ranked) return SymShape::OfRank(rank);
  if (shape.rank() != rank) {
    c.Fail("shape/rank", StrCat(what, " has rank ", shape.rank(), ", ", rank, " is expected"),
           StrCat("its shape is ", shape.ToString()));
  }
  return shape;
}

SymShape ExpectMinRank(const InferShapeContext& c, size_t i, size_t rank, const char* what) {
  SymShape shape = c.shape(i);
  if (shape.ranked && shape.rank() < rank) {
    c.Fail("shape/rank",
           StrCat(what, " has rank ", shape.rank(), ", at least ", rank, " is expected"),
           StrCat("its shape is ", shape.ToString()));
  }
  return shape;
}

void ExpectScalar(const InferShapeContext& c, size_t i, const char* what) {
  if (!c.HasInput(i)) return;
  const SymShape shape = c.shape(i);
  if (!shape.ranked) return;
  Assume(SizeCondition::Equal(shape.NumElements(), 1), "shape/scalar",
         [&] { return StrCat(what, " has shape ", shape.ToString(), ", not one element"); });
}

Dim ExpectEqual(const Dim& a, const Dim& b, const char* id, const std::string& message,
                const char* hint) {
  Assume(SizeCondition::Equal(a, b), id, [&] { return message; }, hint);
  if (a.is_unknown()) return b;
  return b.is_constant() ? b : a;
}

void ExpectBroadcastableTo(const InferShapeContext& c, size_t i, const SymShape& shape,
                           const char* what) {
  const SymShape own = c.shape(i);
  if (!own.ranked || !shape.ranked) return;
  const char* hint = "counted from the back, each extent must be equal or 1";
  const auto message = [&] {
    return StrCat(what, " of shape ", own.ToString(), " does not broadcast to ", shape.ToString());
  };
  if (own.rank() > shape.rank()) c.Fail("shape/broadcast", message(), hint);
  for (size_t d = 0; d < own.rank(); ++d) {
    const Dim& to = shape.dims[d + shape.rank() - own.rank()];
    Assume(SizeCondition::BroadcastTo(own.dims[d], to), "shape/broadcast", message, hint);
  }
}

size_t InferAxis(const InferShapeContext& c, int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  if (axis >= -r && axis < r) return static_cast<size_t>(axis < 0 ? axis + r : axis);
  c.Fail("shape/axis", StrCat("axis ", axis, " is out of range for rank ", r),
         StrCat("use an axis in [", -r, ", ", r - 1, "]"));
}

}  // namespace lathe
