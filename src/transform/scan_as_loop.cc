#include "src/transform/scan_as_loop.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/aliases.h"

namespace lathe {

namespace {

int64_t Entry(const std::optional<std::vector<int64_t>>& list, size_t i) {
  return list && i < list->size() ? (*list)[i] : 0;
}

/// Builds the loop beside the scan and takes over its body.
class ScanAsLoop {
 public:
  ScanAsLoop(Program& program, Pass* pass) : rewriter_(program, pass) {}

  void Replace(cf::ScanOp scan, std::string_view why) {
    scan_ = scan;
    const auto scans = static_cast<size_t>(scan.num_scan_inputs());
    states_ = scan->num_operands() - scans;
    rewriter_.SetInsertionPoint(scan);
    rewriter_.set_location(scan->location());
    TakeInputs();
    const Value length = Length();
    CheckLengths(length);
    Operation* loop = MakeLoop(length);
    FillBody(loop, length);
    rewriter_.SetInsertionPoint(scan);
    std::vector<Value> results;
    for (size_t i = 0; i < scan->num_results(); ++i) {
      results.push_back(i < states_ ? loop->result(i) : Output(i - states_, loop->result(i)));
    }
    rewriter_.Applied(scan, StrCat(why, " became a loop"));
    rewriter_.ReplaceOp(scan, results);
  }

 private:
  Value Call(const char* op, std::vector<Value> operands,
             std::vector<NamedAttribute> attributes = {}) {
    return rewriter_.Create(op, operands, attributes)->result(0);
  }
  Value Scalar(int64_t value) { return rewriter_.Constant(Tensor::Scalar(value)); }
  Value Vector(int64_t value) { return rewriter_.Constant(Tensor::Of<int64_t>({1}, {value})); }

  /// The scan reads its inputs as they are before it, whatever the body writes.
  void TakeInputs() {
    inputs_.clear();
    for (size_t i = states_; i < scan_->num_operands(); ++i) {
      const Value input = scan_->operand(i);
      inputs_.push_back(IsMutable(input) ? Call(builtin::kToVtensor, {input}) : input);
    }
  }

  /// Extent of the first scan input along its axis.
  Value Length() {
    const Value extents = Call(nn::kShape, {inputs_[0]});
    return Call(nn::kGather, {extents, Scalar(Entry(scan_.scan_input_axes(), 0))});
  }

  /// The axis of a scan input; nothing if its rank is unknown.
  std::optional<size_t> AxisOf(size_t input) const {
    const auto type = inputs_[input].type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return std::nullopt;
    const int64_t axis = Entry(scan_.scan_input_axes(), input);
    return static_cast<size_t>(axis < 0 ? axis + std::ssize(type.dims()) : axis);
  }

  Dim LengthOf(size_t input) const {
    const auto axis = AxisOf(input);
    return axis ? inputs_[input].type().cast<AnyTensorType>().dims()[*axis] : Dim::Unknown();
  }

  /// All inputs must be as long as the first: a loop would pass over what one has too many. A
  /// reshape to what it should be checks that and costs nothing.
  void CheckLengths(Value length) {
    for (size_t i = 1; i < inputs_.size(); ++i) {
      if (ProvablyEqual(LengthOf(0), LengthOf(i))) continue;
      const auto type = inputs_[i].type().cast<AnyTensorType>();
      const auto axis = AxisOf(i);
      inputs_[i] = Call(nn::kReshape, {inputs_[i], ShapeWith(length, i)},
                        {rewriter_.Named("allowzero", rewriter_.Attr(true))});
      if (!axis) continue;
      SymShape shape = type.shape();
      shape.dims[*axis] = LengthOf(0);
      inputs_[i].set_type(type.With(type.element(), shape));
    }
  }

  /// The shape of an input, with that length along its axis.
  Value ShapeWith(Value length, size_t input) {
    const int64_t axis = Entry(scan_.scan_input_axes(), input);
    const auto part = [&](std::optional<int64_t> start, std::optional<int64_t> end) {
      std::vector<NamedAttribute> bounds;
      if (start) bounds.push_back(rewriter_.Named("start", rewriter_.Attr(*start)));
      if (end) bounds.push_back(rewriter_.Named("end", rewriter_.Attr(*end)));
      return Call(nn::kShape, {inputs_[input]}, std::move(bounds));
    };
    std::vector<Value> parts{Call(nn::kUnsqueeze, {length, Vector(0)})};
    if (axis != 0) parts.insert(parts.begin(), part(std::nullopt, axis));
    if (axis != -1) parts.push_back(part(axis + 1, std::nullopt));
    return Call(nn::kConcat, parts, {rewriter_.Named("axis", rewriter_.Attr(int64_t{0}))});
  }

  Operation* MakeLoop(Value length) {
    std::vector<Value> operands{length, Value()};
    std::vector<Type> types;
    for (size_t i = 0; i < states_; ++i) operands.push_back(scan_->operand(i));
    for (size_t i = 0; i < scan_->num_results(); ++i) {
      types.push_back(i < states_ ? scan_->result(i).type() : StackedType(i));
    }
    const OpInfo info = rewriter_.context().FindOp(cf::kWhile);
    return rewriter_.Builder::Create(info, operands, {}, types, 1);
  }

  /// Type of scan output `i` with its pieces along axis 0.
  Type StackedType(size_t i) const {
    const auto type = scan_->result(i).type().cast<AnyTensorType>();
    if (!type.has_rank()) return type;
    SymShape shape = type.shape();
    const int64_t axis = Axis(i - states_, shape.rank());
    const Dim length = shape.dims[static_cast<size_t>(axis)];
    shape.dims.erase(shape.dims.begin() + axis);
    shape.dims.insert(shape.dims.begin(), length);
    return type.With(type.element(), shape);
  }

  int64_t Axis(size_t output, size_t rank) const {
    const int64_t axis = Entry(scan_.scan_output_axes(), output);
    return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
  }

  void FillBody(Operation* loop, Value length) {
    Block* old = scan_.body_region().front();
    Block* body = loop->region(0).AddBlock();
    const auto scalar = [&](ElementType element) -> Type {
      return VTensorType::Get(rewriter_.context(), SymShape(std::vector<Dim>()), element);
    };
    const Value step = body->AddArgument(scalar(ElementType::kI64));
    const Value go = body->AddArgument(scalar(ElementType::kBool));
    for (size_t i = 0; i < states_; ++i) {
      const Value argument = body->AddArgument(old->argument(i).type());
      rewriter_.ReplaceAllUses(old->argument(i), argument);
    }
    rewriter_.SetInsertionPointToEnd(body);
    for (size_t i = states_; i < old->num_arguments(); ++i) {
      Value slice = Slice(i - states_, step, length);
      if (IsMutable(old->argument(i))) slice = Call(builtin::kToTensor, {slice});
      slice.set_type(old->argument(i).type());
      rewriter_.ReplaceAllUses(old->argument(i), slice);
    }
    while (Operation* op = old->front()) op->MoveToEnd(body);
    Operation* yield = body->back();
    std::vector<Value> yields{go};
    for (size_t i = 0; i < yield->num_operands(); ++i) yields.push_back(yield->operand(i));
    rewriter_.SetInsertionPoint(yield);
    rewriter_.Create(cf::kYield, yields);
    rewriter_.Erase(yield);
  }

  Value Slice(size_t input, Value step, Value length) {
    Value at = step;
    if (Entry(scan_.scan_input_directions(), input) == 1) {
      at = Call(nn::kSub, {Call(nn::kSub, {length, step}), Scalar(1)});
    }
    const int64_t axis = Entry(scan_.scan_input_axes(), input);
    return Call(nn::kGather, {inputs_[input], at}, {rewriter_.Named("axis", rewriter_.Attr(axis))});
  }

  /// A scan output from the pieces stacked in order along axis 0.
  Value Output(size_t output, Value stacked) {
    Value value = stacked;
    if (Entry(scan_.scan_output_directions(), output) == 1) {
      value = Call(nn::kSlice, {value, Vector(-1), Vector(std::numeric_limits<int64_t>::min()),
                                Vector(0), Vector(-1)});
    }
    const auto type = scan_->result(states_ + output).type().cast<AnyTensorType>();
    const int64_t axis = type.has_rank() ? Axis(output, type.rank()) : 0;
    if (axis != 0) {
      std::vector<int64_t> perm(type.rank());  // axis 0 moves behind `axis` others
      std::iota(perm.begin(), perm.end(), 0);
      std::rotate(perm.begin(), perm.begin() + 1, perm.begin() + axis + 1);
      value = Call(nn::kTranspose, {value},
                   {rewriter_.Named("perm", rewriter_.Attr(std::span<const int64_t>(perm)))});
    }
    if (value != stacked) value.set_type(type);
    return value;
  }

  Rewriter rewriter_;
  cf::ScanOp scan_;
  std::vector<Value> inputs_;
  size_t states_ = 0;
};

/// False where no tensor of the type has the axis.
bool MayHaveAxis(AnyTensorType type, int64_t axis) {
  const int64_t rank =
      type.has_rank() ? std::ssize(type.dims()) : std::numeric_limits<int64_t>::max();
  return axis >= -rank && axis < rank;
}

bool HasInputAxes(cf::ScanOp scan, size_t states) {
  for (size_t i = states; i < scan->num_operands(); ++i) {
    const auto type = scan->operand(i).type().dyn_cast<AnyTensorType>();
    if (!type || !MayHaveAxis(type, Entry(scan.scan_input_axes(), i - states))) return false;
  }
  return true;
}

/// Where the slices come from and where the pieces go is known.
bool CanBeLoop(cf::ScanOp scan) {
  const size_t states = scan->num_operands() - static_cast<size_t>(scan.num_scan_inputs());
  if (!HasInputAxes(scan, states)) return false;
  for (size_t i = states; i < scan->num_results(); ++i) {
    const auto type = scan->result(i).type().dyn_cast<AnyTensorType>();
    const int64_t axis = Entry(scan.scan_output_axes(), i - states);
    if (!type || !MayHaveAxis(type, axis) || (!type.has_rank() && axis != 0)) return false;
  }
  return true;
}

}  // namespace

void LoopsForWritingScans(Program& program, Pass* pass) {
  std::vector<cf::ScanOp> scans;
  {
    const Aliases aliases(program);
    if (!aliases.any()) return;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      const auto scan = op->dyn_cast<cf::ScanOp>();
      if (scan && !aliases.WrittenInside(op).empty() && CanBeLoop(scan)) scans.push_back(scan);
    }
  }
  ScanAsLoop rewrite(program, pass);
  // Inner ones first: an outer one moves them, it does not copy them.
  for (size_t i = scans.size(); i-- > 0;) {
    rewrite.Replace(scans[i], "a scan that writes a tensor of outside");
  }
}

int64_t LoopsForScans(Program& program, Block* block, Pass* pass) {
  std::vector<cf::ScanOp> scans;
  for (OpWalker w(block); Operation* op = w.Next();) {
    const auto scan = op->dyn_cast<cf::ScanOp>();
    if (scan && CanBeLoop(scan)) scans.push_back(scan);
  }
  ScanAsLoop rewrite(program, pass);
  for (size_t i = scans.size(); i-- > 0;) rewrite.Replace(scans[i], "a scan");
  return std::ssize(scans);
}

/// Loops have plans; scans need none of their own.
class ScanAsLoopPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Count("loops", LoopsForScans(graph.program(), graph.block(), this));
  }
};

REGISTER_PASS(scan_as_loop, ScanAsLoopPass)
    .Doc("a scan becomes a loop that takes its slices and stacks its pieces");

}  // namespace lathe
