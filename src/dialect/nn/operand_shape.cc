#include "src/dialect/nn/operand_shape.h"

#include <algorithm>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/move.h"

namespace lathe::nn {

std::vector<SymShape> OperandShapes(const InferShapeContext& c, size_t count) {
  std::vector<SymShape> shapes(count);
  for (size_t i = 0; i < count; ++i) {
    if (c.HasInput(i)) shapes[i] = c.shape(i);
  }
  return shapes;
}

std::vector<SymShape> OperandShapes(const EvalContext& c, size_t count) {
  std::vector<SymShape> shapes(count);
  for (size_t i = 0; i < count; ++i) {
    if (c.HasInput(i)) shapes[i] = SymShape::FromConstants(c.input(i).shape());
  }
  return shapes;
}

std::vector<SymShape> OperandShapes(const Operation* op, size_t count) {
  std::vector<SymShape> shapes(count);
  for (size_t i = 0; i < std::min(count, op->num_operands()); ++i) {
    const Value operand = op->operand(i);
    const auto type = operand ? operand.type().dyn_cast<AnyTensorType>() : AnyTensorType();
    if (type) shapes[i] = type.shape();
  }
  return shapes;
}

SymShape WithRank(const SymShape& shape, size_t rank, const char* what) {
  if (!shape.ranked) return SymShape::OfRank(rank);
  if (shape.rank() == rank) return shape;
  eval::FailShape("shape/rank", StrCat(what, " has rank ", shape.rank(), ", ", rank,
                                       " is expected: its shape is ", shape.ToString()));
}

void Unify(Dim& a, const Dim& b, const char* what) {
  Assume(SizeCondition::Equal(a, b), "shape/extent",
         [&] { return StrCat(what, " is both ", a.ToString(), " and ", b.ToString()); });
  if (!a.is_constant() && (b.is_constant() || a.is_unknown())) a = b;
}

void ExpectShape(const SymShape& shape, const SymShape& expected, const char* what) {
  if (!shape.ranked) return;
  const auto message = [&] {
    return StrCat(what, " has shape ", shape.ToString(), ", ", expected.ToString(), " is expected");
  };
  if (shape.rank() != expected.rank()) eval::FailShape("shape/operand", message());
  for (size_t d = 0; d < shape.rank(); ++d) {
    Assume(SizeCondition::Equal(shape.dims[d], expected.dims[d]), "shape/operand", message);
  }
}

std::vector<int64_t> ConstantsOf(const SymShape& shape) {
  const Shape constants = eval::Concrete(shape);
  eval::CheckSize(ElementType::kF64, constants);
  return constants;
}

}  // namespace lathe::nn
