#include "lathe/dialect/nn/sampling.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "src/dialect/nn/regions.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/roi_align.h"
#include "src/lower/compute/taps.h"

// Elements between the elements of images.
namespace lathe::lower {
namespace {

Value Wide(const Scalars& s, double x) { return s.Number(kWide, x); }
Value Widened(const Scalars& s, Value x) { return s.Cast(x, kWide); }

// ---- grid_sample ----

constexpr double kCubic = -0.75;  // coefficient

// One axis of an image and how points outside of it are read.
class Line {
 public:
  Line(Elements& e, const nn::GridSampleOp& op, const Dim& extent)
      : s_(e),
        extent_(extent),
        align_(op.align_corners()),
        padding_(op.padding_mode()),
        mode_(op.mode()),
        n_(s_.Number(kWide, extent)),
        low_(Wide(s_, align_ ? 0 : -0.5)),
        high_(s_.Sub(n_, Wide(s_, align_ ? 1 : 0.5))),
        last_(s_.Sub(n_, Wide(s_, 1))) {}

  std::vector<Tap> Taps(Value g) const {
    const Value x = Placed(g);
    if (mode_ == "nearest") return {Element(x, Wide(s_, 1))};
    std::vector<Tap> taps;
    const Value low = s_.Floor(x);
    const int reach = mode_ == "linear" ? 1 : 2;
    for (int k = 1 - reach; k <= reach; ++k) {
      const Value at = s_.Add(low, Wide(s_, k));
      const Value distance = s_.Abs(s_.Sub(at, x));
      taps.push_back(Element(
          at, reach == 1 ? s_.Sub(Wide(s_, 1), distance) : CubicShare(s_, distance, kCubic)));
    }
    return taps;
  }

 private:
  Value Reflected(Value x) const {
    const Value range = s_.Sub(high_, low_), period = s_.Add(range, range);
    const Value inside = s_.And(s_.AtMost(low_, x), s_.AtMost(x, high_));
    const Value from = s_.Sub(x, low_);
    const Value beyond = s_.Sub(from, s_.Mul(s_.Floor(s_.Div(from, period)), period));
    const Value turned = s_.Select(s_.AtMost(beyond, range), beyond, s_.Sub(period, beyond));
    const Value result = s_.Select(inside, x, s_.Add(low_, turned));
    return s_.Select(s_.Less(Wide(s_, 0), range), result, Wide(s_, 0));
  }
  // The first element for NaN, as in PyTorch.
  Value Clamped(Value x) const {
    return s_.Select(s_.AtMost(Wide(s_, 0), x), s_.Min(x, last_), Wide(s_, 0));
  }

  // Where a point of the grid lies, moved inside if the padding says so.
  Value Placed(Value g) const {
    const Value one = Wide(s_, 1), two = Wide(s_, 2), next = s_.Add(g, one);
    Value x =
        align_ ? s_.Mul(s_.Div(next, two), last_) : s_.Div(s_.Sub(s_.Mul(next, n_), one), two);
    if (mode_ == "nearest") x = s_.Round(x);
    if (padding_ == "zeros") return x;
    const Value inside = s_.And(s_.AtMost(low_, x), s_.AtMost(x, high_));
    return s_.Select(inside, x, padding_ == "border" ? Clamped(x) : Reflected(x));
  }

  Tap Element(Value at, Value share) const {
    const Value inside = s_.And(s_.AtMost(Wide(s_, 0), at), s_.AtMost(at, last_));
    if (padding_ == "zeros") return {s_.Inside(at, extent_), inside, share};
    const Value known = s_.Equal(at, at);
    const Value moved = padding_ == "border" ? at : Clamped(Reflected(at));
    return {s_.Inside(s_.Select(inside, at, moved), extent_), known, share};
  }

  Scalars s_;
  Dim extent_;
  bool align_;
  std::string_view padding_, mode_;
  Value n_, low_, high_, last_;
};

// A piece of a row of points at a time: where these lie is computed once, for all channels.
class GridSample {
 public:
  explicit GridSample(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        op_(w.op),
        in_(w.Dims(Op::kX)),
        out_(w.ResultDims(0)),
        taps_(TapsOfPoint()),
        points_(std::clamp<int64_t>(kScratch / taps_, 16, 64)),
        sum_(w.Element(0) == kWide ? kWide : ElementType::kF32) {}

  void Write() {
    const Dim some = AreSome(e_, {in_.begin() + 2, in_.end()});
    e_.For(some, false, [&](const Dim&) { WriteRows(); });
    if (some.IsConstant(1)) return;
    e_.For(Dim(1) - some, false, [&](const Dim&) { WriteZeros(); });
  }

 private:
  using Op = nn::GridSampleOp;
  // Of one tap of each axis, per point of a piece: its place in the plane and its share, NaN if it
  // does not count.
  struct Column {
    Value at, share;
  };

  // Elements in all, and the dims of the output that say which row it is.
  Dim Count() const { return ProductOf(out_); }
  std::vector<Dim> RowDims() const {
    std::vector<Dim> dims{out_[0]};
    dims.insert(dims.end(), out_.begin() + 2, out_.end() - 1);
    return dims;
  }

  void WriteZeros() {
    const Dim count = Count();
    w_.ForLanes(count,
                [&](const Dim& i) { e_.Store(w_.memory[0], i, s_.Number(w_.Element(0), 0.0)); });
  }

  void WriteRows() {
    const std::vector<Dim> dims = RowDims();
    Dim rows = 1;
    for (const Dim& dim : dims) rows *= dim;
    e_.For(rows, WholeTensorEmitter::IsWorthParallelizing(Count() * kTapsOfPlane),
           [&](const Dim& row) {
             row_ = e_.space().Unflatten(row, dims);
             columns_.clear();
             e_.For(CeilDiv(out_.back(), points_), false, [&](const Dim& piece) {
               first_ = piece * points_;
               WritePiece(e_.Loaded(e_.Int(Min(out_.back() - first_, points_)), points_ + 1));
             });
           });
  }

  void WritePiece(const Dim& count) {
    AllocColumns();
    w_.ForLanes(count, [&](const Dim& i) { WriteTaps(i); });
    e_.For(in_[1], false, [&](const Dim& channel) {
      w_.ForLanes(count, [&](const Dim& i) { WriteElement(channel, i); });
    });
  }

  void AllocColumns() {
    columns_.clear();
    for (int64_t k = 0; k < taps_; ++k) {
      columns_.push_back({e_.Scratch(ElementType::kI64, points_), e_.Scratch(sum_, points_)});
    }
  }

  Dim PointAt(const Dim& i) { return e_.Loaded(e_.Int(first_ + i), out_.back()); }

  void WriteTaps(const Dim& i) {
    Place at(row_);
    at.push_back(PointAt(i));
    const size_t axes = in_.size() - 2;
    std::vector<std::vector<Tap>> taps;
    for (size_t d = 0; d < axes; ++d) {
      at.resize(axes + 1);
      at.emplace_back(static_cast<int64_t>(axes - 1 - d));
      const Value g = s_.Cast(w_.Operand(Op::kGrid, at), kWide);
      taps.push_back(Line(e_, op_, in_[d + 2]).Taps(g));
    }
    auto column = columns_.begin();
    WriteColumns(taps, Value(), Value(), Wide(s_, 1), i, column);
  }

  // `at`, `there`, `share`: of the axes before those in `axes`.
  void WriteColumns(std::span<const std::vector<Tap>> axes, Value at, Value there, Value share,
                    const Dim& i, std::vector<Column>::iterator& column) {
    if (axes.empty()) {
      e_.Store(column->at, i, at);
      e_.Store(column->share, i,
               s_.Select(there, s_.Cast(share, sum_), s_.Number(sum_, std::nan(""))));
      ++column;
      return;
    }
    const Value extent = e_.Int(in_[in_.size() - axes.size()]);
    for (const Tap& tap : axes.front()) {
      const Value own = e_.Int(tap.at);
      WriteColumns(axes.subspan(1), at ? s_.Add(s_.Mul(at, extent), own) : own,
                   there ? s_.And(there, tap.there) : tap.there, s_.Mul(share, tap.share), i,
                   column);
    }
  }

  void WriteElement(const Dim& channel, const Dim& i) {
    const Dim plane = ProductOf(std::span(in_).subspan(2));
    Value y;
    for (const Column& column : columns_) {
      Place at(in_.size(), 0);
      at[0] = row_[0], at[1] = channel;
      at.back() = e_.Loaded(e_.LoadFrom(column.at, i), plane);  // of a plane as one row
      const Value share = e_.LoadFrom(column.share, i);
      const Value x = s_.Cast(w_.Operand(Op::kX, at), sum_);
      const Value part = s_.Select(s_.Equal(share, share), s_.Mul(share, x), s_.Number(sum_, 0.0));
      y = y ? s_.Add(y, part) : part;
    }
    Place to{row_[0], channel};
    to.insert(to.end(), row_.begin() + 1, row_.end());
    to.push_back(PointAt(i));
    e_.Store(w_.memory[0], e_.space().Flatten(to, out_), s_.Cast(y, w_.Element(0)));
  }

  int64_t TapsOfPoint() const {
    const int64_t taps = op_.mode() == "nearest" ? 1 : op_.mode() == "linear" ? 2 : 4;
    int64_t all = 1;
    for (size_t d = 2; d < in_.size(); ++d) all *= taps;
    return all;
  }

  static constexpr int64_t kTapsOfPlane = 4, kScratch = 1024;

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Op op_;
  std::vector<Dim> in_, out_;

  int64_t taps_, points_;  // of a point; of a piece
  ElementType sum_;        // what elements are added in; their places are computed in f64

  // While writing.
  Place row_;  // the image, and all axes of the output but the last
  Dim first_;  // point of the piece
  std::vector<Column> columns_;
};

void SampleGrid(const WholeTensorEmitter& w) { GridSample(w).Write(); }

std::string RefuseIntegers(const Operation& op) {
  const bool is_float = IsFloat(TensorOf(op.result(0)).element());
  const bool few = DimsOf(op.operand(0)).size() <= 5;
  if (!is_float || !few) return is_float ? "more than three axes" : "integers are interpolated";
  Fits fits(op);
  std::string why = fits.Same(fits.Dims(0)[0], fits.Dims(1)[0]).why();
  return why.empty() ? NeedSizes(op) : why;
}

// ---- affine_grid ----

Value AffineGrid(const ElementOf& c) {
  using Op = nn::AffineGridOp;
  const Scalars s(c.e);
  const bool align = Op(c.op).align_corners();
  const size_t rank = c.at.size() - 2;
  const std::vector<Dim> dims = c.ResultDims();
  const auto theta = [&](size_t column) {
    const Place at{c.at[0], c.at.back(), Dim(static_cast<int64_t>(column))};
    return s.Cast(c.Operand(Op::kTheta, at), kWide);
  };
  Value sum = theta(rank);
  for (size_t d = 0; d < rank; ++d) {
    const size_t axis = rank - d;
    const Value i = s.Number(kWide, c.at[axis]), n = s.Number(kWide, dims[axis]);
    const Value one = Wide(s, 1), twice = s.Mul(Wide(s, 2), i);
    Value point = s.Sub(s.Div(s.Add(twice, one), n), one);
    if (align) {
      point = s.Sub(s.Div(twice, s.Sub(n, one)), one);
      point = s.Select(s.Equal(n, one), Wide(s, -1), point);
    }
    sum = s.Add(sum, s.Mul(theta(d), point));
  }
  return s.Cast(sum, c.Element());
}

std::string RefuseAffine(const Operation& op) {
  Fits fits(op);
  return fits.Same(fits.Dims(0)[0], DimsOf(op.result(0))[0]).why();
}

// ---- roi_align ----

class Aligned {
 public:
  explicit Aligned(const ElementOf& c) : c_(c), s_(c.e), op_(c.op), in_(c.Dims(Op::kX)) {}

  // Of an image without elements nothing is seen.
  Value Element() {
    const Dim some = AreSome(c_.e, {in_[2], in_[3]});
    return c_.e.Guarded(some, c_.Zero(), [&] { return Cell(); });
  }

 private:
  using Op = nn::RoiAlignOp;

  Value Cell() {
    const Axis rows = AxisOf(1, op_.output_height(), c_.at[2], in_[2]);
    const Axis columns = AxisOf(0, op_.output_width(), c_.at[3], in_[3]);
    image_ = IndexAt(c_, Op::kBatchIndices, {c_.at[0]}, in_[0]);
    const bool mean = op_.mode() == "avg";
    const Value initial = mean ? Wide(s_, 0) : Wide(s_, -INFINITY);
    const Value y =
        c_.e.Reduce({rows.count, columns.count}, initial, [&](const Place& point, Value so_far) {
          const Around row = AroundAt(rows, point[0]), column = AroundAt(columns, point[1]);
          const Value there = s_.And(row.there, column.there);
          Value sum, most;
          for (const auto& [y_at, y_share] :
               {std::pair{row.low, row.low_share}, std::pair{row.high, row.high_share}}) {
            for (const auto& [x_at, x_share] : {std::pair{column.low, column.low_share},
                                                std::pair{column.high, column.high_share}}) {
              const Value x = s_.Cast(c_.Operand(Op::kX, {image_, c_.at[1], y_at, x_at}), kWide);
              const Value part = s_.Mul(s_.Mul(y_share, x_share), x);
              sum = sum ? s_.Add(sum, part) : part;
              most = most ? s_.Max(most, part) : part;
            }
          }
          const Value value = s_.Select(there, mean ? sum : most, Wide(s_, 0));
          return mean ? s_.Add(so_far, value) : s_.Max(so_far, value);
        });
    const Value count = s_.Number(kWide, rows.count * columns.count);
    const Value result = mean ? s_.Div(y, s_.Max(count, Wide(s_, 1)))
                              : s_.Select(s_.Less(Wide(s_, 0), count), y, Wide(s_, 0));
    return s_.Cast(result, c_.Element());
  }

  // Where the points of the cell lie along an axis.
  struct Axis {
    Value begin, step;
    Dim count, extent;
  };
  struct Around {
    Value there;
    Dim low, high;
    Value low_share, high_share;
  };

  Axis AxisOf(int64_t coordinate, int64_t cells, const Dim& cell_at, const Dim& extent) {
    const bool shifted = op_.coordinate_transformation_mode() == "half_pixel";
    const auto end = [&](int64_t at) {
      const Value given = s_.Cast(c_.Operand(Op::kRois, {c_.at[0], Dim(at)}), kWide);
      return s_.Sub(s_.Mul(given, Wide(s_, op_.spatial_scale())), Wide(s_, shifted ? 0.5 : 0));
    };
    const Value start = end(coordinate);
    Value length = s_.Sub(end(coordinate + 2), start);
    if (!shifted) length = s_.Max(length, Wide(s_, 1));
    const Value cell = s_.Div(length, Wide(s_, static_cast<double>(cells)));
    Dim count(op_.sampling_ratio());
    if (op_.sampling_ratio() == 0) {
      const Value zero = Wide(s_, 0);
      count = s_.Inside(s_.Sub(zero, s_.Floor(s_.Sub(zero, cell))), Dim(2 * nn::kFarRoi + 1));
    }
    const Value step = s_.Div(cell, s_.Number(kWide, count));
    return {s_.Add(start, s_.Mul(s_.Number(kWide, cell_at), cell)), step, count, extent};
  }

  Around AroundAt(const Axis& axis, const Dim& point) {
    const Value center = s_.Add(s_.Number(kWide, point), Wide(s_, 0.5));
    const Value x = s_.Add(axis.begin, s_.Mul(center, axis.step));
    const Value extent = s_.Number(kWide, axis.extent);
    const Value there = s_.And(s_.And(s_.AtMost(Wide(s_, -1), x), s_.AtMost(x, extent)),
                               s_.Less(Wide(s_, 0), extent));
    const Value inside = s_.Max(x, Wide(s_, 0)), low = s_.Floor(inside);
    const Value at_end = s_.AtMost(s_.Sub(extent, Wide(s_, 1)), low);
    const Value share = s_.Select(at_end, Wide(s_, 0), s_.Sub(inside, low));
    return {there, s_.Inside(low, axis.extent), s_.Inside(s_.Add(low, Wide(s_, 1)), axis.extent),
            s_.Sub(Wide(s_, 1), share), share};
  }

  const ElementOf& c_;
  Scalars s_;
  Op op_;
  std::vector<Dim> in_;
  Dim image_;
};

Value RoiAlign(const ElementOf& c) { return Aligned(c).Element(); }

std::string RefuseAligned(const Operation& op) {
  using Op = nn::RoiAlignOp;
  Fits fits(op);
  return fits.Same(fits.Dims(Op::kRois)[0], fits.Dims(Op::kBatchIndices)[0]).why();
}

// That the corners, four columns of the regions, are less than `far` elements away. Axes are those
// of the image, [N, C, H, W].
void AddCorners(std::vector<IndexUse>& uses, size_t rois, int64_t first, double scale,
                int64_t far) {
  const auto distance = [scale](Elements& e, Value given) {
    const Scalars s(e);
    return ToInt64(e, s.Abs(s.Mul(s.Cast(given, kWide), Wide(s, scale))));
  };
  for (int64_t i = 0; i < 4; ++i) {
    const size_t axis = i % 2 == 0 ? 3 : 2;
    uses.push_back({rois, axis, far, first + i, distance});
  }
}

std::vector<IndexUse> ImagesAligned(const ElementOf& c) {
  using Op = nn::RoiAlignOp;
  std::vector<IndexUse> uses{{Op::kBatchIndices, 0, c.Dims(Op::kX)[0]}};
  const Op op(c.op);
  if (op.sampling_ratio() == 0) AddCorners(uses, Op::kRois, 0, op.spatial_scale(), nn::kFarRoi);
  return uses;
}

// ---- max_roi_pool ----

Value MaxRoiPool(const ElementOf& c) {
  using Op = nn::MaxRoiPoolOp;
  const Op op(c.op);
  const Scalars s(c.e);
  const std::vector<Dim> in = c.Dims(Op::kX);
  const auto roi = [&](int64_t i) {
    return s.Cast(c.Operand(Op::kRois, {c.at[0], Dim(i)}), kWide);
  };
  const ElementType type = SumType(c.Element());  // positions are rounded as it is
  const auto corner = [&](int64_t i) {            // halves away from zero
    const Value scale = s.Number(type, op.spatial_scale());
    const Value x = Widened(s, s.Mul(s.Cast(roi(i), type), scale)), zero = Wide(s, 0);
    const Value size = s.Floor(s.Add(s.Abs(x), Wide(s, 0.5)));
    return s.Select(s.Less(x, zero), s.Sub(zero, size), size);
  };
  const auto range = [&](int64_t from, const Dim& cell, int64_t cells, const Dim& extent) {
    const Value start = corner(from), zero = Wide(s, 0), one = Wide(s, 1);
    const Value length = s.Max(s.Add(s.Sub(corner(from + 2), start), one), one);
    const Value size = s.Div(s.Cast(length, type), s.Number(type, static_cast<double>(cells)));
    const Value at = s.Number(type, cell), next = s.Add(at, s.Number(type, 1.0));
    const Value low = s.Add(start, Widened(s, s.Floor(s.Mul(at, size))));
    const Value reach = Widened(s, s.Mul(next, size));
    const Value high = s.Sub(start, s.Floor(s.Sub(zero, reach)));
    return std::pair{s.Inside(low, extent + 1), s.Inside(high, extent + 1)};
  };
  const std::vector<int64_t> pooled = op.pooled_shape();
  const auto [top, bottom] = range(2, c.at[2], pooled[0], in[2]);
  const auto [left, right] = range(1, c.at[3], pooled[1], in[3]);
  const Dim image = s.Inside(roi(0), in[0]);
  const auto count = [&](const Dim& low, const Dim& high, const Dim& extent) {
    return c.e.Loaded(c.e.Int(Max(high - low, 0)), extent + 1);
  };
  const Dim rows = count(top, bottom, in[2]), columns = count(left, right, in[3]);
  const Value lowest = s.Number(c.Element(), -INFINITY);
  const Value best = c.e.Reduce({rows, columns}, lowest, [&](const Place& at, Value so_far) {
    const Place place{image, c.at[1], top + at[0], left + at[1]};
    return s.Max(so_far, c.Operand(Op::kX, place));
  });
  const Value some = s.Less(c.e.lb().Int(0), c.e.Int(rows * columns));
  return s.Select(some, best, c.Zero());
}

std::vector<IndexUse> ImagesPooled(const ElementOf& c) {
  using Op = nn::MaxRoiPoolOp;
  const Dim extent = c.Dims(Op::kX)[0];
  const auto image = [extent](Elements& e, Value given) {
    const Scalars s(e);
    const Value number = ToInt64(e, given);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  std::vector<IndexUse> uses{{Op::kRois, 0, extent, 0, image}};
  const double scale = Op(c.op).spatial_scale();
  AddCorners(uses, Op::kRois, 1, scale, nn::kFarPooledRoi);
  return uses;
}

constexpr Compute kSamplingComputes[] = {
    {nn::kAffineGrid, AffineGrid, RefuseAffine},
    {.op = nn::kGridSample, .element = nullptr, .refuse = RefuseIntegers, .whole = SampleGrid},
    {nn::kMaxRoiPool, MaxRoiPool, nullptr, ImagesPooled},
    {.op = nn::kRoiAlign,
     .element = RoiAlign,
     .refuse = RefuseAligned,
     .indices = ImagesAligned,
     .whole = WriteAligned,
     .prefers_whole = HasPointTables},
};

}  // namespace

std::span<const Compute> SamplingComputes() { return kSamplingComputes; }

}  // namespace lathe::lower
