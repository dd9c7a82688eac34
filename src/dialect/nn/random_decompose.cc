#include <cmath>
#include <numbers>
#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/random.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/tensor_of.h"
#include "src/dialect/nn/term.h"

// Random numbers as arithmetic on those of nn.philox, in f64 as the operations have it.
namespace lathe::nn {

namespace {

using Values = std::vector<Value>;

Term Wide(Builder& b, Value x) {
  if (TensorOf(x).element() == ElementType::kF64) return {b, x};
  return {b, CastOp::Create(b, x, {.to = ElementType::kF64}).output()};
}
Value Narrow(const Term& x, ElementType type) {
  if (x.element() == type) return x;
  return CastOp::Create(x.builder(), x, {.to = type}).output();
}

Term Ints(Builder& b, const std::vector<int64_t>& values) {
  const Tensor tensor = Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
  return {b, builtin::ConstantOp::Create(b, {.value = tensor}).result()};
}
Value Zeros(const Term& shape) { return shape.Call(nn::kConstantOfShape); }

// The numbers of one draw.
class Draw {
 public:
  Draw(Builder& b, std::optional<double> seed)
      : b_(b), key_(RandomKeyOp::Create(b, {.seed = seed}).key()) {}

  Term Uniform(Value like, int64_t stride = 1, int64_t offset = 0) const {
    const auto op = PhiloxOp::Create(b_, like, key_, {.stride = stride, .offset = offset});
    return {b_, op.output()};
  }
  // As RandomStream::Normal: each takes two numbers.
  Term Normal(Value like) const {
    const Term radius = Sqrt(Log(Uniform(like, 2, 0) * -1.0 + 1) * -2.0);
    return radius * (Uniform(like, 2, 1) * (2 * std::numbers::pi)).Call(nn::kCos);
  }

 private:
  Builder& b_;
  Value key_;
};

template <class OpT>
Values Normals(Builder& b, OpT op, Value like, ElementType type) {
  const Term values = Draw(b, op.seed()).Normal(like) * op.scale() + op.mean();
  return {Narrow(values, type)};
}

template <class OpT>
Values Uniforms(Builder& b, OpT op, Value like, ElementType type) {
  const double low = op.low(), high = op.high();
  const Term values = Draw(b, op.seed()).Uniform(like) * (high - low) + low;
  if (low == high) return {Narrow(values, type)};
  const Term below = values.Call(nn::kLess, {values.Number(high)});
  return {Narrow(Where(below, values, values.Number(std::nextafter(high, low))), type)};
}

template <class OpT>
bool IsRange(OpT op) {
  return op.low() <= op.high();
}

template <class OpT>
ElementType TypeLike(OpT op) {
  return op.dtype().value_or(TensorOf(op.input()).element());
}

// A constant of one element.
std::optional<double> NumberOf(Value v) {
  auto* op = v.defining_op();
  const auto constant = op == nullptr ? builtin::ConstantOp() : op->dyn_cast<builtin::ConstantOp>();
  if (!constant || constant.value().num_elements() != 1) return std::nullopt;
  return ToDoubles(constant.value())[0];
}

}  // namespace

Values RandomNormalOp::Decompose(Operation* o, Builder& b) {
  const RandomNormalOp op(o);
  return Normals(b, op, Zeros(Ints(b, op.shape())), op.dtype());
}
Values RandomNormalLikeOp::Decompose(Operation* o, Builder& b) {
  const RandomNormalLikeOp op(o);
  return Normals(b, op, op.input(), TypeLike(op));
}

Values RandomUniformOp::Decompose(Operation* o, Builder& b) {
  const RandomUniformOp op(o);
  if (!IsRange(op)) return {};
  return Uniforms(b, op, Zeros(Ints(b, op.shape())), op.dtype());
}
Values RandomUniformLikeOp::Decompose(Operation* o, Builder& b) {
  const RandomUniformLikeOp op(o);
  if (!IsRange(op)) return {};
  return Uniforms(b, op, op.input(), TypeLike(op));
}

Values BernoulliOp::Decompose(Operation* o, Builder& b) {
  const BernoulliOp op(o);
  const Term draws = Draw(b, op.seed()).Uniform(op.input());
  return {Narrow(draws.Call(nn::kLess, {Wide(b, op.input())}), TypeLike(op))};
}

// A draw is the number of classes whose running sum it has passed.
Values MultinomialOp::Decompose(Operation* o, Builder& b) {
  const MultinomialOp op(o);
  const AnyTensorType type = TensorOf(op.input());
  if (!type.has_rank() || !type.dims()[1].is_constant() || type.dims()[1].IsConstant(0)) return {};
  const Term logits = Wide(b, op.input());
  const Term weights = Exp(logits - Reduced(logits, nn::kReduceMax, {1}));
  const Term axis(b,
                  builtin::ConstantOp::Create(b, {.value = Tensor::Scalar<int64_t>(1)}).result());
  const Term sums = weights.Call(nn::kCumSum, {axis});
  const NamedAttribute columns = b.Named("axis", b.Attr(int64_t{1}));
  const Term total = sums.Call(nn::kGather, {Ints(b, {-1})}, {columns});
  const Term rows(b, ShapeOp::Create(b, op.input(), {.end = 1}).extents());
  const Term shape =
      rows.Call(nn::kConcat, {Ints(b, {op.sample_size()})}, {b.Named("axis", b.Attr(int64_t{0}))});
  const Term targets = Draw(b, op.seed()).Uniform(Zeros(shape)) * total;
  const Term passed = sums.Call(nn::kUnsqueeze, {Ints(b, {1})})
                          .Call(nn::kLessOrEqual, {targets.Call(nn::kUnsqueeze, {Ints(b, {2})})});
  const Term ones(b, Narrow(passed, op.dtype()));
  const Term count =
      ones.Call(nn::kReduceSum, {Ints(b, {2})}, {b.Named("keepdims", b.Attr(false))});
  return {Least(count, static_cast<double>(type.dims()[1].value() - 1))};
}

Values DropoutOp::Decompose(Operation* o, Builder& b) {
  const DropoutOp op(o);
  const std::optional<double> ratio = op.ratio() ? NumberOf(op.ratio()) : std::optional(0.5);
  const bool is_drawn = op.training_mode() && NumberOf(op.training_mode()) != 0;
  if (!is_drawn || !ratio || !(*ratio >= 0 && *ratio < 1)) return {};
  const Term x = Wide(b, op.x());
  const auto seed =
      op.seed() ? std::optional<double>(static_cast<double>(*op.seed())) : std::nullopt;
  const Term draws = Draw(b, seed).Uniform(op.x());
  const Term is_training(b, op.training_mode());
  const Term kept = draws.Call(nn::kGreaterOrEqual, {draws.Number(*ratio)});
  const Term mask = is_training.Call(nn::kNot).Call(nn::kOr, {kept});
  const Term scale = Where(is_training, x.Number(1 - *ratio), x.Number(1));
  const Term y = Where(mask, x / scale, x.Number(0));
  Values results{Narrow(y, TensorOf(op.x()).element())};
  if (o->num_results() > 1) results.push_back(mask);
  return results;
}

}  // namespace lathe::nn
