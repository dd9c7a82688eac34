#include "src/lower/compute/compute.h"

#include <algorithm>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/movement.h"

namespace lathe::lower {
namespace {

std::vector<Compute> SortedComputes() {
  std::vector<Compute> all;
  for (const auto family :
       {ShapeComputes(),     MovementComputes(), IndexingComputes(), WindowComputes(),
        ResizeComputes(),    OrderComputes(),    ScatterComputes(),  QuantizeComputes(),
        AttentionComputes(), BoxComputes(),      SamplingComputes(), ProductComputes(),
        LossComputes(),      DeformComputes(),   TrainingComputes(), RecurrenceComputes(),
        RecurrentComputes(), SignalComputes(),   TreeComputes(),     GramComputes(),
        NormComputes(),      RandomComputes(),   LabelComputes()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  std::ranges::sort(all, {}, &Compute::op);
  return all;
}

}  // namespace

const Compute* FindCompute(std::string_view op) {
  static const std::vector<Compute> all = SortedComputes();
  const auto at = std::ranges::lower_bound(all, op, {}, &Compute::op);
  return at != all.end() && at->op == op ? &*at : nullptr;
}

std::optional<std::vector<int64_t>> ConstantInts(const Operation& op, size_t i) {
  if (i >= op.num_operands()) return std::nullopt;
  const Tensor* constant = ConstantOf(op.operand(i));
  if (constant == nullptr) return std::nullopt;
  return ToInt64s(*constant);
}

size_t AxisOf(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

Dim AreSome(Elements& e, const std::vector<Dim>& extents) {
  Dim some = 1;
  for (const Dim& extent : extents) {
    const bool known = extent.is_constant();
    some *= known ? Min(extent, 1) : e.Loaded(e.Int(Min(extent, 1)), 2);
  }
  return some;
}

Value Where(Elements& e, Value condition, Value x, Value y) {
  return nn::WhereOp::Create(e.lb().b(), condition, x, y).output();
}

Value ToInt64(Elements& e, Value scalar) {
  if (TensorOf(scalar).element() == ElementType::kI64) return scalar;
  return nn::CastOp::Create(e.lb().b(), scalar, {.to = ElementType::kI64}).output();
}

Dim IndexAt(const ElementOf& c, size_t operand, const Place& where, const Dim& extent) {
  Builder& b = c.e.lb().b();
  const Value loaded = ToInt64(c.e, c.Operand(operand, where));
  const Value size = c.e.Int(extent), zero = c.e.lb().Int(0);
  const Value is_negative = nn::LessOp::Create(b, loaded, zero).c();
  const Value from_back = nn::AddOp::Create(b, loaded, size).c();
  const Value index = Where(c.e, is_negative, from_back, loaded);
  const Value upper[] = {index, c.e.Int(extent - 1)};
  const Value lower[] = {nn::MinOp::Create(b, upper).y(), zero};
  return c.e.Loaded(nn::MaxOp::Create(b, lower).y(), extent);
}

}  // namespace lathe::lower
