// Gradients of ops that read between elements: through the gathers and the shares they are made of.

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/sampling.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_parts.h"
#include "src/dialect/nn/grad_util.h"
#include "src/dialect/nn/interpolate.h"

namespace lathe::nn {
namespace {

Term Reshaped(Builder& b, Value x, std::vector<int64_t> shape) {
  return {b, ReshapeOp::Create(b, x, IntsConstant(b, shape)).reshaped()};
}

Term Column(Builder& b, Value x, int64_t i, int64_t axis) {
  return {b, GatherOp::Create(b, x, IntConstant(b, i), {.axis = axis}).output()};
}

// Where the points of a grid lie along a dim of `extent` elements.
Term PlacesOf(const GridSampleOp& op, const Term& g, const Line& line) {
  const auto n = static_cast<double>(line.extent);
  const Term at = line.align ? (g + 1) * ((n - 1) / 2) : ((g + 1) * n - 1) * 0.5;
  return line.Inside(op.mode() == "nearest" ? at.Call(nn::kRound) : at);
}

}  // namespace

std::vector<Value> GridSampleOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const GridSampleOp op(o);
  const std::vector<int64_t> shape = KnownShape(op.x(), 2);
  const auto rank = static_cast<int64_t>(shape.size()) - 2;
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    const ElementType type = operands[kX].type().cast<AnyTensorType>().element();
    const Value grid = CastOp::Create(inner, operands[kGrid], {.to = type}).output();
    const Term points = Reshaped(inner, grid, {0, -1, rank});
    std::vector<Line> lines;
    std::vector<Term> places;
    for (int64_t d = 0; d < rank; ++d) {
      lines.push_back({shape[static_cast<size_t>(d) + 2], op.align_corners(),
                       std::string(op.padding_mode()), std::string(op.mode())});
      places.push_back(PlacesOf(op, Column(inner, points, rank - 1 - d, 2), lines.back()));
    }
    const Term image = Reshaped(inner, operands[kX], {0, 0, -1});
    const Term read = Interpolated(image, lines, places);
    return std::vector<Value>{ReshapeLike(inner, read, op.y())};
  });
}

// A p + b for each point p, which the op itself makes of the identity.
std::vector<Value> AffineGridOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const AffineGridOp op(o);
  const std::vector<int64_t> theta = KnownShape(op.theta(), 1);
  const int64_t rank = theta[1];
  std::vector<double> unit(static_cast<size_t>(rank * (rank + 1)), 0.0);
  for (int64_t i = 0; i < rank; ++i) unit[static_cast<size_t>(i * (rank + 2))] = 1;
  const ElementType type = op.theta().type().cast<AnyTensorType>().element();
  const Term like(b, op.theta());
  const Term units(
      b, b.Create(builtin::kConstant, {},
                  std::vector<NamedAttribute>{b.Named(
                      "value", b.Attr(Cast(Tensor::Of<double>({1, rank, rank + 1}, unit), type)))})
             ->result(0));
  const Value all = AddOp::Create(b, units, FilledLike(b, op.theta(), 0)).c();
  const Value base = AffineGridOp::Create(b, Typed(all, op.theta()), op.size(),
                                          {.align_corners = op.align_corners()})
                         .grid();
  const Term points = Reshaped(b, base, {0, -1, rank});
  const Value one = FilledLike(b, Column(b, points, 0, 2), 1);
  const int64_t last[] = {2};
  const Value ones = UnsqueezeOp::Create(b, one, IntsConstant(b, last)).expanded();
  const Value homogeneous = points.Call(nn::kConcat, {ones}, {b.Named("axis", b.Attr(int64_t{2}))});
  const Value grad = Reshaped(b, g[0], {0, -1, rank});
  const Value flipped =
      TransposeOp::Create(b, grad, {.perm = std::vector<int64_t>{0, 2, 1}}).transposed();
  return {Typed(MatmulOp::Create(b, flipped, homogeneous).z(), op.theta()), Value()};
}

// ---- regions of interest ----

namespace {

// [R, cells, extent]: the share of each element along one dim in each cell of each region.
class CellShares {
 public:
  CellShares(const RoiAlignOp& op, Builder& b, Value rois) : op_(op), b_(b), rois_(rois) {}

  Term Along(int64_t first, int64_t cells, int64_t extent) {
    const double shift = op_.coordinate_transformation_mode() == "half_pixel" ? 0.5 : 0;
    const Term start = Column(b_, rois_, first, 1) * op_.spatial_scale() - shift;
    const Term end = Column(b_, rois_, first + 2, 1) * op_.spatial_scale() - shift;
    Term length = end - start;
    if (shift == 0) length = Greatest(length, 1);
    const int64_t points = op_.sampling_ratio();
    const Term steps = Counted(cells * points, 1.0 / static_cast<double>(points), 0.5);
    const Term at = Wide(start, {1}) + Wide(length / static_cast<double>(cells), {1}) * steps;
    const Term shares = Hats(at, extent);  // [R, cells * points, extent]
    const Term by_cell = Reshaped(b_, shares, {0, cells, points, extent});
    const int64_t axis[] = {2};
    const Value mean =
        ReduceMeanOp::Create(b_, by_cell, IntsConstant(b_, axis), {.keepdims = false}).reduced();
    return {b_, mean};
  }

 private:
  // (i + offset) * scale for i = 0 ... count - 1.
  Term Counted(int64_t count, double scale, double offset) {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) values.push_back((static_cast<double>(i) + offset) * scale);
    const ElementType type = rois_.type().cast<AnyTensorType>().element();
    const Tensor all = Cast(Tensor::Of<double>({count}, values), type);
    const NamedAttribute value = b_.Named("value", b_.Attr(all));
    return {b_, b_.Create(builtin::kConstant, {}, {&value, 1})->result(0)};
  }
  Term Wide(const Term& x, std::vector<int64_t> axes) {
    return {b_, UnsqueezeOp::Create(b_, x, IntsConstant(b_, axes)).expanded()};
  }
  // Linear shares; points beyond the outermost elements by one or less read these.
  Term Hats(const Term& at, int64_t extent) {
    const auto last = static_cast<double>(extent - 1);
    const Term moved = Wide(Least(Greatest(at, 0), last), {2});
    const Term share = Greatest(1 - Abs(moved - Counted(extent, 1, 0)), 0);
    const Term low = at.Number(-1), high = at.Number(last + 1);
    const Term beyond = AsNumbers(Less(at, low), at) + AsNumbers(Less(high, at), at);
    return share * Wide(1 - beyond, {2});
  }

  const RoiAlignOp& op_;
  Builder& b_;
  Value rois_;
};

}  // namespace

std::vector<Value> RoiAlignOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const RoiAlignOp op(o);
  if (op.mode() != "avg") FailGradient(o, "has no gradient with mode max");
  if (op.sampling_ratio() == 0) {
    FailGradient(o, "has no gradient with as many points as regions are large; set sampling_ratio");
  }
  const std::vector<int64_t> x = KnownShape(op.x(), 2);
  return GradByParts(o, g, b, [&](Builder& inner, std::span<const Value> operands) {
    CellShares shares(op, inner, operands[kRois]);
    const int64_t middle[] = {1};
    const auto wide = [&](const Term& t) {
      return UnsqueezeOp::Create(inner, t, IntsConstant(inner, middle)).expanded();
    };
    const Value rows = wide(shares.Along(1, op.output_height(), x[2]));
    const Value columns = wide(shares.Along(0, op.output_width(), x[3]));
    const Value image = GatherOp::Create(inner, operands[kX], operands[kBatchIndices]).output();
    const Value across = MatmulOp::Create(inner, image, columns, {.transpose_y = true}).z();
    return std::vector<Value>{MatmulOp::Create(inner, rows, across).z()};
  });
}

}  // namespace lathe::nn
