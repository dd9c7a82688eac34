#include "src/transform/data_sizes.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/dialect/nn/resize.h"
#include "lathe/dialect/nn/sampling.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "src/dialect/bound_sizes.h"
#include "src/transform/unique_values.h"

namespace lathe {

namespace {

// More numbers than a shape has are data.
constexpr int64_t kMostSizes = 32;

}  // namespace

// ---- SizeBuilder ----

Value SizeBuilder::Create(std::string_view op, std::initializer_list<Value> operands,
                          std::initializer_list<NamedAttribute> attributes) {
  Operation* made = rewriter_.Create(op, operands, attributes);
  facts_.Visit(made);
  return made->result(0);
}

Value SizeBuilder::Again(Operation* op, std::span<const Value> operands) {
  Operation* made = rewriter_.Create(op->name(), operands, op->attributes().entries());
  facts_.Visit(made);
  return made->result(0);
}

NamedAttribute SizeBuilder::Attr(std::string_view name, int64_t value) {
  return rewriter_.Named(name, rewriter_.Attr(value));
}

NamedAttribute SizeBuilder::Attr(std::string_view name, bool value) {
  return rewriter_.Named(name, rewriter_.Attr(value));
}

Value SizeBuilder::Constant(const Tensor& tensor) {
  const Value v = rewriter_.Constant(tensor);
  facts_.Visit(v.defining_op());
  return v;
}

Value SizeBuilder::Vector(std::span<const int64_t> values) {
  return Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Value SizeBuilder::Cast(Value v, ElementType element) {
  if (TensorOrNull(v).element() == element) return v;
  const Type type = ElemType::Get(rewriter_.context(), element);
  const auto to = rewriter_.Named("to", TypeAttribute::Get(type));
  return Create(nn::kCast, {v}, {to});
}

Value SizeBuilder::Reshape(Value v, std::initializer_list<int64_t> shape) {
  return Create(nn::kReshape, {v, Vector(std::span(shape.begin(), shape.size()))});
}

Value SizeBuilder::Extent(Value v, size_t axis) {
  const auto a = static_cast<int64_t>(axis);
  return AsScalar(Create(nn::kShape, {v}, {Attr("start", a), Attr("end", a + 1)}));
}

std::string SizeBuilder::FreshName(std::string_view what) {
  for (size_t i = 0;; ++i) {
    std::string name = StrCat(what, "_", i);
    if (names_.insert(name).second) return name;
  }
}

Value SizeBuilder::Bind(Value numbers, std::string_view what) {
  const AnyTensorType type = TensorOrNull(numbers);
  if (!type || !IsInteger(type.element()) || !type.is_static() || type.rank() > 1) return {};
  const int64_t count = type.rank() == 0 ? 1 : type.dims()[0].value();
  if (count > kMostSizes || facts_.Constant(numbers) != nullptr) return {};
  const std::vector<Dim>* known = facts_.Contents(numbers);
  std::vector<std::string> names;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const bool open = known == nullptr || (*known)[i].is_unknown();
    names.push_back(open ? FreshName(what) : "");
  }
  if (std::ranges::all_of(names, &std::string::empty)) return {};
  return Cast(BindAs(Cast(numbers, ElementType::kI64), names), type.element());
}

Value SizeBuilder::Front(Value v, Value count) {
  const int64_t zero = 0, one = 1;
  const Value first = Vector({&zero, 1});
  return Create(nn::kSlice, {v, first, Reshape(count, {1}), first, Vector({&one, 1})});
}

Value SizeBuilder::BindAs(Value numbers, const std::vector<std::string>& names) {
  const auto list = ArrayAttribute::Get(rewriter_.context(), std::span<const std::string>(names));
  computed_.insert(names.begin(), names.end());
  return Create(nn::kBindSizes, {numbers}, {rewriter_.Named("names", list)});
}

std::set<std::string> SymbolNames(const Program& program) {
  std::vector<std::string> names;
  for (OpWalker w(program.module()); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const AnyTensorType type = TensorOrNull(op->result(i));
      if (!type || !type.has_rank()) continue;
      for (const Dim& dim : type.dims()) dim.CollectSymbols(names);
    }
    std::ranges::copy(BoundSizes(op), std::back_inserter(names));
  }
  return {names.begin(), names.end()};
}

// ---- what computes which sizes ----

bool HasOpenSizes(const Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    const AnyTensorType type = TensorOrNull(op->result(i));
    if (!type || !type.has_rank()) continue;
    if (std::ranges::any_of(type.dims(), &Dim::is_unknown)) return true;
  }
  return false;
}

Value Positions(Value x, SizeBuilder& b, std::string_view what) {
  const Value flat = b.Reshape(x, {-1});
  const Value is_set = b.Cast(flat, ElementType::kBool);
  const Value ones = b.Cast(is_set, ElementType::kI64);
  const Value total = b.Create(nn::kReduceSum, {ones}, {b.Attr("keepdims", false)});
  const Value count = b.BindIfOpen(total, what);
  // Each goes to the slot of its number, the others to one more behind them.
  const Value number = b.Create(nn::kCumSum, {ones, b.Scalar(0)}, {b.Attr("exclusive", true)});
  const Value slot = b.Create(nn::kWhere, {is_set, number, count});
  const Value all = b.Iota(b.Extent(flat, 0));
  const Value room = b.Reshape(b.Create(nn::kAdd, {count, b.Scalar(1)}), {1});
  const Value slots = b.Create(nn::kExpand, {b.Scalar(0), room});
  const Value placed = b.Create(nn::kScatterElements, {slots, slot, all});
  return b.Front(placed, count);
}

namespace {

Value NonZero(Operation* op, SizeBuilder& b) {
  const Value x = op->operand(0);
  const auto rank = static_cast<int64_t>(TensorOrNull(x).rank());
  if (rank == 0 || TensorOrNull(x).element() == ElementType::kString) return {};
  Value rest = Positions(x, b, "non_zero");
  std::vector<Value> rows(static_cast<size_t>(rank));
  for (int64_t axis = rank - 1; axis > 0; --axis) {
    const Value extent = b.Extent(x, static_cast<size_t>(axis));
    rows[static_cast<size_t>(axis)] = b.Reshape(b.Create(nn::kMod, {rest, extent}), {1, -1});
    rest = b.Create(nn::kDiv, {rest, extent});
  }
  rows[0] = b.Reshape(rest, {1, -1});
  if (rank == 1) return rows[0];
  Operation* joined =
      b.rewriter().Create(nn::kConcat, rows, std::vector{b.Attr("axis", int64_t{0})});
  b.facts().Visit(joined);
  return joined->result(0);
}

Value Compress(Operation* op, SizeBuilder& b) {
  const auto axis = nn::CompressOp(op).axis();
  const Value kept = Positions(op->operand(1), b, "compress");
  const Value from = axis ? op->operand(0) : b.Reshape(op->operand(0), {-1});
  return b.Create(nn::kGather, {from, kept}, {b.Attr("axis", axis.value_or(0))});
}

std::optional<int64_t> Number(Value v, SizeBuilder& b) {
  const Tensor* t = v ? b.facts().Constant(v) : nullptr;
  if (t == nullptr || !IsInteger(t->element_type()) || t->num_elements() != 1) return std::nullopt;
  return ToInt64s(*t)[0];
}

Value Suppressed(Operation* op, SizeBuilder& b) {
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
  std::vector<NamedAttribute> attributes{
      b.Attr("center_point_box", nn::NonMaxSuppressionOp(op).center_point_box())};
  constexpr size_t kMost = nn::NonMaxSuppressionOp::kMaxOutputBoxesPerClass;
  const auto most = Number(kMost < operands.size() ? operands[kMost] : Value(), b);
  if (most) attributes.push_back(b.Attr("room", std::max<int64_t>(*most, 0)));
  Operation* padded =
      b.rewriter().Create(nn::NonMaxSuppressionPaddedOp::kName, operands, attributes);
  b.facts().Visit(padded);
  const Value count = b.BindIfOpen(padded->result(1), "boxes");
  return b.Front(padded->result(0), count);
}

Value CeilDivOf(Value a, Value b_, SizeBuilder& b) {
  const Value above = b.Create(nn::kSub, {b.Create(nn::kAdd, {a, b_}), b.Scalar(1)});
  return b.Create(nn::kMax, {b.Create(nn::kDiv, {above, b_}), b.Scalar(0)});
}

// Of integers that are not negative they make such.
constexpr std::string_view kKeepSign[] = {
    nn::kAdd,        nn::kCast,      nn::kConcat,  nn::kDiv,   nn::kGather,    nn::kIdentity,
    nn::kMax,        nn::kMin,       nn::kMod,     nn::kMul,   nn::kReduceMax, nn::kReduceMin,
    nn::kReduceProd, nn::kReduceSum, nn::kReshape, nn::kSlice, nn::kSqueeze,   nn::kUnsqueeze,
};
constexpr std::string_view kExtents[] = {nn::kShape, nn::kSize, nn::BindSizesOp::kName};
// Operands behind the first say which, not what.
constexpr std::string_view kPicks[] = {nn::kGather,     nn::kReduceMax, nn::kReduceMin,
                                       nn::kReduceProd, nn::kReduceSum, nn::kReshape,
                                       nn::kSlice,      nn::kSqueeze,   nn::kUnsqueeze};

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool IsKnown(Value v, SizeBuilder& b) {
  const std::vector<Dim>* known = b.facts().Contents(v);
  return known != nullptr && std::ranges::none_of(*known, &Dim::is_unknown);
}

bool IsNotNegative(const Tensor& t) {
  return IsInteger(t.element_type()) &&
         std::ranges::all_of(ToInt64s(t), [](int64_t n) { return n >= 0; });
}

}  // namespace

bool AreExtents(Value numbers, SizeBuilder& b) {
  constexpr size_t kMostOps = 200;
  std::vector<Value> left{numbers};
  std::set<const Operation*> seen;
  while (!left.empty()) {
    const Value v = left.back();
    left.pop_back();
    const Operation* op = v.defining_op();
    if (const Tensor* constant = b.facts().Constant(v)) {
      if (!IsNotNegative(*constant)) return false;
      continue;
    }
    if (op == nullptr || seen.size() > kMostOps) return false;
    if (!seen.insert(op).second || IsOneOf(op->name(), kExtents)) continue;
    if (!IsOneOf(op->name(), kKeepSign)) return false;
    const size_t count = IsOneOf(op->name(), kPicks) ? 1 : op->num_operands();
    const bool joins = op->isa<nn::ConcatOp>();
    for (size_t i = 0; i < count; ++i) {
      if (!joins || !IsKnown(op->operand(i), b)) left.push_back(op->operand(i));
    }
  }
  return true;
}

namespace {

// The entries of a new shape as they are meant: 0 copies the extent of the input, and one -1 is
// what is left. What is meant by none of these stays negative, which no size is.
class ReshapeEntries {
 public:
  // `count`: of the entries.
  ReshapeEntries(nn::ReshapeOp op, int64_t count, SizeBuilder& b)
      : b_(b),
        count_(count),
        rank_(static_cast<int64_t>(TensorOrNull(op.data()).rank())),
        copies_(!op.allowzero()),
        extents_(b.Create(nn::kShape, {op.data()})),
        given_(b.Cast(op.shape(), ElementType::kI64)) {
    const std::vector<int64_t> no_axes(static_cast<size_t>(std::max<int64_t>(count - rank_, 0)),
                                       kNone);
    there_ = Joined({Part(extents_, 0, std::min(count, rank_)), b.Vector(no_axes)});
  }

  Value given() const { return given_; }

  // With what is copied.
  Value Copied() {
    if (!copies_) return given_;
    return b_.Create(nn::kWhere, {Is(given_, 0), there_, given_});
  }

  // With what is copied and what is left.
  Value Meant() {
    const Value copied = Copied();
    const Value is_left = Is(copied, -1);
    return b_.Create(nn::kWhere, {is_left, Left(copied, is_left), copied});
  }

 private:
  static constexpr int64_t kNone = -2;

  // Axes that stay as they are count on neither side, as in the inference of a reshape: a batch of
  // none has rows as long as any other.
  Value Left(Value entries, Value is_left) {
    const Value one = b_.Scalar(1);
    Value others = b_.Create(nn::kWhere, {is_left, one, entries});
    const Value stays = b_.Create(nn::kEqual, {others, there_});
    others = b_.Create(nn::kWhere, {stays, one, others});
    const int64_t both = std::min(count_, rank_);
    const Value rest = b_.Create(nn::kWhere, {Part(stays, 0, both), one, Part(extents_, 0, both)});
    const Value before = Joined({rest, Part(extents_, both, rank_)});
    const Value divisor = Product(others), dividend = Product(before);
    const Value positive = b_.Create(nn::kMax, {divisor, one});
    const Value quotient = b_.Create(nn::kDiv, {dividend, positive});
    const Value divides = Is(b_.Create(nn::kMod, {dividend, positive}), 0);
    const Value number = b_.Create(nn::kReduceSum, {b_.Cast(is_left, ElementType::kI64)},
                                   {b_.Attr("keepdims", false)});
    const Value is_one = b_.Create(nn::kAnd, {b_.Create(nn::kLessOrEqual, {number, one}),
                                              b_.Create(nn::kGreater, {divisor, b_.Scalar(0)})});
    const Value is_known = b_.Create(nn::kAnd, {is_one, divides});
    return b_.Create(nn::kWhere, {is_known, quotient, b_.Scalar(-1)});
  }

  Value Is(Value v, int64_t number) { return b_.Create(nn::kEqual, {v, b_.Scalar(number)}); }

  Value Product(Value v) { return b_.Create(nn::kReduceProd, {v}, {b_.Attr("keepdims", false)}); }

  Value Part(Value v, int64_t from, int64_t to) {
    std::vector<int64_t> entries(static_cast<size_t>(to - from));
    std::iota(entries.begin(), entries.end(), from);
    return b_.Create(nn::kGather, {v, b_.Vector(entries)});
  }

  Value Joined(std::initializer_list<Value> parts) {
    return b_.Create(nn::kConcat, parts, {b_.Attr("axis", int64_t{0})});
  }

  SizeBuilder& b_;
  int64_t count_, rank_;
  bool copies_;
  Value extents_, given_, there_;
};

// Whether an entry that inference knows says the same if 0 is an extent.
bool IsSameWithZero(const Dim& entry, const SymShape& in, size_t i) {
  if (entry.is_unknown() || entry.is_constant()) return true;
  return i < in.rank() && ProvablyEqual(entry, in.dims[i]);
}

// What inference knows of the entries, it keeps.
Value Reshape(Operation* op, SizeBuilder& b) {
  const nn::ReshapeOp reshape(op);
  const AnyTensorType entries = TensorOrNull(reshape.shape());
  if (!entries.is_static() || entries.rank() != 1 || !TensorOrNull(reshape.data()).has_rank())
    return {};
  std::vector<Dim> known(static_cast<size_t>(entries.dims()[0].value()));
  if (const std::vector<Dim>* contents = b.facts().Contents(reshape.shape())) known = *contents;
  if (std::ranges::none_of(known, &Dim::is_unknown) || AreExtents(reshape.shape(), b)) return {};
  ReshapeEntries meant(reshape, std::ssize(known), b);
  // One that is known to be -1 is left to the inference, so none of the others is; but what the
  // inference says of it holds for no entry that is an extent of 0.
  const bool has_left = !reshape.allowzero() && std::ranges::find(known, Dim(-1)) != known.end();
  const Value computed = has_left ? meant.Copied() : meant.Meant();
  bool allow_zero = !has_left;
  std::vector<Value> parts;
  for (int64_t i = 0; i < std::ssize(known); ++i) {
    const Dim& entry = known[static_cast<size_t>(i)];
    const bool is_meant = entry.IsConstant(0) || entry.IsConstant(-1);
    const bool open = entry.is_unknown() || (is_meant && !has_left);
    parts.push_back(b.Create(nn::kGather, {open ? computed : meant.given(), b.Vector({&i, 1})}));
    const auto at = static_cast<size_t>(i);
    if (!IsSameWithZero(entry, TensorOrNull(reshape.data()).shape(), at)) allow_zero = false;
  }
  Operation* joined =
      b.rewriter().Create(nn::kConcat, parts, std::vector{b.Attr("axis", int64_t{0})});
  b.facts().Visit(joined);
  const Value bound = b.BindIfOpen(joined->result(0), "reshape");
  return b.Create(nn::kReshape, {reshape.data(), bound},
                  {b.Attr("allowzero", allow_zero || reshape.allowzero())});
}

// How many numbers there are from one to the other, exclusive.
Value Count(Value from, Value to, int64_t step, SizeBuilder& b) {
  const Value distance = b.Create(nn::kSub, {step > 0 ? to : from, step > 0 ? from : to});
  return CeilDivOf(distance, b.Scalar(step > 0 ? step : -step), b);
}

// The same by any step, -1 by none. The distance may exceed 63 bits.
Value Count(Value from, Value to, Value step, SizeBuilder& b) {
  const auto is_unsigned = [&](Value v) { return b.Cast(v, ElementType::kU64); };
  const Value zero = b.Scalar(0), one = b.Scalar(1);
  const Value is_up = b.Create(nn::kGreater, {step, zero});
  const Value is_none = b.Create(nn::kEqual, {step, zero});
  const Value low = b.Create(nn::kWhere, {is_up, from, to});
  const Value high = b.Create(nn::kWhere, {is_up, to, from});
  const Value distance = is_unsigned(b.Create(nn::kSub, {high, low}));
  const Value size = is_unsigned(b.Create(nn::kWhere, {is_none, one, b.Create(nn::kAbs, {step})}));
  const Value before_last = b.Create(nn::kSub, {distance, is_unsigned(one)});
  const Value rounds =
      b.Create(nn::kAdd, {b.Cast(b.Create(nn::kDiv, {before_last, size}), ElementType::kI64), one});
  const Value is_some = b.Create(nn::kGreater, {high, low});
  const Value count = b.Create(nn::kWhere, {is_some, rounds, zero});
  return b.Create(nn::kWhere, {is_none, b.Scalar(-1), count});
}

Value Steps(Value from, Value count, Value step, SizeBuilder& b) {
  return b.Create(nn::kAdd, {b.Create(nn::kMul, {b.Iota(count), step}), from});
}

Value IntRange(Operation* op, SizeBuilder& b) {
  const ElementType element = TensorOrNull(op->operand(0)).element();
  const auto known = Number(op->operand(2), b);
  if (known && *known == 0) return {};
  const auto number = [&](size_t i) {
    return b.AsScalar(b.Cast(op->operand(i), ElementType::kI64));
  };
  const Value from = number(0), to = number(1), step = number(2);
  const Value count = b.BindIfOpen(Count(from, to, step, b), "range");
  return b.Cast(Steps(from, count, step, b), element);
}

// As the interpreter: in f64.
Value FloatRange(Operation* op, SizeBuilder& b) {
  const ElementType element = TensorOrNull(op->operand(0)).element();
  if (BitWidth(element) < 32) return {};
  const auto as_real = [&](size_t i) {
    return b.AsScalar(b.Cast(op->operand(i), ElementType::kF64));
  };
  const Value from = as_real(0), delta = as_real(2);
  const Value distance = b.Create(nn::kSub, {as_real(1), from});
  const Value exact = b.Create(nn::kCeil, {b.Create(nn::kDiv, {distance, delta})});
  const Value above = b.Create(nn::kMax, {exact, b.Real(0)});
  const Value count = b.BindIfOpen(b.Cast(above, ElementType::kI64), "range");
  const Value numbers = b.Cast(b.Iota(count), ElementType::kF64);
  const Value steps = b.Create(nn::kMul, {numbers, delta});
  return b.Cast(b.Create(nn::kAdd, {steps, from}), element);
}

Value Range(Operation* op, SizeBuilder& b) {
  return IsFloat(TensorOrNull(op->operand(0)).element()) ? FloatRange(op, b) : IntRange(op, b);
}

Value Clamp(Value v, Value low, Value high, SizeBuilder& b) {
  return b.Create(nn::kMin, {b.Create(nn::kMax, {v, low}), high});
}

// An end of a slice as an index in [low, high]; negative counts from the end of the axis.
Value EndOf(Value ends, size_t i, Value extent, Value low, Value high, SizeBuilder& b) {
  const auto at = static_cast<int64_t>(i);
  const Value all = b.Reshape(b.Cast(ends, ElementType::kI64), {-1});
  const Value end = b.Create(nn::kGather, {all, b.Scalar(at)});
  const Value is_negative = b.Create(nn::kLess, {end, b.Scalar(0)});
  const Value from_back = b.Create(nn::kAdd, {end, extent});
  return Clamp(b.Create(nn::kWhere, {is_negative, from_back, end}), low, high, b);
}

// One axis of a slice as a gather.
Value SliceAxis(Operation* op, Value data, size_t i, size_t axis, int64_t step, SizeBuilder& b) {
  const Value extent = b.Extent(data, axis);
  const bool forwards = step > 0;
  const Value last = b.Create(nn::kSub, {extent, b.Scalar(1)});
  const Value from = EndOf(op->operand(1), i, extent, b.Scalar(0), forwards ? extent : last, b);
  const Value to =
      EndOf(op->operand(2), i, extent, b.Scalar(forwards ? 0 : -1), forwards ? extent : last, b);
  const Value count = b.BindIfOpen(Count(from, to, step, b), "slice");
  const Value rows = Steps(from, count, b.Scalar(step), b);
  return b.Create(nn::kGather, {data, rows}, {b.Attr("axis", static_cast<int64_t>(axis))});
}

std::optional<std::vector<int64_t>> Integers(const Operation* op, size_t operand, SizeBuilder& b) {
  const bool given = operand < op->num_operands() && op->operand(operand);
  const Tensor* t = given ? b.facts().Constant(op->operand(operand)) : nullptr;
  return t == nullptr ? std::nullopt : std::optional(ToInt64s(*t));
}

// Of which all axes are known. There are as many starts as axes, whether their type says so or not.
Value Slice(Operation* op, SizeBuilder& b) {
  Value data = op->operand(0);
  const auto rank = static_cast<int64_t>(TensorOrNull(data).rank());
  const bool all_axes = op->num_operands() < 4 || !op->operand(3);
  const bool no_steps = op->num_operands() < 5 || !op->operand(4);
  const auto axes = Integers(op, 3, b), steps = Integers(op, 4, b);
  if ((!all_axes && !axes) || (!no_steps && !steps)) return {};
  const AnyTensorType starts = TensorOrNull(op->operand(1));
  if (!starts || !starts.has_rank() || starts.rank() > 1) return {};
  if (!axes && !starts.is_static()) return {};
  const auto given = [&] { return starts.rank() == 0 ? 1 : starts.dims()[0].value(); };
  const size_t count = axes ? axes->size() : static_cast<size_t>(given());
  if (steps && steps->size() != count) return {};
  for (size_t i = 0; i < count; ++i) {
    const int64_t step = steps ? (*steps)[i] : 1;
    if (step == 0 || step == std::numeric_limits<int64_t>::min()) return {};
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i);
    const auto a = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    data = SliceAxis(op, data, i, a, steps ? (*steps)[i] : 1, b);
  }
  return data;
}

// Whether there are so many numbers whatever the symbols are.
bool HasCount(Value numbers, int64_t count) {
  const AnyTensorType type = TensorOrNull(numbers);
  return type && type.has_rank() && type.rank() == 1 && type.dims()[0].IsConstant(count);
}

// The same with sizes, as the interpreter computes them: in f64.
Value Resize(Operation* op, SizeBuilder& b) {
  const nn::ResizeOp resize(op);
  if (!resize.scales() || resize.sizes()) return {};
  const auto rank = static_cast<int64_t>(TensorOrNull(op->operand(0)).rank());
  std::vector<int64_t> axes = resize.axes().value_or(std::vector<int64_t>());
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  for (int64_t axis = 0; !resize.axes() && axis < rank; ++axis) axes.push_back(axis);
  if (!HasCount(resize.scales(), std::ssize(axes))) return {};
  const Value all = b.Create(nn::kShape, {op->operand(0)});
  const Value extents = b.Create(nn::kGather, {all, b.Vector(axes)});
  const Value product = b.Create(
      nn::kMul, {b.Cast(extents, ElementType::kF64), b.Cast(resize.scales(), ElementType::kF64)});
  const Value whole = b.Cast(b.Create(nn::kFloor, {product}), ElementType::kI64);
  const std::vector<Value> operands{op->operand(0), resize.roi(), resize.scales(),
                                    b.BindIfOpen(whole, "resize")};
  return b.Again(op, operands);
}

// The same with amounts of which more is known: those before are what is added less what is cut
// off, neither of which is negative; those behind, what makes extents that are bound.
Value Pad(Operation* op, SizeBuilder& b) {
  using nn::PadOp;
  const bool has_axes = op->num_operands() > PadOp::kAxes && op->operand(PadOp::kAxes);
  if (has_axes && b.facts().Constant(op->operand(PadOp::kAxes)) == nullptr) return {};
  Value extents = b.Create(nn::kShape, {op->operand(PadOp::kData)});
  if (has_axes) extents = b.Create(nn::kGather, {extents, op->operand(PadOp::kAxes)});
  const AnyTensorType each = TensorOrNull(extents);
  if (!each.is_static()) return {};
  const int64_t count = each.dims()[0].value();
  if (!HasCount(op->operand(PadOp::kPads), 2 * count)) return {};
  const auto amounts = [&](int64_t first) {
    std::vector<int64_t> entries(static_cast<size_t>(count));
    std::iota(entries.begin(), entries.end(), first);
    return b.Create(nn::kGather, {op->operand(PadOp::kPads), b.Vector(entries)});
  };
  const Value begin = amounts(0), end = amounts(count);
  const Value padded = b.Create(nn::kAdd, {b.Create(nn::kAdd, {extents, begin}), end});
  const Value all = b.BindIfOpen(padded, "pad");
  const Value added = b.Create(nn::kMax, {begin, b.Scalar(0)});
  const Value cut = b.Create(nn::kMax, {b.Create(nn::kNeg, {begin}), b.Scalar(0)});
  const Value before =
      b.Create(nn::kSub, {b.BindIfOpen(added, "pad_before"), b.BindIfOpen(cut, "cut_before")});
  const Value behind = b.Create(nn::kSub, {b.Create(nn::kSub, {all, extents}), before});
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
  operands[PadOp::kPads] = b.Create(nn::kConcat, {before, behind}, {b.Attr("axis", int64_t{0})});
  return b.Again(op, operands);
}

using Computer = Value (*)(Operation*, SizeBuilder&);
constexpr std::pair<std::string_view, Computer> kComputers[] = {
    {nn::ReshapeOp::kName, Reshape},   {nn::NonZeroOp::kName, NonZero},
    {nn::CompressOp::kName, Compress}, {nn::NonMaxSuppressionOp::kName, Suppressed},
    {nn::RangeOp::kName, Range},       {nn::SliceOp::kName, Slice},
    {nn::ResizeOp::kName, Resize},     {nn::PadOp::kName, Pad},
};

// None if nothing is known of how to.
std::vector<Value> Computed(Operation* op, SizeBuilder& b) {
  if (op->isa<nn::UniqueOp>()) return ComputeUnique(op, b);
  const auto at = std::ranges::find(kComputers, op->name(), [](const auto& c) { return c.first; });
  const Value result = at == std::end(kComputers) ? Value() : at->second(op, b);
  return result ? std::vector{result} : std::vector<Value>();
}

bool HasKnownSizes(Value v) {
  const AnyTensorType type = v ? TensorOrNull(v) : AnyTensorType();
  return !v || (type && type.is_value() && type.has_rank() &&
                std::ranges::none_of(type.dims(), &Dim::is_unknown));
}

}  // namespace

Value MeantEntries(nn::ReshapeOp op, SizeBuilder& build) {
  return ReshapeEntries(op, TensorOrNull(op.reshaped()).rank(), build).Meant();
}

bool ComputeSizes(Operation* op, SizeBuilder& build) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (!HasKnownSizes(op->operand(i))) return false;
  }
  const Rewriter::Replacing replacing(build.rewriter(), {&op, 1});
  const std::vector<Value> results = Computed(op, build);
  if (results.empty()) return false;
  build.rewriter().Applied(op, "the program computes its size");
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i]) build.rewriter().SetResultType(op, i, results[i].type());
  }
  build.rewriter().ReplaceOp(op, results);
  return true;
}

}  // namespace lathe
