#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/view.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

// What was written over gets nothing, what was written gets what is there.
std::vector<Value> SliceScatterOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SliceScatterOp op(o);
  const auto ints = [&](const std::optional<std::vector<int64_t>>& list) {
    return list ? IntsConstant(b, *list) : Value();
  };
  const Value there = SliceOp::Create(b, g[0], ints(op.starts()), ints(op.ends()), ints(op.axes()),
                                      ints(op.steps()))
                          .output();
  const SliceScatterAttrs same{op.starts(), op.ends(), op.axes(), op.steps()};
  const Value rest = SliceScatterOp::Create(b, g[0], FilledLike(b, op.value(), 0), same).y();
  return {rest, Typed(there, op.value())};
}

std::vector<Value> SelectScatterOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SelectScatterOp op(o);
  const Value there =
      GatherOp::Create(b, g[0], IntConstant(b, op.index()), {.axis = op.axis()}).output();
  const SelectScatterAttrs same{op.axis(), op.index()};
  const Value rest = SelectScatterOp::Create(b, g[0], FilledLike(b, op.value(), 0), same).y();
  return {rest, Typed(there, op.value())};
}

}  // namespace lathe::nn
