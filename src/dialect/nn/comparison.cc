#include "lathe/dialect/nn/comparison.h"

#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "src/dialect/contents.h"

namespace lathe::nn {
namespace {

using eval::Floats;
using eval::Numeric;

constexpr ElementType kBool = ElementType::kBool;

template <class Types = Numeric, class F>
void Compare(EvalContext& c, const F& f) {
  c.SetOutput(0, eval::MapBinary<Types>(c.input(0), c.input(1), kBool, f));
}

template <class F>
void Logical(EvalContext& c, const F& f) {
  Compare<eval::TypeList<uint64_t>>(c, f);
}

Tensor EqualStrings(const Tensor& a, const Tensor& b) {
  const Shape shapes[] = {a.shape(), b.shape()};
  Tensor result(kBool, eval::BroadcastShapes(shapes));
  const eval::Broadcaster rows(shapes, result.shape());
  const auto left = a.data<std::string>();
  const auto right = b.data<std::string>();
  bool* out = result.mutable_data<bool>().data();
  rows.ForEachRow([&](int64_t to, std::span<const int64_t> from) {
    for (int64_t i = 0; i < rows.row_length(); ++i) {
      out[to + i] = left[static_cast<size_t>(from[0] + i * rows.stride(0))] ==
                    right[static_cast<size_t>(from[1] + i * rows.stride(1))];
    }
  });
  return result;
}

}  // namespace

void EqualOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimEqual);
}
void EqualOp::Eval(EvalContext& c) {
  if (c.input(kA).element_type() == ElementType::kString) {
    return c.SetOutput(kC, EqualStrings(c.input(kA), c.input(kB)));
  }
  Compare(c, [](auto a, auto b) { return a == b; });
}

void GreaterOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, [](const Dim& a, const Dim& b) { return DimLess(b, a); });
}
void GreaterOp::Eval(EvalContext& c) {
  Compare(c, [](auto a, auto b) { return a > b; });
}

void GreaterOrEqualOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, [](const Dim& a, const Dim& b) { return DimNot(DimLess(a, b)); });
}
void GreaterOrEqualOp::Eval(EvalContext& c) {
  Compare(c, [](auto a, auto b) { return a >= b; });
}

void LessOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimLess);
}
void LessOp::Eval(EvalContext& c) {
  Compare(c, [](auto a, auto b) { return a < b; });
}

void LessOrEqualOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, [](const Dim& a, const Dim& b) { return DimNot(DimLess(b, a)); });
}
void LessOrEqualOp::Eval(EvalContext& c) {
  Compare(c, [](auto a, auto b) { return a <= b; });
}

void AndOp::Eval(EvalContext& c) {
  Logical(c, [](auto a, auto b) { return a & b; });
}
void OrOp::Eval(EvalContext& c) {
  Logical(c, [](auto a, auto b) { return a | b; });
}
void XorOp::Eval(EvalContext& c) {
  Logical(c, [](auto a, auto b) { return a ^ b; });
}

void NotOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimNot);
}
void NotOp::Eval(EvalContext& c) {
  c.SetOutput(kY, eval::MapUnary<eval::TypeList<uint64_t>>(c.input(kX), [](auto x) { return !x; }));
}

void IsNanOp::Eval(EvalContext& c) {
  const auto is_nan = [](auto x) { return std::isnan(x); };
  c.SetOutput(kY, eval::MapUnary<Floats>(c.input(kX), kBool, is_nan));
}

void IsInfOp::Eval(EvalContext& c) {
  const IsInfOp op(c.op());
  const bool negative = op.detect_negative();
  const bool positive = op.detect_positive();
  const auto is_inf = [=](auto x) { return std::isinf(x) && (x < 0 ? negative : positive); };
  c.SetOutput(kY, eval::MapUnary<Floats>(c.input(kX), kBool, is_inf));
}

}  // namespace lathe::nn
