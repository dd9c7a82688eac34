#include "src/lower/compute/patches.h"

#include <algorithm>

#include "lathe/dialect/nn/conv.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/layout.h"
#include "src/dialect/nn/window.h"
#include "src/lower/compute/scalars.h"

namespace lathe::lower {
namespace {

constexpr int64_t kFilters = 8;  // whose sums are in registers together

void WriteFilters(const PatchProduct& p, const Dim& first, int64_t filters, const Dim& depth,
                  const Dim& count) {
  Elements& e = p.w.e;
  const Scalars s(e);
  p.w.ForLanes(count, [&](const Dim& i) {
    std::vector<Value> sums;
    for (int64_t f = 0; f < filters; ++f) sums.push_back(p.start(first + f, i));
    sums = e.For(depth, sums, [&](const Dim& row, std::span<const Value> before) {
      const Value x = e.LoadFrom(p.patches, (p.first_row + row) * p.points + i);
      std::vector<Value> next;
      for (int64_t f = 0; f < filters; ++f) {
        next.push_back(s.Add(before[static_cast<size_t>(f)], s.Mul(p.weight(first + f, row), x)));
      }
      return next;
    });
    for (int64_t f = 0; f < filters; ++f) {
      e.Store(p.w.memory[0], p.place(first + f, i),
              s.Cast(sums[static_cast<size_t>(f)], p.w.Element(0)));
    }
  });
}

class Patches {
 public:
  explicit Patches(const WholeTensorEmitter& w)
      : w_(w),
        e_(w.e),
        s_(w.e),
        is_transposed_(w.op->name() == nn::ConvTransposeOp::kName),
        x_(w.Dims(Op::kX)),
        in_(x_.begin() + 2, x_.end()),
        weights_(w.Dims(Op::kW)),
        kernel_(weights_.begin() + 2, weights_.end()),
        type_(SumType(w.Element(0))) {
    // By names, so that what is made of them does not grow too large.
    for (const Dim& extent : w.ResultDims(0)) out_.push_back(e_.Name(extent));
    positions_ = e_.Name(ProductOf({out_.begin() + 2, out_.end()}));
    taps_ = e_.Name(ProductOf(kernel_));
    SetWindow(is_transposed_ ? nn::ConvTransposeSpecOf(nn::ConvTransposeOp(w.op))
                             : nn::ConvSpecOf(nn::ConvOp(w.op)));
    filters_ = is_transposed_ ? weights_[1] : e_.Name(FloorDiv(weights_[0], Dim(group_)));
    channels_ = is_transposed_ ? e_.Name(FloorDiv(weights_[0], Dim(group_))) : weights_[1];
    depth_ = e_.Name(channels_ * taps_);
  }

  void Write();

 private:
  using Op = nn::ConvOp;                  // whose operands are those of nn.conv_transpose
  static constexpr int64_t kPoints = 64;  // of a piece
  static constexpr int64_t kRows = 256;   // of patches at a time

  void SetWindow(const nn::ConvSpec& spec) {
    group_ = spec.group;
    steps_ = nn::CheckedSteps(spec.window, in_.size());
  }
  // Whether sums so far may wait in the result, where they must not be rounded.
  bool InParts() const { return type_ == w_.Element(0); }
  void WritePiece();
  void WriteOrigins();
  void WriteRow(const Dim& row, const Dim& to);
  Value Seen(const Place& k, const Dim& channel, const Dim& i);
  Value Along(size_t axis, const Place& k, const Dim& i, Value& inside);
  Dim PlaceOf(const Dim& filter, const Dim& i) const {
    return ((image_ * group_ + in_group_) * filters_ + filter) * positions_ + first_ + i;
  }
  Value Weight(const Dim& filter, const Dim& row);

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  bool is_transposed_;
  std::vector<Dim> x_, in_, weights_, kernel_, out_;
  Dim positions_, taps_;            // of an image, of a kernel
  Dim filters_, channels_, depth_;  // of a group, and channels by taps
  ElementType type_;
  int64_t group_ = 1;
  nn::WindowSteps steps_;

  // While writing.
  Dim image_, in_group_, first_, count_;  // the group, the first position and how many of the piece
  Value patches_, origins_;
};

void Patches::Write() {
  const Dim pieces = e_.Name(CeilDiv(positions_, kPoints));
  if (!InParts()) patches_ = e_.Scratch(type_, depth_ * kPoints);
  e_.For(out_[0] * group_ * pieces, InParts(), [&](const Dim& number) {
    const Place at = e_.space().Unflatten(number, {out_[0], Dim(group_), pieces});
    image_ = at[0], in_group_ = at[1], first_ = at[2] * kPoints;
    count_ = e_.Loaded(e_.Int(Min(positions_ - first_, kPoints)), kPoints + 1);
    if (InParts()) patches_ = e_.Scratch(type_, kRows * kPoints);
    WritePiece();
  });
}

void Patches::WritePiece() {
  origins_ = e_.Scratch(ElementType::kI64, static_cast<int64_t>(in_.size()) * kPoints);
  WriteOrigins();
  e_.For(filters_, false, [&](const Dim& filter) {
    w_.ForLanes(count_, [&](const Dim& i) {
      const Value start = w_.Has(Op::kB) ? w_.Operand(Op::kB, {in_group_ * filters_ + filter})
                                         : s_.Number(w_.Element(0), 0.0);
      e_.Store(w_.memory[0], PlaceOf(filter, i), start);
    });
  });
  e_.For(InParts() ? CeilDiv(depth_, kRows) : Dim(1), false, [&](const Dim& part) {
    const Dim first = part * kRows;
    const Dim count = InParts() ? e_.Loaded(e_.Int(Min(depth_ - first, kRows)), kRows + 1) : depth_;
    e_.For(count, false, [&](const Dim& row) { WriteRow(first + row, row); });
    const auto so_far = [&](const Dim& filter, const Dim& i) {
      return s_.Cast(e_.LoadFrom(w_.memory[0], PlaceOf(filter, i)), type_);
    };
    const auto weight = [&](const Dim& filter, const Dim& row) {
      return Weight(filter, first + row);
    };
    const auto place = [&](const Dim& filter, const Dim& i) { return PlaceOf(filter, i); };
    Multiply({w_, type_, patches_, 0, kPoints, filters_, weight, so_far, place}, count, count_);
  });
}

// Where along each axis of the input the patch of a position begins, or where a kernel that is
// scattered to it would have its first element.
void Patches::WriteOrigins() {
  w_.ForLanes(count_, [&](const Dim& i) {
    const Dim position = e_.Loaded(e_.Int(first_ + i), positions_);
    const Place at = e_.space().Unflatten(position, {out_.begin() + 2, out_.end()});
    for (size_t a = 0; a < in_.size(); ++a) {
      const Value begin = e_.lb().Int(steps_.begins[a]);
      const Value origin = is_transposed_ ? s_.Add(e_.Int(at[a]), begin)
                                          : s_.Sub(e_.Int(at[a] * steps_.strides[a]), begin);
      e_.Store(origins_, Dim(static_cast<int64_t>(a) * kPoints) + i, origin);
    }
  });
}

void Patches::WriteRow(const Dim& row, const Dim& to) {
  const auto [channel, tap] = e_.space().Divide(row, taps_);
  const Place k = e_.space().Unflatten(tap, kernel_);
  const Dim of_all = in_group_ * channels_ + channel;
  w_.ForLanes(count_,
              [&](const Dim& i) { e_.Store(patches_, to * kPoints + i, Seen(k, of_all, i)); });
}

// What a position sees of a channel at that element of the kernel, 0 beside the input.
Value Patches::Seen(const Place& k, const Dim& channel, const Dim& i) {
  const Value none = s_.Number(type_, 0.0);
  return e_.Guarded(AreSome(e_, in_), none, [&] {
    Value inside, flat;
    for (size_t a = 0; a < in_.size(); ++a) {
      const Value at = Along(a, k, i, inside);
      flat = flat ? s_.Add(s_.Mul(flat, e_.Int(in_[a])), at) : at;
    }
    Place at(x_.size(), 0);
    at[0] = image_, at[1] = channel;
    at.back() = e_.Loaded(s_.Select(inside, flat, e_.lb().Int(0)), ProductOf(in_));
    return s_.Select(inside, s_.Cast(w_.Operand(Op::kX, at), type_), none);
  });
}

Value Patches::Along(size_t axis, const Place& k, const Dim& i, Value& inside) {
  const auto holds = [&](Value condition) {
    inside = inside ? s_.And(inside, condition) : condition;
  };
  const Value origin = e_.LoadFrom(origins_, Dim(static_cast<int64_t>(axis) * kPoints) + i);
  const Value offset = e_.Int(k[axis] * steps_.dilations[axis]), zero = e_.lb().Int(0);
  Value at = is_transposed_ ? s_.Sub(origin, offset) : s_.Add(origin, offset);
  holds(s_.AtMost(zero, at));
  if (const int64_t stride = steps_.strides[axis]; is_transposed_ && stride > 1) {
    const Value step = e_.lb().Int(stride), number = s_.Div(at, step);
    holds(s_.Equal(s_.Mul(number, step), at));
    at = number;
  }
  holds(s_.Less(at, e_.Int(in_[axis])));
  return at;
}

Value Patches::Weight(const Dim& filter, const Dim& row) {
  Place at(weights_.size(), 0);
  if (is_transposed_) {
    const auto [channel, tap] = e_.space().Divide(row, taps_);
    at[0] = in_group_ * channels_ + channel, at[1] = filter, at.back() = tap;
  } else {
    at[0] = in_group_ * filters_ + filter, at.back() = row;
  }
  return s_.Cast(w_.Operand(Op::kW, at), type_);
}

}  // namespace

void Multiply(const PatchProduct& product, const Dim& depth, const Dim& count) {
  Elements& e = product.w.e;
  const Dim blocks = FloorDiv(product.filters, kFilters);
  e.For(blocks, false,
        [&](const Dim& block) { WriteFilters(product, block * kFilters, kFilters, depth, count); });
  e.For(Mod(product.filters, kFilters), false,
        [&](const Dim& rest) { WriteFilters(product, blocks * kFilters + rest, 1, depth, count); });
}

void WriteByPatches(const WholeTensorEmitter& w) { Patches(w).Write(); }

bool AreOpenFilters(const Operation& op) {
  using Op = nn::ConvOp;
  const std::vector<Dim> weights = DimsOf(op.operand(Op::kW));
  if (std::ranges::all_of(weights, &Dim::is_constant)) return false;
  if (!op.operand(Op::kX).is_block_argument() || !op.operand(Op::kW).is_block_argument())
    return false;
  if (op.name() == Op::kName) {
    return !nn::ChannelsLast(&op) && !nn::IsSame(nn::WindowOf(nn::ConvOp(&op)));
  }
  const nn::ConvTransposeSpec spec = nn::ConvTransposeSpecOf(nn::ConvTransposeOp(&op));
  return !spec.output_shape && !nn::IsSame(spec.window);
}

}  // namespace lathe::lower
