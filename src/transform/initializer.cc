#include "src/transform/initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/random.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe {

namespace {

using nn::Term;

constexpr int64_t kOrthogonalSteps = 60;
constexpr double kTruncation = 2;  // standard deviations

Term CastTerm(Term x, ElementType to) {
  if (x.element() == to) return x;
  return {x.builder(), nn::CastOp::Create(x.builder(), x, {.to = to}).output()};
}

/// What random numbers are drawn in: halves would repeat.
ElementType DrawnType(ElementType element) {
  return element == ElementType::kF64 ? ElementType::kF64 : ElementType::kF32;
}

Term Filled(Builder& b, const InitialTensor& t, double value) {
  const Tensor filling = Cast(Tensor::Of<double>({1}, {value}), t.element);
  const Value shape = nn::IntsConstant(b, t.shape);
  return {b, nn::ConstantOfShapeOp::Create(b, shape, {.value = filling}).output()};
}

/// In [-1, 1).
Term Uniform(Builder& b, const InitialTensor& t, ElementType drawn) {
  return {b, nn::RandomUniformOp::Create(
                 b, {.shape = t.shape, .dtype = drawn, .low = -1, .high = 1, .seed = t.seed})
                 .output()};
}

Term Normal(Builder& b, const Shape& shape, ElementType drawn, float seed) {
  return {b,
          nn::RandomNormalOp::Create(b, {.shape = shape, .dtype = drawn, .seed = seed}).output()};
}

/// The inverse of the error function, for |p| < 0.96: Winitzki's approximation, then Newton's
/// steps.
Term InverseErf(Term p) {
  constexpr double kA = 0.147;
  const Term log = Log(1 - p * p);
  const Term t = log * 0.5 + 2 / (std::numbers::pi * kA);
  Term x = p.Call(nn::kSign) * Sqrt(Sqrt(t * t - log / kA) - t);
  for (int i = 0; i < 3; ++i) {
    x = x - (x.Call(nn::kErf) - p) * Exp(x * x) * (std::sqrt(std::numbers::pi) / 2);
  }
  return x;
}

/// Of mean 0 and deviation 1 before what lies beyond two deviations is drawn again.
Term TruncatedNormal(Builder& b, const InitialTensor& t) {
  const double bound = std::erf(kTruncation / std::numbers::sqrt2);
  const Term x =
      InverseErf(CastTerm(Uniform(b, t, DrawnType(t.element)), ElementType::kF64) * bound) *
      std::numbers::sqrt2;
  return Least(Greatest(x, -kTruncation), kTruncation);
}

Term Product(Term x, Term y, bool transpose_x = false) {
  Builder& b = x.builder();
  return {b, nn::MatmulOp::Create(b, x, y, {.transpose_x = transpose_x}).z()};
}

/// x (3 - x^T x) / 2: singular values below sqrt(3) approach 1, and nothing else changes.
Term PolarStep(Term x) { return x * 1.5 - Product(x, Product(x, x, true)) * 0.5; }

/// The nearest matrix with orthonormal columns, for as many rows as columns or more. Source:
/// Bjoerck and Bowie, An Iterative Algorithm for Computing the Best Estimate of an Orthogonal
/// Matrix, 1971.
Term Orthogonalized(Term x) {
  Builder& b = x.builder();
  const Term norm(b, nn::ReduceL2Op::Create(b, x, Value(), {.keepdims = false}).reduced());
  const Value start = x / norm;
  const Value trips = nn::IntConstant(b, kOrthogonalSteps);
  const Value operands[] = {trips, Value(), start};
  const Type type = start.type();
  Operation* loop = b.Create(b.context().FindOp(cf::kWhile), operands, {}, {&type, 1}, 1);
  Block* body = loop->region(0).AddBlock();
  body->AddArgument(trips.type());
  const Value condition = body->AddArgument(
      VTensorType::Get(b.context(), SymShape::FromConstants({}), ElementType::kBool));
  const Value before = body->AddArgument(type);
  Builder inside = Builder::AtEnd(body);
  const Value yields[] = {condition, PolarStep(Term(inside, before))};
  inside.Create(cf::kYield, yields);
  return {b, loop->result(0)};
}

/// Rows or columns, whichever are fewer, of length 1 and at right angles.
Term Orthogonal(Builder& b, const InitialTensor& t) {
  const int64_t rows = t.shape.empty() ? 1 : t.shape[0];
  const int64_t columns = rows == 0 ? 0 : NumElements(t.shape) / rows;
  if (rows == 0 || columns == 0) return Filled(b, t, 0);
  const ElementType drawn = DrawnType(t.element);
  const Shape tall = {std::max(rows, columns), std::min(rows, columns)};
  Term x = Orthogonalized(Normal(b, tall, drawn, t.seed));
  if (rows < columns) x = x.Call(nn::kTranspose);
  return x.Call(nn::kReshape, {nn::IntsConstant(b, t.shape)});
}

double Fan(const Pass& options, const Fans& fans) {
  return options.option("mode") == "fan_out" ? fans.out : fans.in;
}

double Gain(const Pass& options, double usual) {
  const double gain = options.option_float("gain");
  return gain == 0 ? usual : gain;
}

/// The deviation of Glorot and Bengio.
double XavierStd(const Pass& options, const Fans& fans) {
  return Gain(options, 1) * std::sqrt(2 / (fans.in + fans.out));
}

/// The deviation of He et al.
double KaimingStd(const Pass& options, const Fans& fans) {
  return Gain(options, std::numbers::sqrt2) / std::sqrt(Fan(options, fans));
}

struct Initializer {
  const char* name;
  Term (*build)(Builder& b, const Pass& options, const InitialTensor& t);
};

Term ScaledUniform(Builder& b, const InitialTensor& t, double bound) {
  return Uniform(b, t, DrawnType(t.element)) * bound;
}
Term ScaledNormal(Builder& b, const InitialTensor& t, double deviation) {
  return Normal(b, t.shape, DrawnType(t.element), t.seed) * deviation;
}

const std::vector<Initializer>& Initializers() {
  using B = Builder;
  using T = InitialTensor;
  static const std::vector<Initializer> kAll = {
      {"zeros", [](B& b, const Pass&, const T& t) { return Filled(b, t, 0); }},
      {"ones", [](B& b, const Pass&, const T& t) { return Filled(b, t, 1); }},
      {"constant",
       [](B& b, const Pass& o, const T& t) { return Filled(b, t, o.option_float("value")); }},
      {"uniform",
       [](B& b, const Pass& o, const T& t) {
         return ScaledUniform(b, t, std::numbers::sqrt3 * o.option_float("std")) +
                o.option_float("mean");
       }},
      {"normal",
       [](B& b, const Pass& o, const T& t) {
         return ScaledNormal(b, t, o.option_float("std")) + o.option_float("mean");
       }},
      {"truncated_normal",
       [](B& b, const Pass& o, const T& t) {
         return TruncatedNormal(b, t) * o.option_float("std") + o.option_float("mean");
       }},
      {"xavier_uniform",
       [](B& b, const Pass& o, const T& t) {
         return ScaledUniform(b, t, std::numbers::sqrt3 * XavierStd(o, t.fans));
       }},
      {"xavier_normal",
       [](B& b, const Pass& o, const T& t) { return ScaledNormal(b, t, XavierStd(o, t.fans)); }},
      {"kaiming_uniform",
       [](B& b, const Pass& o, const T& t) {
         return ScaledUniform(b, t, std::numbers::sqrt3 * KaimingStd(o, t.fans));
       }},
      {"kaiming_normal",
       [](B& b, const Pass& o, const T& t) { return ScaledNormal(b, t, KaimingStd(o, t.fans)); }},
      {"fan_in_uniform",
       [](B& b, const Pass&, const T& t) { return ScaledUniform(b, t, 1 / std::sqrt(t.fans.in)); }},
      {"orthogonal", [](B& b, const Pass& o, const T& t) { return Orthogonal(b, t) * Gain(o, 1); }},
  };
  return kAll;
}

}  // namespace

std::vector<std::string> InitializerNames() {
  std::vector<std::string> names;
  for (const Initializer& i : Initializers()) names.emplace_back(i.name);
  return names;
}

Value BuildInitial(Builder& b, const Pass& options, std::string_view method,
                   const InitialTensor& tensor) {
  const auto at = std::find_if(Initializers().begin(), Initializers().end(),
                               [&](const Initializer& i) { return i.name == method; });
  LATHE_CHECK(at != Initializers().end(), "no initializer ", method);
  return CastTerm(at->build(b, options, tensor), tensor.element);
}

}  // namespace lathe
