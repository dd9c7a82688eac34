#include <algorithm>

#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/resize.h"
#include "lathe/dialect/nn/signal.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/refine_types.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

/// Infers the type of every result again, in program order: element types and symbolic shapes come
/// from one rule per op. A contradiction is an error that names the op.
class InferShapePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    ShapeInferencer inferencer(&graph.program().parameters());
    const bool is_whole = graph.block() == graph.program().block();
    const int64_t refined = is_whole ? RefineTypes(graph.program(), inferencer)
                                     : RefineTypes(graph.block()->parent_op(), inferencer);
    Count("refined", refined);
    if (refined != 0) MarkChanged();
  }
};

REGISTER_PASS(infer_shape, InferShapePass)
    .Doc("infers the shape and element type of every value again");
using InferTypePass = InferShapePass;
REGISTER_PASS(infer_type, InferTypePass)
    .Doc("the same rule under NNVM's other name: types and shapes are one");

/// Small integer values whose contents follow from shapes become constants: what exporters compute
/// with Shape, Gather, Concat and the like.
class FoldShapesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    ShapeInferencer inferencer(&program.parameters());
    if (RefineTypes(program, inferencer) != 0) MarkChanged();
    Rewriter rewriter(program, this);
    std::vector<Operation*> ops;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) ops.push_back(op);
    for (Operation* op : ops) {
      if (!IsMergeable(op) || op->HasTrait<ConstantLike>()) continue;
      if (op->name() == nn::kReshape) FoldReshape(op, inferencer, rewriter);
      if (op->name() == nn::PadOp::kName && FoldPad(op, inferencer, rewriter)) continue;
      if (op->name() == nn::ResizeOp::kName && FoldResize(op, inferencer, rewriter)) continue;
      if (op->name() == nn::DftOp::kName) FoldDft(op, inferencer, rewriter);
      Fold(op, inferencer, rewriter);
    }
  }

 private:
  /// Entries of a new shape, with the extents that are copied.
  static std::vector<Dim> Spelled(std::vector<Dim> entries, AnyTensorType input) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].IsConstant(0) && i < input.rank()) entries[i] = input.dims()[i];
    }
    return entries;
  }

  /// A reshape to extents of which all but one are constants or those of the input at the same
  /// place needs no computed shape: 0 copies an extent, -1 takes the rest. One that nobody knows
  /// may be another than the rest, which is an error of the sizes.
  void FoldReshape(Operation* op, ShapeInferencer& inferencer, Rewriter& rewriter) {
    if (inferencer.Constant(op->operand(1)) != nullptr) return;
    const std::vector<Dim>* wanted = inferencer.Contents(op->operand(1));
    const auto input = op->operand(0).type().dyn_cast<AnyTensorType>();
    const auto allowzero = op->attribute("allowzero").dyn_cast<BoolAttribute>();
    if (wanted == nullptr || !input || !input.has_rank()) return;
    const bool copies = !allowzero || !allowzero.value();
    const auto extents =
        ReshapeTarget(input.shape(), copies ? Spelled(*wanted, input) : *wanted, false);
    const bool is_open = !copies && std::ranges::find(*wanted, Dim(-1)) != wanted->end();
    if (!extents || is_open)
      return Missed(op, "extents of its result cannot be written as constants");
    if (!copies) rewriter.SetAttribute(op, "allowzero", rewriter.Attr(false));
    rewriter.SetInsertionPoint(op);
    rewriter.set_location(op->operand(1).defining_op() ? op->operand(1).defining_op()->location()
                                                       : op->location());
    const Shape shape{static_cast<int64_t>(extents->size())};
    rewriter.SetOperand(op, 1, rewriter.Constant(Tensor::Of<int64_t>(shape, *extents)));
    Count("reshapes");
  }

  /// The axes that a pad of all axes by computed amounts may change; none if that is unknown.
  static std::vector<int64_t> PaddedAxes(Operation* op, ShapeInferencer& inferencer) {
    using nn::PadOp;
    const bool has_axes = op->num_operands() > PadOp::kAxes && op->operand(PadOp::kAxes);
    const std::vector<Dim>* pads = inferencer.Contents(op->operand(PadOp::kPads));
    if (has_axes || pads == nullptr) return {};
    const size_t count = pads->size() / 2;
    std::vector<int64_t> axes;
    for (size_t a = 0; a < count; ++a) {
      const bool is_none = (*pads)[a].IsConstant(0) && (*pads)[a + count].IsConstant(0);
      if (!is_none) axes.push_back(static_cast<int64_t>(a));
    }
    return axes;
  }

  /// Axes that stay as they are need no amounts: whoever computes with those that only a run knows
  /// need not look at them. True if the pad was replaced.
  bool FoldPad(Operation* op, ShapeInferencer& inferencer, Rewriter& rewriter) {
    using nn::PadOp;
    const Value pads = op->operand(PadOp::kPads);
    const std::vector<int64_t> axes = PaddedAxes(op, inferencer);
    const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
    if (axes.empty() || inferencer.Constant(pads) != nullptr || !type || !type.has_rank()) {
      return false;
    }
    if (axes.size() == type.rank()) return false;
    std::vector<int64_t> entries = axes;
    for (const int64_t a : axes) entries.push_back(a + static_cast<int64_t>(type.rank()));
    const Rewriter::Replacing replacing(rewriter, {&op, 1});
    const auto ints = [&](const std::vector<int64_t>& values) {
      return rewriter.Constant(Tensor::Of<int64_t>({std::ssize(values)}, values));
    };
    const Value kept = rewriter.Create(nn::kGather, std::vector{pads, ints(entries)})->result(0);
    const bool has_value = op->num_operands() > PadOp::kConstantValue;
    const Value value = has_value ? op->operand(PadOp::kConstantValue) : Value();
    const NamedAttribute mode = rewriter.Named("mode", rewriter.Attr(PadOp(op).mode()));
    Operation* pad = rewriter.Create(
        PadOp::kName, std::vector{op->operand(PadOp::kData), kept, value, ints(axes)}, {&mode, 1});
    rewriter.SetResultType(pad, 0, type);
    rewriter.ReplaceOp(op, pad->result(0));
    Count("pads");
    return true;
  }

  /// The numbers of a vector that is put together, as far as they are known; empty if not even how
  /// many there are is.
  static std::vector<std::optional<double>> Pieces(Value v, ShapeInferencer& inferencer) {
    const Operation* concat = v.defining_op();
    if (concat == nullptr || concat->name() != nn::ConcatOp::kName) return {};
    std::vector<std::optional<double>> numbers;
    for (size_t i = 0; i < concat->num_operands(); ++i) {
      const auto type = concat->operand(i).type().dyn_cast<AnyTensorType>();
      if (!type || !type.is_static() || type.rank() != 1) return {};
      const Tensor* constant = inferencer.Constant(concat->operand(i));
      const auto count = static_cast<size_t>(type.dims()[0].value());
      const std::vector<double> known = constant ? ToDoubles(*constant) : std::vector<double>();
      for (size_t k = 0; k < count; ++k) {
        numbers.push_back(constant ? std::optional(known[k]) : std::nullopt);
      }
    }
    return numbers;
  }

  /// Computed scales say nothing of axes whose scale is 1: these are not resized. True if the
  /// resize was replaced.
  bool FoldResize(Operation* op, ShapeInferencer& inferencer, Rewriter& rewriter) {
    using nn::ResizeOp;
    const ResizeOp resize(op);
    const bool crops = resize.coordinate_transformation_mode() == "tf_crop_and_resize";
    if (!resize.scales() || resize.sizes() || crops) return false;
    const auto scales = Pieces(resize.scales(), inferencer);
    std::vector<int64_t> entries, axes;
    for (size_t i = 0; i < scales.size(); ++i) {
      if (scales[i] == 1.0) continue;
      entries.push_back(static_cast<int64_t>(i));
      axes.push_back(resize.axes() ? (*resize.axes())[i] : entries.back());
    }
    if (entries.size() == scales.size() || entries.empty()) return false;
    const Rewriter::Replacing replacing(rewriter, {&op, 1});
    const auto all = static_cast<int64_t>(entries.size());
    const Value at = rewriter.Constant(Tensor::Of<int64_t>({all}, entries));
    const Value kept = rewriter.Create(nn::kGather, std::vector{resize.scales(), at})->result(0);
    const auto attributes =
        op->attributes().With("axes", rewriter.Attr(std::span<const int64_t>(axes)));
    Operation* made = rewriter.Create(
        ResizeOp::kName, std::vector{resize.x(), Value(), kept, Value()}, attributes.entries());
    rewriter.SetResultType(op, 0, made->result(0).type());
    rewriter.ReplaceOp(op, made->result(0));
    Count("resizes");
    return true;
  }

  /// Half a spectrum does not say how long its signal is. So a real signal is cut or continued to a
  /// computed length first, or is that long.
  void FoldDft(Operation* op, ShapeInferencer& inferencer, Rewriter& rewriter) {
    const nn::DftOp dft(op);
    const Value length = dft.dft_length(), x = dft.input();
    const auto type = x.type().dyn_cast<AnyTensorType>();
    if (!length || !dft.onesided() || dft.inverse() || !type || !type.has_rank()) return;
    const Tensor* given = dft.axis() ? inferencer.Constant(dft.axis()) : nullptr;
    if (inferencer.Constant(length) != nullptr || (dft.axis() && given == nullptr)) return;
    const auto axis = AxisFromFront(given ? ToInt64s(*given).front() : -2, x);
    if (!axis) return;
    const std::vector<Dim>* wanted = inferencer.Contents(length);
    if (wanted && wanted->size() != 1) return;
    const Dim extent = type.dims()[static_cast<size_t>(*axis)];
    const bool is_extent = wanted && ProvablyEqual(wanted->front(), extent);
    rewriter.SetInsertionPoint(op);
    rewriter.set_location(op->location());
    if (!is_extent) {
      const Value continued = Continued(x, *axis, length, rewriter);
      SymShape shape = type.shape();
      shape.dims[static_cast<size_t>(*axis)] = wanted ? wanted->front() : Dim::Unknown();
      rewriter.SetResultType(continued.defining_op(), 0, type.With(type.element(), shape));
      rewriter.SetOperand(op, nn::DftOp::kInput, continued);
    }
    rewriter.SetOperand(op, nn::DftOp::kDftLength, Value());
    Count("transforms");
  }

  /// `x` with `length` elements along the axis: the first ones, or zeros behind them.
  static Value Continued(Value x, int64_t axis, Value length, Rewriter& rewriter) {
    const auto create = [&](const char* name, const std::vector<Value>& operands,
                            const std::vector<NamedAttribute>& attributes) {
      return rewriter.Create(name, operands, attributes)->result(0);
    };
    const auto ints = [&](int64_t value) {
      return rewriter.Constant(Tensor::Of<int64_t>({1}, {value}));
    };
    const auto named = [&](const char* name, int64_t value) {
      return rewriter.Named(name, rewriter.Attr(value));
    };
    const auto i64 = TypeAttribute::Get(ElemType::Get(rewriter.context(), ElementType::kI64));
    const Value flat = create(nn::kReshape, {length, ints(1)}, {});
    const Value wide = create(nn::kCast, {flat}, {rewriter.Named("to", i64)});
    const Value extent = create(nn::kShape, {x}, {named("start", axis), named("end", axis + 1)});
    const Value more = create(nn::kSub, {wide, extent}, {});
    const Value pads = create(nn::ConcatOp::kName, {ints(0), more}, {named("axis", 0)});
    return create(nn::PadOp::kName, {x, pads, Value(), ints(axis)}, {});
  }

  void Fold(Operation* op, ShapeInferencer& inferencer, Rewriter& rewriter) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value result = op->result(i);
      if (result.use_empty()) continue;
      const std::optional<Tensor> known = KnownValue(result, inferencer);
      if (!known) continue;
      rewriter.SetInsertionPoint(op);
      rewriter.set_location(op->location());
      rewriter.ReplaceAllUses(result, rewriter.Constant(*known));
      Count("folded");
    }
  }

  static std::optional<Tensor> KnownValue(Value v, ShapeInferencer& inferencer) {
    if (const Tensor* constant = inferencer.Constant(v)) return *constant;
    const auto type = v.type().dyn_cast<AnyTensorType>();
    const std::vector<Dim>* contents = type ? inferencer.Contents(v) : nullptr;
    if (contents == nullptr || !type.has_rank() || type.rank() > 1) return std::nullopt;
    std::vector<int64_t> values;
    for (const Dim& d : *contents) {
      if (!d.is_constant()) return std::nullopt;
      values.push_back(d.value());
    }
    Shape shape;
    if (type.rank() == 1) shape.push_back(static_cast<int64_t>(values.size()));
    if (NumElements(shape) != static_cast<int64_t>(values.size())) return std::nullopt;
    return Cast(Tensor::Of<int64_t>(shape, values), type.element());
  }
};

REGISTER_PASS(fold_shapes, FoldShapesPass)
    .Doc("replaces integers that follow from shapes (Shape, Gather, Concat, ...) by constants");

}  // namespace lathe
