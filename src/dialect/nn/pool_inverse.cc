#include <algorithm>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/regions.h"
#include "src/dialect/nn/window.h"

namespace lathe::nn {
namespace {

// ---- max_unpool ---------------------------------------------------------------------------------

// What a pool with these attributes would have had as its input, at least.
std::vector<Dim> UnpooledDims(const MaxUnpoolOp& op, const SymShape& x) {
  const WindowSpec spec = WindowOf(op);
  const size_t rank = spec.kernel_shape->size();
  if (x.rank() != rank + 2) {
    eval::FailShape("shape/window-rank", StrCat("kernel_shape has ", rank,
                                                " entries for an input of shape ", x.ToString()));
  }
  const WindowSteps steps = CheckedSteps(spec, rank);
  const std::vector<Dim> kernel = KernelDims(spec, {}, rank);
  std::vector<Dim> dims{x.dims[0], x.dims[1]};
  for (size_t d = 0; d < rank; ++d) {
    dims.push_back(Dim(steps.strides[d]) * (x.dims[d + 2] - Dim(1)) + kernel[d] -
                   Dim(steps.begins[d]) - Dim(steps.ends[d]));
    Assume(SizeCondition::AtLeast(dims.back(), 0), "shape/window",
           [] { return std::string("the pads are larger than the output"); });
  }
  return dims;
}

Shape UnpooledShape(EvalContext& c, const Shape& inferred) {
  if (!c.HasInput(MaxUnpoolOp::kOutputShape)) return inferred;
  const Tensor& given = c.input(MaxUnpoolOp::kOutputShape);
  Shape shape = ToInt64s(given);
  bool fits = shape.size() == inferred.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) fits = shape[d] >= inferred[d];
  if (!fits) {
    c.Fail("shape/max-unpool",
           StrCat("output_shape ", ShapeToString(shape), " is smaller than the inferred shape ",
                  ShapeToString(inferred)));
  }
  return shape;
}

// The flat position in `outer` of flat position `at` in `inner`, which lies in its corner.
int64_t Embed(int64_t at, const Shape& inner, const Shape& outer) {
  int64_t flat = 0;
  int64_t scale = 1;
  for (size_t d = inner.size(); d-- > 0; at /= inner[d]) {
    flat += at % inner[d] * scale;
    scale *= outer[d];
  }
  return flat;
}

// ---- max_roi_pool -------------------------------------------------------------------------------

// Positions are rounded as the elements are, of halves as f32 is: where cells end depends on it,
// and onnxruntime and torchvision do so.
double Rounded(ElementType element, double x) {
  return element == ElementType::kF64 ? x : static_cast<float>(x);
}

// The first and last position of a region along one dim, cut into cells.
struct Cells {
  ElementType element;
  int64_t start, length, count, extent;

  [[nodiscard]] std::pair<int64_t, int64_t> Range(int64_t cell) const {
    const double whole = Rounded(element, static_cast<double>(length));
    const double size = Rounded(element, whole / static_cast<double>(count));
    const auto edge = [&](int64_t i) { return Rounded(element, static_cast<double>(i) * size); };
    const auto low = static_cast<int64_t>(std::floor(edge(cell)));
    const auto high = static_cast<int64_t>(std::ceil(edge(cell + 1)));
    return {std::clamp<int64_t>(start + low, 0, extent),
            std::clamp<int64_t>(start + high, 0, extent)};
  }
};

Cells CellsOf(EvalContext& c, double from, double to, int64_t count, int64_t extent) {
  if (!(std::fabs(from) < kFarPooledRoi) || !(std::fabs(to) < kFarPooledRoi)) {
    c.Fail("shape/roi", StrCat("a region of interest reaches from ", from, " to ", to));
  }
  const ElementType element = c.input(MaxRoiPoolOp::kX).element_type();
  const auto start = static_cast<int64_t>(std::round(Rounded(element, from)));
  const auto end = static_cast<int64_t>(std::round(Rounded(element, to)));
  return {element, start, std::max<int64_t>(end - start + 1, 1), count, extent};
}

double CellMax(const double* plane, const Cells& rows, const Cells& columns, int64_t i, int64_t j) {
  const auto [y0, y1] = rows.Range(i);
  const auto [x0, x1] = columns.Range(j);
  if (y0 >= y1 || x0 >= x1) return 0;
  double best = plane[y0 * columns.extent + x0];
  for (int64_t y = y0; y < y1; ++y) {
    for (int64_t x = x0; x < x1; ++x) best = eval::NanMax(best, plane[y * columns.extent + x]);
  }
  return best;
}

void CheckPooledShape(const std::vector<int64_t>& pooled) {
  if (pooled.size() == 2 && pooled[0] >= 1 && pooled[1] >= 1) return;
  eval::FailShape("shape/roi", StrCat("pooled_shape is ", ShapeToString(pooled)),
                  "give two extents of at least 1");
}

}  // namespace

void MaxUnpoolOp::InferShape(InferShapeContext& c) {
  const MaxUnpoolOp op(c.op());
  const SymShape x = Meet(c.shape(kX), c.shape(kIndices));
  if (c.HasInput(kOutputShape)) {
    const auto contents = c.Contents(kOutputShape);
    return c.SetShape(kY, contents   ? SymShape(*contents)
                          : x.ranked ? SymShape::OfRank(x.rank())
                                     : SymShape());
  }
  c.SetShape(kY, x.ranked ? SymShape(UnpooledDims(op, x)) : SymShape());
}

void MaxUnpoolOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const Tensor& indices = c.input(kIndices);
  if (x.shape() != indices.shape()) {
    c.Fail("shape/max-unpool",
           StrCat("x is ", x.TypeString(), ", indices are ", indices.TypeString()),
           "both must have one shape");
  }
  const SymShape dims = UnpooledDims(MaxUnpoolOp(c.op()), SymShape::FromConstants(x.shape()));
  const Shape inferred = dims.Constants().value();
  const Shape shape = UnpooledShape(c, inferred);
  const int64_t count = NumElements(inferred);
  const std::vector<double> values = ToDoubles(x);
  Tensor result(ElementType::kF64, shape);
  double* y = result.mutable_data<double>().data();
  const auto at = indices.data<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (at[i] < 0 || at[i] >= count) {
      c.Fail("shape/max-unpool", StrCat("index ", at[i], " is outside of the ", count,
                                        " elements of ", ShapeToString(inferred)));
    }
    y[Embed(at[i], inferred, shape)] = values[i];
  }
  c.SetOutput(kY, Cast(result, x.element_type()));
}

void MaxRoiPoolOp::InferShape(InferShapeContext& c) {
  const std::vector<int64_t> pooled = MaxRoiPoolOp(c.op()).pooled_shape();
  CheckPooledShape(pooled);
  const SymShape x = ExpectRank(c, kX, 4, "the input");
  const SymShape rois = ExpectRank(c, kRois, 2, "the regions");
  Assume(
      SizeCondition::Equal(rois.dims[1], 5), "shape/roi",
      [&] { return StrCat("the regions have shape ", rois.ToString()); },
      "each is [batch, x1, y1, x2, y2]");
  c.SetShape(kY, {rois.dims[0], x.dims[1], pooled[0], pooled[1]});
}

void MaxRoiPoolOp::Eval(EvalContext& c) {
  const MaxRoiPoolOp op(c.op());
  const Tensor& x = c.input(kX);
  const std::vector<int64_t> pooled = op.pooled_shape();
  CheckPooledShape(pooled);
  if (x.rank() != 4 || c.input(kRois).rank() != 2 || c.input(kRois).dim(1) != 5) {
    c.Fail("shape/roi", "the input is [N, C, H, W], the regions are [R, 5]");
  }
  const std::vector<double> values = ToDoubles(x);
  const std::vector<double> rois = ToDoubles(c.input(kRois));
  const double scale = op.spatial_scale();
  std::vector<double> y;
  for (size_t r = 0; r < rois.size(); r += 5) {
    const double image = std::trunc(rois[r]);  // as kernels and onnxruntime do
    if (!(image >= 0 && image < static_cast<double>(x.dim(0)))) {
      c.Fail("shape/roi", StrCat("a region is of image ", image, " of ", x.dim(0)));
    }
    const Cells columns = CellsOf(c, rois[r + 1] * scale, rois[r + 3] * scale, pooled[1], x.dim(3));
    const Cells rows = CellsOf(c, rois[r + 2] * scale, rois[r + 4] * scale, pooled[0], x.dim(2));
    for (int64_t channel = 0; channel < x.dim(1); ++channel) {
      const int64_t plane = static_cast<int64_t>(image) * x.dim(1) + channel;
      const double* data = values.data() + plane * x.dim(2) * x.dim(3);
      for (int64_t i = 0; i < pooled[0] * pooled[1]; ++i) {
        y.push_back(CellMax(data, rows, columns, i / pooled[1], i % pooled[1]));
      }
    }
  }
  const Shape shape{c.input(kRois).dim(0), x.dim(1), pooled[0], pooled[1]};
  c.SetOutput(kY, eval::FromDoubles(x.element_type(), shape, y));
}

}  // namespace lathe::nn
