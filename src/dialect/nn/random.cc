#include "lathe/dialect/nn/random.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/size_condition.h"

namespace lathe::nn {

namespace {

// `next` gives one number after the other; rounded to `type` at the end.
template <class F>
Tensor Generated(ElementType type, const Shape& shape, F&& next) {
  Tensor values(ElementType::kF64, shape);
  for (double& value : values.mutable_data<double>()) value = next();
  return Cast(values, type);
}

ElementType CheckFloat(ElementType type) {
  switch (type) {
    case ElementType::kF16:
    case ElementType::kBF16:
    case ElementType::kF32:
    case ElementType::kF64:
      return type;
    default:
      eval::FailArgument("type/random",
                         StrCat("dtype is ", Name(type), ", but must be f16, bf16, f32 or f64"));
  }
}

template <class OpT>
Tensor Normals(EvalContext& c, OpT op, ElementType type, const Shape& shape) {
  RandomStream random(c.RandomSeed(op.seed()));
  return Generated(type, shape, [&] { return op.mean() + op.scale() * random.Normal(); });
}

template <class OpT>
Tensor Uniforms(EvalContext& c, OpT op, ElementType type, const Shape& shape) {
  RandomStream random(c.RandomSeed(op.seed()));
  const double low = op.low();
  const double high = op.high();
  if (!(low <= high)) {
    eval::FailArgument("run/random", StrCat("low is ", low, " and high is ", high),
                       "low must not exceed high");
  }
  return Generated(type, shape, [&] { return random.Uniform(low, high); });
}

template <class OpT>
ElementType TypeLike(const EvalContext& c, OpT op) {
  return op.dtype().value_or(c.input(0).element_type());
}

}  // namespace

void RandomNormalOp::InferShape(InferShapeContext& c) {
  const RandomNormalOp op(c.op());
  CheckFloat(op.dtype());
  c.SetShape(kOutput, SymShape::FromConstants(op.shape()));
}
void RandomNormalOp::Eval(EvalContext& c) {
  const RandomNormalOp op(c.op());
  c.SetOutput(kOutput, Normals(c, op, op.dtype(), op.shape()));
}

void RandomNormalLikeOp::InferShape(InferShapeContext& c) {
  const ElementType type = RandomNormalLikeOp(c.op()).dtype().value_or(c.element(kInput));
  c.SetTensor(kOutput, CheckFloat(type), c.shape(kInput));
}
void RandomNormalLikeOp::Eval(EvalContext& c) {
  const RandomNormalLikeOp op(c.op());
  c.SetOutput(kOutput, Normals(c, op, TypeLike(c, op), c.input(kInput).shape()));
}

void RandomUniformOp::InferShape(InferShapeContext& c) {
  const RandomUniformOp op(c.op());
  CheckFloat(op.dtype());
  c.SetShape(kOutput, SymShape::FromConstants(op.shape()));
}
void RandomUniformOp::Eval(EvalContext& c) {
  const RandomUniformOp op(c.op());
  c.SetOutput(kOutput, Uniforms(c, op, op.dtype(), op.shape()));
}

void RandomUniformLikeOp::InferShape(InferShapeContext& c) {
  const ElementType type = RandomUniformLikeOp(c.op()).dtype().value_or(c.element(kInput));
  c.SetTensor(kOutput, CheckFloat(type), c.shape(kInput));
}
void RandomUniformLikeOp::Eval(EvalContext& c) {
  const RandomUniformLikeOp op(c.op());
  c.SetOutput(kOutput, Uniforms(c, op, TypeLike(c, op), c.input(kInput).shape()));
}

void BernoulliOp::InferShape(InferShapeContext& c) {
  c.SetTensor(kOutput, BernoulliOp(c.op()).dtype().value_or(c.element(kInput)), c.shape(kInput));
}
void BernoulliOp::Eval(EvalContext& c) {
  const BernoulliOp op(c.op());
  const Tensor& x = c.input(kInput);
  const auto probabilities = ToDoubles(x);
  RandomStream random(c.RandomSeed(op.seed()));
  auto next = probabilities.begin();
  c.SetOutput(kOutput, Generated(TypeLike(c, op), x.shape(),
                                 [&] { return random.NextDouble() < *next++ ? 1.0 : 0.0; }));
}

// ---- what the others are made of ----

void RandomKeyOp::InferShape(InferShapeContext& c) {
  c.SetShape(kKey, SymShape(std::vector<Dim>{2}));
}
void RandomKeyOp::Eval(EvalContext& c) {
  const auto seed = static_cast<int64_t>(c.RandomSeed(RandomKeyOp(c.op()).seed()));
  c.SetOutput(kKey, Tensor::Of<int64_t>({2}, {seed, 0}));
}

namespace {

void CheckKey(const SymShape& key) {
  constexpr const char* kId = "shape/random-key";
  constexpr const char* kWhat = "the key must be [2], a seed and a stream";
  if (!key.ranked) return;
  if (key.rank() != 1) eval::FailShape(kId, kWhat);
  if (key.dims[0].is_unknown()) return;
  Assume(SizeCondition::Equal(key.dims[0], 2), kId, [&] { return std::string(kWhat); });
}

}  // namespace

void PhiloxOp::InferShape(InferShapeContext& c) {
  CheckKey(c.shape(kKey));
  c.SetShape(kOutput, c.shape(kLike));
}
void PhiloxOp::Eval(EvalContext& c) {
  const PhiloxOp op(c.op());
  const Tensor& key = c.input(kKey);
  CheckKey(SymShape::FromConstants(key.shape()));
  const auto words = key.data<int64_t>();
  RandomStream random(static_cast<uint64_t>(words[0]), static_cast<uint64_t>(words[1]));
  random.Skip(2 * static_cast<uint64_t>(op.offset()));  // a number is two of 32 bits
  const auto between = 2 * static_cast<uint64_t>(op.stride() - 1);
  c.SetOutput(kOutput, Generated(ElementType::kF64, c.input(kLike).shape(), [&] {
                const double number = random.NextDouble();
                random.Skip(between);
                return number;
              }));
}

// ---- multinomial ----

namespace {

SymShape MultinomialRule(const SymShape& in, int64_t samples) {
  if (in.ranked && in.rank() != 2) {
    eval::FailShape("shape/multinomial",
                    StrCat("the input must be [batch, classes], not of rank ", in.rank()));
  }
  if (!in.ranked) return {Dim(), samples};
  Assume(SizeCondition::AtLeast(in.dims[1], Min(in.dims[0] * samples, 1)), "shape/multinomial",
         [] { return std::string("there are no classes to draw from"); });
  return {in.dims[0], samples};
}

// Running sums of the (not normalized) probabilities of one row.
std::vector<double> Cumulative(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> sums;
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
    sums.push_back(sum);
  }
  return sums;
}

double Draw(std::span<const double> sums, RandomStream& random) {
  const double target = random.NextDouble() * sums.back();
  const auto at = std::upper_bound(sums.begin(), sums.end(), target) - sums.begin();
  return static_cast<double>(std::min<std::ptrdiff_t>(at, std::ssize(sums) - 1));
}

}  // namespace

void MultinomialOp::InferShape(InferShapeContext& c) {
  const MultinomialOp op(c.op());
  if (op.dtype() != ElementType::kI32 && op.dtype() != ElementType::kI64) {
    c.Fail("type/random", StrCat("dtype is ", Name(op.dtype()), ", but must be i32 or i64"));
  }
  c.SetShape(kOutput, MultinomialRule(c.shape(kInput), op.sample_size()));
}

void MultinomialOp::Eval(EvalContext& c) {
  const MultinomialOp op(c.op());
  const Tensor& x = c.input(kInput);
  (void)MultinomialRule(SymShape::FromConstants(x.shape()), op.sample_size());
  const auto classes = static_cast<size_t>(x.shape()[1]);
  const auto logits = ToDoubles(x);
  RandomStream random(c.RandomSeed(op.seed()));
  Tensor out(ElementType::kF64, {x.shape()[0], op.sample_size()});
  auto draws = out.mutable_data<double>();
  const auto samples = static_cast<size_t>(op.sample_size());
  for (size_t row = 0; samples > 0 && row < draws.size() / samples; ++row) {
    const auto sums = Cumulative(std::span(logits).subspan(row * classes, classes));
    for (size_t i = 0; i < samples; ++i) draws[row * samples + i] = Draw(sums, random);
  }
  c.SetOutput(kOutput, Cast(out, op.dtype()));
}

}  // namespace lathe::nn
