#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// The extent of v along an axis, as a vector of one element.
Value ExtentOf(Builder& b, Value v, int64_t axis) {
  const int64_t at[] = {axis};
  return GatherOp::Create(b, ShapeOp::Create(b, v).extents(), IntsConstant(b, at)).output();
}

// Where a piece lies along an axis.
struct Piece {
  int64_t axis, begin, extent;
};

// `grad` of such pieces of `like`, and zeros around it.
Value Enclosed(Builder& b, Value grad, Value like, std::span<const Piece> pieces) {
  const auto dims = like.type().cast<AnyTensorType>().dims();
  std::vector<int64_t> pads(2 * dims.size(), 0);
  for (const Piece& p : pieces) {
    const auto axis = static_cast<size_t>(p.axis);
    pads[axis] = p.begin;
    pads[axis + dims.size()] = dims[axis].value() - p.begin - p.extent;
  }
  return Typed(PadOp::Create(b, grad, IntsConstant(b, pads), Value(), Value()).output(), like);
}

// The pieces of a slice without gaps whose place is known before the program runs.
std::optional<std::vector<Piece>> PiecesOf(SliceOp op) {
  const auto type = op.data().type().cast<AnyTensorType>();
  const auto starts = ConstantInts(op.starts()), ends = ConstantInts(op.ends());
  if (!starts || !ends || !type.has_rank()) return std::nullopt;
  std::vector<int64_t> axes(starts->size());
  std::iota(axes.begin(), axes.end(), 0);
  std::optional<std::vector<int64_t>> given(axes), steps(std::vector<int64_t>(axes.size(), 1));
  if (op.axes()) given = ConstantInts(op.axes());
  if (op.steps()) steps = ConstantInts(op.steps());
  if (!given || !steps) return std::nullopt;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < given->size(); ++i) {
    const int64_t axis = FrontAxis((*given)[i], static_cast<int64_t>(type.rank()));
    const Dim extent = type.dims()[static_cast<size_t>(axis)];
    if ((*steps)[i] != 1 || !extent.is_constant()) return std::nullopt;
    const auto place = [n = extent.value()](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n);
    };
    const int64_t begin = place((*starts)[i]);
    pieces.push_back({axis, begin, std::max<int64_t>(place((*ends)[i]) - begin, 0)});
  }
  return pieces;
}

// The one place along an axis of known extent that a gather takes; nothing for others.
std::optional<Piece> PieceOf(GatherOp op) {
  const auto type = op.data().type().cast<AnyTensorType>();
  const auto index = ConstantInts(op.indices());
  const auto rank = op.indices().type().cast<AnyTensorType>();
  if (!index || !rank.has_rank() || rank.rank() != 0 || !type.has_rank()) return std::nullopt;
  const int64_t axis = FrontAxis(op.axis(), static_cast<int64_t>(type.rank()));
  const Dim extent = type.dims()[static_cast<size_t>(axis)];
  if (!extent.is_constant()) return std::nullopt;
  const int64_t at = FrontAxis((*index)[0], extent.value());
  if (at < 0 || at >= extent.value()) return std::nullopt;  // which fails when it runs
  return Piece{axis, at, 1};
}

}  // namespace

std::vector<Value> ConcatOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const int64_t axis = FrontAxis(ConcatOp(o).axis(), KnownRank(g[0]));
  std::vector<Value> extents, grads;
  for (size_t i = 0; i < o->num_operands(); ++i)
    extents.push_back(ExtentOf(b, o->operand(i), axis));
  const Value sizes = ConcatOp::Create(b, extents, {.axis = 0}).concat_result();
  const auto pieces = SplitOp::Create(b, g[0], sizes, o->num_operands(), {.axis = axis});
  for (size_t i = 0; i < o->num_operands(); ++i) {
    grads.push_back(Typed(pieces->result(i), o->operand(i)));
  }
  return grads;
}

std::vector<Value> SplitOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  std::vector<Value> pieces;
  for (size_t i = 0; i < g.size(); ++i) {
    pieces.push_back(g[i] ? g[i] : FilledLike(b, o->result(i), 0));
  }
  const Value whole = ConcatOp::Create(b, pieces, {.axis = SplitOp(o).axis()}).concat_result();
  return {Typed(whole, o->operand(0))};
}

std::vector<Value> SliceOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const SliceOp op(o);
  if (const auto pieces = PiecesOf(op)) return {Enclosed(b, g[0], op.data(), *pieces)};
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> TileOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> CompressOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> DepthToSpaceOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> SpaceToDepthOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> ReverseSequenceOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelection(o, g[0], b)};
}

// What padding adds has the number 0 of an element before all others.
std::vector<Value> PadOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const PadOp op(o);
  const Value numbers = AddOp::Create(b, Numbers(b, op.data()), IntConstant(b, 1)).c();
  const Value padded = PadOp::Create(b, numbers, op.pads(), IntConstant(b, 0), op.axes(),
                                     {.mode = std::string(op.mode())})
                           .output();
  const Value one = Flat(b, IntConstant(b, 1));
  const Value count = Flat(b, SizeOp::Create(b, op.data()).count());
  const Value places =
      ConstantOfShapeOp::Create(b, AddOp::Create(b, count, one).c(),
                                {.value = Cast(Tensor::Of<double>({1}, {0}),
                                               op.data().type().cast<AnyTensorType>().element())})
          .output();
  const Value all = AddedAt(b, places, padded, g[0]);
  const int64_t end[] = {std::numeric_limits<int64_t>::max()};
  const Value sums = SliceOp::Create(b, all, one, IntsConstant(b, end), Value(), Value()).output();
  std::vector<Value> grads{ReshapeLike(b, sums, op.data()), Value(), Value()};
  if (op.constant_value()) {
    const int64_t begin[] = {0};
    const Value added =
        SliceOp::Create(b, all, IntsConstant(b, begin), one, Value(), Value()).output();
    grads[kConstantValue] = ReshapeLike(b, added, op.constant_value());
  }
  return grads;
}

std::vector<Value> WhereOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const WhereOp op(o);
  const Term dy(b, g[0]), zero = dy.Number(0);
  const Value x = Typed(Select(op.condition(), dy, zero), op.output());
  const Value y = Typed(Select(op.condition(), zero, dy), op.output());
  return {Value(), SumTo(b, x, op.x()), SumTo(b, y, op.y())};
}

std::vector<Value> TriluOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const TriluOp op(o);
  return {TriluOp::Create(b, g[0], op.k(), {.upper = op.upper()}).output()};
}

// ---- by index ----

// Along axis 0, as of a table of embeddings, whole slices are added.
std::vector<Value> GatherOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GatherOp op(o);
  if (const auto piece = PieceOf(op)) {
    const Value grad = UnsqueezeOp::Create(b, g[0], IntsConstant(b, {{piece->axis}})).expanded();
    return {Enclosed(b, grad, op.data(), {{*piece}})};
  }
  if (op.axis() != 0) return {GradOfSelection(o, g[0], b)};
  const int64_t last[] = {-1};
  const Value places = UnsqueezeOp::Create(b, op.indices(), IntsConstant(b, last)).expanded();
  const Value at = CastOp::Create(b, places, {.to = ElementType::kI64}).output();
  const Value zeros = FilledLike(b, op.data(), 0);
  return {ScatterNdOp::Create(b, zeros, at, g[0], {.reduction = "add"}).output()};
}

std::vector<Value> GatherElementsOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GatherElementsOp op(o);
  const Value zeros = FilledLike(b, op.data(), 0);
  return {ScatterElementsOp::Create(b, zeros, op.indices(), g[0],
                                    {.axis = op.axis(), .reduction = "add"})
              .output()};
}

std::vector<Value> GatherNdOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelection(o, g[0], b)};
}

std::vector<Value> CenterCropPadOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  return {GradOfSelectionOrZero(o, g[0], b), Value()};
}

}  // namespace lathe::nn
