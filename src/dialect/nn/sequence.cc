#include "lathe/dialect/nn/sequence.h"

#include <algorithm>
#include <limits>

#include "lathe/dialect/eval_util.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/concat.h"

namespace lathe::nn {

namespace {

// Larger positions of pieces, and larger pieces, are left to a run.
constexpr int64_t kMostChunk = std::numeric_limits<int32_t>::max();

Type ListOf(Type element) {
  return element ? ListType::Get(*element.context(), std::span<const Type>(&element, 1)) : Type();
}

// What a list or an optional holds; null for other types.
Type Held(Type container) {
  const auto type = container.dyn_cast<ContainerType>();
  return type && type.elements().size() == 1 ? type.elements()[0] : Type();
}

Type TensorIn(const InferShapeContext& c, ElementType element, const SymShape& shape) {
  return VTensorType::Get(c.context(), shape, element);
}

// The type that covers the tensors of types `a` and `b`.
Type JoinElements(const InferShapeContext& c, Type a, Type b) {
  if (!a || !b) return a ? a : b;
  const Type joined = cf::Join(a, b);
  if (!joined) {
    c.Fail("type/sequence",
           StrCat("a list cannot hold both ", a.ToString(), " and ", b.ToString()));
  }
  return joined;
}

int64_t PositionOf(const EvalContext& c, size_t input, int64_t extent) {
  return eval::CheckIndex(eval::ScalarInt(c.input(input), "position"), extent, "position");
}

}  // namespace

// ---- construct, empty, at, insert, erase, length ----

void SequenceConstructOp::InferShape(InferShapeContext& c) {
  Type element;
  for (size_t i = 0; i < c.num_inputs(); ++i) element = JoinElements(c, element, c.input_type(i));
  c.SetType(kOutputSequence, ListOf(element));
}

void SequenceConstructOp::Eval(EvalContext& c) {
  RtValue::List list;
  for (size_t i = 0; i < c.num_inputs(); ++i) list.emplace_back(c.input(i));
  c.SetOutputValue(kOutputSequence, RtValue::OfList(std::move(list)));
}

void SequenceEmptyOp::InferShape(InferShapeContext& c) {
  c.SetType(kOutputSequence, ListOf(TensorIn(c, SequenceEmptyOp(c.op()).dtype(), {})));
}

void SequenceEmptyOp::Eval(EvalContext& c) {
  c.SetOutputValue(kOutputSequence, RtValue::OfList({}));
}

namespace {

// The number that a value is as it stands.
std::optional<int64_t> NumberOf(Value value) {
  const Operation* op = value ? value.defining_op() : nullptr;
  if (op == nullptr || !op->HasTrait<ConstantLike>()) return std::nullopt;
  const auto held = op->attribute("value").dyn_cast<TensorAttribute>();
  const bool is_one = held && held.value().rank() == 0 && IsInteger(held.value().element_type());
  return is_one ? std::optional(ToInt64s(held.value())[0]) : std::nullopt;
}

// A piece of an axis that is cut into equal ones: there must be that many.
void ShortenPiece(const InferShapeContext& c, SplitToSequenceOp split, SymShape& piece) {
  const auto chunk = NumberOf(split.split());
  const Tensor* position = c.Constant(SequenceAtOp::kPosition);
  const auto x = split.input().type().dyn_cast<AnyTensorType>();
  if (!chunk || *chunk <= 0 || *chunk > kMostChunk || position == nullptr ||
      position->num_elements() != 1)
    return;
  const int64_t at = ToInt64s(*position)[0];
  if (!x || !x.has_rank() || !piece.ranked || at < 0 || at > kMostChunk) return;
  const auto axis =
      static_cast<size_t>(eval::NormalizeAxis(split.axis(), static_cast<int64_t>(x.rank())));
  const Dim& extent = x.dims()[axis];
  Assume(SizeCondition::AtLeast(extent, at * *chunk + 1), "shape/position", [&] {
    return StrCat("an axis of extent ", extent.ToString(), " in pieces of ", *chunk,
                  " has none of number ", at);
  });
  piece.dims[axis] = Min(*chunk, extent - at * *chunk);
}

}  // namespace

void SequenceAtOp::InferShape(InferShapeContext& c) {
  const Type held = Held(c.input_type(kInputSequence));
  const auto tensor = held ? held.dyn_cast<AnyTensorType>() : AnyTensorType();
  Operation* made = c.op()->operand(kInputSequence).defining_op();
  if (!tensor || made == nullptr || !made->isa<SplitToSequenceOp>()) return c.SetType(kValue, held);
  SymShape shape = tensor.shape();
  ShortenPiece(c, made->cast<SplitToSequenceOp>(), shape);
  c.SetType(kValue, tensor.With(tensor.element(), shape));
}

void SequenceAtOp::Eval(EvalContext& c) {
  const auto& list = c.input_value(kInputSequence).list();
  const int64_t at = PositionOf(c, kPosition, std::ssize(list));
  c.SetOutputValue(kValue, list[static_cast<size_t>(at)]);
}

void SequenceInsertOp::InferShape(InferShapeContext& c) {
  const Type element = JoinElements(c, Held(c.input_type(kInputSequence)), c.input_type(kValue));
  c.SetType(kOutputSequence, ListOf(element));
}

void SequenceInsertOp::Eval(EvalContext& c) {
  RtValue::List list = c.input_value(kInputSequence).list();
  const Tensor& value = c.input(kValue);
  if (!list.empty() && list.front().tensor().element_type() != value.element_type()) {
    eval::FailArgument("type/sequence", StrCat("a ", value.TypeString(), " cannot join a list of ",
                                               Name(list.front().tensor().element_type())));
  }
  // One more place than there are entries: behind the last.
  const auto places = std::ssize(list) + 1;
  const int64_t given =
      c.HasInput(kPosition) ? eval::ScalarInt(c.input(kPosition), "position") : places - 1;
  const int64_t at = given < 0 ? eval::CheckIndex(given, places - 1, "position")
                               : eval::CheckIndex(given, places, "position");
  list.insert(list.begin() + at, RtValue(value));
  c.SetOutputValue(kOutputSequence, RtValue::OfList(std::move(list)));
}

void SequenceEraseOp::InferShape(InferShapeContext& c) {
  c.SetType(kOutputSequence, c.input_type(kInputSequence));
}

void SequenceEraseOp::Eval(EvalContext& c) {
  RtValue::List list = c.input_value(kInputSequence).list();
  const int64_t at = c.HasInput(kPosition) ? PositionOf(c, kPosition, std::ssize(list))
                                           : eval::CheckIndex(-1, std::ssize(list), "position");
  list.erase(list.begin() + at);
  c.SetOutputValue(kOutputSequence, RtValue::OfList(std::move(list)));
}

void SequenceLengthOp::InferShape(InferShapeContext& c) {
  c.SetShape(kLength, SymShape::OfRank(0));
}

void SequenceLengthOp::Eval(EvalContext& c) {
  c.SetOutput(kLength, Tensor::Scalar<int64_t>(std::ssize(c.input_value(kInputSequence).list())));
}

// ---- split_to_sequence, concat_from_sequence ----

namespace {

// Extents of pieces of `chunk` elements; the last one may be smaller.
std::vector<int64_t> Chunks(int64_t extent, int64_t chunk) {
  if (chunk <= 0) {
    eval::FailShape("shape/split", StrCat("pieces would have extent ", chunk));
  }
  constexpr int64_t kMaxPieces = int64_t{1} << 24;  // an empty tensor may claim more
  if (extent / chunk > kMaxPieces) {
    throw Error(ErrorCode::kLimit, "limit/pieces",
                StrCat("an axis of extent ", extent, " would be cut into more than ", kMaxPieces,
                       " pieces"));
  }
  std::vector<int64_t> pieces;
  for (int64_t left = extent; left > 0; left -= std::min(left, chunk)) {
    pieces.push_back(std::min(left, chunk));
  }
  return pieces;
}

std::vector<int64_t> PiecesOf(const EvalContext& c, int64_t extent) {
  if (!c.HasInput(SplitToSequenceOp::kSplit)) return Chunks(extent, 1);
  const Tensor& split = c.input(SplitToSequenceOp::kSplit);
  if (split.rank() == 0) return Chunks(extent, ToInt64s(split)[0]);
  const auto pieces = ToInt64s(split);
  int64_t left = extent;
  for (const int64_t piece : pieces) {
    if (piece < 0 || piece > left) {
      left = -1;
      break;
    }
    left -= piece;
  }
  if (left == 0) return pieces;
  eval::FailShape("shape/split", StrCat("the pieces ", ShapeToString(pieces),
                                        " do not add up to extent ", extent));
}

}  // namespace

void SplitToSequenceOp::InferShape(InferShapeContext& c) {
  const SplitToSequenceOp op(c.op());
  SymShape piece = c.shape(kInput);
  if (piece.ranked) {
    const int64_t axis = eval::NormalizeAxis(op.axis(), static_cast<int64_t>(piece.rank()));
    if (c.HasInput(kSplit)) {
      piece.dims[static_cast<size_t>(axis)] = Dim();
    } else if (op.keepdims()) {
      piece.dims[static_cast<size_t>(axis)] = 1;
    } else {
      piece.dims.erase(piece.dims.begin() + axis);
    }
  }
  c.SetType(kOutputSequence, ListOf(TensorIn(c, c.element(kInput), piece)));
}

void SplitToSequenceOp::Eval(EvalContext& c) {
  const SplitToSequenceOp op(c.op());
  const Tensor& x = c.input(kInput);
  const auto axis = static_cast<size_t>(eval::NormalizeAxis(op.axis(), x.rank()));
  Shape without = x.shape();
  without.erase(without.begin() + static_cast<std::ptrdiff_t>(axis));
  const bool drop = !c.HasInput(kSplit) && !op.keepdims();
  RtValue::List list;
  int64_t begin = 0;
  for (const int64_t piece : PiecesOf(c, x.shape()[axis])) {
    const Tensor part = eval::Narrow(x, axis, begin, piece);
    list.emplace_back(drop ? part.Reshaped(without) : part);
    begin += piece;
  }
  c.SetOutputValue(kOutputSequence, RtValue::OfList(std::move(list)));
}

void ConcatFromSequenceOp::InferShape(InferShapeContext& c) {
  const ConcatFromSequenceOp op(c.op());
  const auto element = Held(c.input_type(kInputSequence)).dyn_cast<AnyTensorType>();
  if (!element) return;
  SymShape shape = element.shape();
  if (shape.ranked) {
    const auto rank = static_cast<int64_t>(shape.rank()) + (op.new_axis() ? 1 : 0);
    const int64_t axis = eval::NormalizeAxis(op.axis(), rank);
    if (op.new_axis()) {
      shape.dims.insert(shape.dims.begin() + axis, Dim());
    } else {
      shape.dims[static_cast<size_t>(axis)] = Dim();
    }
  }
  c.SetTensor(kConcatResult, element.element(), shape);
}

void ConcatFromSequenceOp::Eval(EvalContext& c) {
  const ConcatFromSequenceOp op(c.op());
  std::vector<Tensor> tensors;
  std::vector<SymShape> shapes;
  int64_t axis = op.axis();
  for (const RtValue& entry : c.input_value(kInputSequence).list()) {
    Tensor tensor = entry.tensor();
    if (op.new_axis()) {
      Shape shape = tensor.shape();
      axis = eval::NormalizeAxis(op.axis(), tensor.rank() + 1);
      shape.insert(shape.begin() + axis, 1);
      tensor = tensor.Reshaped(std::move(shape));
    }
    shapes.push_back(SymShape::FromConstants(tensor.shape()));
    tensors.push_back(std::move(tensor));
  }
  if (tensors.empty()) {
    c.Fail("run/empty-sequence", "an empty list cannot be joined: the shape would be unknown");
  }
  (void)ConcatRule(shapes, axis);
  axis = eval::NormalizeAxis(axis, tensors[0].rank());
  c.SetOutput(kConcatResult, eval::Concatenate(tensors, static_cast<size_t>(axis)));
}

// ---- sequence_map ----

void SequenceMapOp::InferShape(InferShapeContext& c) {
  const SequenceMapOp op(c.op());
  for (size_t i = 0; i < c.num_outputs(); ++i) {
    c.SetType(i, ListOf(cf::YieldType(op.body_region(), i)));
  }
}

bool SequenceMapOp::RegionArguments(Operation* op, RegionRound) {
  const Region& body = SequenceMapOp(op).body_region();
  bool changed = false;
  for (size_t i = 0; i < op->num_operands() && !body.empty(); ++i) {
    const Type type = op->operand(i).type();
    changed |= cf::SetArgument(*body.front(), i, type.isa<ListType>() ? Held(type) : type);
  }
  return changed;
}

void SequenceMapOp::Verify(Operation* op) {
  const Region& body = SequenceMapOp(op).body_region();
  cf::CheckRegion(op, body, "body", op->num_operands(), op->num_results());
  for (size_t i = 0; i < op->num_results(); ++i) {
    cf::CheckCovered(op, ListOf(cf::YieldType(body, i)), op->result(i).type(),
                     StrCat("the list of values ", i, " that the body yields"));
  }
}

void SequenceMapOp::Eval(EvalContext& c) {
  const size_t count = c.input_value(kInputSequence).list().size();
  for (const RtValue& input : c.inputs()) {
    if (input.is_list() && input.list().size() != count) {
      c.Fail("run/sequence-map",
             StrCat("a list of ", input.list().size(), " entries beside one of ", count),
             "all lists must have the same length");
    }
  }
  std::vector<RtValue::List> results(c.num_outputs());
  for (size_t i = 0; i < count; ++i) {
    std::vector<RtValue> args;
    for (const RtValue& input : c.inputs()) {
      args.push_back(input.is_list() ? input.list()[i] : input);
    }
    auto yields = c.RunRegion(SequenceMapOp(c.op()).body_region(), args);
    for (size_t k = 0; k < results.size(); ++k) results[k].push_back(std::move(yields[k]));
  }
  for (size_t k = 0; k < results.size(); ++k) {
    c.SetOutputValue(k, RtValue::OfList(std::move(results[k])));
  }
}

// ---- optionals ----

namespace {

Type OptionalOf(Type element) {
  return element ? OptionalType::Get(*element.context(), std::span<const Type>(&element, 1))
                 : Type();
}

}  // namespace

void OptionalOp::InferShape(InferShapeContext& c) {
  if (c.HasInput(kInput)) return c.SetType(kOutput, OptionalOf(c.input_type(kInput)));
  const Attribute declared = OptionalOp(c.op()).type();
  if (!declared.isa<TypeAttribute>()) {
    c.Fail("type/optional", "an absent optional needs attribute 'type'");
  }
  c.SetType(kOutput, OptionalOf(declared.cast<TypeAttribute>().value()));
}

void OptionalOp::Eval(EvalContext& c) {
  c.SetOutputValue(kOutput, c.HasInput(kInput) ? c.input_value(kInput) : RtValue::AbsentOptional());
}

void OptionalGetElementOp::InferShape(InferShapeContext& c) {
  const Type type = c.input_type(kInput);
  c.SetType(kOutput, type.isa<OptionalType>() ? Held(type) : type);
}

void OptionalGetElementOp::Eval(EvalContext& c) {
  if (!c.HasInput(kInput)) {
    c.Fail("run/absent-optional", "the optional holds nothing", "ask optional_has_element before");
  }
  c.SetOutputValue(kOutput, c.input_value(kInput));
}

void OptionalHasElementOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput, SymShape::OfRank(0));
}

void OptionalHasElementOp::Eval(EvalContext& c) {
  c.SetOutput(kOutput, Tensor::Scalar<bool>(c.HasInput(kInput)));
}

}  // namespace lathe::nn
