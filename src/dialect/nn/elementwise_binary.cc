#include "lathe/dialect/nn/elementwise_binary.h"

#include <cmath>
#include <limits>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/text.h"
#include "src/dialect/contents.h"
#include "src/dialect/infer_util.h"

namespace lathe::nn {
namespace {

using eval::Floats;
using eval::Integers;
using eval::Numeric;

template <class Types, class F>
void Binary(EvalContext& c, const F& f) {
  c.SetOutput(0, eval::MapBinary<Types>(c.input(0), c.input(1), f));
}

std::vector<Tensor> AllInputs(EvalContext& c) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
  return inputs;
}

template <class Types, class F>
void FoldInputs(EvalContext& c, const F& f) {
  c.SetOutput(0, eval::MapFold<Types>(AllInputs(c), f));
}

template <class C>
C Quotient(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    if (b == 0) return 0;
    if (std::is_signed_v<C> && b == static_cast<C>(-1)) return eval::WrapSub<C>(0, a);
  }
  return a / b;
}

// a - trunc(a / b) * b.
template <class C>
C TruncMod(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    if (b == 0 || (std::is_signed_v<C> && b == static_cast<C>(-1))) return 0;
    return a % b;
  } else {
    return std::fmod(a, b);
  }
}

// a - floor(a / b) * b.
template <class C>
C FloorMod(C a, C b) {
  const C rest = TruncMod(a, b);
  if constexpr (std::is_floating_point_v<C>) {
    if (rest == 0) return std::copysign(rest, b);
  }
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// By repeated squaring, wrapping around. A negative exponent gives 0 but for 1 and -1.
int64_t IntegerPower(int64_t base, uint64_t exponent, bool exponent_is_signed) {
  if (exponent_is_signed && static_cast<int64_t>(exponent) < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = eval::WrapMul(result, base);
    base = eval::WrapMul(base, base);
  }
  return result;
}

Tensor PowersByIntegers(const Tensor& a, const Tensor& b) {
  const bool is_signed = IsSigned(b.element_type());
  std::vector<int64_t> values = ToInt64s(a);
  const std::vector<int64_t> exponents = ToInt64s(b);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = IntegerPower(values[i], static_cast<uint64_t>(exponents[i]), is_signed);
  }
  return eval::MakeTensor<int64_t>(a.element_type(), a.shape(), values);
}

// Exact where the exponent is whole, too; else computed in double and cut.
Tensor PowersByFloats(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> values = ToInt64s(a);
  const std::vector<double> exponents = ToDoubles(b);
  std::vector<double> roots(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    roots[i] = std::pow(static_cast<double>(values[i]), exponents[i]);
  }
  const std::vector<int64_t> cut = ToInt64s(eval::FromDoubles(a.element_type(), a.shape(), roots));
  for (size_t i = 0; i < values.size(); ++i) {
    const double y = exponents[i];
    const bool is_whole = std::fabs(y) < 0x1p63 && std::trunc(y) == y;
    values[i] = is_whole
                    ? IntegerPower(values[i], static_cast<uint64_t>(static_cast<int64_t>(y)), true)
                    : cut[i];
  }
  return eval::MakeTensor<int64_t>(a.element_type(), a.shape(), values);
}

Tensor IntegerPowers(const Tensor& a, const Tensor& b) {
  const Shape shapes[] = {a.shape(), b.shape()};
  const Shape shape = eval::BroadcastShapes(shapes);
  const Tensor base = eval::BroadcastTo(a, shape), exponent = eval::BroadcastTo(b, shape);
  return IsFloat(b.element_type()) ? PowersByFloats(base, exponent)
                                   : PowersByIntegers(base, exponent);
}

// In double where a float does not hold all exponents of that type.
Tensor FloatPowers(const Tensor& a, const Tensor& b) {
  const bool fits = b.element_type() == ElementType::kF32 || BitWidth(b.element_type()) <= 16;
  const bool narrow = fits && a.element_type() != ElementType::kF64;
  const ElementType compute = narrow ? ElementType::kF32 : ElementType::kF64;
  const auto power = [](auto base, auto exponent) { return std::pow(base, exponent); };
  return eval::MapBinary<Floats>(Cast(a, compute), Cast(b, compute), a.element_type(), power);
}

}  // namespace

void AddOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimAdd);
}
void AddOp::Eval(EvalContext& c) {
  Binary<Numeric>(c, [](auto a, auto b) { return eval::WrapAdd(a, b); });
}

void SubOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimSub);
}
void SubOp::Eval(EvalContext& c) {
  Binary<Numeric>(c, [](auto a, auto b) { return eval::WrapSub(a, b); });
}

void MulOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimMul);
}
void MulOp::Eval(EvalContext& c) {
  Binary<Numeric>(c, [](auto a, auto b) { return eval::WrapMul(a, b); });
}

void DivOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimDiv);
}
void DivOp::Eval(EvalContext& c) {
  Binary<Numeric>(c, [](auto a, auto b) { return Quotient(a, b); });
}

void PowOp::Eval(EvalContext& c) {
  const Tensor &a = c.input(kA), &b = c.input(kB);
  c.SetOutput(kC, IsInteger(a.element_type()) ? IntegerPowers(a, b) : FloatPowers(a, b));
}

void ModOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  if (!ModOp(c.op()).fmod()) PublishElementwise(c, DimMod);
}
void ModOp::Eval(EvalContext& c) {
  if (ModOp(c.op()).fmod())
    return Binary<Numeric>(c, [](auto a, auto b) { return TruncMod(a, b); });
  Binary<Numeric>(c, [](auto a, auto b) { return FloorMod(a, b); });
}

void MinOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimMin);
}
void MinOp::Eval(EvalContext& c) {
  FoldInputs<Numeric>(c, [](auto a, auto b) { return eval::NanMin(a, b); });
}

void MaxOp::InferShape(InferShapeContext& c) {
  InferBroadcastShape(c);
  PublishElementwise(c, DimMax);
}
void MaxOp::Eval(EvalContext& c) {
  FoldInputs<Numeric>(c, [](auto a, auto b) { return eval::NanMax(a, b); });
}

void SumOp::Eval(EvalContext& c) {
  FoldInputs<Floats>(c, [](auto a, auto b) { return a + b; });
}

void MeanOp::Eval(EvalContext& c) {
  std::vector<Tensor> inputs = AllInputs(c);
  const ElementType type = inputs[0].element_type();
  const ElementType compute = type == ElementType::kF64 ? type : ElementType::kF32;
  for (Tensor& input : inputs) input = Cast(input, compute);
  const auto count = static_cast<double>(inputs.size());
  const Tensor sum = eval::MapFold<Floats>(inputs, [](auto a, auto b) { return a + b; });
  c.SetOutput(0, eval::MapUnary<Floats>(
                     sum, type, [count](auto x) { return x / static_cast<decltype(x)>(count); }));
}

void PreluOp::InferShape(InferShapeContext& c) {
  ExpectBroadcastableTo(c, kSlope, c.shape(kX), "the slope");
  InferShapeOf(c);
}
void PreluOp::Learned(LearnedContext& c) { c.Weights({kSlope}); }
void PreluOp::Eval(EvalContext& c) {
  const Tensor slope = eval::BroadcastTo(c.input(kSlope), c.input(kX).shape());
  const auto prelu = [](auto x, auto s) { return x < 0 ? eval::WrapMul(x, s) : x; };
  c.SetOutput(kY, eval::MapBinary<Numeric>(c.input(kX), slope, prelu));
}

void SwiGluOp::InferShape(InferShapeContext& c) { c.SetShape(kY, Meet(c.shape(kA), c.shape(kB))); }
void SwiGluOp::Eval(EvalContext& c) {
  const double alpha = SwiGluOp(c.op()).alpha();
  if (c.input(kA).shape() != c.input(kB).shape()) {
    c.Fail("shape/same",
           StrCat("the gate has shape ", ShapeToString(c.input(kA).shape()), ", the values have ",
                  ShapeToString(c.input(kB).shape())),
           "both inputs must have one shape");
  }
  Binary<Floats>(c, [alpha](auto a, auto b) {
    return a / (1 + std::exp(-static_cast<decltype(a)>(alpha) * a)) * b;
  });
}

void BitwiseAndOp::Eval(EvalContext& c) {
  Binary<Integers>(c, [](auto a, auto b) { return a & b; });
}
void BitwiseOrOp::Eval(EvalContext& c) {
  Binary<Integers>(c, [](auto a, auto b) { return a | b; });
}
void BitwiseXorOp::Eval(EvalContext& c) {
  Binary<Integers>(c, [](auto a, auto b) { return a ^ b; });
}

void BitShiftOp::Eval(EvalContext& c) {
  const auto width = static_cast<uint64_t>(BitWidth(c.input(kX).element_type()));
  if (BitShiftOp(c.op()).direction() == "LEFT") {
    return Binary<Integers>(c, [width](auto x, auto y) -> decltype(x) {
      const auto amount = static_cast<uint64_t>(y);
      return amount >= width ? 0 : static_cast<decltype(x)>(static_cast<uint64_t>(x) << amount);
    });
  }
  Binary<Integers>(c, [width](auto x, auto y) -> decltype(x) {
    const auto amount = static_cast<uint64_t>(y);
    if (amount < width) return x >> amount;
    return x < 0 ? static_cast<decltype(x)>(-1) : 0;
  });
}

}  // namespace lathe::nn
