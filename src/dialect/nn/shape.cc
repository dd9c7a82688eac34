#include "lathe/dialect/nn/shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/reshape.h"

namespace lathe::nn {

using eval::Concrete;
using eval::FailShape;

// ---- shape, size ----

namespace {

// [start, end) as Shape's attributes mean it, within [0, rank].
std::pair<size_t, size_t> AxisRange(ShapeOp op, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  const auto clamp = [r](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + r : axis, 0, r);
  };
  const int64_t start = clamp(op.start());
  return {start, std::max(start, clamp(op.end().value_or(r)))};
}

}  // namespace

void ShapeOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kData);
  if (!in.ranked) return c.SetShape(kExtents, SymShape::OfRank(1));
  const auto [start, end] = AxisRange(ShapeOp(c.op()), in.rank());
  c.SetShape(kExtents, {static_cast<int64_t>(end - start)});
  c.SetContents(kExtents, {in.dims.begin() + static_cast<ptrdiff_t>(start),
                           in.dims.begin() + static_cast<ptrdiff_t>(end)});
}

void ShapeOp::Eval(EvalContext& c) {
  const Shape& shape = c.input(kData).shape();
  const auto [start, end] = AxisRange(ShapeOp(c.op()), shape.size());
  c.SetOutput(kExtents, Tensor::Of<int64_t>({static_cast<int64_t>(end - start)},
                                            std::span(shape).subspan(start, end - start)));
}

void SizeOp::InferShape(InferShapeContext& c) {
  c.SetShape(kCount, SymShape::OfRank(0));
  c.SetContents(kCount, {c.shape(kData).NumElements()});
}

void SizeOp::Eval(EvalContext& c) {
  c.SetOutput(kCount, Tensor::Scalar<int64_t>(c.input(kData).num_elements()));
}

// ---- bind_sizes ----

namespace {

void CheckNames(const Dim& sizes, size_t names) {
  Assume(SizeCondition::Equal(sizes, static_cast<int64_t>(names)), "shape/bind-names",
         [&] { return StrCat(names, " names are given for ", sizes.ToString(), " sizes"); });
}

}  // namespace

void BindSizesOp::InferShape(InferShapeContext& c) {
  const BindSizesOp op(c.op());
  const SymShape in = c.shape(kSizes);
  const auto names = op.names();
  if (in.ranked && in.rank() > 1) FailShape("shape/bind-rank", "sizes are a number or a list");
  if (in.ranked) CheckNames(in.NumElements(), names.size());
  c.SetShape(kBound, in);
  const auto known = SmallContents(c, kSizes);
  std::vector<Dim> contents;
  for (size_t i = 0; i < names.size(); ++i) {
    const Dim same = known && i < known->size() ? (*known)[i] : Dim();
    contents.push_back(names[i].empty() ? same : Dim::Symbol(names[i]));
  }
  if (in.ranked) c.SetContents(kBound, std::move(contents));
}

void BindSizesOp::Eval(EvalContext& c) {
  const Tensor& sizes = c.input(kSizes);
  const auto names = BindSizesOp(c.op()).names();
  CheckNames(sizes.num_elements(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || sizes.data<int64_t>()[i] >= 0) continue;
    throw Error(
        ErrorCode::kShape, "run/size",
        StrCat("the size ", names[i], " that the program computes is ", sizes.data<int64_t>()[i]));
  }
  c.SetOutput(kBound, sizes);
}

// ---- reshape ----

namespace {

bool AreKnown(const std::vector<Dim>& numbers) {
  return std::ranges::none_of(numbers, &Dim::is_unknown);
}

void CheckTargetEntry(const Dim& entry) {
  Assume(
      SizeCondition::AtLeast(entry, -1), "shape/reshape-entry",
      [&] { return StrCat("an entry of the new shape is ", entry.ToString()); },
      "entries are extents, 0 or one -1");
}

Dim CopiedExtent(const SymShape& in, size_t i) {
  if (!in.ranked) return {};
  if (i < in.rank()) return in.dims[i];
  FailShape("shape/reshape-zero",
            StrCat("entry ", i, " of the new shape is 0, but the input has no axis ", i),
            "0 copies the extent of the input; set allowzero for an empty axis");
}

// An entry that only a run knows would copy the extent of the input if it were 0 there: it is not,
// or both are.
void AssumeNoCopy(const SymShape& in, const Dim& entry, size_t i) {
  if (entry.is_constant() || !in.ranked) return;
  const Dim least = i < in.rank() ? Min(in.dims[i], 1) : Dim(1);
  Assume(
      SizeCondition::AtLeast(entry, least), "shape/reshape-zero",
      [&] { return StrCat("entry ", i, " of the new shape, ", entry.ToString(), ", is 0"); },
      "0 copies the extent of the input; set allowzero for an empty axis");
}

// What is left for the entry -1: the quotient of all extents and the other new ones. An axis that
// stays as it is counts on neither side, so a batch of none has rows as long as any other; nor do
// equal factors, so that a symbolic quotient stays simple.
Dim InferredExtent(const SymShape& in, const std::vector<Dim>& target, size_t inferred) {
  if (!in.ranked) return {};
  std::vector<Dim> left;
  const auto stays = [&](size_t i) {
    return i != inferred && i < std::min(in.rank(), target.size()) &&
           ProvablyEqual(target[i], in.dims[i]);
  };
  for (size_t i = 0; i < in.rank(); ++i) {
    if (!stays(i)) left.push_back(in.dims[i]);
  }
  Dim others = 1, divisor = 1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (i == inferred || stays(i)) continue;
    divisor *= target[i];
    const auto same = std::find(left.begin(), left.end(), target[i]);
    if (same != left.end() && !same->IsConstant(0) && !same->is_unknown()) {
      left.erase(same);
    } else {
      others *= target[i];
    }
  }
  const Dim total = SymShape(std::move(left)).NumElements();
  Assume(
      SizeCondition::AtLeast(divisor, 1), "shape/reshape-infer",
      [] { return std::string("-1 is ambiguous beside an extent of 0"); },
      "give the extent as a number");
  Assume(
      SizeCondition::Divides(others, total), "shape/reshape",
      [&] {
        return StrCat("shape ", in.ToString(), " cannot be divided into groups of ",
                      others.ToString(), " elements");
      },
      "the other entries must divide the number of elements");
  return others.is_unknown() || total.is_unknown() ? Dim() : FloorDiv(total, others);
}

void CheckSameSize(const SymShape& in, const SymShape& out) {
  const Dim before = in.NumElements();
  const Dim after = out.NumElements();
  Assume(SizeCondition::Equal(before, after), "shape/reshape", [&] {
    return StrCat("a tensor of shape ", in.ToString(), " cannot become ", out.ToString(), ": ",
                  before.ToString(), " and ", after.ToString(), " elements");
  });
}

}  // namespace

SymShape ReshapeRule(const SymShape& in, std::vector<Dim> target, bool allow_zero) {
  std::optional<size_t> inferred;
  for (size_t i = 0; i < target.size(); ++i) {
    CheckTargetEntry(target[i]);
    if (target[i].IsConstant(-1)) {
      if (inferred) FailShape("shape/reshape-infer", "the new shape has more than one -1");
      inferred = i;
    } else if (target[i].IsConstant(0)) {
      if (!allow_zero) target[i] = CopiedExtent(in, i);
    } else if (!allow_zero) {
      AssumeNoCopy(in, target[i], i);
    }
  }
  if (inferred) target[*inferred] = InferredExtent(in, target, *inferred);
  SymShape out(std::move(target));
  CheckSameSize(in, out);
  return out;
}

namespace {

// The elements stay the same and in order, so known contents do too, if nothing else can be meant.
void ForwardIfSmall(InferShapeContext& c) {
  if (auto array = SmallArrayOf(c, 0)) c.SetContents(0, std::move(array->elements));
}

}  // namespace

void ReshapeOp::InferShape(InferShapeContext& c) {
  const auto target = c.Contents(kShape);
  if (!target) return c.SetShape(kReshaped, {});
  const SymShape out = ReshapeRule(c.shape(kData), *target, ReshapeOp(c.op()).allowzero());
  c.SetShape(kReshaped, out);
  if (AreKnown(*target)) ForwardIfSmall(c);
}

void ReshapeOp::Eval(EvalContext& c) {
  const Tensor& data = c.input(kData);
  if (const Tensor& shape = c.input(kShape); shape.rank() != 1) {
    FailShape("shape/reshape-shape",
              StrCat("the shape is ", shape.TypeString(), ", expected i64[rank]"));
  }
  const SymShape out =
      ReshapeRule(SymShape::FromConstants(data.shape()), ToDims(ToInt64s(c.input(kShape))),
                  ReshapeOp(c.op()).allowzero());
  c.SetOutput(kReshaped, data.Reshaped(Concrete(out)));
}

// ---- flatten, squeeze, unsqueeze ----

namespace {

SymShape FlattenRule(const SymShape& in, int64_t axis) {
  if (!in.ranked) return SymShape::OfRank(2);
  const auto rank = static_cast<int64_t>(in.rank());
  if (axis < -rank || axis > rank) {
    FailShape("shape/axis", StrCat("axis ", axis, " is out of range for rank ", rank),
              StrCat("valid are ", -rank, " to ", rank));
  }
  const ptrdiff_t cut = axis < 0 ? axis + rank : axis;
  const SymShape outer(std::vector<Dim>(in.dims.begin(), in.dims.begin() + cut));
  const SymShape inner(std::vector<Dim>(in.dims.begin() + cut, in.dims.end()));
  return {outer.NumElements(), inner.NumElements()};
}

SymShape SqueezeAllRule(const SymShape& in) {
  std::vector<Dim> dims;
  for (const Dim& dim : in.dims) {
    if (dim.IsConstant(1)) continue;
    if (!ProvablyDifferent(dim, 1)) return {};  // may vanish or not: the rank is open
    dims.push_back(dim);
  }
  return dims;
}

SymShape SqueezeRule(const SymShape& in, std::span<const int64_t> axes) {
  const auto removed = eval::NormalizeAxes(axes, static_cast<int64_t>(in.rank()));
  std::vector<Dim> dims;
  for (size_t i = 0; i < in.rank(); ++i) {
    if (std::find(removed.begin(), removed.end(), static_cast<int64_t>(i)) == removed.end()) {
      dims.push_back(in.dims[i]);
    } else {
      Assume(SizeCondition::Equal(in.dims[i], 1), "shape/squeeze", [&] {
        return StrCat("axis ", i, " of shape ", in.ToString(),
                      " is not of extent 1 and cannot be removed");
      });
    }
  }
  return dims;
}

SymShape UnsqueezeRule(const SymShape& in, std::span<const int64_t> axes) {
  const size_t rank = in.rank() + axes.size();
  const auto added = eval::NormalizeAxes(axes, static_cast<int64_t>(rank));
  std::vector<Dim> dims;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) {
    const bool is_new =
        std::find(added.begin(), added.end(), static_cast<int64_t>(i)) != added.end();
    dims.push_back(is_new ? Dim(1) : in.dims[next++]);
  }
  return dims;
}

// The axes are not known, but how many there are may be.
SymShape OfChangedRank(const InferShapeContext& c, const SymShape& in, bool add) {
  const auto axes = c.Contents(1);
  if (!in.ranked || !axes) return {};
  if (add) return SymShape::OfRank(in.rank() + axes->size());
  return axes->size() <= in.rank() ? SymShape::OfRank(in.rank() - axes->size()) : SymShape();
}

SymShape InferSqueeze(const InferShapeContext& c) {
  const SymShape in = c.shape(SqueezeOp::kData);
  if (!c.HasInput(SqueezeOp::kAxes)) return in.ranked ? SqueezeAllRule(in) : SymShape();
  const auto axes = c.ConstantInts(SqueezeOp::kAxes);
  return in.ranked && axes ? SqueezeRule(in, *axes) : OfChangedRank(c, in, false);
}

}  // namespace

void FlattenOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput, FlattenRule(c.shape(kInput), FlattenOp(c.op()).axis()));
}

void FlattenOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInput);
  const SymShape out = FlattenRule(SymShape::FromConstants(x.shape()), FlattenOp(c.op()).axis());
  c.SetOutput(kOutput, x.Reshaped(Concrete(out)));
}

void SqueezeOp::InferShape(InferShapeContext& c) {
  const SymShape out = InferSqueeze(c);
  c.SetShape(kSqueezed, out);
  ForwardIfSmall(c);
}

void SqueezeOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  const SymShape in = SymShape::FromConstants(x.shape());
  const SymShape out =
      c.HasInput(kAxes) ? SqueezeRule(in, ToInt64s(c.input(kAxes))) : SqueezeAllRule(in);
  c.SetOutput(kSqueezed, x.Reshaped(Concrete(out)));
}

void UnsqueezeOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kData);
  const auto axes = c.ConstantInts(kAxes);
  const SymShape out = in.ranked && axes ? UnsqueezeRule(in, *axes) : OfChangedRank(c, in, true);
  c.SetShape(kExpanded, out);
  ForwardIfSmall(c);
}

void UnsqueezeOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  const SymShape out = UnsqueezeRule(SymShape::FromConstants(x.shape()), ToInt64s(c.input(kAxes)));
  c.SetOutput(kExpanded, x.Reshaped(Concrete(out)));
}

// ---- expand ----

namespace {

// A target entry that is not known can only keep or stretch an extent of 1.
SymShape ExpandRule(const SymShape& in, const std::vector<Dim>& target) {
  for (const Dim& entry : target) {
    Assume(SizeCondition::AtLeast(entry, 0), "shape/negative-dim",
           [&] { return StrCat("an entry of the new shape is ", entry.ToString()); });
  }
  if (!in.ranked) return {};
  const size_t rank = std::max(in.rank(), target.size());
  std::vector<Dim> dims(rank);
  for (size_t back = 1; back <= rank; ++back) {
    const Dim have = back <= in.rank() ? in.dims[in.rank() - back] : Dim(1);
    const Dim want = back <= target.size() ? target[target.size() - back] : Dim(1);
    const bool fixed = have.is_constant() && have.value() != 1;
    dims[rank - back] = want.is_unknown() ? (fixed ? have : Dim())
                                          : Broadcast(SymShape({have}), SymShape({want})).dims[0];
  }
  return dims;
}

}  // namespace

void ExpandOp::InferShape(InferShapeContext& c) {
  const auto target = c.Contents(kShape);
  if (!target) return c.SetShape(kOutput, {});
  const SymShape out = ExpandRule(c.shape(kInput), *target);
  c.SetShape(kOutput, out);
  const auto contents = SmallContents(c, kInput);
  const Dim count = out.NumElements();
  if (!contents || !AreKnown(*target) || out.rank() > 1 || !count.is_constant()) return;
  if (count.value() < 0 || count.value() > static_cast<int64_t>(kMaxContents)) return;
  const auto n = static_cast<size_t>(count.value());
  if (contents->size() == n) return c.SetContents(kOutput, *contents);
  if (contents->size() == 1) c.SetContents(kOutput, std::vector<Dim>(n, contents->front()));
}

void ExpandOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInput);
  const Shape shape =
      Concrete(ExpandRule(SymShape::FromConstants(x.shape()), ToDims(ToInt64s(c.input(kShape)))));
  const auto strides = eval::RowMajorStrides(x.shape());
  eval::View view{0, std::vector<int64_t>(shape.size(), 0)};
  const size_t added = shape.size() - x.shape().size();
  for (size_t i = 0; i < strides.size(); ++i) {
    if (x.shape()[i] != 1) view.strides[added + i] = strides[i];
  }
  c.SetOutput(kOutput, eval::Materialize(x, view, shape));
}

// ---- transpose ----

namespace {

std::vector<size_t> PermutationOf(TransposeOp op, size_t rank) {
  std::vector<size_t> result(rank);
  std::iota(result.rbegin(), result.rend(), size_t{0});
  const auto perm = op.perm();
  if (!perm) return result;
  if (perm->size() != rank) {
    FailShape("shape/transpose",
              StrCat("perm has ", perm->size(), " entries for a tensor of rank ", rank));
  }
  const auto axes = eval::NormalizeAxes(*perm, static_cast<int64_t>(rank));
  std::copy(axes.begin(), axes.end(), result.begin());
  return result;
}

}  // namespace

void TransposeOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kData);
  const TransposeOp op(c.op());
  if (!in.ranked) {
    const auto perm = op.perm();
    return c.SetShape(kTransposed, perm ? SymShape::OfRank(perm->size()) : SymShape());
  }
  std::vector<Dim> dims;
  for (const size_t axis : PermutationOf(op, in.rank())) dims.push_back(in.dims[axis]);
  c.SetShape(kTransposed, std::move(dims));
  const auto array = SmallArrayOf(c, kData);
  if (!array) return;
  std::vector<int64_t> places(array->elements.size());
  std::iota(places.begin(), places.end(), int64_t{0});
  const Tensor moved =
      eval::Permute(Tensor::Of<int64_t>(array->extents, places), PermutationOf(op, in.rank()));
  std::vector<Dim> elements;
  for (const int64_t place : moved.data<int64_t>())
    elements.push_back(array->elements[static_cast<size_t>(place)]);
  c.SetContents(kTransposed, std::move(elements));
}

void TransposeOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kData);
  c.SetOutput(kTransposed, eval::Permute(x, PermutationOf(TransposeOp(c.op()), x.shape().size())));
}

// ---- constant_of_shape ----

namespace {

Tensor FillValue(ConstantOfShapeOp op) {
  const auto value = op.value();
  if (!value) return Tensor::Scalar<float>(0);
  if (value->num_elements() == 1) return *value;
  FailShape("shape/constant-of-shape",
            StrCat("value must have one element, not ", value->TypeString()));
}

SymShape CheckedExtents(std::vector<Dim> dims) {
  for (const Dim& dim : dims) {
    Assume(SizeCondition::AtLeast(dim, 0), "shape/negative-dim",
           [&] { return StrCat("an extent of the shape is ", dim.ToString()); });
  }
  return dims;
}

}  // namespace

void ConstantOfShapeOp::InferShape(InferShapeContext& c) {
  const Tensor value = FillValue(ConstantOfShapeOp(c.op()));
  const auto extents = c.Contents(kInput);
  const SymShape out = extents ? CheckedExtents(*extents) : SymShape();
  c.SetTensor(kOutput, value.element_type(), out);
  if (!IsInteger(value.element_type()) || !out.ranked || out.rank() > 1) return;
  const Dim count = out.NumElements();
  if (!count.is_constant() || count.value() > static_cast<int64_t>(kMaxContents)) return;
  c.SetContents(kOutput, std::vector<Dim>(static_cast<size_t>(count.value()), ToInt64s(value)[0]));
}

void ConstantOfShapeOp::Eval(EvalContext& c) {
  const SymShape out = CheckedExtents(ToDims(ToInt64s(c.input(kInput))));
  c.SetOutput(kOutput, eval::Filled(Concrete(out), FillValue(ConstantOfShapeOp(c.op()))));
}

// ---- range ----

namespace {

[[noreturn]] void FailDelta() { eval::FailArgument("run/range-delta", "the step of a range is 0"); }

// ceil((limit - start) / delta), at least 0. Unknown where it cannot be said.
Dim RangeCount(const Dim& start, const Dim& limit, const Dim& delta) {
  if (!delta.is_constant()) return {};
  if (delta.value() == 0) FailDelta();
  const Dim distance = delta.value() > 0 ? limit - start : start - limit;
  return Max(CeilDiv(distance, delta.value() > 0 ? delta : Dim(0) - delta), 0);
}

// The same of numbers, whose distance may exceed 64 bits.
int64_t IntRangeCount(int64_t start, int64_t limit, int64_t delta) {
  if (delta == 0) FailDelta();
  using Wide = __int128;
  const Wide distance = delta > 0 ? Wide{limit} - start : Wide{start} - limit;
  const Wide step = delta > 0 ? Wide{delta} : -Wide{delta};
  const Wide count = distance <= 0 ? 0 : (distance + step - 1) / step;
  if (count <= INT64_MAX) return static_cast<int64_t>(count);
  throw Error(ErrorCode::kLimit, "limit/size", "a range has more than 2^63 - 1 elements");
}

Dim FloatRangeCount(double start, double limit, double delta) {
  if (delta == 0) FailDelta();
  const double count = std::ceil((limit - start) / delta);
  if (std::isnan(count)) eval::FailArgument("run/range", "a bound of the range is not a number");
  if (count > 9e15) return {};
  return count > 0 ? Dim(static_cast<int64_t>(count)) : Dim(0);
}

std::optional<double> ConstantDouble(const InferShapeContext& c, size_t i) {
  const Tensor* value = c.Constant(i);
  if (value == nullptr || value->num_elements() != 1) return std::nullopt;
  return ToDoubles(*value)[0];
}

// A float that is known to be an integer: a constant, or an extent that was cast.
Dim SingleInteger(InferShapeContext& c, size_t i) {
  constexpr double kExact = 1 << 24;
  if (const auto value = ConstantDouble(c, i)) {
    const bool whole = *value == std::floor(*value) && std::fabs(*value) <= kExact;
    return whole ? Dim(static_cast<int64_t>(*value)) : Dim();
  }
  const auto contents = c.Contents(i);
  return contents && contents->size() == 1 ? (*contents)[0] : Dim();
}

Dim InferRangeCount(InferShapeContext& c) {
  if (IsFloat(c.element(0))) {
    const auto start = ConstantDouble(c, 0), limit = ConstantDouble(c, 1),
               delta = ConstantDouble(c, 2);
    if (start && limit && delta) return FloatRangeCount(*start, *limit, *delta);
    const Dim from = SingleInteger(c, 0), to = SingleInteger(c, 1), step = SingleInteger(c, 2);
    const bool known = !from.is_unknown() && !to.is_unknown() && !step.is_unknown();
    return known ? RangeCount(from, to, step) : Dim();
  }
  const auto start = c.Contents(0), limit = c.Contents(1), delta = c.Contents(2);
  const auto single = [](const auto& x) { return x && x->size() == 1; };
  if (!single(start) || !single(limit) || !single(delta)) return {};
  const Dim count = RangeCount((*start)[0], (*limit)[0], (*delta)[0]);
  if (!count.is_constant() || count.value() > static_cast<int64_t>(kMaxContents)) return count;
  std::vector<Dim> contents;
  for (int64_t i = 0; i < count.value(); ++i) contents.push_back((*start)[0] + (*delta)[0] * i);
  c.SetContents(RangeOp::kOutput, std::move(contents));
  return count;
}

double RoundTo(ElementType type, double value) {
  return ToDoubles(Cast(Tensor::Scalar<double>(value), type))[0];
}

Tensor FloatRange(const EvalContext& c, ElementType type, ElementType stash) {
  const double start = ToDoubles(c.input(0)).at(0);
  const double delta = ToDoubles(c.input(2)).at(0);
  const Dim count = FloatRangeCount(start, ToDoubles(c.input(1)).at(0), delta);
  const bool narrow = type == ElementType::kF16 || type == ElementType::kBF16;
  const bool rounds = narrow && stash == type;
  Tensor values(ElementType::kF64, Concrete({count}));
  auto out = values.mutable_data<double>();
  for (size_t i = 0; i < out.size(); ++i) {
    const double step = static_cast<double>(i) * delta;
    out[i] = start + (rounds ? RoundTo(stash, step) : step);
  }
  return Cast(values, type);
}

Tensor IntRange(const EvalContext& c, ElementType type) {
  const int64_t start = eval::ScalarInt(c.input(0), "start");
  const int64_t delta = eval::ScalarInt(c.input(2), "delta");
  const int64_t count = IntRangeCount(start, eval::ScalarInt(c.input(1), "limit"), delta);
  Tensor values(ElementType::kI64, {count});
  auto out = values.mutable_data<int64_t>();
  int64_t next = start;
  for (int64_t& value : out) {
    value = next;
    next = eval::WrapAdd(next, delta);
  }
  return Cast(values, type);
}

}  // namespace

void RangeOp::InferShape(InferShapeContext& c) { c.SetShape(kOutput, {InferRangeCount(c)}); }

void RangeOp::Eval(EvalContext& c) {
  const ElementType type = c.input(kStart).element_type();
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).num_elements() != 1) {
      FailShape("shape/scalar", StrCat("a bound of the range is ", c.input(i).TypeString(),
                                       ", not a single number"));
    }
  }
  c.SetOutput(kOutput, IsFloat(type) ? FloatRange(c, type, RangeOp(c.op()).stash_type())
                                     : IntRange(c, type));
}

// ---- eye_like ----

void EyeLikeOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kInput);
  if (in.ranked && in.rank() != 2) {
    c.Fail("shape/eye-like", StrCat("the input must be a matrix, not of rank ", in.rank()));
  }
  c.SetTensor(kOutput, EyeLikeOp(c.op()).dtype().value_or(c.element(kInput)),
              in.ranked ? in : SymShape::OfRank(2));
}

void EyeLikeOp::Eval(EvalContext& c) {
  const EyeLikeOp op(c.op());
  const Tensor& x = c.input(kInput);
  if (x.rank() != 2) FailShape("shape/eye-like", "the input must be a matrix");
  Tensor values(ElementType::kU8, x.shape());
  auto out = values.mutable_data<uint8_t>();
  const int64_t rows = x.shape()[0];
  const int64_t columns = x.shape()[1];
  // A diagonal that far off is empty; clamped, the sum below cannot overflow.
  const int64_t k = std::clamp(op.k(), -rows, columns);
  for (int64_t row = 0; columns > 0 && row < rows; ++row) {
    const int64_t column = row + k;
    if (column >= 0 && column < columns) out[static_cast<size_t>(row * columns + column)] = 1;
  }
  c.SetOutput(kOutput, Cast(values, op.dtype().value_or(x.element_type())));
}

}  // namespace lathe::nn
