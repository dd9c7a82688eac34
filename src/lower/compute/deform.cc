#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/window.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/taps.h"

// Windows whose elements lie where a tensor says.
namespace lathe::lower {
namespace {

constexpr ElementType kWide = ElementType::kF64;

// ---- deform_conv ----

class Deformed {
 public:
  explicit Deformed(const ElementOf& c)
      : c_(c),
        s_(c.e),
        op_(const_cast<Operation*>(c.op)),
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
      around.push_back(TapsAround(point, x_[d + 2]));
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

  // The two elements around a point.
  std::vector<Tap> TapsAround(Value point, const Dim& extent) {
    const Value low = s_.Floor(point), one = s_.Number(kWide, 1.0);
    const auto tap = [&](Value at) {
      const Value share = s_.Sub(one, s_.Abs(s_.Sub(point, at)));
      const Value inside =
          s_.And(s_.AtMost(s_.Number(kWide, 0.0), at), s_.Less(at, s_.Number(kWide, extent)));
      return Tap{s_.Inside(at, extent), s_.And(inside, s_.Less(s_.Number(kWide, 0.0), share)),
                 share};
    };
    return {tap(low), tap(s_.Add(low, one))};
  }

  const ElementOf& c_;
  Scalars s_;
  Op op_;
  nn::ConvSpec spec_;
  std::vector<Dim> x_, w_;
  nn::WindowSteps steps_;
  ElementType type_;
};

Value DeformedConvolution(const ElementOf& c) { return Deformed(c).Element(); }

std::string RefuseDeformed(const Operation& op) {
  const nn::DeformConvOp conv(const_cast<Operation*>(&op));
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
  const nn::WindowSpec spec = nn::WindowOf(nn::MaxUnpoolOp(const_cast<Operation*>(&op)));
  const nn::WindowSteps steps = nn::CheckedSteps(spec, x.size() - 2);
  std::vector<Dim> dims{x[0], x[1]};
  for (size_t d = 0; d + 2 < x.size(); ++d) {
    dims.push_back(Dim(steps.strides[d]) * (x[d + 2] - 1) + Dim((*spec.kernel_shape)[d]) -
                   Dim(steps.begins[d]) - Dim(steps.ends[d]));
  }
  return dims;
}

Dim Product(const std::vector<Dim>& dims) {
  Dim product = 1;
  for (const Dim& dim : dims) product *= dim;
  return product;
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
void Unpool(const WholeOf& w) {
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
    const Dim flat = Scalars(e).Inside(index, Product(counted));
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
  const Dim extent = Product(UnpooledDims(*c.op, c.Dims(Op::kX)));
  const auto from_front = [extent](Elements& e, Value number) {
    const Scalars s(e);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  return {{Op::kIndices, 0, extent, {}, from_front}};
}

constexpr Compute kComputes[] = {
    {nn::kDeformConv, DeformedConvolution, RefuseDeformed},
    {nn::kMaxUnpool, nullptr, RefuseUnpool, PositionsUnpooled, Unpool},
};

}  // namespace

std::span<const Compute> DeformComputes() { return kComputes; }

}  // namespace lathe::lower
