#include <algorithm>
#include <limits>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/image.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "src/dialect/nn/convolution.h"
#include "src/dialect/nn/layout.h"
#include "src/dialect/nn/window.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/patches.h"
#include "src/lower/compute/scalars.h"

// Convolutions and pools, one output at a time: of any extents, symbolic ones too. Strategies that
// know more extents are faster and come first.
namespace lathe::lower {
namespace {

// 1 if low <= expr < high, else 0.
Dim IsBetween(const Dim& expr, const Dim& low, const Dim& high) {
  return Min(Max(high - expr, 0), 1) * Min(Max(expr - low + 1, 0), 1);
}

// An expression by a name of its own, so that what is made of it does not grow too large.
Dim Named(const ElementOf& c, const Dim& expr, const Dim& extent) {
  return expr.is_constant() ? expr : c.e.Loaded(c.e.Int(expr), extent);
}

// N, C and spatial axes of a place of the op's layout, and back.
Place ChannelsFirst(const Operation& op, Place place) {
  if (nn::ChannelsLast(&op)) std::rotate(place.begin() + 1, place.end() - 1, place.end());
  return place;
}

Place AsLaidOut(const Operation& op, Place place) {
  if (nn::ChannelsLast(&op)) std::rotate(place.begin() + 1, place.begin() + 2, place.end());
  return place;
}

// ---- windows ----

struct Windows {
  std::vector<Dim> in, kernel, begins, ends, out;  // per spatial axis
  std::vector<int64_t> strides, dilations;

  // Whether most of the kernel lies beside the input, so that the elements of the input are walked
  // instead; of an input whose extent is not known a kernel larger than those of networks.
  bool IsLarge(size_t a) const {
    constexpr int64_t kLarge = 1024;
    if (!kernel[a].is_constant()) return false;
    return in[a].is_constant() ? kernel[a].value() > 2 * in[a].value() : kernel[a].value() > kLarge;
  }
  // How many positions are walked along an axis: of a kernel that is not small, none behind the
  // input.
  Dim Walked(size_t a) const {
    constexpr int64_t kSmall = 32;
    if (IsLarge(a)) return in[a];
    if (!kernel[a].is_constant() || kernel[a].value() <= kSmall) return kernel[a];
    return Min(kernel[a], CeilDiv(begins[a] + in[a], dilations[a]));
  }
  // In the padded input.
  Dim Padded(size_t a, const Place& out_at, const Place& kernel_at) const {
    return out_at[a + 2] * strides[a] + kernel_at[a] * dilations[a];
  }
};

Windows WindowsOf(const ElementOf& c, const nn::WindowSpec& spec, std::vector<Dim> kernel) {
  const Place in = ChannelsFirst(*c.op, c.Dims(0)), out = ChannelsFirst(*c.op, c.ResultDims());
  const nn::WindowSteps steps = nn::CheckedSteps(spec, kernel.size());
  Windows w{{in.begin() + 2, in.end()},
            std::move(kernel),
            {},
            {},
            {out.begin() + 2, out.end()},
            steps.strides,
            steps.dilations};
  for (size_t a = 0; a < w.in.size(); ++a) {
    w.begins.emplace_back(steps.begins[a]);
    w.ends.emplace_back(steps.ends[a]);
    if (!nn::IsSame(spec)) continue;
    const Dim reach = (w.kernel[a] - 1) * w.dilations[a] + 1;
    const Dim total = Named(c, Max((w.out[a] - 1) * w.strides[a] + reach - w.in[a], 0), reach);
    const Dim half = FloorDiv(total, 2);
    w.begins[a] = spec.auto_pad == "SAME_UPPER" ? half : total - half;
    w.ends[a] = total - w.begins[a];
  }
  return w;
}

// Goes over the elements of the input that a window sees; `place`: in the input, `at`: in the
// kernel.
using Visit = std::function<Value(const Place& place, const Place& at, Value so_far)>;
Value OverWindow(const ElementOf& c, const Windows& w, const Place& out, const Dim& channel,
                 Value initial, const Visit& visit) {
  std::vector<Dim> extents;
  for (size_t a = 0; a < w.in.size(); ++a) extents.push_back(w.Walked(a));
  return c.e.Reduce(extents, initial, [&](const Place& i, Value so_far) {
    Place place{out[0], channel}, k = i;
    Dim inside = 1;
    for (size_t a = 0; a < w.in.size(); ++a) {
      if (w.IsLarge(a)) {
        const Dim offset = i[a] + w.begins[a] - out[a + 2] * w.strides[a];
        const Dim whole = Max(1 - Mod(Max(offset, 0), w.dilations[a]), 0);
        k[a] = FloorDiv(offset, w.dilations[a]);
        place.push_back(i[a]);
        inside *= Named(c, whole * IsBetween(k[a], 0, w.kernel[a]), 2);
        continue;
      }
      const Dim padded = w.Padded(a, out, k);
      place.push_back(padded - w.begins[a]);
      inside *= Named(c, IsBetween(padded, w.begins[a], w.begins[a] + w.in[a]), 2);
    }
    return c.e.Guarded(inside, so_far, [&] { return visit(place, k, so_far); });
  });
}

// ---- pools ----

template <class OpT>
Windows WindowsOfPool(const ElementOf& c) {
  const OpT op(c.op);
  const nn::WindowSpec spec = nn::WindowOf(op);
  return WindowsOf(c, spec, {spec.kernel_shape->begin(), spec.kernel_shape->end()});
}

double Lowest(ElementType element) {
  if (element == ElementType::kI8) return -128;
  if (element == ElementType::kU8) return 0;
  return -std::numeric_limits<double>::infinity();
}

Value Greatest(const ElementOf& c, const Windows& w, const Place& out) {
  const Scalars s(c.e);
  const Value lowest =
      s.Number(TensorOf(c.op->operand(0)).element(), Lowest(TensorOf(c.op->operand(0)).element()));
  return OverWindow(c, w, out, out[1], lowest, [&](const Place& place, const Place&, Value so_far) {
    return s.Max(so_far, c.Operand(0, AsLaidOut(*c.op, place)));
  });
}

// The position of the first element that is the greatest, or of the first NaN.
Value GreatestPosition(const ElementOf& c, const Windows& w, const Place& out) {
  const Scalars s(c.e);
  const Value greatest = Greatest(c, w, out), none = c.e.lb().Splat(ElementType::kI64, -1);
  const bool is_float = IsFloat(TensorOf(greatest).element());
  const bool columns_first = nn::MaxPoolOp(c.op).storage_order() == 1;
  std::vector<Dim> dims = c.Dims(0);
  if (columns_first) std::reverse(dims.begin() + 2, dims.end());
  return OverWindow(c, w, out, out[1], none, [&](const Place& place, const Place&, Value so_far) {
    const Value x = c.Operand(0, place);
    Value found = s.Equal(x, greatest);
    if (is_float) found = s.Or(found, s.Not(s.Equal(x, x)));  // a NaN
    Place flat = place;
    if (columns_first) std::reverse(flat.begin() + 2, flat.end());
    const Value position = c.e.Int(c.e.space().Flatten(flat, dims));
    return s.Select(s.And(s.Equal(so_far, none), found), position, so_far);
  });
}

Value MaxPooled(const ElementOf& c) {
  const Windows w = WindowsOfPool<nn::MaxPoolOp>(c);
  const Place out = ChannelsFirst(*c.op, c.at);
  return c.result == 0 ? Greatest(c, w, out) : GreatestPosition(c, w, out);
}

// How many positions of the kernel lie before `end` of the padded input.
Dim CountBefore(const ElementOf& c, const Windows& w, size_t a, const Place& out, const Dim& end) {
  const Dim count = CeilDiv(end - out[a + 2] * w.strides[a], w.dilations[a]);
  return Named(c, Max(Min(count, w.kernel[a]), 0), w.kernel[a] + 1);
}

Value AveragePooled(const ElementOf& c) {
  const Scalars s(c.e);
  const Windows w = WindowsOfPool<nn::AveragePoolOp>(c);
  const Place out = ChannelsFirst(*c.op, c.at);
  const bool pads = nn::AveragePoolOp(c.op).count_include_pad();
  const ElementType type = SumType(c.Element());
  const Value sum = OverWindow(
      c, w, out, out[1], s.Number(type, 0.0), [&](const Place& place, const Place&, Value so_far) {
        return s.Add(so_far, s.Cast(c.Operand(0, AsLaidOut(*c.op, place)), type));
      });
  Dim count = 1;
  for (size_t a = 0; a < w.in.size(); ++a) {
    const Dim end = w.begins[a] + w.in[a];
    count *= pads ? CountBefore(c, w, a, out, end + w.ends[a])
                  : CountBefore(c, w, a, out, end) - CountBefore(c, w, a, out, w.begins[a]);
  }
  return s.Cast(s.Div(sum, s.Number(type, count)), c.Element());
}

/// (sum of |x|^p)^(1/p); other powers than squares in f64.
class PowerNorm {
 public:
  PowerNorm(const ElementOf& c, int64_t p)
      : c_(c), s_(c.e), p_(p), type_(p > 2 ? ElementType::kF64 : SumType(c.Element())) {}

  Value Zero() const { return s_.Number(type_, 0.0); }
  Value Add(Value so_far, const Place& place) const {
    const Value x = s_.Cast(c_.Operand(0, place), type_);
    return s_.Add(so_far, p_ < 1 ? Power(s_.Abs(x), static_cast<double>(p_)) : ByProducts(x));
  }
  Value Finished(Value sum) const {
    const Value norm = p_ == 2 ? s_.Power(sum, 0.5) : Power(sum, 1.0 / static_cast<double>(p_));
    return s_.Cast(norm, c_.Element());
  }

 private:
  // Squares of squares; the root of the sum makes what they are off by smaller.
  Value ByProducts(Value x) const {
    Value power, square = p_ % 2 == 0 ? x : s_.Abs(x);
    for (int64_t rest = p_; rest > 0; rest /= 2) {
      if (rest % 2 != 0) power = power ? s_.Mul(power, square) : square;
      if (rest > 1) square = s_.Mul(square, square);
    }
    return power;
  }
  Value Power(Value x, double p) const {
    return p == 1 ? x : nn::PowOp::Create(c_.e.lb().b(), x, s_.Number(type_, p)).c();
  }

  const ElementOf& c_;
  Scalars s_;
  int64_t p_;
  ElementType type_;
};

Value NormPooled(const ElementOf& c) {
  const Windows w = WindowsOfPool<nn::LpPoolOp>(c);
  const PowerNorm norm(c, nn::LpPoolOp(c.op).p());
  return norm.Finished(OverWindow(
      c, w, c.at, c.at[1], norm.Zero(),
      [&](const Place& place, const Place&, Value so_far) { return norm.Add(so_far, place); }));
}

Value GlobalNorm(const ElementOf& c) {
  const PowerNorm norm(c, nn::GlobalLpPoolOp(c.op).p());
  const std::vector<Dim> dims = c.Dims(0);
  return norm.Finished(
      c.e.Reduce({dims.begin() + 2, dims.end()}, norm.Zero(), [&](const Place& at, Value so_far) {
        Place place{c.at[0], c.at[1]};
        place.insert(place.end(), at.begin(), at.end());
        return norm.Add(so_far, place);
      }));
}

std::string RefusePositions(const Operation& op) {
  return nn::ChannelsLast(&op) && op.num_results() > 1 && !op.result(1).use_empty()
             ? "positions where the channels are last"
             : "";
}

// ---- convolutions ----

// The sum over channels of the group and the kernel of what `product` gives.
using Product = std::function<Value(const Place& x, const Place& w)>;
Value Convolved(const ElementOf& c, const nn::ConvSpec& spec, size_t weights, Value initial,
                const Product& product) {
  const std::vector<Dim> dims = c.Dims(weights);
  const Windows w = WindowsOf(c, spec.window, {dims.begin() + 2, dims.end()});
  const Place out = ChannelsFirst(*c.op, c.at);
  const Dim filters = FloorDiv(dims[0], spec.group);
  const Dim group = spec.group == 1 ? Dim(0) : c.e.space().Div(out[1], filters);
  return c.e.Reduce({dims[1]}, initial, [&](const Place& channel, Value before) {
    return OverWindow(c, w, out, group * dims[1] + channel[0], before,
                      [&](const Place& place, const Place& k, Value so_far) {
                        Place filter{out[1], channel[0]};
                        filter.insert(filter.end(), k.begin(), k.end());
                        const Scalars s(c.e);
                        return s.Add(so_far, product(AsLaidOut(*c.op, place), filter));
                      });
  });
}

Value WithBias(const ElementOf& c, size_t bias, const Dim& filter, ElementType type) {
  const Scalars s(c.e);
  return c.Has(bias) ? s.Cast(c.Operand(bias, {filter}), type) : s.Number(type, 0.0);
}

Value Convolution(const ElementOf& c) {
  using Op = nn::ConvOp;
  const Scalars s(c.e);
  const ElementType type = SumType(c.Element());
  const Dim filter = ChannelsFirst(*c.op, c.at)[1];
  const Value sum = Convolved(
      c, nn::ConvSpecOf(Op(c.op)), Op::kW, WithBias(c, Op::kB, filter, type),
      [&](const Place& x, const Place& w) {
        return s.Mul(s.Cast(c.Operand(Op::kX, x), type), s.Cast(c.Operand(Op::kW, w), type));
      });
  return s.Cast(sum, c.Element());
}

// What lies in an operand of one element or of one per filter.
Value PerFilter(const ElementOf& c, size_t operand, const Dim& filter) {
  const std::vector<Dim> dims = c.Dims(operand);
  if (dims.empty()) return c.Operand(operand, {});
  return c.Operand(operand, {dims[0].IsConstant(1) ? Dim(0) : filter});
}

template <class OpT>
Value IntegerSum(const ElementOf& c, Value initial) {
  const Scalars s(c.e);
  const auto centered = [&](size_t operand, const Place& at, Value zero) {
    const Value x = s.Cast(c.Operand(operand, at), ElementType::kI32);
    return zero ? s.Sub(x, s.Cast(zero, ElementType::kI32)) : x;
  };
  const Value x_zero = c.Has(OpT::kXZeroPoint) ? c.Scalar(OpT::kXZeroPoint) : Value();
  const Value w_zero = c.Has(OpT::kWZeroPoint) ? PerFilter(c, OpT::kWZeroPoint, c.at[1]) : Value();
  return Convolved(c, nn::ConvSpecOf(OpT(c.op)), OpT::kW, initial,
                   [&](const Place& x, const Place& w) {
                     return s.Mul(centered(OpT::kX, x, x_zero), centered(OpT::kW, w, w_zero));
                   });
}

Value IntegerConvolution(const ElementOf& c) { return IntegerSum<nn::ConvIntegerOp>(c, c.Zero()); }

// Less the padding, what is in the padding is zero.
Value ByteConvolution(const ElementOf& c) {
  using Op = nn::ConvBytesOp;
  const Scalars s(c.e);
  const auto wide = [&](Value v) { return s.Cast(v, ElementType::kI32); };
  const Value padding = wide(c.Scalar(Op::kPadding));
  std::vector<Dim> filter = c.Dims(Op::kW);
  filter.erase(filter.begin());
  const Value start = WithBias(c, Op::kB, c.at[1], ElementType::kI32);
  const Value all = c.e.Reduce(filter, start, [&](const Place& k, Value so_far) {
    Place at{c.at[1]};
    at.insert(at.end(), k.begin(), k.end());
    return s.Add(so_far, s.Mul(padding, wide(c.Operand(Op::kW, at))));
  });
  return Convolved(c, nn::ConvSpecOf(Op(c.op)), Op::kW, all, [&](const Place& x, const Place& w) {
    return s.Mul(s.Sub(wide(c.Operand(Op::kX, x)), padding), wide(c.Operand(Op::kW, w)));
  });
}

Value QuantizedConvolution(const ElementOf& c) {
  using Op = nn::QlinearConvOp;
  const Scalars s(c.e);
  const Value sum = IntegerSum<Op>(c, WithBias(c, Op::kB, c.at[1], ElementType::kI32));
  Value y = s.Mul(s.Cast(sum, kWide), s.Cast(PerFilter(c, Op::kWScale, c.at[1]), kWide));
  y = s.Mul(y, s.Cast(c.Scalar(Op::kXScale), kWide));
  y = s.Div(y, s.Cast(c.Scalar(Op::kYScale), kWide));
  y = s.Round(s.Cast(s.Cast(y, ElementType::kF32), kWide));
  y = s.Add(y, s.Cast(c.Scalar(Op::kYZeroPoint), kWide));
  return SaturatedCast(c.e.lb(), y, c.Element());
}

// Where kernels that are scattered over the output begin before it.
std::vector<Dim> ScatterBegins(const ElementOf& c, const nn::ConvTransposeSpec& spec,
                               const Windows& w) {
  if (!spec.output_shape && !nn::IsSame(spec.window)) return w.begins;
  std::vector<Dim> begins;
  for (size_t a = 0; a < w.in.size(); ++a) {
    const int64_t added = spec.output_padding ? (*spec.output_padding)[a] : 0;
    const Dim natural =
        (w.in[a] - 1) * w.strides[a] + added + (w.kernel[a] - 1) * w.dilations[a] + 1;
    const Dim total = Named(c, Max(natural - c.ResultDims()[a + 2], 0), natural + 1),
              half = FloorDiv(total, 2);
    begins.push_back(spec.window.auto_pad == "SAME_UPPER" ? half : total - half);
  }
  return begins;
}

struct ScatteredTap {
  Dim element, input;  ///< of the kernel, and what it is multiplied by
  Dim reaches;         ///< 1 if both exist, else 0
};

// Tap number `number` that reaches an output, `place` behind where the first kernel begins. Those
// of a kernel that is not dilated are a stride apart.
ScatteredTap TapOf(const Dim& place, const Dim& number, size_t axis, const Windows& w) {
  const int64_t stride = w.strides[axis];
  if (w.dilations[axis] == 1) {
    const Dim element = Mod(place, stride) + number * stride;
    const Dim input = FloorDiv(place, stride) - number;
    return {element, input,
            IsBetween(input, 0, w.in[axis]) * IsBetween(element, 0, w.kernel[axis])};
  }
  const Dim left = place - number * w.dilations[axis], input = FloorDiv(left, stride);
  return {number, input, Max(1 - Mod(left, stride), 0) * IsBetween(input, 0, w.in[axis])};
}

Value TransposedConvolution(const ElementOf& c) {
  using Op = nn::ConvTransposeOp;
  const Scalars s(c.e);
  const nn::ConvTransposeSpec spec = nn::ConvTransposeSpecOf(Op(c.op));
  const ElementType type = SumType(c.Element());
  const std::vector<Dim> dims = c.Dims(Op::kW);
  nn::WindowSpec window = spec.window;
  window.auto_pad = nn::IsSame(window) ? "NOTSET" : window.auto_pad;
  const Windows w = WindowsOf(c, window, {dims.begin() + 2, dims.end()});
  const std::vector<Dim> begins = ScatterBegins(c, spec, w);
  const auto [group, filter] = c.e.space().Divide(c.at[1], dims[1]);
  const Dim channels = FloorDiv(dims[0], spec.group), first = group * channels;
  std::vector<Dim> extents{channels};
  for (size_t a = 0; a < w.in.size(); ++a) {
    extents.push_back(w.dilations[a] == 1 ? CeilDiv(w.kernel[a], w.strides[a]) : w.kernel[a]);
  }
  const Value sum =
      c.e.Reduce(extents, WithBias(c, Op::kB, c.at[1], type), [&](const Place& at, Value so_far) {
        Place x{c.at[0], first + at[0]}, weight{first + at[0], filter};
        Dim reaches = 1;
        for (size_t a = 0; a < w.in.size(); ++a) {
          const ScatteredTap tap = TapOf(c.at[a + 2] + begins[a], at[a + 1], a, w);
          reaches *= Named(c, tap.reaches, 2);
          x.push_back(tap.input);
          weight.push_back(tap.element);
        }
        return c.e.Guarded(reaches, so_far, [&] {
          return s.Add(so_far, s.Mul(s.Cast(c.Operand(Op::kX, x), type),
                                     s.Cast(c.Operand(Op::kW, weight), type)));
        });
      });
  return s.Cast(sum, c.Element());
}

// Channels that an operand lacks would be read beyond its end.
template <class OpT>
std::string RefuseChannels(const Operation& op, size_t bias) {
  Fits fits(op);
  const Place x = ChannelsFirst(op, fits.Dims(OpT::kX));
  const std::vector<Dim> w = fits.Dims(OpT::kW);
  const int64_t group = nn::ConvSpecOf(OpT(&op)).group;
  return fits.Same(x[1], w[1] * group).Is(bias, {w[0]}).why();
}

std::string RefuseConvolution(const Operation& op) {
  return RefuseChannels<nn::ConvOp>(op, nn::ConvOp::kB);
}

// What PerFilter reads: lists of one element, or of one per filter.
template <class OpT>
std::string RefuseLists(const Operation& op, std::initializer_list<size_t> lists) {
  Fits fits(op);
  for (const size_t list : lists) {
    const std::vector<Dim> dims = fits.Dims(list);
    if (!dims.empty() && !dims[0].IsConstant(1)) fits.Same(dims[0], fits.Dims(OpT::kW)[0]);
  }
  return fits.why();
}

std::string RefuseInteger(const Operation& op) {
  using Op = nn::ConvIntegerOp;
  const std::string why = RefuseChannels<Op>(op, op.num_operands());
  return why.empty() ? RefuseLists<Op>(op, {Op::kWZeroPoint}) : why;
}
std::string RefuseBytes(const Operation& op) {
  return RefuseChannels<nn::ConvBytesOp>(op, nn::ConvBytesOp::kB);
}
std::string RefuseQuantized(const Operation& op) {
  using Op = nn::QlinearConvOp;
  const std::string why = RefuseChannels<Op>(op, Op::kB);
  return why.empty() ? RefuseLists<Op>(op, {Op::kWScale, Op::kWZeroPoint}) : why;
}
std::string RefuseTransposed(const Operation& op) {
  using Op = nn::ConvTransposeOp;
  Fits fits(op);
  const std::vector<Dim> x = fits.Dims(Op::kX), w = fits.Dims(Op::kW);
  const int64_t group = nn::ConvTransposeSpecOf(Op(&op)).group;
  return fits.Same(x[1], w[0]).Is(Op::kB, {w[1] * group}).why();
}

// ---- col2im ----

// Adds what blocks have at the pixel, in the order of the elements of a block.
Value AddedBlocks(const ElementOf& c) {
  using Op = nn::Col2imOp;
  const Op op(c.op);
  const Scalars s(c.e);
  const std::vector<int64_t> image = *ConstantInts(*c.op, Op::kImageShape);
  const std::vector<int64_t> block = *ConstantInts(*c.op, Op::kBlockShape);
  const size_t axes = image.size();
  const auto of = [&](const std::optional<std::vector<int64_t>>& given, size_t a, int64_t other) {
    return given ? (*given)[a] : other;
  };
  std::vector<Dim> extents, counts;
  Dim size = 1;
  for (size_t a = 0; a < axes; ++a) {
    const int64_t reach = of(op.dilations(), a, 1) * (block[a] - 1) + 1;
    const int64_t room = image[a] + of(op.pads(), a, 0) + of(op.pads(), axes + a, 0) - reach;
    counts.push_back(Max(FloorDiv(Dim(room), of(op.strides(), a, 1)) + 1, 0));
    extents.emplace_back(block[a]);
    size = size * block[a];
  }
  const ElementType type = SumType(c.Element());
  const auto next = [&](const Place& offset, Value so_far) {
    Dim reaches = 1, element = 0, number = 0;
    for (size_t a = 0; a < axes; ++a) {
      const int64_t stride = of(op.strides(), a, 1);
      const Dim from = c.at[a + 2] + of(op.pads(), a, 0) - offset[a] * of(op.dilations(), a, 1);
      const Dim whole = Max(1 - Mod(from, stride), 0), at = FloorDiv(from, stride);
      reaches *= Named(c, whole * IsBetween(at, 0, counts[a]), 2);
      element = element * extents[a] + offset[a];
      number = number * counts[a] + at;
    }
    return c.e.Guarded(reaches, so_far, [&] {
      const Value x = c.Operand(Op::kInput, {c.at[0], c.at[1] * size + element, number});
      return s.Add(so_far, s.Cast(x, type));
    });
  };
  return s.Cast(c.e.Reduce(extents, s.Number(type, 0.0), next), c.Element());
}

// The blocks are as many as the image has.
std::string RefuseBlocks(const Operation& op) {
  using Op = nn::Col2imOp;
  if (std::string why = NeedConstants<Op::kImageShape, Op::kBlockShape>(op); !why.empty()) {
    return why;
  }
  return TensorOf(op.operand(0)).dims()[2].is_constant() ? ""
                                                         : "how many blocks there are is not known";
}

// ---- over channels ----

Value LocallyNormalized(const ElementOf& c) {
  const nn::LrnOp op(c.op);
  const Scalars s(c.e);
  const ElementType type = SumType(c.Element());
  const int64_t size = op.size();
  const Dim channels = c.Dims(0)[1];
  const auto within = [&](int64_t reach) {  // channels farther away than all are none
    constexpr int64_t kFar = 64;
    const bool is_far = channels.is_constant() || reach > kFar;
    return is_far ? Min(Dim(reach), Max(channels, 1) - 1) : Dim(reach);
  };
  const Dim before = within((size - 1) / 2), behind = within(size / 2);
  const auto squares = [&](const Place& k, Value so_far) {
    Place place = c.at;
    place[1] = c.at[1] + k[0] - before;
    return c.e.Guarded(IsBetween(c.at[1] + k[0], before, channels + before), so_far, [&] {
      const Value x = s.Cast(c.Operand(0, place), type);
      return s.Add(so_far, s.Mul(x, x));
    });
  };
  const Value sum = c.e.Reduce({before + 1 + behind}, s.Number(type, 0.0), squares);
  const Value alpha = s.Number(type, op.alpha() / static_cast<double>(size));
  const Value scale = s.Add(s.Number(type, op.bias()), s.Mul(alpha, sum));
  const Value factor = s.Exp(s.Mul(s.Log(scale), s.Number(type, -op.beta())));
  return s.Cast(s.Mul(s.Cast(c.Operand(0, c.at), type), factor), c.Element());
}

constexpr Compute kWindowComputes[] = {
    {nn::kAveragePool, AveragePooled},
    {nn::kCol2im, AddedBlocks, RefuseBlocks},
    {.op = nn::kConv,
     .element = Convolution,
     .refuse = RefuseConvolution,
     .whole = WriteByPatches,
     .prefers_whole = AreOpenFilters},
    {nn::kConvBytes, ByteConvolution, RefuseBytes},
    {nn::kConvInteger, IntegerConvolution, RefuseInteger},
    {.op = nn::kConvTranspose,
     .element = TransposedConvolution,
     .refuse = RefuseTransposed,
     .whole = WriteByPatches,
     .prefers_whole = AreOpenFilters},
    {nn::kGlobalLpPool, GlobalNorm},
    {nn::kLpPool, NormPooled},
    {nn::kLrn, LocallyNormalized},
    {nn::kMaxPool, MaxPooled, RefusePositions},
    {nn::kQlinearConv, QuantizedConvolution, RefuseQuantized},
};

}  // namespace

std::span<const Compute> WindowComputes() { return kWindowComputes; }

}  // namespace lathe::lower
