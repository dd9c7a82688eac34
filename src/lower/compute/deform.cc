#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/window.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/patches.h"
#include "src/lower/compute/taps.h"

// Windows whose elements lie where a tensor says.
namespace lathe::lower {
namespace {

// ---- deform_conv ----

// The two elements around a point.
std::vector<Tap> TapsAround(const Scalars& s, Value point, const Dim& extent) {
  const Value low = s.Floor(point), one = s.Number(kWide, 1.0);
  const auto tap = [&](Value at) {
    const Value share = s.Sub(one, s.Abs(s.Sub(point, at)));
    const Value inside =
        s.And(s.AtMost(s.Number(kWide, 0.0), at), s.Less(at, s.Number(kWide, extent)));
    return Tap{s.Inside(at, extent), s.And(inside, s.Less(s.Number(kWide, 0.0), share)), share};
  };
  return {tap(low), tap(s.Add(low, one))};
}

class Deformed {
 public:
  explicit Deformed(const ElementOf& c)
      : c_(c),
        s_(c.e),
        op_(c.op),
        spec_(nn::ConvSpecOf(op_)),
        x_(c.Dims(Op::kX)),
        w_(c.Dims(Op::kW)),
        steps_(nn::CheckedSteps(spec_.window, x_.size() - 2)),
        type_(SumType(c.Element())) {}

  Value Element() {
    const size_t rank = x_.size() - 2;
    const Dim filters = FloorDiv(w_[0], Dim(spec_.group));
    const Dim group = spec_.group == 1 ? Dim(0) : c_.e.space().Div(c_.at[1], filters);
    std::vector<Dim> extents{w_[1]};
    extents.insert(extents.end(), w_.begin() + 2, w_.end());
    const Value initial =
        c_.Has(Op::kB) ? s_.Cast(c_.Operand(Op::kB, {c_.at[1]}), type_) : s_.Number(type_, 0.0);
    const Value sum = c_.e.Reduce(extents, initial, [&](const Place& k, Value so_far) {
      const Dim channel = group * w_[1] + k[0];
      Place weight{c_.at[1]};
      weight.insert(weight.end(), k.begin(), k.end());
      const Value x = Sampled(channel, {k.begin() + 1, k.end()}, rank);
      return s_.Add(so_far, s_.Mul(x, s_.Cast(c_.Operand(Op::kW, weight), type_)));
    });
    return s_.Cast(sum, c_.Element());
  }

 private:
  using Op = nn::DeformConvOp;

  Place OutputAt(const Dim& channel) const {
    Place at{c_.at[0], channel};
    at.insert(at.end(), c_.at.begin() + 2, c_.at.end());
    return at;
  }

  Value Sampled(const Dim& channel, const Place& k, size_t rank) {
    const std::vector<Dim> kernel(w_.begin() + 2, w_.end());
    Dim taps = 1;
    for (const Dim& extent : kernel) taps *= extent;
    const Dim per_group = FloorDiv(x_[1], Dim(op_.offset_group()));
    const Dim offset_group =
        op_.offset_group() == 1
            ? Dim(0)
            : c_.e.Loaded(c_.e.Int(FloorDiv(channel, per_group)), Dim(op_.offset_group()));
    const Dim tap = offset_group * taps + c_.e.space().Flatten(k, kernel);
    std::vector<std::vector<Tap>> around;
    for (size_t d = 0; d < rank; ++d) {
      const Dim row = tap * static_cast<int64_t>(rank) + static_cast<int64_t>(d);
      const Value offset = s_.Cast(c_.Operand(Op::kOffset, OutputAt(row)), kWide);
      const Dim base = c_.at[d + 2] * steps_.strides[d] + k[d] * steps_.dilations[d];
      const Value begin = s_.Number(kWide, static_cast<double>(steps_.begins[d]));
      const Value point = s_.Add(s_.Sub(s_.Number(kWide, base), begin), offset);
      around.push_back(TapsAround(s_, point, x_[d + 2]));
    }
    const Dim some = AreSome(c_.e, {x_.begin() + 2, x_.end()});
    const Value sum = c_.e.Guarded(some, s_.Number(kWide, 0.0), [&] {
      return SumOfTaps(s_, around, {c_.at[0], channel},
                       [&](const Place& at) { return c_.Operand(Op::kX, at); });
    });
    if (!c_.Has(Op::kMask)) return s_.Cast(sum, type_);
    const Value mask = s_.Cast(c_.Operand(Op::kMask, OutputAt(tap)), kWide);
    return s_.Cast(s_.Mul(mask, sum), type_);
  }

  const ElementOf& c_;
  Scalars s_;
  Op op_;
  nn::ConvSpec spec_;
  std::vector<Dim> x_, w_;
  nn::WindowSteps steps_;
  ElementType type_;
};

// A piece of a row of the output at a time: where the points of a kernel element lie is computed
// once for all channels, and what the channels are there once for all filters.
class DeformedRows {
 public:
  explicit DeformedRows(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        op_(w.op),
        spec_(nn::ConvSpecOf(op_)),
        x_(w.Dims(Op::kX)),
        in_(x_.begin() + 2, x_.end()),
        weights_(w.Dims(Op::kW)),
        kernel_(weights_.begin() + 2, weights_.end()),
        out_(w.ResultDims(0)),
        steps_(nn::CheckedSteps(spec_.window, in_.size())),
        type_(SumType(w.Element(0))) {
    while (points_ > kLeastPoints && !PatchesFit()) points_ /= 2;
  }

  void Write() {
    std::vector<Dim> dims{out_[0]};
    dims.insert(dims.end(), out_.begin() + 2, out_.end() - 1);
    const bool is_parallel =
        PatchesFit() && WholeTensorEmitter::IsWorthParallelizing(ProductOf(out_) * Depth());
    if (!PatchesFit()) patches_ = e_.Scratch(type_, Patches());
    e_.For(ProductOf(dims), is_parallel, [&](const Dim& row) {
      row_ = e_.space().Unflatten(row, dims);
      e_.For(CeilDiv(out_.back(), points_), false, [&](const Dim& piece) {
        first_ = piece * points_;
        WritePiece(e_.Loaded(e_.Int(Min(out_.back() - first_, points_)), points_ + 1));
      });
    });
  }

 private:
  using Op = nn::DeformConvOp;
  static constexpr int64_t kMostPoints = 64, kLeastPoints = 16;  // of a piece
  static constexpr int64_t kMostBytes = 1 << 19;                 // of memory that each thread has

  Dim Taps() const { return ProductOf(kernel_); }
  Dim Depth() const { return weights_[1] * Taps(); }
  Dim Patches() const { return spec_.group * Depth() * points_; }
  bool PatchesFit() const {
    const Dim bytes = Patches() * (BitWidth(type_) / 8);
    return bytes.is_constant() && bytes.value() <= kMostBytes;
  }

  // At that point of the piece, of a tensor with such channels and the extents of the output.
  Place OutputAt(const Dim& channel, const Dim& i) {
    Place at{row_[0], channel};
    at.insert(at.end(), row_.begin() + 1, row_.end());
    at.push_back(e_.Loaded(e_.Int(first_ + i), out_.back()));
    return at;
  }

  void WritePiece(const Dim& count) {
    const int64_t corners = int64_t{1} << in_.size();
    if (PatchesFit()) patches_ = e_.Scratch(type_, Patches());
    at_ = e_.Scratch(ElementType::kI64, corners * points_);
    shares_ = e_.Scratch(type_, corners * points_);
    const Dim channels = FloorDiv(x_[1], Dim(op_.offset_group()));
    e_.For(op_.offset_group(), false, [&](const Dim& group) {
      e_.For(Taps(), false, [&](const Dim& tap) {
        const Place k = e_.space().Unflatten(tap, kernel_);
        w_.ForLanes(count, [&](const Dim& i) { WriteCorners(group * Taps() + tap, k, i); });
        e_.For(channels, false, [&](const Dim& c) {
          const Dim channel = group * channels + c;
          w_.ForLanes(count, [&](const Dim& i) {
            e_.Store(patches_, (channel * Taps() + tap) * points_ + i, Sampled(channel, i));
          });
        });
      });
    });
    WriteSums(count);
  }

  // Indices within the planes of the elements around the point, and their shares.
  void WriteCorners(const Dim& entry, const Place& k, const Dim& i) {
    std::vector<std::vector<Tap>> around;
    const auto rank = static_cast<int64_t>(in_.size());
    for (size_t d = 0; d < in_.size(); ++d) {
      const Place at = OutputAt(entry * rank + static_cast<int64_t>(d), i);
      const Dim base = at[d + 2] * steps_.strides[d] + k[d] * steps_.dilations[d];
      const Value begin = s_.Number(kWide, static_cast<double>(steps_.begins[d]));
      const Value offset = s_.Cast(w_.Operand(Op::kOffset, at), kWide);
      const Value point = s_.Add(s_.Sub(s_.Number(kWide, base), begin), offset);
      around.push_back(TapsAround(s_, point, in_[d]));
    }
    Value factor = s_.Number(kWide, 1.0);
    if (w_.Has(Op::kMask)) factor = s_.Cast(w_.Operand(Op::kMask, OutputAt(entry, i)), kWide);
    for (size_t corner = 0; corner < size_t{1} << in_.size(); ++corner) {
      Value at, share = factor, there;
      for (size_t d = 0; d < in_.size(); ++d) {
        const Tap& tap = around[d][corner >> d & 1];
        const Value index = e_.Int(tap.at);
        at = at ? s_.Add(s_.Mul(at, e_.Int(in_[d])), index) : index;
        share = s_.Mul(share, tap.share);
        there = there ? s_.And(there, tap.there) : tap.there;
      }
      const Dim to = static_cast<int64_t>(corner) * points_ + i;
      e_.Store(at_, to, at);
      e_.Store(shares_, to, s_.Cast(s_.Select(there, share, s_.Number(kWide, 0.0)), type_));
    }
  }

  // What has no share is not looked at: it may be no number.
  Value Sampled(const Dim& channel, const Dim& i) {
    const Value none = s_.Number(type_, 0.0);
    return e_.Guarded(AreSome(e_, in_), none, [&] {
      Value sum = none;
      for (int64_t corner = 0; corner < int64_t{1} << in_.size(); ++corner) {
        const Dim from = Dim(corner * points_) + i;
        Place at(x_.size(), 0);
        at[0] = row_[0], at[1] = channel;
        at.back() = e_.Loaded(e_.LoadFrom(at_, from), ProductOf(in_));
        const Value share = e_.LoadFrom(shares_, from);
        const Value part = s_.Mul(share, s_.Cast(w_.Operand(Op::kX, at), type_));
        sum = s_.Add(sum, s_.Select(s_.Equal(share, none), none, part));
      }
      return sum;
    });
  }

  void WriteSums(const Dim& count) {
    const Dim filters = FloorDiv(weights_[0], Dim(spec_.group));
    e_.For(spec_.group, false, [&](const Dim& group) {
      const Dim first = group * filters;
      const auto start = [&](const Dim& filter, const Dim&) {
        return w_.Has(Op::kB) ? s_.Cast(w_.Operand(Op::kB, {first + filter}), type_)
                              : s_.Number(type_, 0.0);
      };
      const auto weight = [&](const Dim& filter, const Dim& row) {
        Place at(weights_.size(), 0);
        at[0] = first + filter, at.back() = row;
        return s_.Cast(w_.Operand(Op::kW, at), type_);
      };
      const auto place = [&](const Dim& filter, const Dim& i) {
        return e_.space().Flatten(OutputAt(first + filter, i), out_);
      };
      Multiply({w_, type_, patches_, group * Depth(), points_, filters, weight, start, place},
               Depth(), count);
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Op op_;
  nn::ConvSpec spec_;
  std::vector<Dim> x_, in_, weights_, kernel_, out_;
  nn::WindowSteps steps_;
  ElementType type_;
  int64_t points_ = kMostPoints;

  // While writing.
  Place row_;  // the image, and all axes of the output but the last
  Dim first_;  // point of the piece
  Value patches_, at_, shares_;
};

// Elements are found by their place in memory.
bool HasStoredOperands(const Operation& op) {
  return op.operand(nn::DeformConvOp::kX).is_block_argument() &&
         op.operand(nn::DeformConvOp::kW).is_block_argument();
}

void WriteDeformed(const WholeTensorEmitter& w) { DeformedRows(w).Write(); }

Value DeformedConvolution(const ElementOf& c) { return Deformed(c).Element(); }

std::string RefuseDeformed(const Operation& op) {
  const nn::DeformConvOp conv(&op);
  if (nn::IsSame(nn::ConvSpecOf(conv).window)) return "pads that follow from the extents";
  using Op = nn::DeformConvOp;
  Fits fits(op);
  const std::vector<Dim> w = fits.Dims(Op::kW), y = DimsOf(op.result(0));
  if (y.size() > 5) return "more than three axes";
  Dim taps = conv.offset_group();
  for (size_t d = 2; d < w.size(); ++d) taps *= w[d];
  std::vector<Dim> mask = y;
  mask[1] = taps;
  fits.Is(Op::kMask, mask).Is(Op::kB, {w[0]});
  mask[1] = taps * static_cast<int64_t>(y.size() - 2);
  fits.Is(Op::kOffset, mask).Same(fits.Dims(Op::kX)[1], w[1] * nn::ConvSpecOf(conv).group);
  return fits.why();
}

// ---- max_unpool ----

std::vector<Dim> UnpooledDims(const Operation& op, const std::vector<Dim>& x) {
  const nn::WindowSpec spec = nn::WindowOf(nn::MaxUnpoolOp(&op));
  const nn::WindowSteps steps = nn::CheckedSteps(spec, x.size() - 2);
  std::vector<Dim> dims{x[0], x[1]};
  for (size_t d = 0; d + 2 < x.size(); ++d) {
    dims.push_back(Dim(steps.strides[d]) * (x[d + 2] - 1) + Dim((*spec.kernel_shape)[d]) -
                   Dim(steps.begins[d]) - Dim(steps.ends[d]));
  }
  return dims;
}

// A loop per axis, outermost first.
void InOrder(Elements& e, const std::vector<Dim>& dims, const Place& outer,
             const std::function<void(const Place&)>& body) {
  if (outer.size() == dims.size()) return body(outer);
  e.For(dims[outer.size()], false, [&](const Dim& i) {
    Place at = outer;
    at.push_back(i);
    InOrder(e, dims, at, body);
  });
}

// Of elements for the same place the last one stays, so they come one after the other.
void Unpool(const WholeTensorEmitter& w) {
  using Op = nn::MaxUnpoolOp;
  Elements& e = w.e;
  const ElementType element = w.Element(0);
  w.Fill(0, [&](Elements& inner, const Place&) { return inner.lb().Splat(element, 0); });
  e.Reset();
  const std::vector<Dim> x = w.Dims(Op::kX), y = w.ResultDims(0);
  const std::vector<Dim> counted = UnpooledDims(*w.op, x);
  const bool in_corner = w.op->num_operands() > Op::kOutputShape && w.op->operand(Op::kOutputShape);
  InOrder(e, x, {}, [&](const Place& from) {
    const Value index = ToInt64(e, w.Operand(Op::kIndices, from));
    const Dim flat = Scalars(e).Inside(index, ProductOf(counted));
    const Dim to = in_corner ? e.space().Flatten(e.space().Unflatten(flat, counted), y) : flat;
    e.Store(w.memory[0], to, w.Operand(Op::kX, from));
  });
}

std::string RefuseUnpool(const Operation& op) {
  return Fits(op).Same(size_t{nn::MaxUnpoolOp::kX}, size_t{nn::MaxUnpoolOp::kIndices}).why();
}

// Flat positions, counted from the front.
std::vector<IndexUse> PositionsUnpooled(const ElementOf& c) {
  using Op = nn::MaxUnpoolOp;
  const Dim extent = ProductOf(UnpooledDims(*c.op, c.Dims(Op::kX)));
  const auto from_front = [extent](Elements& e, Value number) {
    const Scalars s(e);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  return {{Op::kIndices, 0, extent, {}, from_front}};
}

constexpr Compute kDeformComputes[] = {
    {.op = nn::kDeformConv,
     .element = DeformedConvolution,
     .refuse = RefuseDeformed,
     .whole = WriteDeformed,
     .prefers_whole = HasStoredOperands},
    {nn::kMaxUnpool, nullptr, RefuseUnpool, PositionsUnpooled, Unpool},
};

}  // namespace

std::span<const Compute> DeformComputes() { return kDeformComputes; }

}  // namespace lathe::lower
