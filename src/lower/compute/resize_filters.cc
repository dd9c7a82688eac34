#include "src/lower/compute/resize_filters.h"

#include <algorithm>
#include <cmath>

#include "src/lower/compute/scalars.h"

namespace lathe::lower {
namespace {

constexpr int64_t kMostBytes = 1 << 19;  // of memory that each thread has

// Elements that count along an axis on each side of a point where nothing shrinks.
int64_t ReachOf(const Operation& op) { return nn::ResizeOp(&op).mode() == "linear" ? 1 : 2; }

// At most as many elements count for one of the result; unknown if no bound is.
Dim MostTaps(const Operation& op, const ResizedAxis& axis) {
  const int64_t reach = ReachOf(op);
  if (axis.computed) return Dim::Unknown();
  if (axis.known) {
    if (!(*axis.known > 1e-6)) return Dim::Unknown();
    const double wide = 2 * static_cast<double>(reach) / std::min(*axis.known, 1.0);
    return Dim(static_cast<int64_t>(wide) + 2);
  }
  if (axis.in.is_unknown() || axis.out.is_unknown()) return Dim::Unknown();
  return (FloorDiv(axis.in, Max(axis.out, 1)) + 1) * (2 * reach) + 2;
}

// Axes are resampled one after the other, from the first to the last, so that vectors are whole
// rows as long as that can be. What lies before the first of them is a plane of its own each.
class Filters {
 public:
  explicit Filters(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        op_(w.op),
        in_(w.Dims(0)),
        out_(w.ResultDims(0)),
        type_(IsFloat(w.Element(0)) ? SumType(w.Element(0)) : kWide),
        axes_(ResizedAxes(*w.op, in_, out_)) {
    std::ranges::sort(axes_, {}, &ResizedAxis::axis);
  }

  void Write() {
    if (axes_.empty()) {
      w_.Fill(0, [&](Elements& e, const Place& at) { return e.At(w_.op->operand(0), at); });
      return;
    }
    for (const ResizedAxis& axis : axes_) tables_.push_back(MakeTable(axis));
    first_ = axes_[0].axis;
    const std::vector<Dim> lead(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(first_));
    Dim elements = 1;
    for (const Dim& dim : out_) elements *= dim;
    const bool fits = MemoryFits();
    if (!fits) MakeMemory(ProductOf(lead));
    e_.For(ProductOf(lead), WholeTensorEmitter::IsWorthParallelizing(elements),
           [&](const Dim& plane) {
             lead_ = e_.space().Unflatten(plane, lead);
             plane_ = fits ? Dim(0) : plane;
             if (fits) MakeMemory(1);
             WritePlane();
           });
  }

 private:
  // What the places along an axis read: the first tap of all, then the second one of all.
  struct Table {
    Dim taps, pitch;
    Value at, shares;
  };
  // Along number `axis` of the axes; memory that is null is the operand's, or the result's.
  struct Pass {
    size_t axis;
    Value from, to;
    std::vector<Dim> from_dims, to_dims;  // of the plane
  };

  Value Number(double value) const { return s_.Number(kWide, value); }

  Value WeightOf(const AxisTaps& taps, Value at, Value center, Value shrink) const {
    const Value weight = taps.Kernel(s_.Mul(s_.Sub(at, center), shrink));
    return op_.exclude_outside() ? s_.Select(taps.IsOutside(at), Number(0), weight) : weight;
  }

  // An element without a share is not looked at: it may be no number.
  Table MakeTable(const ResizedAxis& axis) {
    const Dim most = MostTaps(*w_.op, axis);
    Table table{most, axis.out, e_.Scratch(ElementType::kI64, most * axis.out),
                e_.Scratch(type_, most * axis.out)};
    const AxisTaps taps(e_, *w_.op, axis);
    e_.For(axis.out, false, [&](const Dim& place) {
      const Value shrink = s_.Min(taps.Scale(), Number(1));
      const Value reach = s_.Div(Number(static_cast<double>(ReachOf(*w_.op))), shrink);
      const Value far = s_.Mul(Number(2), reach), last = s_.Number(kWide, axis.in - 1);
      const Value x = taps.Coordinate(place);
      const Value center = s_.Max(s_.Min(x, s_.Add(last, far)), s_.Sub(Number(0), far));
      const Value first = Ceil(s_, s_.Sub(center, reach));
      const auto at = [&](const Dim& k) { return s_.Add(first, s_.Number(kWide, k)); };
      const Value sum = e_.Reduce({most}, Number(0), [&](const Place& k, Value so_far) {
        return s_.Add(so_far, WeightOf(taps, at(k[0]), center, shrink));
      });
      e_.For(most, false, [&](const Dim& k) {
        const Value weight = WeightOf(taps, at(k), center, shrink);
        const Value read = s_.Select(s_.Equal(weight, Number(0)), s_.Floor(center), at(k));
        e_.Store(table.at, k * axis.out + place, e_.Int(s_.Inside(read, axis.in)));
        e_.Store(table.shares, k * axis.out + place, s_.Cast(s_.Div(weight, sum), type_));
      });
    });
    return table;
  }

  // Of a plane, after so many of the axes.
  std::vector<Dim> PlaneAfter(size_t axes) const {
    std::vector<Dim> dims(in_.begin() + static_cast<std::ptrdiff_t>(first_), in_.end());
    for (size_t a = 0; a < axes; ++a) dims[axes_[a].axis - first_] = axes_[a].out;
    return dims;
  }

  // Whether what lies between the axes fits the memory of a thread; else each plane has its own.
  bool MemoryFits() const {
    Dim bytes = 0;
    for (size_t a = 1; a < axes_.size(); ++a) {
      bytes += ProductOf(PlaneAfter(a)) * (BitWidth(type_) / 8);
    }
    return bytes.is_constant() && bytes.value() <= kMostBytes;
  }

  void MakeMemory(const Dim& planes) {
    memory_.clear();
    for (size_t a = 1; a < axes_.size(); ++a) {
      memory_.push_back(e_.Scratch(type_, planes * ProductOf(PlaneAfter(a))));
    }
  }

  Dim InMemory(const Place& at, const std::vector<Dim>& dims) const {
    return plane_ * ProductOf(dims) + e_.space().Flatten(at, dims);
  }

  void WritePlane() {
    for (size_t a = 0; a < axes_.size(); ++a) {
      const Value from = a == 0 ? Value() : memory_[a - 1];
      const Value to = a < memory_.size() ? memory_[a] : Value();
      Along({a, from, to, PlaneAfter(a), PlaneAfter(a + 1)}, {});
    }
  }

  // As deep as there are axes.
  void Along(const Pass& pass, const Place& at) {
    const Dim& extent = pass.to_dims[at.size()];
    const bool is_last = at.size() + 1 == pass.to_dims.size();
    const auto step = [&](const Dim& i) {
      Place next(at);
      next.push_back(i);
      is_last ? WriteElement(pass, next) : Along(pass, next);
    };
    is_last ? w_.ForLanes(extent, step) : e_.For(extent, false, step);
  }

  Place InWhole(const Place& at) const {
    Place place(lead_);
    place.insert(place.end(), at.begin(), at.end());
    return place;
  }

  Value Load(const Pass& pass, const Place& at) {
    if (!pass.from) return s_.Cast(w_.Operand(0, InWhole(at)), type_);
    return e_.LoadFrom(pass.from, InMemory(at, pass.from_dims));
  }

  void WriteElement(const Pass& pass, const Place& at) {
    const Table& table = tables_[pass.axis];
    const ResizedAxis& axis = axes_[pass.axis];
    const size_t d = axis.axis - first_;
    const Value none = s_.Number(type_, 0.0);
    const Value sum = e_.Reduce({table.taps}, none, [&](const Place& k, Value so_far) {
      const Dim entry = k[0] * table.pitch + at[d];
      Place from(at);
      from[d] = e_.Loaded(e_.LoadFrom(table.at, entry), axis.in);
      return s_.Add(so_far, s_.Mul(e_.LoadFrom(table.shares, entry), Load(pass, from)));
    });
    if (pass.to) return e_.Store(pass.to, InMemory(at, pass.to_dims), sum);
    e_.Store(w_.memory[0], e_.space().Flatten(InWhole(at), out_),
             ResampledCast(e_.lb(), sum, w_.Element(0)));
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  nn::ResizeOp op_;
  std::vector<Dim> in_, out_;
  ElementType type_;
  std::vector<ResizedAxis> axes_;
  std::vector<Table> tables_;  // of the axes
  size_t first_ = 0;           // axis that is resampled

  // While writing.
  Place lead_;                 // of the plane
  Dim plane_ = 0;              // whose memory is used
  std::vector<Value> memory_;  // of what lies between the axes
};

}  // namespace

bool HasFilterTables(const Operation& op) {
  const nn::ResizeOp resize(&op);
  if (!resize.antialias() || resize.mode() == "nearest" || CropsRegion(op)) return false;
  const std::vector<ResizedAxis> axes =
      ResizedAxes(op, DimsOf(op.operand(0)), DimsOf(op.result(0)));
  return std::ranges::none_of(
      axes, [&](const ResizedAxis& axis) { return MostTaps(op, axis).is_unknown(); });
}

void WriteFiltered(const WholeTensorEmitter& w) { Filters(w).Write(); }

}  // namespace lathe::lower
