#include "lathe/dialect/nn/elementwise_unary.h"

#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"
#include "src/dialect/contents.h"
#include "src/dialect/infer_util.h"

namespace lathe::nn {
namespace {

using eval::Doubles;
using eval::Floats;
using eval::Integers;
using eval::Numeric;
using eval::Signed;

template <class Types = Floats, class F>
void Map(EvalContext& c, const F& f) {
  c.SetOutput(0, eval::MapUnary<Types>(c.input(0), f));
}

template <class C>
C AbsOf(C x) {
  if constexpr (std::is_floating_point_v<C>) return std::fabs(x);
  return x < 1 ? eval::WrapSub<C>(0, x) : x;
}

template <class C>
C SignOf(C x) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(x)) return x;
  }
  return static_cast<C>((x > 0) - (x < 0));
}

// The scalar input `i` as a double, or `absent`.
double ScalarInput(EvalContext& c, size_t i, double absent, const char* what) {
  if (!c.HasInput(i)) return absent;
  const Tensor& t = c.input(i);
  if (t.num_elements() != 1) {
    c.Fail("shape/scalar", StrCat(what, " is ", t.TypeString(), ", not one element"));
  }
  return ToDoubles(t)[0];
}

// A bound of `clip` without its dims, so that it broadcasts to any shape.
Tensor Bound(EvalContext& c, size_t i, const char* what) {
  const Tensor& t = c.input(i);
  if (t.num_elements() != 1) {
    c.Fail("shape/scalar", StrCat(what, " is ", t.TypeString(), ", not one element"));
  }
  return t.Reshaped({});
}

Tensor DropoutMask(const Shape& shape, double ratio, uint64_t seed) {
  Tensor mask(ElementType::kBool, shape);
  RandomStream random(seed);
  for (bool& keep : mask.mutable_data<bool>()) keep = random.NextDouble() >= ratio;
  return mask;
}

Tensor AllTrue(const Shape& shape) {
  Tensor mask(ElementType::kBool, shape);
  for (bool& keep : mask.mutable_data<bool>()) keep = true;
  return mask;
}

}  // namespace

void AbsOp::Eval(EvalContext& c) {
  Map<Numeric>(c, [](auto x) { return AbsOf(x); });
}

void NegOp::InferShape(InferShapeContext& c) {
  InferShapeOf(c);
  PublishElementwise(c, DimNeg);
}
void NegOp::Eval(EvalContext& c) {
  Map<Signed>(c, [](auto x) -> decltype(x) {
    if constexpr (std::is_floating_point_v<decltype(x)>) return -x;
    return eval::WrapSub<decltype(x)>(0, x);
  });
}

void SignOp::Eval(EvalContext& c) {
  Map<Numeric>(c, [](auto x) { return SignOf(x); });
}
void ReciprocalOp::Eval(EvalContext& c) {
  Map(c, [](auto x) { return 1 / x; });
}
void SqrtOp::Eval(EvalContext& c) {
  Map(c, [](auto x) { return std::sqrt(x); });
}
void ExpOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::exp(x); });
}
void LogOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::log(x); });
}
void ErfOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::erf(x); });
}
void SinOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::sin(x); });
}
void CosOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::cos(x); });
}
void TanOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::tan(x); });
}
void AsinOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::asin(x); });
}
void AcosOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::acos(x); });
}
void AtanOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::atan(x); });
}
void SinhOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::sinh(x); });
}
void CoshOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::cosh(x); });
}
void TanhOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::tanh(x); });
}
void AsinhOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::asinh(x); });
}
void AcoshOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::acosh(x); });
}
void AtanhOp::Eval(EvalContext& c) {
  Map<Doubles>(c, [](double x) { return std::atanh(x); });
}
void FloorOp::Eval(EvalContext& c) {
  Map(c, [](auto x) { return std::floor(x); });
}
void CeilOp::Eval(EvalContext& c) {
  Map(c, [](auto x) { return std::ceil(x); });
}
void RoundOp::Eval(EvalContext& c) {
  Map(c, [](auto x) { return std::nearbyint(x); });
}
void BitwiseNotOp::Eval(EvalContext& c) {
  Map<Integers>(c, [](auto x) { return ~x; });
}

void ClipOp::InferShape(InferShapeContext& c) {
  ExpectScalar(c, kMin, "min");
  ExpectScalar(c, kMax, "max");
  InferShapeOf(c);
  auto contents = SmallContents(c, kX);
  const auto bound = [&](size_t i, DimFunction f) {
    const auto limit = c.HasInput(i) ? SmallContents(c, i) : std::vector<Dim>();
    if (!limit || limit->size() > 1) contents.reset();
    if (!contents || limit->empty()) return;
    for (Dim& dim : *contents) dim = f(dim, limit->front());
  };
  bound(kMin, DimMax);
  bound(kMax, DimMin);
  if (contents) c.SetContents(kY, *std::move(contents));
}
void ClipOp::Eval(EvalContext& c) {
  Tensor y = c.input(kX);
  if (c.HasInput(kMin)) {
    const auto raise = [](auto x, auto low) { return x < low ? low : x; };
    y = eval::MapBinary<Numeric>(y, Bound(c, kMin, "min"), raise);
  }
  if (c.HasInput(kMax)) {
    const auto lower = [](auto x, auto high) { return x > high ? high : x; };
    y = eval::MapBinary<Numeric>(y, Bound(c, kMax, "max"), lower);
  }
  c.SetOutput(kY, std::move(y));
}

void IdentityOp::InferShape(InferShapeContext& c) {
  c.SetType(kY, c.input_type(kX));
  ForwardContents(c);
}
Dim IdentityOp::Flops(Operation*) { return 0; }
void IdentityOp::Eval(EvalContext& c) { c.SetOutputValue(kY, c.input_value(kX)); }
void BlockGradientOp::Eval(EvalContext& c) { c.SetOutputValue(kY, c.input_value(kX)); }

void IdentityOp::Fold(FoldContext& c) { c.Replace(kY, c.op()->operand(kX)); }

void DropoutOp::InferShape(InferShapeContext& c) {
  ExpectScalar(c, kRatio, "the ratio");
  ExpectScalar(c, kTrainingMode, "training_mode");
  InferShapeOf(c, kX, kY);
  InferShapeOf(c, kX, kMask);
}
void DropoutOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const double ratio = ScalarInput(c, kRatio, 0.5, "the ratio");
  const bool training = ScalarInput(c, kTrainingMode, 0, "training_mode") != 0;
  if (!training || ratio == 0) {
    c.SetOutput(kY, x);
    return c.SetOutput(kMask, AllTrue(x.shape()));
  }
  if (!(ratio > 0 && ratio < 1)) {
    c.Fail("dropout/ratio", StrCat("the ratio is ", ratio), "it must be in [0, 1)");
  }
  const auto seed = DropoutOp(c.op()).seed();
  const auto given = seed ? std::optional<double>(static_cast<double>(*seed)) : std::nullopt;
  const Tensor mask = DropoutMask(x.shape(), ratio, c.RandomSeed(given));
  const auto scale = [ratio](auto value, auto keep) {
    using C = decltype(value);
    return keep != 0 ? static_cast<C>(static_cast<double>(value) / (1 - ratio)) : C{0};
  };
  c.SetOutput(kY, eval::MapBinary<Floats>(x, mask, scale));
  c.SetOutput(kMask, mask);
}

}  // namespace lathe::nn
