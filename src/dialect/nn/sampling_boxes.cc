#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/sampling.h"
#include "lathe/support/budget.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/operand_shape.h"
#include "src/dialect/nn/regions.h"

namespace lathe::nn {
namespace {

// ---- roi_align ----------------------------------------------------------------------------------

SymShape AlignedShape(const RoiAlignOp& op, const std::vector<SymShape>& shapes) {
  const SymShape x = WithRank(shapes[0], 4, "the image");
  if (op.output_height() < 1 || op.output_width() < 1 || op.sampling_ratio() < 0) {
    eval::FailArgument("roi-align/sizes", "the output extents must be positive");
  }
  if (op.sampling_ratio() > kMostRoiPoints) {
    eval::FailArgument("roi-align/sizes", StrCat("sampling_ratio is ", op.sampling_ratio()),
                       StrCat("use at most ", kMostRoiPoints, " points"));
  }
  Dim regions = WithRank(shapes[1], 2, "rois").dims[0];
  ExpectShape(shapes[1], {Dim(), 4}, "rois");
  Unify(regions, WithRank(shapes[2], 1, "batch_indices").dims[0], "the number of regions");
  return {regions, x.dims[1], op.output_height(), op.output_width()};
}

struct Corner {
  int64_t at;
  double weight;
};

// One dim of a region: where its points lie.
struct Span {
  double start, cell;
  int64_t points;

  [[nodiscard]] double At(int64_t index, int64_t point) const {
    return start + static_cast<double>(index) * cell +
           (static_cast<double>(point) + 0.5) * cell / static_cast<double>(points);
  }
};

Span SpanOf(double first, double last, int64_t cells, const RoiAlignOp& op) {
  const bool shifted = op.coordinate_transformation_mode() == "half_pixel";
  for (const double at : {first, last}) {
    if (op.sampling_ratio() > 0 || std::fabs(at * op.spatial_scale()) < kFarRoi) continue;
    eval::FailArgument("roi-align/region", StrCat("a region from ", first, " to ", last,
                                                  " reaches ", kFarRoi, " elements or further"));
  }
  const double start = first * op.spatial_scale() - (shifted ? 0.5 : 0);
  double extent = last * op.spatial_scale() - (shifted ? 0.5 : 0) - start;
  if (!shifted) extent = std::max(extent, 1.0);
  const double cell = extent / static_cast<double>(cells);
  int64_t points = op.sampling_ratio();
  if (points == 0) points = static_cast<int64_t>(std::ceil(cell));
  return {start, cell, points};
}

// The two elements along a dim of `extent` around x; none outside.
std::vector<Corner> Around(double x, int64_t extent) {
  if (extent == 0 || !(x >= -1 && x <= static_cast<double>(extent))) return {};
  x = std::max(x, 0.0);
  const auto low = static_cast<int64_t>(x);
  if (low >= extent - 1) return {{extent - 1, 1}, {extent - 1, 0}};
  const double share = x - static_cast<double>(low);
  return {{low, 1 - share}, {low + 1, share}};
}

struct Cell {
  double sum = 0;
  double greatest = -std::numeric_limits<double>::infinity();

  void Add(const double* plane, int64_t width, std::span<const Corner> ys,
           std::span<const Corner> xs) {
    double value = 0;
    double most = ys.empty() || xs.empty() ? 0 : -std::numeric_limits<double>::infinity();
    for (const Corner& y : ys) {
      for (const Corner& x : xs) {
        const double part = y.weight * x.weight * plane[y.at * width + x.at];
        value += part;
        most = eval::NanMax(most, part);
      }
    }
    sum += value;
    greatest = eval::NanMax(greatest, most);
  }
};

// ---- non_max_suppression ------------------------------------------------------------------------

SymShape CheckBoxes(const std::vector<SymShape>& shapes) {
  const SymShape boxes = WithRank(shapes[0], 3, "boxes");
  ExpectShape(shapes[0], {Dim(), Dim(), 4}, "boxes");
  ExpectShape(shapes[1], {boxes.dims[0], Dim(), boxes.dims[1]}, "scores");
  return {Dim(), 3};
}

struct Box {
  double y1, x1, y2, x2;
  [[nodiscard]] double Area() const { return (y2 - y1) * (x2 - x1); }
};

Box BoxOf(const float* p, bool centered) {
  if (centered) {
    return {p[1] - p[3] / 2.0, p[0] - p[2] / 2.0, p[1] + p[3] / 2.0, p[0] + p[2] / 2.0};
  }
  return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
}

double Overlap(const Box& a, const Box& b) {
  const double height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const double width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (!(height > 0) || !(width > 0)) return 0;
  const double common = height * width;
  const double all = a.Area() + b.Area() - common;
  return all > 0 ? common / all : 0;
}

// The boxes taken of one class, best first.
std::vector<int64_t> Take(std::span<const Box> boxes, const float* scores, int64_t limit,
                          double overlap, double least) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (scores[i] > least) order.push_back(static_cast<int64_t>(i));
  }
  std::sort(order.begin(), order.end(), [scores](int64_t a, int64_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  std::vector<int64_t> taken;
  for (int64_t i : order) {
    if (static_cast<int64_t>(taken.size()) >= limit) break;
    const Box& box = boxes[static_cast<size_t>(i)];
    const bool apart = std::none_of(taken.begin(), taken.end(), [&](int64_t k) {
      return Overlap(box, boxes[static_cast<size_t>(k)]) > overlap;
    });
    if (apart) taken.push_back(i);
  }
  return taken;
}

double ScalarOf(EvalContext& c, size_t i, double absent) {
  if (!c.HasInput(i)) return absent;
  if (c.input(i).num_elements() == 1) return ToDoubles(c.input(i))[0];
  c.Fail("shape/scalar",
         StrCat("operand ", i, " is ", c.input(i).TypeString(), ", one element is expected"));
}

}  // namespace

void RoiAlignOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, AlignedShape(RoiAlignOp(c.op()), OperandShapes(c, 3)));
}

void RoiAlignOp::Eval(EvalContext& c) {
  const RoiAlignOp op(c.op());
  const Shape shape = ConstantsOf(AlignedShape(op, OperandShapes(c, 3)));
  const Tensor& x = c.input(kX);
  const int64_t height = x.dim(2), width = x.dim(3);
  const std::vector<double> image = ToDoubles(x);
  const std::vector<double> rois = ToDoubles(c.input(kRois));
  const std::vector<int64_t> batches = ToInt64s(c.input(kBatchIndices));
  const bool mean = op.mode() == "avg";
  std::vector<double> y;
  y.reserve(static_cast<size_t>(NumElements(shape)));
  for (int64_t r = 0; r < shape[0]; ++r) {
    const double* roi = rois.data() + r * 4;
    const Span rows = SpanOf(roi[1], roi[3], shape[2], op);
    const Span columns = SpanOf(roi[0], roi[2], shape[3], op);
    const int64_t b = eval::CheckIndex(batches[static_cast<size_t>(r)], x.dim(0), "the image");
    for (int64_t at = 0; at < shape[1] * shape[2] * shape[3]; ++at) {
      const int64_t channel = at / (shape[2] * shape[3]);
      const double* plane = image.data() + (b * shape[1] + channel) * height * width;
      Cell cell;
      for (int64_t i = 0; i < rows.points; ++i) {
        CheckBudget();
        const auto ys = Around(rows.At(at / shape[3] % shape[2], i), height);
        for (int64_t k = 0; k < columns.points; ++k) {
          cell.Add(plane, width, ys, Around(columns.At(at % shape[3], k), width));
        }
      }
      const int64_t count = rows.points * columns.points;
      if (mean) {
        y.push_back(cell.sum / static_cast<double>(std::max<int64_t>(count, 1)));
      } else {
        y.push_back(count > 0 ? cell.greatest : 0);
      }
    }
  }
  c.SetOutput(kY, eval::FromDoubles(x.element_type(), shape, y));
}

namespace {

using Suppression = NonMaxSuppressionOp;  // the padded one has the same operands

// Three numbers for each box that is taken, at most `room` of a class.
std::vector<int64_t> Suppressed(EvalContext& c, bool centered, int64_t room) {
  static_cast<void>(CheckBoxes(OperandShapes(c, 5)));
  const bool limited = c.HasInput(Suppression::kMaxOutputBoxesPerClass);
  const int64_t limit =
      limited ? eval::ScalarInt(c.input(Suppression::kMaxOutputBoxesPerClass), "the limit") : 0;
  const double overlap = ScalarOf(c, Suppression::kIouThreshold, 0);
  const double least =
      ScalarOf(c, Suppression::kScoreThreshold, -std::numeric_limits<double>::infinity());
  const Tensor& scores = c.input(Suppression::kScores);
  const int64_t classes = scores.dim(1), count = scores.dim(2);
  const float* corners = c.input(Suppression::kBoxes).data<float>().data();
  std::vector<int64_t> result;
  const int64_t images = scores.num_elements() == 0 ? 0 : scores.dim(0);
  for (int64_t n = 0; n < images; ++n) {
    std::vector<Box> boxes;
    for (int64_t i = 0; i < count; ++i) {
      boxes.push_back(BoxOf(corners + (n * count + i) * 4, centered));
    }
    for (int64_t k = 0; k < classes; ++k) {
      const float* own = scores.data<float>().data() + (n * classes + k) * count;
      for (int64_t i : Take(boxes, own, std::min(limit, room), overlap, least)) {
        result.insert(result.end(), {n, k, i});
      }
    }
  }
  return result;
}

SymShape InferBoxes(InferShapeContext& c) {
  ExpectScalar(c, Suppression::kMaxOutputBoxesPerClass, "max_output_boxes_per_class");
  ExpectScalar(c, Suppression::kIouThreshold, "iou_threshold");
  ExpectScalar(c, Suppression::kScoreThreshold, "score_threshold");
  return CheckBoxes(OperandShapes(c, 5));
}

}  // namespace

void NonMaxSuppressionOp::InferShape(InferShapeContext& c) {
  c.SetShape(kSelectedIndices, InferBoxes(c));
}

void NonMaxSuppressionOp::Eval(EvalContext& c) {
  const bool centered = NonMaxSuppressionOp(c.op()).center_point_box();
  const auto taken = Suppressed(c, centered, std::numeric_limits<int64_t>::max());
  c.SetOutput(kSelectedIndices,
              Tensor::Of<int64_t>({static_cast<int64_t>(taken.size()) / 3, 3}, taken));
}

void NonMaxSuppressionPaddedOp::InferShape(InferShapeContext& c) {
  static_cast<void>(InferBoxes(c));
  const SymShape scores = WithRank(c.shape(kScores), 3, "scores");
  const auto room = NonMaxSuppressionPaddedOp(c.op()).room();
  const Dim most = room ? Min(scores.dims[2], *room) : scores.dims[2];
  c.SetShape(kSelectedIndices, {scores.dims[0] * scores.dims[1] * most, 3});
  c.SetShape(kCount, SymShape::OfRank(0));
}

void NonMaxSuppressionPaddedOp::Eval(EvalContext& c) {
  const NonMaxSuppressionPaddedOp op(c.op());
  const Tensor& scores = c.input(kScores);
  const int64_t room = std::min(op.room().value_or(scores.dim(2)), scores.dim(2));
  const int64_t most = scores.dim(0) * scores.dim(1) * room;
  std::vector<int64_t> taken = Suppressed(c, op.center_point_box(), room);
  c.SetOutput(kCount, Tensor::Scalar<int64_t>(static_cast<int64_t>(taken.size()) / 3));
  taken.resize(static_cast<size_t>(most) * 3);
  c.SetOutput(kSelectedIndices, Tensor::Of<int64_t>({most, 3}, taken));
}

}  // namespace lathe::nn
