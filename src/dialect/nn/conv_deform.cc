#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/gemm.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/convolution.h"

namespace lathe::nn {
namespace {

using eval::FailShape;

constexpr size_t kMaxSpatialRank = 8;

struct DeformShapes {
  SymShape y, offset, mask;
};

void CheckFits(const SymShape& given, const SymShape& expected, const char* what) {
  if (!given.ranked) return;
  const auto message = [&] {
    return StrCat(what, " has shape ", given.ToString(), ", ", expected.ToString(), " is expected");
  };
  if (given.rank() != expected.rank()) FailShape("shape/deform-conv", message());
  for (size_t d = 0; d < given.rank(); ++d) {
    Assume(SizeCondition::Equal(given.dims[d], expected.dims[d]), "shape/deform-conv", message);
  }
}

DeformShapes ShapesOf(const DeformConvOp& op, const SymShape& x, const SymShape& w) {
  DeformShapes shapes;
  shapes.y = ConvShape(ConvSpecOf(op), x, w);
  if (!shapes.y.ranked) return shapes;
  const size_t rank = shapes.y.rank() - 2;
  if (rank > kMaxSpatialRank) {
    FailShape("shape/conv-rank",
              StrCat("deform_conv takes at most ", kMaxSpatialRank, " spatial dims, not ", rank));
  }
  const int64_t groups = op.offset_group();
  const auto message = [&] {
    return StrCat("the input channels do not divide into ", groups, " offset groups");
  };
  if (groups < 1) FailShape("shape/conv-groups", message());
  if (x.ranked) Assume(SizeCondition::Divides(groups, x.dims[1]), "shape/conv-groups", message);
  Dim taps = Dim(groups);
  for (size_t d = 0; d < rank; ++d) taps *= w.ranked ? w.dims[d + 2] : Dim();
  shapes.mask = shapes.offset = shapes.y;
  shapes.mask.dims[1] = taps;
  shapes.offset.dims[1] = taps * Dim(static_cast<int64_t>(rank));
  return shapes;
}

// A point between elements of an input channel: up to 2^rank corners with their shares.
struct Corner {
  int64_t at;
  double share;
};

std::vector<Corner> CornersOf(std::span<const double> point, std::span<const int64_t> in) {
  std::vector<Corner> corners{{0, 1.0}};
  for (size_t d = 0; d < in.size(); ++d) {
    const double low = std::floor(point[d]);
    std::vector<Corner> next;
    for (const Corner& corner : corners) {
      for (const double side : {low, low + 1}) {
        const double share = 1 - std::fabs(point[d] - side);
        if (!(share > 0) || side < 0 || side >= static_cast<double>(in[d])) continue;
        next.push_back({corner.at * in[d] + static_cast<int64_t>(side), corner.share * share});
      }
    }
    corners = std::move(next);
  }
  return corners;
}

// Everything about one image as doubles.
struct DeformImage {
  Window window;
  int64_t offset_groups;
  int64_t channels;
  const double* x;
  const double* offset;
  const double* mask;  // null: ones

  // The matrix [channels * taps, outputs] that the weights multiply.
  [[nodiscard]] Tensor Patches() const;

 private:
  void Sample(int64_t group, int64_t tap, std::span<const int64_t> k, std::span<const int64_t> o,
              int64_t position, double* patches) const;
};

void DeformImage::Sample(int64_t group, int64_t tap, std::span<const int64_t> k,
                         std::span<const int64_t> o, int64_t position, double* patches) const {
  const auto rank = static_cast<int64_t>(window.rank());
  const int64_t taps = NumElements(window.kernel);
  const int64_t outputs = NumElements(window.out);
  std::vector<double> point;
  for (size_t d = 0; d < window.rank(); ++d) {
    const int64_t row = (group * taps + tap) * rank + static_cast<int64_t>(d);
    const int64_t base = o[d] * window.strides[d] + k[d] * window.dilations[d] - window.begins[d];
    point.push_back(static_cast<double>(base) + offset[row * outputs + position]);
  }
  const double factor = mask == nullptr ? 1.0 : mask[(group * taps + tap) * outputs + position];
  const std::vector<Corner> corners = CornersOf(point, window.in);
  const int64_t per_group = channels / offset_groups;
  for (int64_t c = group * per_group; c < (group + 1) * per_group; ++c) {
    double sum = 0;
    const double* channel = x + c * NumElements(window.in);
    for (const Corner& corner : corners) sum += corner.share * channel[corner.at];
    patches[(c * taps + tap) * outputs + position] = factor * sum;
  }
}

Tensor DeformImage::Patches() const {
  const int64_t taps = NumElements(window.kernel);
  Tensor result(ElementType::kF64, {channels * taps, NumElements(window.out)});
  double* patches = result.mutable_data<double>().data();
  for (int64_t group = 0; group < offset_groups; ++group) {
    std::vector<int64_t> k(window.rank(), 0);
    for (int64_t tap = 0; tap < taps; ++tap, static_cast<void>(eval::NextIndex(window.kernel, k))) {
      std::vector<int64_t> o(window.rank(), 0);
      for (int64_t position = 0; position < NumElements(window.out); ++position) {
        Sample(group, tap, k, o, position, patches);
        static_cast<void>(eval::NextIndex(window.out, o));
      }
    }
  }
  return result;
}

// y[m, o] of one image for each group of the convolution.
void MultiplyGroups(const Tensor& w, const Tensor& patches, int64_t group, double* y) {
  const int64_t outputs = patches.dim(1);
  const int64_t m = w.dim(0) / group;
  const int64_t depth = patches.dim(0) / group;
  for (int64_t g = 0; g < group; ++g) {
    eval::MatrixProduct<double> product{m, outputs, depth, {}, {}, {}};
    product.a = eval::MatrixOf<double>(w, g * m * depth, depth, 1);
    product.b = eval::MatrixOf<double>(patches, g * depth * outputs, outputs, 1);
    product.c = [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1, const double* sums,
                    int64_t ld) {
      for (int64_t r = r0; r < r1; ++r, sums += ld) {
        std::copy_n(sums, c1 - c0, y + (g * m + r) * outputs + c0);
      }
    };
    eval::Multiply(product);
  }
}

}  // namespace

void DeformConvOp::InferShape(InferShapeContext& c) {
  const DeformConvOp op(c.op());
  DeformShapes shapes = ShapesOf(op, c.shape(kX), c.shape(kW));
  if (shapes.y.ranked) {
    CheckFits(c.shape(kOffset), shapes.offset, "the offset");
    if (c.HasInput(kMask)) CheckFits(c.shape(kMask), shapes.mask, "the mask");
    if (c.HasInput(kB)) CheckBias(c.shape(kB), shapes.y.dims[1]);
  }
  c.SetShape(kY, std::move(shapes.y));
}

void DeformConvOp::Eval(EvalContext& c) {
  const DeformConvOp op(c.op());
  const Tensor& x = c.input(kX);
  const Tensor& w = c.input(kW);
  const Tensor& offset = c.input(kOffset);
  const auto constants = [](const Tensor& t) { return SymShape::FromConstants(t.shape()); };
  const DeformShapes shapes = ShapesOf(op, constants(x), constants(w));
  CheckFits(constants(offset), shapes.offset, "the offset");
  if (c.HasInput(kMask)) CheckFits(constants(c.input(kMask)), shapes.mask, "the mask");
  const ConvSpec spec = ConvSpecOf(op);
  const auto spatial = [](const Tensor& t) { return std::span(t.shape()).subspan(2); };
  DeformImage image{ResolveWindow(spec.window, spatial(x), spatial(w)),
                    op.offset_group(),
                    x.dim(1),
                    nullptr,
                    nullptr,
                    nullptr};
  Tensor y(ElementType::kF64, shapes.y.Constants().value());
  const std::vector<double> xs = ToDoubles(x);
  const std::vector<double> offsets = ToDoubles(offset);
  const std::vector<double> masks =
      c.HasInput(kMask) ? ToDoubles(c.input(kMask)) : std::vector<double>();
  const int64_t images = y.num_elements() == 0 ? 0 : x.dim(0);
  const auto part = [&](const std::vector<double>& all, int64_t i) {
    return all.data() + static_cast<int64_t>(all.size()) / images * i;
  };
  for (int64_t i = 0; i < images; ++i) {
    image.x = part(xs, i);
    image.offset = part(offsets, i);
    image.mask = c.HasInput(kMask) ? part(masks, i) : nullptr;
    MultiplyGroups(w, image.Patches(), spec.group,
                   y.mutable_data<double>().data() + y.num_elements() / images * i);
  }
  if (c.HasInput(kB)) AddBias(y, c.input(kB));
  c.SetOutput(kY, Cast(y, x.element_type()));
}

Dim DeformConvOp::Flops(Operation* o) {
  const DeformConvOp op(o);
  return ConvFlops(ShapeOf(op.y()), ShapeOf(op.w()));
}

}  // namespace lathe::nn
