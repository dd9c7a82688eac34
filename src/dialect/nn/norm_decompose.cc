#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/term.h"

// Where a rank or an extent would have to be known and is not, nothing is returned.
namespace lathe::nn {

namespace {

using Values = std::vector<Value>;
constexpr size_t kAnyRank = SIZE_MAX;

size_t RankOf(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  return type.has_rank() ? type.rank() : kAnyRank;
}

std::vector<int64_t> AxesFrom(size_t first, size_t rank) {
  std::vector<int64_t> axes(rank - first);
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(first));
  return axes;
}

size_t FromFront(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

struct Moments {
  Term mean, deviation, variance;  // deviation: x - mean
};
Moments MomentsOf(const Term& x, const std::vector<int64_t>& axes) {
  const Term mean = Reduced(x, nn::kReduceMean, axes);
  const Term deviation = x - mean;
  return {mean, deviation, Reduced(deviation * deviation, nn::kReduceMean, axes)};
}

/// With `scale` and `b` [C] of a tensor of this rank.
Term Affine(const Term& x, Value scale, Value b, size_t rank) {
  return x * PerChannel({x.builder(), scale}, rank) + PerChannel({x.builder(), b}, rank);
}

bool SameElements(Operation* o, size_t count) {
  const ElementType first = o->operand(0).type().cast<AnyTensorType>().element();
  for (size_t i = 1; i < count; ++i) {
    if (o->operand(i).type().cast<AnyTensorType>().element() != first) return false;
  }
  return true;
}

}  // namespace

// ---- per channel ----

Values BatchNormalizationOp::Decompose(Operation* o, Builder& b) {
  const BatchNormalizationOp op(o);
  const size_t rank = RankOf(op.x());
  if (op.training_mode() || op.layout() || rank == kAnyRank || rank < 2 || !SameElements(o, 5))
    return {};
  const Term x(b, op.x()), factor = Term(b, op.scale()) / Sqrt(Term(b, op.var()) + op.epsilon());
  const Term centered = x - PerChannel({b, op.mean()}, rank);
  Values results{Affine(centered, factor, op.b(), rank), op.mean(), op.var()};
  results.resize(o->num_results());
  return results;
}

Values InstanceNormalizationOp::Decompose(Operation* o, Builder& b) {
  const InstanceNormalizationOp op(o);
  const size_t rank = RankOf(op.x());
  if (rank == kAnyRank || rank < 3) return {};
  const Moments m = MomentsOf({b, op.x()}, AxesFrom(2, rank));
  return {Affine(m.deviation / Sqrt(m.variance + op.epsilon()), op.scale(), op.b(), rank)};
}

Values GroupNormalizationOp::Decompose(Operation* o, Builder& b) {
  const GroupNormalizationOp op(o);
  const size_t rank = RankOf(op.x());
  if (rank == kAnyRank || rank < 2) return {};
  const Term x(b, op.x());
  const Moments m = MomentsOf(
      x.Call(nn::kReshape, {IntsConstant(b, std::vector<int64_t>{0, op.num_groups(), -1})}), {2});
  const Term groups = m.deviation / Sqrt(m.variance + op.epsilon());
  const Term normal(b, ReshapeLike(b, groups, op.x()));
  return {Affine(normal, op.scale(), op.b(), rank)};
}

// ---- rows ----

Values LayerNormalizationOp::Decompose(Operation* o, Builder& b) {
  const LayerNormalizationOp op(o);
  const size_t rank = RankOf(op.x());
  if (rank == kAnyRank) return {};
  const Moments m = MomentsOf({b, op.x()}, AxesFrom(FromFront(op.axis(), rank), rank));
  const Term inverse = 1 / Sqrt(m.variance + op.epsilon());
  Term y = m.deviation * inverse * Term(b, op.scale());
  if (op.b()) y = y + Term(b, op.b());
  Values results{y};
  if (o->num_results() > 1) results.push_back(As(m.mean, op.stash_type()));
  if (o->num_results() > 2) results.push_back(As(inverse, op.stash_type()));
  return results;
}

Values RmsNormalizationOp::Decompose(Operation* o, Builder& b) {
  const RmsNormalizationOp op(o);
  const size_t rank = RankOf(op.x());
  if (rank == kAnyRank) return {};
  const Term x(b, op.x()), scale(b, op.scale());
  const Term squares = Reduced(x * x, nn::kReduceMean, AxesFrom(FromFront(op.axis(), rank), rank));
  return {As(x / Sqrt(squares + op.epsilon()), scale.element()) * scale};
}

// ---- lines ----

Values LpNormalizationOp::Decompose(Operation* o, Builder& b) {
  const LpNormalizationOp op(o);
  const Term x(b, op.x());
  const Term norm = op.p() == 1 ? Reduced(Abs(x), nn::kReduceSum, {op.axis()})
                                : Sqrt(Reduced(x * x, nn::kReduceSum, {op.axis()}));
  return {Where(norm.Call(nn::kEqual, {norm.Number(0)}), norm, x / norm)};
}

Values MeanVarianceNormalizationOp::Decompose(Operation* o, Builder& b) {
  const Moments m = MomentsOf({b, o->operand(0)}, MeanVarianceNormalizationOp(o).axes());
  return {m.deviation / (Sqrt(m.variance) + 1e-9)};
}

Values SoftmaxOp::Decompose(Operation* o, Builder& b) {
  const Term x(b, o->operand(0));
  const std::vector<int64_t> axis{SoftmaxOp(o).axis()};
  const Term powers = Exp(x - Reduced(x, nn::kReduceMax, axis));
  return {powers / Reduced(powers, nn::kReduceSum, axis)};
}

Values LogSoftmaxOp::Decompose(Operation* o, Builder& b) {
  const Term x(b, o->operand(0));
  const std::vector<int64_t> axis{LogSoftmaxOp(o).axis()};
  const Term shifted = x - Reduced(x, nn::kReduceMax, axis);
  return {shifted - Log(Reduced(Exp(shifted), nn::kReduceSum, axis))};
}

// ---- reductions ----

namespace {

/// `op` of `x` over the axes of reduction `o`, with its attributes or with axes kept.
Term LikeIt(Operation* o, const Term& x, std::string_view op, bool keep = false) {
  Values others;
  if (o->num_operands() > 1) others.push_back(o->operand(1));
  std::vector<NamedAttribute> attributes;
  for (const char* name : {"keepdims", "noop_with_empty_axes"}) {
    attributes.push_back(x.builder().Named(name, o->attribute(name)));
  }
  if (keep) attributes[0] = x.builder().Named("keepdims", x.builder().Attr(true));
  return x.Call(op, others, attributes);
}

/// `x` in f64 as integers of 64 bits, and of those the lower bits.
Term CutOff(const Term& x, ElementType to) {
  const bool is_signed = IsSigned(to);
  const ElementType wide = is_signed ? ElementType::kI64 : ElementType::kU64;
  return As(As(is_signed ? x : Greatest(x, 0), wide), to);
}

/// What `f` makes of x; of integers in f64, cut off.
Values OfFloats(const Term& x, const std::function<Term(const Term& x)>& f) {
  if (IsFloat(x.element())) return {f(x)};
  return {CutOff(f(As(x, ElementType::kF64)), x.element())};
}

}  // namespace

Values ReduceL1Op::Decompose(Operation* o, Builder& b) {
  return {LikeIt(o, Abs({b, o->operand(0)}), nn::kReduceSum)};
}
Values ReduceL2Op::Decompose(Operation* o, Builder& b) {
  return OfFloats({b, o->operand(0)},
                  [&](const Term& x) { return Sqrt(LikeIt(o, x * x, nn::kReduceSum)); });
}
Values ReduceSumSquareOp::Decompose(Operation* o, Builder& b) {
  const Term x(b, o->operand(0));
  return {LikeIt(o, x * x, nn::kReduceSum)};
}
Values ReduceLogSumOp::Decompose(Operation* o, Builder& b) {
  const Term x(b, o->operand(0));
  if (IsFloat(x.element())) return {Log(LikeIt(o, x, nn::kReduceSum))};
  // Of no number it is 0, of 0 the least there is.
  const bool is_signed = IsSigned(x.element());
  const ElementType wide = is_signed ? ElementType::kI64 : ElementType::kU64;
  const Term sum = LikeIt(o, As(x, wide), nn::kReduceSum);
  const Term log = As(As(Log(As(sum, ElementType::kF64)), ElementType::kI64), wide);
  const Term none = sum.Call(is_signed ? nn::kLess : nn::kEqual, {sum.Number(0)});
  return {As(Where(none, sum.Number(0), log), x.element())};
}
/// An infinite maximum is not taken off: inf - inf is no number.
Values ReduceLogSumExpOp::Decompose(Operation* o, Builder& b) {
  const auto finite = [](const Term& m) {
    const Term infinite =
        Abs(m).Call(nn::kEqual, {m.Number(std::numeric_limits<double>::infinity())});
    return Where(infinite, m.Number(0), m);
  };
  return OfFloats({b, o->operand(0)}, [&](const Term& x) {
    const Term shifted = x - finite(LikeIt(o, x, nn::kReduceMax, true));
    return Log(LikeIt(o, Exp(shifted), nn::kReduceSum)) + finite(LikeIt(o, x, nn::kReduceMax));
  });
}

namespace {

Values GlobalPool(Operation* o, Builder& b, std::string_view op) {
  const size_t rank = RankOf(o->operand(0));
  if (rank == kAnyRank || rank < 3) return {};
  const auto layout = o->attribute("layout").dyn_cast<StrAttribute>();
  const bool channels_last = layout && layout.value() == "NHWC";
  return {
      Reduced({b, o->operand(0)}, op, channels_last ? AxesFrom(1, rank - 1) : AxesFrom(2, rank))};
}

}  // namespace

Values GlobalAveragePoolOp::Decompose(Operation* o, Builder& b) {
  return GlobalPool(o, b, nn::kReduceMean);
}
Values GlobalMaxPoolOp::Decompose(Operation* o, Builder& b) {
  return GlobalPool(o, b, nn::kReduceMax);
}

// ---- matrices ----

/// Integers under a factor that is no integer are computed in double, which no op here does.
Values GemmOp::Decompose(Operation* o, Builder& b) {
  const GemmOp op(o);
  const auto turned = [&](Value v, bool turn) {
    const std::vector<int64_t> perm{1, 0};
    return turn ? TransposeOp::Create(b, v, {.perm = perm}).transposed() : v;
  };
  Term y = Term(b, turned(op.a(), op.transA())).Call(nn::kMatmul, {turned(op.b(), op.transB())});
  const auto times = [&](const Term& t, double factor) { return factor == 1 ? t : t * factor; };
  if (!IsFloat(y.element()) && (op.alpha() != 1 || op.beta() != 1)) return {};
  y = times(y, op.alpha());
  if (op.c()) y = y + times({b, op.c()}, op.beta());
  return {y};
}

namespace {

/// The product of known extents, if it is not 0.
std::optional<int64_t> KnownProduct(std::span<const Dim> dims) {
  const Dim product = SymShape(std::vector<Dim>(dims.begin(), dims.end())).NumElements();
  if (!product.is_constant() || product.value() == 0) return std::nullopt;
  return product.value();
}

}  // namespace

Values FlattenOp::Decompose(Operation* o, Builder& b) {
  const FlattenOp op(o);
  const size_t rank = RankOf(op.input());
  if (rank == kAnyRank) return {};
  const auto dims = op.input().type().cast<AnyTensorType>().dims();
  const size_t axis = FromFront(op.axis(), rank);
  const auto rows = KnownProduct(dims.first(axis)), columns = KnownProduct(dims.subspan(axis));
  if (!rows && !columns) return {};
  const int64_t first = rows ? *rows : axis == 1 ? 0 : -1;
  const std::vector<int64_t> target{first, columns.value_or(-1)};
  return {ReshapeOp::Create(b, op.input(), IntsConstant(b, target)).reshaped()};
}

}  // namespace lathe::nn
