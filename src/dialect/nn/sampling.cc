#include "lathe/dialect/nn/sampling.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/operand_shape.h"

namespace lathe::nn {
namespace {

// A point has up to 4 neighbors along each of them.
constexpr size_t kMaxSpatialRank = 8;

// ---- grid_sample --------------------------------------------------------------------------------

SymShape SampledShape(const std::vector<SymShape>& shapes) {
  const SymShape& x = shapes[0];
  const SymShape& grid = shapes[1];
  if (!x.ranked) return {};
  if (x.rank() < 3) {
    eval::FailShape("shape/rank",
                    StrCat("the image has shape ", x.ToString(), ", at least rank 3 is expected"));
  }
  const size_t k = x.rank() - 2;
  if (k > kMaxSpatialRank) {
    eval::FailShape("shape/rank", StrCat("at most ", kMaxSpatialRank, " spatial dims, not ", k));
  }
  SymShape expected = SymShape::OfRank(k + 2);
  expected.dims[0] = x.dims[0];
  expected.dims[k + 1] = static_cast<int64_t>(k);
  ExpectShape(grid, expected, "the grid");
  SymShape y = SymShape::OfRank(k + 2);
  y.dims[0] = x.dims[0];
  y.dims[1] = x.dims[1];
  for (size_t d = 0; grid.ranked && d < k; ++d) y.dims[d + 2] = grid.dims[d + 1];
  return y;
}

// One dim of an image and how points outside of it are read.
struct Line {
  int64_t extent;
  bool align;
  std::string_view padding, mode;

  [[nodiscard]] double low() const { return align ? 0 : -0.5; }
  [[nodiscard]] double high() const { return static_cast<double>(extent) - (align ? 1 : 0.5); }

  [[nodiscard]] double Reflect(double x) const {
    const double range = high() - low();
    if (!(range > 0)) return 0;
    if (x >= low() && x <= high()) return x;
    const double from = std::fmod(x - low(), 2 * range);
    const double beyond = from < 0 ? from + 2 * range : from;
    return low() + (beyond <= range ? beyond : 2 * range - beyond);
  }
  // Where a point of the grid lies, moved inside if the padding says so.
  [[nodiscard]] double Place(double g) const {
    const auto n = static_cast<double>(extent);
    double x = align ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    if (mode == "nearest") x = std::nearbyint(x);
    if (x >= low() && x <= high()) return x;
    if (padding == "border") return std::max(0.0, std::min(x, n - 1));
    return padding == "reflection" ? Reflect(x) : x;
  }
  // The element that stands at `at`; -1 for a zero.
  [[nodiscard]] int64_t Element(double at) const {
    const auto last = static_cast<double>(extent - 1);
    if (at >= 0 && at <= last) return static_cast<int64_t>(at);
    if (padding == "zeros" || std::isnan(at)) return -1;
    if (padding == "border") return at < 0 ? 0 : extent - 1;
    return static_cast<int64_t>(std::max(0.0, std::min(Reflect(at), last)));
  }
};

struct Tap {
  int64_t at;
  double weight;
};

double Cubic(double distance) {
  constexpr double kA = -0.75;
  const double x = std::fabs(distance);
  if (x <= 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA : 0;
}

std::vector<Tap> TapsAt(const Line& line, double x) {
  if (line.mode == "nearest") return {{line.Element(x), 1}};
  std::vector<Tap> taps;
  const double low = std::floor(x);
  const int reach = line.mode == "linear" ? 1 : 2;
  for (int k = 1 - reach; k <= reach; ++k) {
    const double distance = low + k - x;
    const double weight = reach == 1 ? 1 - std::fabs(distance) : Cubic(distance);
    taps.push_back({line.Element(low + k), weight});
  }
  return taps;
}

// The elements of a channel around a point, as flat positions with their shares.
std::vector<Tap> TapsOf(std::span<const Line> lines, const double* point) {
  std::vector<Tap> taps{{0, 1}};
  for (size_t d = 0; d < lines.size(); ++d) {
    std::vector<Tap> next;
    const auto along = TapsAt(lines[d], lines[d].Place(point[lines.size() - 1 - d]));
    for (const Tap& outer : taps) {
      for (const Tap& tap : along) {
        if (tap.at < 0) continue;
        next.push_back({outer.at * lines[d].extent + tap.at, outer.weight * tap.weight});
      }
    }
    taps = std::move(next);
  }
  return taps;
}

// ---- affine_grid --------------------------------------------------------------------------------

size_t AffineRank(const SymShape& theta) {
  const SymShape shape = WithRank(theta, 3, "theta");
  const bool plane = !ProvablyDifferent(shape.dims[1], 2) && !ProvablyDifferent(shape.dims[2], 3);
  const bool space = !ProvablyDifferent(shape.dims[1], 3) && !ProvablyDifferent(shape.dims[2], 4);
  if (!plane && !space) {
    eval::FailShape("shape/affine-grid", StrCat("theta has shape ", shape.ToString()),
                    "[N, 2, 3] or [N, 3, 4] is expected");
  }
  if (plane && space) return 0;
  const int64_t rank = plane ? 2 : 3;
  ExpectShape(shape, {Dim(), rank, rank + 1}, "theta");
  return static_cast<size_t>(rank);
}

void AssumeSameImages(const Dim& size, const Dim& theta) {
  if (size.is_unknown() || theta.is_unknown()) return;
  Assume(SizeCondition::Equal(size, theta), "shape/affine-grid",
         [&] { return StrCat("size has ", size.ToString(), " images, theta ", theta.ToString()); });
}

double GridPoint(int64_t i, int64_t extent, bool align) {
  const auto n = static_cast<double>(extent);
  if (align) return extent == 1 ? -1 : 2 * static_cast<double>(i) / (n - 1) - 1;
  return (2 * static_cast<double>(i) + 1) / n - 1;
}

}  // namespace

void GridSampleOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, SampledShape(OperandShapes(c, 2)));
}

void GridSampleOp::Eval(EvalContext& c) {
  const GridSampleOp op(c.op());
  const Shape shape = ConstantsOf(SampledShape(OperandShapes(c, 2)));
  const Tensor& x = c.input(kX);
  std::vector<Line> lines;
  for (size_t d = 2; d < shape.size(); ++d) {
    lines.push_back({x.shape()[d], op.align_corners(), op.padding_mode(), op.mode()});
  }
  const std::vector<double> from = ToDoubles(x);
  const std::vector<double> grid = ToDoubles(c.input(kGrid));
  const int64_t in = eval::Product(x.shape(), 2, x.shape().size());
  const int64_t out = eval::Product(shape, 2, shape.size());
  std::vector<double> y(static_cast<size_t>(NumElements(shape)), 0.0);
  const int64_t channels = shape[1];
  for (int64_t at = 0; !y.empty() && in > 0 && at < shape[0] * out; ++at) {
    const auto taps = TapsOf(lines, grid.data() + at * static_cast<int64_t>(lines.size()));
    for (int64_t k = 0; k < channels; ++k) {
      const int64_t plane = at / out * channels + k;
      double& to = y[static_cast<size_t>(plane * out + at % out)];
      for (const Tap& tap : taps) to += tap.weight * from[static_cast<size_t>(plane * in + tap.at)];
    }
  }
  c.SetOutput(kY, eval::FromDoubles(x.element_type(), shape, y));
}

void AffineGridOp::InferShape(InferShapeContext& c) {
  const auto shapes = OperandShapes(c, 2);
  const size_t rank = AffineRank(shapes[kTheta]);
  if (rank == 0) return c.SetShape(kGrid, {});
  ExpectShape(shapes[kSize], {static_cast<int64_t>(rank) + 2}, "size");
  SymShape grid = SymShape::OfRank(rank + 2);
  if (const auto size = c.Contents(kSize)) {
    grid.dims[0] = (*size)[0];
    for (size_t d = 0; d < rank; ++d) grid.dims[d + 1] = (*size)[d + 2];
    const Dim& images = shapes[kTheta].dims[0];
    AssumeSameImages((*size)[0], images);
    if (!images.is_unknown()) grid.dims[0] = images;
    for (const Dim& d : *size) {
      if (d.is_constant() && d.value() < 0) c.Fail("shape/affine-grid", "size is negative");
    }
  }
  grid.dims[rank + 1] = static_cast<int64_t>(rank);
  c.SetShape(kGrid, grid);
}

void AffineGridOp::Eval(EvalContext& c) {
  const bool align = AffineGridOp(c.op()).align_corners();
  const auto shapes = OperandShapes(c, 2);
  const size_t rank = AffineRank(shapes[kTheta]);
  ExpectShape(shapes[kSize], {static_cast<int64_t>(rank) + 2}, "size");
  const std::vector<int64_t> size = ToInt64s(c.input(kSize));
  const std::vector<double> theta = ToDoubles(c.input(kTheta));
  if (size[0] != c.input(kTheta).dim(0)) {
    c.Fail("shape/affine-grid",
           StrCat("size has ", size[0], " images, theta ", c.input(kTheta).dim(0)));
  }
  Shape shape{size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(static_cast<int64_t>(rank));
  eval::CheckSize(ElementType::kF64, shape);
  std::vector<double> grid;
  grid.reserve(static_cast<size_t>(NumElements(shape)));
  const std::span<const int64_t> extents = std::span(shape).subspan(1, rank);
  std::vector<int64_t> index(rank, 0);
  const int64_t points = NumElements(shape) / static_cast<int64_t>(rank);
  for (int64_t at = 0; at < points; ++at, static_cast<void>(eval::NextIndex(extents, index))) {
    const double* map =
        theta.data() + at / NumElements(extents) * static_cast<int64_t>(rank * (rank + 1));
    for (size_t row = 0; row < rank; ++row, map += rank + 1) {
      double sum = map[rank];
      for (size_t d = 0; d < rank; ++d) {
        const size_t axis = rank - 1 - d;
        sum += map[d] * GridPoint(index[axis], extents[axis], align);
      }
      grid.push_back(sum);
    }
  }
  c.SetOutput(kGrid, eval::FromDoubles(c.input(kTheta).element_type(), shape, grid));
}

}  // namespace lathe::nn
