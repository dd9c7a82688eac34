// What stands for a write through a view, in terms of ops that other formats know.
#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/nn/view.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

namespace {

/// x with the elements of those numbers replaced by `value`.
Value Replaced(Builder& b, Value x, Value value, Value numbers) {
  const Value flat =
      ScatterElementsOp::Create(b, Flat(b, x), Flat(b, numbers), Flat(b, value)).output();
  return ReshapeLike(b, flat, x);
}

}  // namespace

std::vector<Value> SliceScatterOp::Decompose(Operation* o, Builder& b) {
  const SliceScatterOp op(o);
  const std::vector<int64_t> starts = op.starts(), ends = op.ends();
  const auto axes = op.axes();
  const auto steps = op.steps();
  const Value numbers =
      SliceOp::Create(b, Numbers(b, op.x()), IntsConstant(b, starts), IntsConstant(b, ends),
                      axes ? IntsConstant(b, *axes) : Value(),
                      steps ? IntsConstant(b, *steps) : Value())
          .output();
  return {Replaced(b, op.x(), op.value(), numbers)};
}

std::vector<Value> SelectScatterOp::Decompose(Operation* o, Builder& b) {
  const SelectScatterOp op(o);
  const Value numbers =
      GatherOp::Create(b, Numbers(b, op.x()), IntConstant(b, op.index()), {.axis = op.axis()})
          .output();
  return {Replaced(b, op.x(), op.value(), numbers)};
}

std::vector<Value> CopyOp::Decompose(Operation* o, Builder& b) {
  const CopyOp op(o);
  return {ExpandOp::Create(b, op.b(), ShapeOp::Create(b, op.a()).extents()).output()};
}

void CopyOp::Fold(FoldContext& c) {
  const CopyOp op(c.op());
  const auto a = op.a().type().dyn_cast<AnyTensorType>(),
             b = op.b().type().dyn_cast<AnyTensorType>();
  if (a && b && a.is_value() && a.is_static() && a == b) c.Replace(kC, op.b());
}

}  // namespace lathe::nn
