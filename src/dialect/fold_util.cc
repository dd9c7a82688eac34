#include "src/dialect/fold_util.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/support/dispatch.h"

namespace lathe {

const Tensor* FoldConstant(const FoldContext& c, size_t i) {
  return i < c.op()->num_operands() && c.op()->operand(i) ? c.Constant(i) : nullptr;
}

bool IsFilledWith(const Tensor* t, double value) {
  if (t == nullptr || t->num_elements() == 0) return false;
  if (t->element_type() == ElementType::kBool) {
    const auto all = t->data<bool>();
    return std::all_of(all.begin(), all.end(), [&](bool b) { return b == (value != 0); });
  }
  if (!IsFloat(t->element_type()) && !IsInteger(t->element_type())) return false;
  if (BitWidth(t->element_type()) < 8) return false;
  return VisitNumeric(t->element_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto all = t->data<T>();
    return std::all_of(all.begin(), all.end(), [&](T element) {
      const auto number = static_cast<double>(element);
      return number == value &&
             (std::is_integral_v<T> || std::signbit(number) == std::signbit(value));
    });
  });
}

bool HasShapeOfResult(Value value, Operation* op, size_t result) {
  const auto have = value.type().dyn_cast<AnyTensorType>();
  const auto want = op->result(result).type().dyn_cast<AnyTensorType>();
  if (!have || !want || !have.has_rank() || !want.has_rank() || have.rank() != want.rank()) {
    return false;
  }
  for (size_t d = 0; d < have.rank(); ++d) {
    if (!ProvablyEqual(have.dims()[d], want.dims()[d])) return false;
  }
  return true;
}

bool KeepsShape(Value x, const Shape& other) {
  const auto type = x.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || other.size() > type.rank()) return false;
  for (size_t d = 0; d < other.size(); ++d) {
    const Dim own = type.dims()[type.rank() - other.size() + d];
    if (other[d] != 1 && !own.IsConstant(other[d])) return false;
  }
  return true;
}

bool FollowsFromSizes(Value numbers) {
  constexpr size_t kMostOps = 200;
  std::vector<Value> todo{numbers};
  std::unordered_set<const Operation*> seen;  // looked up, never iterated
  while (!todo.empty()) {
    const Operation* op = todo.back().defining_op();
    todo.pop_back();
    if (op == nullptr || op->num_regions() != 0 || seen.size() > kMostOps) return false;
    const std::string_view name = op->name();
    if (name == nn::ShapeOp::kName || name == nn::SizeOp::kName) continue;
    if (name == nn::BindSizesOp::kName || !seen.insert(op).second) continue;
    if (op->num_operands() == 0 && name != builtin::kConstant) return false;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      if (op->operand(i)) todo.push_back(op->operand(i));
    }
  }
  return true;
}

void FoldSameShape(FoldContext& c) {
  const Value x = c.op()->operand(0);
  if (x && HasShapeOfResult(x, c.op())) c.Replace(0, x);
}

void FoldTold(FoldContext& c, size_t numbers) {
  const Value x = c.op()->operand(0), told = c.op()->operand(numbers);
  if (!x || !HasShapeOfResult(x, c.op())) return;
  if (c.Constant(numbers) != nullptr || FollowsFromSizes(told)) c.Replace(0, x);
}

void FoldIdempotent(FoldContext& c) {
  const Operation* inner = c.op()->operand(0).defining_op();
  if (inner != nullptr && inner->info() == c.op()->info() &&
      inner->attributes() == c.op()->attributes()) {
    c.Replace(0, c.op()->operand(0));
  }
}

void FoldInvolution(FoldContext& c) {
  const Operation* inner = c.op()->operand(0).defining_op();
  if (inner != nullptr && inner->info() == c.op()->info()) c.Replace(0, inner->operand(0));
}

void FoldNeutralRight(FoldContext& c, double neutral) {
  const Tensor* other = FoldConstant(c, 1);
  const Value x = c.op()->operand(0);
  if (IsFilledWith(other, neutral) && KeepsShape(x, other->shape())) c.Replace(0, x);
}

void FoldNeutral(FoldContext& c, double neutral) {
  FoldNeutralRight(c, neutral);
  const Tensor* other = FoldConstant(c, 0);
  const Value x = c.op()->operand(1);
  if (IsFilledWith(other, neutral) && KeepsShape(x, other->shape())) c.Replace(0, x);
}

void FoldAllEqual(FoldContext& c) {
  const Value first = c.op()->operand(0);
  for (size_t i = 1; i < c.op()->num_operands(); ++i) {
    if (c.op()->operand(i) != first) return;
  }
  c.Replace(0, first);
}

}  // namespace lathe
