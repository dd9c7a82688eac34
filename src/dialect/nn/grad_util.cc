#include "src/dialect/nn/grad_util.h"

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::nn {
namespace {

[[noreturn]] void FailShape(Value grad, Value like) {
  throw Error(ErrorCode::kUnsupported, "gradient/unknown-shape",
              StrCat("a gradient of type ", grad.type().ToString(), " for ", like.type().ToString(),
                     ": which dims were broadcast is not known"))
      .Hint("give the inputs constant shapes");
}

SymShape ShapeOf(Value v) { return v.type().cast<AnyTensorType>().shape(); }

// What is known here, inference without facts about constants would not find.
Value WithShape(Value v, const SymShape& shape) {
  const auto type = v.type().cast<AnyTensorType>();
  v.set_type(type.With(type.element(), shape));
  return v;
}

}  // namespace

Value IntsConstant(Builder& b, std::span<const int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return builtin::ConstantOp::Create(b, {.value = Tensor::Of<int64_t>({count}, values)}).result();
}

Value FilledLike(Builder& b, Value like, double value) {
  const Value shape = ShapeOp::Create(b, like).extents();
  const ElementType type = like.type().cast<AnyTensorType>().element();
  const Tensor filling = Cast(Tensor::Of<double>({1}, {value}), type);
  return WithShape(ConstantOfShapeOp::Create(b, shape, {.value = filling}).output(), ShapeOf(like));
}

Value SumTo(Builder& b, Value grad, Value like) {
  const SymShape from = ShapeOf(grad);
  const SymShape to = ShapeOf(like);
  if (!from.ranked || !to.ranked || to.rank() > from.rank()) FailShape(grad, like);
  const size_t added = from.rank() - to.rank();
  std::vector<int64_t> axes;
  SymShape kept = from;
  for (size_t d = 0; d < from.rank(); ++d) {
    const Dim own = d < added ? Dim(1) : to.dims[d - added];
    if (d < added || (own.IsConstant(1) && !from.dims[d].IsConstant(1))) {
      axes.push_back(static_cast<int64_t>(d));
      kept.dims[d] = 1;
    } else if (!own.is_constant() && !ProvablyEqual(from.dims[d], own)) {
      FailShape(grad, like);
    }
  }
  if (axes.empty()) return grad;
  const auto sums = ReduceSumOp::Create(b, grad, IntsConstant(b, axes), {.keepdims = true});
  const Value sum = WithShape(sums.reduced(), kept);
  if (added == 0) return sum;
  const Value extents = ShapeOp::Create(b, like).extents();
  return WithShape(ReshapeOp::Create(b, sum, extents, {.allowzero = true}).reshaped(), to);
}

}  // namespace lathe::nn
