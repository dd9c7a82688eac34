#include "lathe/dialect/nn/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/wide.h"

namespace lathe::nn {

namespace {

constexpr size_t kData = 0, kAxes = 1, kReduced = 0;

struct Options {
  bool keepdims;
  bool noop_with_empty_axes;

  template <class OpT>
  static Options Of(OpT op) {
    return {op.keepdims(), op.noop_with_empty_axes()};
  }
};

// Which axes are reduced: those given, or where none is, all or none.
std::vector<bool> ReducedAxes(std::span<const int64_t> axes, size_t rank, const Options& options) {
  if (axes.empty()) return std::vector<bool>(rank, !options.noop_with_empty_axes);
  std::vector<bool> result(rank, false);
  for (const int64_t axis : eval::NormalizeAxes(axes, static_cast<int64_t>(rank))) {
    result[static_cast<size_t>(axis)] = true;
  }
  return result;
}

SymShape ReduceRule(const SymShape& in, const std::vector<bool>& reduced, bool keepdims) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < in.rank(); ++i) {
    if (!reduced[i]) {
      dims.push_back(in.dims[i]);
    } else if (keepdims) {
      dims.push_back(1);
    }
  }
  return dims;
}

// ---- inference ----

// The axes themselves are not known.
SymShape RankOnly(const InferShapeContext& c, const SymShape& in, bool keepdims) {
  if (keepdims) return SymShape::OfRank(in.rank());
  const auto axes = c.Contents(kAxes);
  const bool counts = axes && !axes->empty() && axes->size() <= in.rank();
  return counts ? SymShape::OfRank(in.rank() - axes->size()) : SymShape();
}

// None if they are computed.
std::optional<std::vector<int64_t>> AxesOf(const InferShapeContext& c) {
  return c.HasInput(kAxes) ? c.ConstantInts(kAxes) : std::vector<int64_t>();
}

SymShape InferReduce(const InferShapeContext& c, const Options& options) {
  const SymShape in = c.shape(kData);
  if (!in.ranked) {
    const bool all = !c.HasInput(kAxes) && !options.noop_with_empty_axes && !options.keepdims;
    return all ? SymShape::OfRank(0) : SymShape();
  }
  const auto axes = AxesOf(c);
  if (!axes) return RankOnly(c, in, options.keepdims);
  return ReduceRule(in, ReducedAxes(*axes, in.rank(), options), options.keepdims);
}

// Contents of a reduced vector of integers.
void PublishReduce(InferShapeContext& c, const SymShape& out, DimFunction f, const Dim& first) {
  const auto contents = SmallContents(c, kData);
  if (!contents || !out.ranked || !ProvablyEqual(out.NumElements(), 1)) return;
  Dim result = first;
  for (size_t i = 0; i < contents->size(); ++i) {
    result = i == 0 && first.is_unknown() ? (*contents)[i] : f(result, (*contents)[i]);
  }
  c.SetContents(kReduced, {result});
}

template <class OpT>
void InferWith(InferShapeContext& c, DimFunction f = nullptr, const Dim& first = {}) {
  const SymShape out = InferReduce(c, Options::Of(OpT(c.op())));
  c.SetShape(kReduced, out);
  if (f != nullptr) PublishReduce(c, out, f, first);
}

// ---- evaluation ----

// What a set of values reduces to; `type` is that of the tensor they come from.
template <class C>
using Reducer = C (*)(std::span<const C> values, ElementType type);

// Extents and strides of the kept and of the reduced axes.
struct Nest {
  std::vector<int64_t> kept, kept_strides, reduced, reduced_strides;

  Nest(const Shape& shape, const std::vector<bool>& is_reduced) {
    const auto strides = eval::RowMajorStrides(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      (is_reduced[i] ? reduced : kept).push_back(shape[i]);
      (is_reduced[i] ? reduced_strides : kept_strides).push_back(strides[i]);
    }
  }
};

// Where every combination of the given axes lies, in row-major order.
std::vector<int64_t> Offsets(std::span<const int64_t> extents, std::span<const int64_t> strides) {
  std::vector<int64_t> offsets(static_cast<size_t>(NumElements(extents)), 0);
  std::vector<int64_t> index(extents.size(), 0);
  for (int64_t& offset : offsets) {
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
    (void)eval::NextIndex(extents, index);
  }
  return offsets;
}

template <class C>
Tensor Reduce(const Tensor& x, const std::vector<bool>& reduced, Shape shape, Reducer<C> f) {
  if (NumElements(shape) == 0) return Tensor(x.element_type(), std::move(shape));
  const std::vector<C> values = eval::LoadAll<C>(x);
  const Nest nest(x.shape(), reduced);
  const auto members = Offsets(nest.reduced, nest.reduced_strides);
  std::vector<C> set(members.size());
  std::vector<C> results;
  for (const int64_t base : Offsets(nest.kept, nest.kept_strides)) {
    for (size_t i = 0; i < members.size(); ++i) {
      set[i] = values[static_cast<size_t>(base + members[i])];
    }
    results.push_back(f(set, x.element_type()));
  }
  return eval::MakeTensor<C>(x.element_type(), std::move(shape), results);
}

std::vector<bool> ReducedAxes(EvalContext& c, const Options& options) {
  std::vector<int64_t> axes;
  if (c.HasInput(kAxes)) axes = ToInt64s(c.input(kAxes));
  return ReducedAxes(axes, c.input(kData).shape().size(), options);
}

// The mean of an empty set of integers is not defined. An empty result asks for nothing.
void AssumeSomeToAverage(const SymShape& in, const std::vector<bool>& reduced) {
  Dim members = 1, means = 1;
  for (size_t i = 0; i < in.rank(); ++i) (reduced[i] ? members : means) *= in.dims[i];
  Assume(SizeCondition::AtLeast(members, Min(means, 1)), "run/empty-mean",
         [] { return std::string("the mean of no integers is not defined"); });
}

// R::Of<C> is the Reducer<C> of the op.
template <class R>
void EvalWith(EvalContext& c, const Options& options) {
  const Tensor& x = c.input(kData);
  const auto reduced = ReducedAxes(c, options);
  const auto shape =
      ReduceRule(SymShape::FromConstants(x.shape()), reduced, options.keepdims).Constants();
  c.SetOutput(kReduced, eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
                return Reduce<C>(x, reduced, *shape, &R::template Of<C>);
              }));
}

struct Sum {
  template <class C>
  static C Of(std::span<const C> values, ElementType) {
    C sum = 0;
    for (const C value : values) sum = eval::WrapAdd(sum, value);
    return sum;
  }
};

struct Mean {
  template <class C>
  static C Of(std::span<const C> values, ElementType type) {
    return Sum::Of(values, type) / static_cast<C>(values.size());
  }
};

struct Prod {
  template <class C>
  static C Of(std::span<const C> values, ElementType) {
    C product = 1;
    for (const C value : values) product = eval::WrapMul(product, value);
    return product;
  }
};

// The smallest (or with `lowest` false the largest) value that a tensor of `type` can hold.
template <class C>
C Extreme(ElementType type, bool lowest) {
  if constexpr (std::is_floating_point_v<C>) {
    return lowest ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::infinity();
  } else {
    const int bits = type == ElementType::kBool ? 1 : BitWidth(type);
    const uint64_t all = ~uint64_t{0} >> (64 - bits);
    if (std::is_unsigned_v<C>) return lowest ? C{0} : static_cast<C>(all);
    const auto largest = static_cast<C>(all >> 1);
    return lowest ? static_cast<C>(-largest - 1) : largest;
  }
}

struct Largest {
  template <class C>
  static C Of(std::span<const C> values, ElementType type) {
    C result = Extreme<C>(type, true);
    for (const C value : values) result = eval::NanMax(result, value);
    return result;
  }
};

struct Smallest {
  template <class C>
  static C Of(std::span<const C> values, ElementType type) {
    C result = Extreme<C>(type, false);
    for (const C value : values) result = eval::NanMin(result, value);
    return result;
  }
};

struct L1 {
  template <class C>
  static C Of(std::span<const C> values, ElementType) {
    C sum = 0;
    for (const C value : values) {
      sum = value < 0 ? eval::WrapSub(sum, value) : eval::WrapAdd(sum, value);
    }
    return sum;
  }
};

struct SumSquare {
  template <class C>
  static C Of(std::span<const C> values, ElementType) {
    C sum = 0;
    for (const C value : values) sum = eval::WrapAdd(sum, eval::WrapMul(value, value));
    return sum;
  }
};

// The number towards zero; 0 for NaN. One that is too large becomes what nn.cast makes of it.
template <class C>
C Truncated(double value) {
  if constexpr (std::is_integral_v<C>) {
    const double limit = std::ldexp(1, std::is_signed_v<C> ? 63 : 64);
    if (std::isnan(value)) return 0;
    if (value >= limit) return std::is_signed_v<C> ? std::numeric_limits<C>::min() : 0;
    if (value <= (std::is_signed_v<C> ? -limit : 0)) return std::numeric_limits<C>::min();
  }
  return static_cast<C>(value);
}

struct L2 {
  template <class C>
  static C Of(std::span<const C> values, ElementType) {
    double sum = 0;
    for (const C value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return Truncated<C>(std::sqrt(sum));
  }
};

struct LogSum {
  template <class C>
  static C Of(std::span<const C> values, ElementType type) {
    return Truncated<C>(std::log(static_cast<double>(Sum::Of(values, type))));
  }
};

struct LogSumExp {
  template <class C>
  static C Of(std::span<const C> values, ElementType) {
    double largest = -std::numeric_limits<double>::infinity();
    for (const C value : values) largest = eval::NanMax(largest, static_cast<double>(value));
    if (!std::isfinite(largest)) return Truncated<C>(largest);
    double sum = 0;
    for (const C value : values) sum += std::exp(static_cast<double>(value) - largest);
    return Truncated<C>(largest + std::log(sum));
  }
};

}  // namespace

void ReduceSumOp::InferShape(InferShapeContext& c) { InferWith<ReduceSumOp>(c, DimAdd, 0); }
void ReduceSumOp::Eval(EvalContext& c) { EvalWith<Sum>(c, Options::Of(ReduceSumOp(c.op()))); }

void ReduceMeanOp::InferShape(InferShapeContext& c) {
  InferWith<ReduceMeanOp>(c);
  const auto axes = AxesOf(c);
  if (!axes || !c.shape(kData).ranked || IsFloat(c.element(kData))) return;
  const SymShape in = c.shape(kData);
  AssumeSomeToAverage(in, ReducedAxes(*axes, in.rank(), Options::Of(ReduceMeanOp(c.op()))));
}
void ReduceMeanOp::Eval(EvalContext& c) {
  const Options options = Options::Of(ReduceMeanOp(c.op()));
  const Tensor& x = c.input(kData);
  if (!IsFloat(x.element_type())) {
    AssumeSomeToAverage(SymShape::FromConstants(x.shape()), ReducedAxes(c, options));
  }
  EvalWith<Mean>(c, options);
}

void ReduceMaxOp::InferShape(InferShapeContext& c) { InferWith<ReduceMaxOp>(c, DimMax); }
void ReduceMaxOp::Eval(EvalContext& c) { EvalWith<Largest>(c, Options::Of(ReduceMaxOp(c.op()))); }

void ReduceMinOp::InferShape(InferShapeContext& c) { InferWith<ReduceMinOp>(c, DimMin); }
void ReduceMinOp::Eval(EvalContext& c) { EvalWith<Smallest>(c, Options::Of(ReduceMinOp(c.op()))); }

void ReduceProdOp::InferShape(InferShapeContext& c) { InferWith<ReduceProdOp>(c, DimMul, 1); }
void ReduceProdOp::Eval(EvalContext& c) { EvalWith<Prod>(c, Options::Of(ReduceProdOp(c.op()))); }

void ReduceL1Op::InferShape(InferShapeContext& c) { InferWith<ReduceL1Op>(c); }
void ReduceL1Op::Eval(EvalContext& c) { EvalWith<L1>(c, Options::Of(ReduceL1Op(c.op()))); }

void ReduceL2Op::InferShape(InferShapeContext& c) { InferWith<ReduceL2Op>(c); }
void ReduceL2Op::Eval(EvalContext& c) { EvalWith<L2>(c, Options::Of(ReduceL2Op(c.op()))); }

void ReduceLogSumOp::InferShape(InferShapeContext& c) { InferWith<ReduceLogSumOp>(c); }
void ReduceLogSumOp::Eval(EvalContext& c) {
  EvalWith<LogSum>(c, Options::Of(ReduceLogSumOp(c.op())));
}

void ReduceLogSumExpOp::InferShape(InferShapeContext& c) { InferWith<ReduceLogSumExpOp>(c); }
void ReduceLogSumExpOp::Eval(EvalContext& c) {
  EvalWith<LogSumExp>(c, Options::Of(ReduceLogSumExpOp(c.op())));
}

void ReduceSumSquareOp::InferShape(InferShapeContext& c) { InferWith<ReduceSumSquareOp>(c); }
void ReduceSumSquareOp::Eval(EvalContext& c) {
  EvalWith<SumSquare>(c, Options::Of(ReduceSumSquareOp(c.op())));
}

}  // namespace lathe::nn
