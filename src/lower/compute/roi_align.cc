#include "src/lower/compute/roi_align.h"

#include "lathe/dialect/nn/sampling.h"
#include "src/dialect/nn/regions.h"
#include "src/lower/compute/scalars.h"

namespace lathe::lower {
namespace {

constexpr int64_t kPieces = 64;        // of the planes of all regions, that threads share
constexpr int64_t kMostPoints = 1024;  // of a region along an axis

// The mean over a cell is the sum over its rows of what is, for all columns of the region at once,
// the sum over its points along the other axis.
class AlignedRegions {
 public:
  explicit AlignedRegions(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        op_(w.op),
        in_(w.Dims(nn::RoiAlignOp::kX)),
        regions_(w.ResultDims(0)[0]),
        type_(SumType(w.Element(0))),
        rows_{1, op_.output_height(), in_[2]},
        columns_{0, op_.output_width(), in_[3]} {}

  void Write() {
    for (Axis* axis : {&rows_, &columns_}) MakeTable(*axis);
    const Dim planes = regions_ * in_[1];
    sums_ = e_.Scratch(type_, in_[3] * kPieces);
    e_.For(kPieces, true, [&](const Dim& piece) {
      const Dim begin = e_.Loaded(e_.Int(FloorDiv(piece * planes, kPieces)), planes + 1);
      const Value count = e_.Int(FloorDiv((piece + 1) * planes, kPieces) - begin);
      e_.For(e_.Loaded(count, planes + 1), false, [&](const Dim& i) {
        const Dim plane = e_.Loaded(e_.Int(begin + i), planes);
        const auto [region, channel] = e_.space().Divide(plane, in_[1]);
        WritePlane(piece, region, channel);
      });
    });
  }

 private:
  // Of each region: what its points along an axis read, two elements each, and where the points of
  // each cell begin. Points outside of the image are left out.
  struct Axis {
    int64_t coordinate, cells;
    Dim extent;
    Dim room = {};  // for points
    Value begins = {}, counts = {}, at = {}, shares = {}, bounds = {};
  };

  Value Wide(double x) const { return s_.Number(kWide, x); }

  // Neighboring points of their own choice are further apart than half an element.
  void MakeTable(Axis& axis) {
    const int64_t ratio = op_.sampling_ratio();
    constexpr int64_t kSlack = 8;
    axis.room = ratio > 0 ? Dim(axis.cells * ratio + 1) : axis.extent * 2 + axis.cells + kSlack;
    axis.begins = e_.Scratch(ElementType::kI64, regions_ * (axis.cells + 1));
    axis.counts = e_.Scratch(kWide, regions_);
    axis.bounds = e_.Scratch(ElementType::kI64, regions_ * 2);
    axis.at = e_.Scratch(ElementType::kI64, regions_ * axis.room * 2);
    axis.shares = e_.Scratch(type_, regions_ * axis.room * 2);
    e_.For(regions_, false, [&](const Dim& region) { FillTable(axis, region); });
  }

  void FillTable(const Axis& axis, const Dim& region) {
    const bool shifted = op_.coordinate_transformation_mode() == "half_pixel";
    const auto end = [&](int64_t at) {
      const Value given = s_.Cast(w_.Operand(nn::RoiAlignOp::kRois, {region, Dim(at)}), kWide);
      return s_.Sub(s_.Mul(given, Wide(op_.spatial_scale())), Wide(shifted ? 0.5 : 0));
    };
    const Value start = end(axis.coordinate);
    Value length = s_.Sub(end(axis.coordinate + 2), start);
    if (!shifted) length = s_.Max(length, Wide(1));
    const Value cell = s_.Div(length, Wide(static_cast<double>(axis.cells)));
    Dim count(op_.sampling_ratio());
    if (count.IsConstant(0)) {
      const Value up = s_.Sub(Wide(0), s_.Floor(s_.Sub(Wide(0), cell)));
      count = s_.Inside(up, Dim(2 * nn::kFarRoi + 1));
    }
    const Value points = s_.Number(kWide, count), none = e_.lb().Int(0);
    e_.Store(axis.counts, region, points);
    const Dim begins = region * (axis.cells + 1);
    std::vector<Value> found{none, e_.Int(axis.extent), none};
    found = e_.For(axis.cells, found, [&](const Dim& i, std::span<const Value> so_far) {
      e_.Store(axis.begins, begins + i, so_far[0]);
      const Value begin = s_.Add(start, s_.Mul(s_.Number(kWide, i), cell));
      return e_.For(count, {so_far.begin(), so_far.end()},
                    [&](const Dim& point, std::span<const Value> before) {
                      const Value center = s_.Add(s_.Number(kWide, point), Wide(0.5));
                      const Value far = s_.Div(s_.Mul(center, cell), points);
                      return PutPoint(axis, region, s_.Add(begin, far), before);
                    });
    });
    e_.Store(axis.begins, begins + axis.cells, found[0]);
    for (int64_t i : {0, 1}) {
      e_.Store(axis.bounds, region * 2 + i, found[static_cast<size_t>(i) + 1]);
    }
  }

  // Gives the number of points, the least element that they read, and the one behind the greatest.
  std::vector<Value> PutPoint(const Axis& axis, const Dim& region, Value x,
                              std::span<const Value> before) {
    const Value extent = s_.Number(kWide, axis.extent);
    const Value there =
        s_.And(s_.And(s_.AtMost(Wide(-1), x), s_.AtMost(x, extent)), s_.Less(Wide(0), extent));
    const Value inside = s_.Max(x, Wide(0)), low = s_.Floor(inside);
    const Value at_end = s_.AtMost(s_.Sub(extent, Wide(1)), low);
    const Value share = s_.Select(at_end, Wide(0), s_.Sub(inside, low));
    const Dim ends[] = {s_.Inside(low, axis.extent), s_.Inside(s_.Add(low, Wide(1)), axis.extent)};
    const Value shares[] = {s_.Sub(Wide(1), share), share};
    const Dim entry = (region * axis.room + e_.Loaded(before[0], axis.room)) * 2;
    for (size_t i = 0; i < 2; ++i) {
      e_.Store(axis.at, entry + static_cast<int64_t>(i), e_.Int(ends[i]));
      e_.Store(axis.shares, entry + static_cast<int64_t>(i), s_.Cast(shares[i], type_));
    }
    const Value least = s_.Min(before[1], e_.Int(ends[0]));
    const Value greatest = s_.Max(before[2], e_.Int(ends[1] + 1));
    return {s_.Add(before[0], s_.Cast(there, ElementType::kI64)),
            s_.Select(there, least, before[1]), s_.Select(there, greatest, before[2])};
  }

  // What the points of a cell read: so many elements from an entry on.
  std::pair<Dim, Dim> EntriesOf(const Axis& axis, const Dim& region, const Dim& cell) {
    const Dim at = region * (axis.cells + 1) + cell;
    const auto load = [&](const Dim& where) {
      return e_.Loaded(e_.LoadFrom(axis.begins, where), axis.room);
    };
    const Dim begin = load(at), end = load(at + 1);
    return {e_.Loaded(e_.Int((region * axis.room + begin) * 2), regions_ * axis.room * 2),
            e_.Loaded(e_.Int((end - begin) * 2), axis.room * 2)};
  }

  void WritePlane(const Dim& piece, const Dim& region, const Dim& channel) {
    const Place at{region};
    const Dim image = IndexAt({e_, w_.op, 0, at}, nn::RoiAlignOp::kBatchIndices, at, in_[0]);
    const auto bound = [&](int64_t i) {
      return e_.Loaded(e_.LoadFrom(columns_.bounds, region * 2 + i), in_[3] + 1);
    };
    const Dim first = bound(0), behind = bound(1);
    const Dim width = e_.Loaded(e_.Int(Max(behind - first, 0)), in_[3] + 1);
    const auto count = [&](const Axis& axis) { return e_.LoadFrom(axis.counts, region); };
    const Value points = s_.Max(s_.Mul(count(rows_), count(columns_)), Wide(1));
    const Value total = s_.Cast(points, type_), none = s_.Number(type_, 0.0);
    const Dim sums = piece * in_[3];
    e_.For(rows_.cells, false, [&](const Dim& row) {
      const auto [begin, length] = EntriesOf(rows_, region, row);
      w_.ForLanes(width, [&](const Dim& i) {
        const Value sum = e_.Reduce({length}, none, [&](const Place& k, Value so_far) {
          const Dim y = e_.Loaded(e_.LoadFrom(rows_.at, begin + k[0]), in_[2]);
          const Value x =
              s_.Cast(w_.Operand(nn::RoiAlignOp::kX, {image, channel, y, first + i}), type_);
          return s_.Add(so_far, s_.Mul(e_.LoadFrom(rows_.shares, begin + k[0]), x));
        });
        e_.Store(sums_, sums + i, sum);
      });
      e_.For(columns_.cells, false, [&](const Dim& column) {
        const auto [from, number] = EntriesOf(columns_, region, column);
        const Value sum = e_.Reduce({number}, none, [&](const Place& k, Value so_far) {
          const Dim x = e_.Loaded(e_.LoadFrom(columns_.at, from + k[0]), in_[3]);
          const Value part = e_.LoadFrom(sums_, sums + x - first);
          return s_.Add(so_far, s_.Mul(e_.LoadFrom(columns_.shares, from + k[0]), part));
        });
        const Dim to = e_.space().Flatten({region, channel, row, column}, w_.ResultDims(0));
        e_.Store(w_.memory[0], to, s_.Cast(s_.Div(sum, total), w_.Element(0)));
      });
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  nn::RoiAlignOp op_;
  std::vector<Dim> in_;
  Dim regions_;
  ElementType type_;
  Axis rows_, columns_;
  Value sums_;  // of each piece, over the rows of a cell
};

}  // namespace

bool HasPointTables(const Operation& op) {
  const nn::RoiAlignOp align(&op);
  const int64_t cells = std::max(align.output_height(), align.output_width());
  const int64_t points = cells * std::max<int64_t>(align.sampling_ratio(), 1);
  return align.mode() == "avg" && points <= kMostPoints && NeedSizes(op).empty();
}

void WriteAligned(const WholeTensorEmitter& w) { AlignedRegions(w).Write(); }

}  // namespace lathe::lower
