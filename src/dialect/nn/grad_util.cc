#include "src/dialect/nn/grad_util.h"

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"

namespace lathe::nn {
namespace {

// What is known here, inference without facts about constants would not find.
Value WithShape(Value v, const SymShape& shape) {
  const auto type = v.type().cast<AnyTensorType>();
  v.set_type(type.With(type.element(), shape));
  return v;
}

}  // namespace

Value IntsConstant(Builder& b, std::span<const int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return builtin::ConstantOp::Create(b, {.value = Tensor::Of<int64_t>({count}, values)}).result();
}

Value IntConstant(Builder& b, int64_t value) {
  return builtin::ConstantOp::Create(b, {.value = Tensor::Scalar(value)}).result();
}

Value FilledLike(Builder& b, Value like, double value) {
  const Value shape = ShapeOp::Create(b, like).extents();
  const ElementType type = like.type().cast<AnyTensorType>().element();
  const Tensor filling = Cast(Tensor::Of<double>({1}, {value}), type);
  return WithShape(ConstantOfShapeOp::Create(b, shape, {.value = filling}).output(), ShapeOf(like));
}

namespace {

// Where only running tells what was broadcast: each element goes to the one that it was made from.
Value SumToUnknown(Builder& b, Value grad, Value like) {
  const Value extents = ShapeOp::Create(b, grad).extents();
  return AddedAt(b, like, ExpandOp::Create(b, Numbers(b, like), extents).output(), grad);
}

}  // namespace

Value SumTo(Builder& b, Value grad, Value like) {
  const SymShape from = ShapeOf(grad);
  const SymShape to = ShapeOf(like);
  if (!from.ranked || !to.ranked || to.rank() > from.rank()) return SumToUnknown(b, grad, like);
  const size_t added = from.rank() - to.rank();
  std::vector<int64_t> axes;
  SymShape kept = from;
  for (size_t d = 0; d < from.rank(); ++d) {
    const Dim own = d < added ? Dim(1) : to.dims[d - added];
    if (d < added || (own.IsConstant(1) && !from.dims[d].IsConstant(1))) {
      axes.push_back(static_cast<int64_t>(d));
      kept.dims[d] = 1;
    } else if (!own.is_constant() && !ProvablyEqual(from.dims[d], own)) {
      return SumToUnknown(b, grad, like);
    }
  }
  if (axes.empty()) return grad;
  const auto sums = ReduceSumOp::Create(b, grad, IntsConstant(b, axes), {.keepdims = true});
  const Value sum = WithShape(sums.reduced(), kept);
  if (added == 0) return sum;
  const Value extents = ShapeOp::Create(b, like).extents();
  return WithShape(ReshapeOp::Create(b, sum, extents, {.allowzero = true}).reshaped(), to);
}

Value Typed(Value v, Value like) { return WithShape(v, ShapeOf(like)); }

Value ReshapeLike(Builder& b, Value x, Value like) {
  const Value extents = ShapeOp::Create(b, like).extents();
  return Typed(ReshapeOp::Create(b, x, extents, {.allowzero = true}).reshaped(), like);
}

std::optional<Tensor> ConstantTensor(Value v) {
  Operation* op = v ? v.defining_op() : nullptr;
  const auto constant = op == nullptr ? builtin::ConstantOp() : op->dyn_cast<builtin::ConstantOp>();
  return constant ? std::optional<Tensor>(constant.value()) : std::nullopt;
}

std::optional<std::vector<int64_t>> ConstantInts(Value v) {
  const auto tensor = ConstantTensor(v);
  if (!tensor || !IsInteger(tensor->element_type())) return std::nullopt;
  return ToInt64s(*tensor);
}

Value Flat(Builder& b, Value x) {
  const int64_t rest[] = {-1};
  return ReshapeOp::Create(b, x, IntsConstant(b, rest)).reshaped();
}

Value Numbers(Builder& b, Value x) {
  const Value count = SizeOp::Create(b, x).count();
  const Value all = RangeOp::Create(b, IntConstant(b, 0), count, IntConstant(b, 1)).output();
  return ReshapeLike(b, all, x);
}

Value AddedAt(Builder& b, Value like, Value at, Value grad) {
  const Value count = Flat(b, SizeOp::Create(b, like).count());
  const ElementType type = like.type().cast<AnyTensorType>().element();
  const Tensor zero = Cast(Tensor::Of<double>({1}, {0}), type);
  const Value zeros = ConstantOfShapeOp::Create(b, count, {.value = zero}).output();
  const Value sums =
      ScatterElementsOp::Create(b, zeros, Flat(b, at), Flat(b, grad), {.reduction = "add"})
          .output();
  return ReshapeLike(b, sums, like);
}

namespace {

// What the op gives for other operands.
Value WithOperands(Operation* op, const std::vector<Value>& operands, Builder& b) {
  return b.CreateInferred(op->info(), operands, op->attributes().entries(), op->num_results())
      ->result(0);
}

std::vector<Value> Operands(const Operation* op) {
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
  return operands;
}

// As many zeros as `count`, of one element, says.
Value Zeros(Builder& b, Value count, Value like) {
  const ElementType type = like.type().cast<AnyTensorType>().element();
  const Tensor zero = Cast(Tensor::Of<double>({1}, {0}), type);
  return ConstantOfShapeOp::Create(b, count, {.value = zero}).output();
}

Value CountOf(Builder& b, Value x) { return Flat(b, SizeOp::Create(b, x).count()); }

// `sums` with the elements of `grad` added at the numbers `at`; all as vectors.
Value FlatSums(Builder& b, Value sums, Value at, Value grad) {
  return ScatterElementsOp::Create(b, sums, Flat(b, at), Flat(b, grad), {.reduction = "add"})
      .output();
}

}  // namespace

Value GradOfSelection(Operation* op, Value grad, Builder& b, size_t operand) {
  std::vector<Value> operands = Operands(op);
  operands[operand] = Numbers(b, op->operand(operand));
  return AddedAt(b, op->operand(operand), WithOperands(op, operands, b), grad);
}

Value GradOfSelectionOrZero(Operation* op, Value grad, Builder& b) {
  const Value x = op->operand(0);
  std::vector<Value> operands = Operands(op);
  const Value from_one = AddOp::Create(b, Numbers(b, x), IntConstant(b, 1)).c();
  operands[0] = CastOp::Create(b, from_one, {.to = ElementType::kF64}).output();
  const Value numbers = WithOperands(op, operands, b);
  const Value at = CastOp::Create(b, numbers, {.to = ElementType::kI64}).output();
  const Value one = Flat(b, IntConstant(b, 1)), count = CountOf(b, x);
  const Value all = FlatSums(b, Zeros(b, AddOp::Create(b, count, one).c(), x), at, grad);
  const Value sizes[] = {one, count};
  const Value split = ConcatOp::Create(b, sizes, {.axis = 0}).concat_result();
  return ReshapeLike(b, SplitOp::Create(b, all, split, 2, {.axis = 0})->result(1), x);
}

std::pair<Value, Value> GradsOfJoin(Operation* op, size_t first, size_t second, Value grad,
                                    Builder& b) {
  const Value x = op->operand(first), y = op->operand(second);
  const Value x_count = CountOf(b, x), y_count = CountOf(b, y);
  std::vector<Value> operands = Operands(op);
  operands[first] = Numbers(b, x);
  operands[second] = AddOp::Create(b, Numbers(b, y), x_count).c();
  operands[second] = Typed(operands[second], y);
  const Value at = WithOperands(op, operands, b);
  const Value all = FlatSums(b, Zeros(b, AddOp::Create(b, x_count, y_count).c(), x), at, grad);
  const Value sizes[] = {x_count, y_count};
  const Value split = ConcatOp::Create(b, sizes, {.axis = 0}).concat_result();
  const auto both = SplitOp::Create(b, all, split, 2, {.axis = 0});
  return {ReshapeLike(b, both->result(0), x), ReshapeLike(b, both->result(1), y)};
}

int64_t KnownRank(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  if (type.has_rank()) return static_cast<int64_t>(type.rank());
  throw Error(ErrorCode::kUnsupported, "gradient/unknown-shape",
              StrCat("the rank of a ", type.ToString(), " is not known"))
      .Hint("give the inputs constant shapes");
}

std::vector<int64_t> KnownShape(Value v, size_t from) {
  const auto type = v.type().cast<AnyTensorType>();
  std::vector<int64_t> shape;
  bool known = type.has_rank();
  for (const Dim& d : type.dims()) {
    known = known && (d.is_constant() || shape.size() < from);
    shape.push_back(d.is_constant() ? d.value() : -1);
  }
  if (known) return shape;
  throw Error(ErrorCode::kUnsupported, "gradient/unknown-shape",
              StrCat("the extents of a ", type.ToString(), " are not known"))
      .Hint("give the inputs constant shapes");
}

int64_t KnownExtent(Value v, size_t axis) {
  const auto type = v.type().cast<AnyTensorType>();
  if (type.has_rank() && type.dims()[axis].is_constant()) return type.dims()[axis].value();
  throw Error(ErrorCode::kUnsupported, "gradient/unknown-shape",
              StrCat("the extent of axis ", axis, " of a ", type.ToString(), " is not known"))
      .Hint("give the inputs constant shapes along it");
}

int64_t FrontAxis(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

void FailGradient(const Operation* op, std::string_view why) {
  throw Error(ErrorCode::kUnsupported, "gradient/unsupported", StrCat(op->name(), " ", why))
      .At(op->location().ToString(*op->context()));
}

// ---- terms ----

Term operator-(Term x) { return {x.builder(), NegOp::Create(x.builder(), x).y()}; }
Term operator-(double x, Term y) { return y.Number(x) - y; }
Term operator*(double x, Term y) { return y.Number(x) * y; }
Term Tanh(Term x) { return {x.builder(), TanhOp::Create(x.builder(), x).y()}; }

Term Select(Value condition, Term x, Term y) {
  return {x.builder(), WhereOp::Create(x.builder(), condition, x, y).output()};
}
Value Less(Term x, Term y) { return LessOp::Create(x.builder(), x, y).c(); }
Value Equal(Term x, Term y) { return EqualOp::Create(x.builder(), x, y).c(); }

Term AsNumbers(Value truth, Term like) {
  const ElementType to = static_cast<Value>(like).type().cast<AnyTensorType>().element();
  return {like.builder(), CastOp::Create(like.builder(), truth, {.to = to}).output()};
}

}  // namespace lathe::nn
