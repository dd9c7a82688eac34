#include "lathe/dialect/cf/cf.h"

#include <algorithm>
#include <limits>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/infer_util.h"

namespace lathe::cf {

// ---- if ----

void IfOp::InferShape(InferShapeContext& c) {
  const IfOp op(c.op());
  AssumeOneElement(c, kCond, "shape/condition", "the condition");
  for (size_t i = 0; i < c.num_outputs(); ++i) {
    const Type a = YieldType(op.then_region(), i), b = YieldType(op.else_region(), i);
    const Type joined = Join(a, b);
    if (a && b && !joined) {
      c.Fail("type/branches", StrCat("result ", i, " is ", a.ToString(), " in one region and ",
                                     b.ToString(), " in the other"));
    }
    c.SetType(i, joined);
  }
}

void IfOp::Eval(EvalContext& c) {
  const IfOp op(c.op());
  const bool holds = TruthOf(c, c.input(kCond), "the condition");
  std::vector<RtValue> results =
      c.RunRegion(holds ? op.then_region() : op.else_region(), std::span<const RtValue>());
  for (size_t i = 0; i < results.size(); ++i) c.SetOutputValue(i, std::move(results[i]));
}

void IfOp::Verify(Operation* op) {
  const char* names[] = {"then", "else"};
  for (size_t r = 0; r < 2; ++r) {
    CheckRegion(op, op->region(r), names[r], 0, op->num_results());
    for (size_t i = 0; i < op->num_results(); ++i) {
      CheckCovered(op, YieldType(op->region(r), i), op->result(i).type(),
                   StrCat("value ", i, " that region '", names[r], "' yields"));
    }
  }
}

// ---- while ----

namespace {

constexpr size_t kFirstCarried = WhileOp::kCarried;
constexpr size_t kLoopYields = 1;  // the condition before the carried values

size_t NumCarried(const Operation* op) {
  return op->num_operands() > kFirstCarried ? op->num_operands() - kFirstCarried : 0;
}

Type Scalar(const Operation* op, ElementType element) {
  return VTensorType::Get(*op->context(), SymShape(std::vector<Dim>()), element);
}

Type StackedType(Type piece, const Dim& length, int64_t axis) {
  const auto tensor = piece.dyn_cast<AnyTensorType>();
  if (!tensor) return {};
  SymShape shape = tensor.shape();
  const auto rank = static_cast<int64_t>(shape.rank()) + 1;
  if (!shape.ranked || axis < -rank || axis >= rank) {
    return tensor.With(tensor.element(), SymShape::Unranked());
  }
  shape.dims.insert(shape.dims.begin() + (axis < 0 ? axis + rank : axis), length);
  return tensor.With(tensor.element(), shape);
}

// Values of one run of a loop's body, gathered.
struct Pieces {
  explicit Pieces(size_t scans) : of(scans) {}
  void Add(std::vector<RtValue>& yields, size_t first) {
    for (size_t i = 0; i < of.size(); ++i) of[i].push_back(std::move(yields[first + i]));
  }
  std::vector<std::vector<RtValue>> of;
};

bool IsTrue(const Tensor* tensor) {
  return tensor != nullptr && tensor->element_type() == ElementType::kBool &&
         tensor->num_elements() == 1 && tensor->data<bool>()[0];
}

// Whether the condition is true and the body yields it again, or true: exporters write that for
// loops without one.
bool AlwaysGoesOn(const InferShapeContext& c) {
  const Region& body = WhileOp(c.op()).body_region();
  const Operation* yield = YieldOf(body);
  if (!IsTrue(c.Constant(WhileOp::kCond)) || yield == nullptr || !YieldType(body, 0)) return false;
  Value next = yield->operand(0);
  Operation* op = next.defining_op();
  for (; op != nullptr && op->name() == nn::kIdentity; op = next.defining_op()) {
    next = op->operand(0);
  }
  if (next == c.op()->operand(WhileOp::kCond)) return true;
  if (op == nullptr) return body.front()->num_arguments() > 1 && next == body.front()->argument(1);
  const auto constant = op->HasTrait<ConstantLike>()
                            ? op->attribute("value").dyn_cast<TensorAttribute>()
                            : TensorAttribute();
  return constant && IsTrue(&constant.value());
}

// How often the body runs, if that is known before it runs.
Dim Iterations(const InferShapeContext& c) {
  if (!c.HasInput(WhileOp::kTripCount)) return Dim::Unknown();
  if (c.HasInput(WhileOp::kCond) && !AlwaysGoesOn(c)) return Dim::Unknown();
  const std::optional<std::vector<Dim>> trips = c.Contents(WhileOp::kTripCount);
  if (!trips || trips->size() != 1 || trips->front().is_unknown()) return Dim::Unknown();
  return Max(trips->front(), 0);
}

}  // namespace

void WhileOp::InferShape(InferShapeContext& c) {
  const Region& body = WhileOp(c.op()).body_region();
  AssumeOneElement(c, kTripCount, "shape/count", "the trip count");
  AssumeOneElement(c, kCond, "shape/condition", "the condition");
  const Dim length = Iterations(c);
  const size_t carried = NumCarried(c.op());
  for (size_t i = 0; i < c.num_outputs(); ++i) {
    if (i < carried) {
      InferCarried(c, body, i, kFirstCarried + i, kLoopYields + i, SizesName(c.op(), i));
    } else {
      const Type type = StackedType(YieldType(body, kLoopYields + i), length, 0);
      c.SetType(i, AtEnd(type, SizesName(c.op(), i), 1));
    }
  }
}

bool WhileOp::RegionArguments(Operation* op, RegionRound round) {
  const Region& body = WhileOp(op).body_region();
  if (body.empty()) return false;
  bool changed = SetArgument(*body.front(), 0, Scalar(op, ElementType::kI64));
  changed |= SetArgument(*body.front(), 1, Scalar(op, ElementType::kBool));
  for (size_t i = 0; i < NumCarried(op); ++i) {
    changed |= SetCarried(body, round, kLoopArguments + i, OperandType(op, kFirstCarried + i),
                          kLoopYields + i, SizesName(op, i));
  }
  return changed;
}

void WhileOp::Eval(EvalContext& c) {
  const WhileOp op(c.op());
  const size_t carried = NumCarried(c.op());
  const int64_t trips = c.HasInput(kTripCount) ? CountOf(c, kTripCount, "the trip count")
                                               : std::numeric_limits<int64_t>::max();
  const bool conditional = c.HasInput(kCond);
  bool go = !conditional || TruthOf(c, c.input_value(kCond), "the condition");
  std::vector<RtValue> state;
  for (size_t i = 0; i < carried; ++i) state.push_back(c.input_value(kFirstCarried + i));
  Pieces pieces(c.num_outputs() - carried);
  for (int64_t iter = 0; go && iter < trips; ++iter) {
    std::vector<RtValue> args = {Tensor::Scalar(iter), Tensor::Scalar(go)};
    args.insert(args.end(), std::make_move_iterator(state.begin()),
                std::make_move_iterator(state.end()));
    std::vector<RtValue> yields = c.RunRegion(op.body_region(), args);
    LATHE_CHECK(yields.size() == kLoopYields + c.num_outputs(), "the body yields too few values");
    const bool next = TruthOf(c, yields[0], "the condition that the body yields");
    if (conditional) go = next;
    state.assign(yields.begin() + 1, yields.begin() + 1 + static_cast<std::ptrdiff_t>(carried));
    pieces.Add(yields, kLoopYields + carried);
  }
  for (size_t i = 0; i < carried; ++i) c.SetOutputValue(i, std::move(state[i]));
  for (size_t i = 0; i < pieces.of.size(); ++i) {
    const bool none = pieces.of[i].empty();
    c.SetOutput(carried + i, none ? NoPieces(c, carried + i, 0) : Stack(c, pieces.of[i], 0));
  }
}

void WhileOp::Verify(Operation* op) {
  const Region& body = WhileOp(op).body_region();
  const size_t carried = NumCarried(op);
  if (op->num_results() < carried) {
    VerifyFail(
        op, "verify/results",
        StrCat("there are ", carried, " carried values and ", op->num_results(), " results"));
  }
  CheckRegion(op, body, "body", kLoopArguments + carried, kLoopYields + op->num_results());
  for (size_t i = 0; i < carried; ++i) {
    const Type argument =
        WithoutRound(body.front()->argument(kLoopArguments + i).type(), SizesName(op, i));
    const std::string what = StrCat("carried value ", i);
    CheckCovered(op, OperandType(op, kFirstCarried + i), argument, what);
    CheckCovered(op, YieldType(body, kLoopYields + i), argument, StrCat(what, " as yielded"));
    CheckCovered(op, YieldType(body, kLoopYields + i), op->result(i).type(), StrCat("result ", i));
  }
}

// ---- scan ----

namespace {

size_t NumScans(const Operation* op) {
  const int64_t scans = ScanOp(op).num_scan_inputs();
  if (scans < 1 || static_cast<size_t>(scans) > op->num_operands()) {
    throw Error(
        ErrorCode::kVerify, "verify/attribute",
        StrCat(op->name(), ": num_scan_inputs = ", scans, " of ", op->num_operands(), " operands"))
        .At(op->Describe());
  }
  return static_cast<size_t>(scans);
}

int64_t Entry(const std::optional<std::vector<int64_t>>& list, size_t i) {
  return list && i < list->size() ? (*list)[i] : 0;
}

std::optional<size_t> NormalAxis(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return std::nullopt;
  return static_cast<size_t>(axis < 0 ? axis + r : axis);
}

// Type of a slice of scan input `i` and, through `length`, the length of its axis.
Type SliceType(const Operation* op, size_t i, Dim* length) {
  const ScanOp scan(op);
  const Value input = op->operand(op->num_operands() - NumScans(op) + i);
  const auto tensor = input ? input.type().dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!tensor || !tensor.has_rank()) return tensor;
  SymShape shape = tensor.shape();
  const auto axis = NormalAxis(Entry(scan.scan_input_axes(), i), shape.rank());
  if (!axis) return {};
  if (length != nullptr) *length = shape.dims[*axis];
  shape.dims.erase(shape.dims.begin() + static_cast<std::ptrdiff_t>(*axis));
  return tensor.With(tensor.element(), shape);
}

struct ScanInput {
  Tensor data;
  size_t axis = 0;
  bool backwards = false;
};

std::vector<ScanInput> ScanInputs(EvalContext& c, size_t states, int64_t* length) {
  const ScanOp op(c.op());
  std::vector<ScanInput> result;
  for (size_t i = 0; states + i < c.num_inputs(); ++i) {
    const Tensor& data = c.input(states + i);
    const auto axis = NormalAxis(Entry(op.scan_input_axes(), i), data.shape().size());
    if (!axis) c.Fail("shape/axis", StrCat("scan input ", i, " has no such axis"));
    if (i > 0 && data.shape()[*axis] != *length) {
      c.Fail("shape/scan-length",
             StrCat("scan inputs have lengths ", *length, " and ", data.shape()[*axis]));
    }
    *length = data.shape()[*axis];
    result.push_back({data, *axis, Entry(op.scan_input_directions(), i) == 1});
  }
  return result;
}

Tensor ScanOutput(EvalContext& c, size_t result, size_t i, std::vector<RtValue>& pieces) {
  const ScanOp op(c.op());
  const int64_t axis = Entry(op.scan_output_axes(), i);
  if (pieces.empty()) {
    const auto type = c.op()->result(result).type().dyn_cast<AnyTensorType>();
    const size_t rank = type && type.has_rank() ? type.rank() : 1;
    return NoPieces(c, result, NormalAxis(axis, rank).value_or(0));
  }
  if (Entry(op.scan_output_directions(), i) == 1) std::reverse(pieces.begin(), pieces.end());
  if (!pieces[0].is_tensor()) c.Fail("type/scan", "a scan output must be a tensor");
  const auto normal = NormalAxis(axis, pieces[0].tensor().shape().size() + 1);
  if (!normal) c.Fail("shape/axis", StrCat("scan output ", i, " has no axis ", axis));
  return Stack(c, pieces, *normal);
}

// A run with other lengths ends with the same error.
void AssumeSameLength(size_t i, const Dim& first, const Dim& own) {
  if (first.is_unknown() || own.is_unknown()) return;
  Assume(SizeCondition::Equal(first, own), "shape/scan-length", [&] {
    return StrCat("scan inputs 0 and ", i, " have lengths ", first.ToString(), " and ",
                  own.ToString());
  });
}

void CheckInputAxes(InferShapeContext& c, size_t states) {
  const auto axes = ScanOp(c.op()).scan_input_axes();
  for (size_t i = states; i < c.num_inputs(); ++i) {
    const auto type = OperandType(c.op(), i).dyn_cast<AnyTensorType>();
    if (type && type.has_rank()) InferAxis(c, Entry(axes, i - states), type.rank());
  }
}

}  // namespace

void ScanOp::InferShape(InferShapeContext& c) {
  const ScanOp op(c.op());
  const size_t scans = NumScans(c.op()), states = c.num_inputs() - scans;
  CheckInputAxes(c, states);
  Dim length = Dim::Unknown();
  SliceType(c.op(), 0, &length);
  for (size_t i = 1; i < scans; ++i) {
    Dim own = Dim::Unknown();
    SliceType(c.op(), i, &own);
    AssumeSameLength(i, length, own);
  }
  for (size_t i = 0; i < c.num_outputs(); ++i) {
    if (i < states) {
      InferCarried(c, op.body_region(), i, i, i);
    } else {
      c.SetType(i, StackedType(YieldType(op.body_region(), i), length,
                               Entry(op.scan_output_axes(), i - states)));
    }
  }
}

bool ScanOp::RegionArguments(Operation* op, RegionRound round) {
  const Region& body = ScanOp(op).body_region();
  if (body.empty()) return false;
  const size_t scans = NumScans(op), states = op->num_operands() - scans;
  bool changed = false;
  for (size_t i = 0; i < states; ++i) {
    changed |= SetCarried(body, round, i, OperandType(op, i), i);
  }
  for (size_t i = 0; i < scans; ++i) {
    changed |= SetArgument(*body.front(), states + i, SliceType(op, i, nullptr));
  }
  return changed;
}

void ScanOp::Eval(EvalContext& c) {
  const ScanOp op(c.op());
  const size_t states = c.num_inputs() - NumScans(c.op());
  int64_t length = 0;
  const std::vector<ScanInput> inputs = ScanInputs(c, states, &length);
  std::vector<RtValue> state(c.inputs().begin(), c.inputs().begin() + static_cast<int64_t>(states));
  Pieces pieces(c.num_outputs() - states);
  for (int64_t t = 0; t < length; ++t) {
    std::vector<RtValue> args = std::move(state);
    for (const ScanInput& in : inputs) {
      args.emplace_back(SliceAt(in.data, in.axis, in.backwards ? length - 1 - t : t));
    }
    std::vector<RtValue> yields = c.RunRegion(op.body_region(), args);
    LATHE_CHECK(yields.size() == c.num_outputs(), "the body yields too few values");
    state.assign(yields.begin(), yields.begin() + static_cast<std::ptrdiff_t>(states));
    pieces.Add(yields, states);
  }
  for (size_t i = 0; i < states; ++i) c.SetOutputValue(i, std::move(state[i]));
  for (size_t i = 0; i < pieces.of.size(); ++i) {
    c.SetOutput(states + i, ScanOutput(c, states + i, i, pieces.of[i]));
  }
}

void ScanOp::Verify(Operation* op) {
  const Region& body = ScanOp(op).body_region();
  const size_t states = op->num_operands() - NumScans(op);
  if (op->num_results() < states) {
    VerifyFail(op, "verify/results",
               StrCat("there are ", states, " states and ", op->num_results(), " results"));
  }
  CheckRegion(op, body, "body", op->num_operands(), op->num_results());
  for (size_t i = 0; i < states; ++i) {
    const Type argument = body.front()->argument(i).type();
    CheckCovered(op, OperandType(op, i), argument, StrCat("state ", i));
    CheckCovered(op, YieldType(body, i), argument, StrCat("state ", i, " as yielded"));
    CheckCovered(op, YieldType(body, i), op->result(i).type(), StrCat("result ", i));
  }
}

}  // namespace lathe::cf
