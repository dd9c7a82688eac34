#include "lathe/dialect/nn/signal.h"

#include <cmath>
#include <numbers>

#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/image.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/fourier.h"
#include "src/lower/compute/scalars.h"

// Fourier transforms and what windows they see their signals through, in f64.
namespace lathe::lower {
namespace {

Value Cos(Elements& e, Value x) { return nn::CosOp::Create(e.lb().b(), x).y(); }

void ExpectLength(const WholeTensorEmitter& w, const Dim& n, size_t axis) {
  const auto low = n.LowerBound();
  if (low && *low >= 1) return;
  loop::ExpectOp::Create(w.e.lb().b(), w.e.lb().Int(0), w.e.Int(n), Value(),
                         {.axis = static_cast<int64_t>(axis)});
}

// ---- dft ----

struct Dft {
  explicit Dft(const Operation& o)
      : operation(o),
        op(&o),
        rank(DimsOf(o.operand(0)).size()),
        axis(rank - 2),
        to_real(op.inverse() && op.onesided()) {
    if (const auto given = ConstantInts(o, nn::DftOp::kAxis)) {
      axis = AxisOf(given->front(), rank);
    }
  }

  /// N, of the extents of the operand and the result.
  Dim Length(const std::vector<Dim>& from, const std::vector<Dim>& to) const {
    if (const auto given = ConstantInts(operation, nn::DftOp::kDftLength)) return given->front();
    return to_real || op.dft_length() ? to[axis] : from[axis];
  }

  const Operation& operation;
  nn::DftOp op;
  size_t rank, axis;
  bool to_real;
};

// Half a spectrum is not.
bool IsAsLongAsTold(const Dft& dft) {
  return dft.op.dft_length() && (dft.op.inverse() || !dft.op.onesided());
}

std::string RefuseDft(const Operation& op) {
  using Op = nn::DftOp;
  if (std::string why = NeedConstants<Op::kAxis>(op); !why.empty()) return why;
  const std::vector<Dim> dims = DimsOf(op.operand(0));
  if (dims.size() < 2 || !dims.back().is_constant()) return "the parts of numbers are not known";
  const Dft dft(op);
  if (!IsAsLongAsTold(dft)) {
    if (std::string why = NeedConstants<Op::kDftLength>(op); !why.empty()) return why;
  }
  const Dim n = dft.Length(dims, DimsOf(op.result(0)));
  if (n.is_unknown()) return "the length is not known";
  const std::string why = FourierTransforms::Refusal(n);
  return why.empty() ? NeedSizes(op) : why;
}

void WriteDft(const WholeTensorEmitter& w) {
  const Dft dft(*w.op);
  const Scalars s(w.e);
  const std::vector<Dim> from = w.Dims(0), to = w.ResultDims(0);
  const Dim n = dft.Length(from, to);
  ExpectLength(w, n, dft.axis);
  std::vector<Dim> others = from;
  others[dft.axis] = others.back() = 1;
  Dim lines = 1;
  for (const Dim& dim : others) lines *= dim;
  const auto place = [&](const Dim& line, const Dim& t) {
    Place at = w.e.space().Unflatten(line, others);
    at[dft.axis] = t;
    return at;
  };
  const auto load = [&](Place at, int64_t part) {
    at.back() = part;
    return s.Cast(w.Operand(0, at), kWide);
  };
  const Value zero = s.Number(kWide, 0.0);
  // Beyond its end the signal is 0; half of a spectrum is mirrored.
  const auto source = [&](const Dim& line, const Dim& t) -> Complex {
    const bool mirrors = dft.to_real;
    const Dim at = mirrors ? w.e.Loaded(w.e.Int(Min(t, n - t)), n) : t;
    const Dim extent = from[dft.axis];
    const bool all = !mirrors && extent == n;
    const Dim inside = all ? Dim(1) : w.e.Loaded(w.e.Int(Min(Max(extent - at, 0), 1)), 2);
    const auto part = [&](int64_t i) {
      return w.e.Guarded(inside, zero, [&] { return load(place(line, at), i); });
    };
    Complex x{part(0), from.back().IsConstant(2) ? part(1) : zero};
    if (mirrors) {
      const Value is_mirror = s.Less(w.e.Int(n), w.e.Int(t * 2));
      x.imaginary = s.Select(is_mirror, s.Sub(zero, x.imaginary), x.imaginary);
    }
    return x;
  };
  const Value factor = s.Div(s.Number(kWide, 1.0), s.Number(kWide, n));
  const auto sink = [&](const Dim& line, const std::function<Complex(const Dim& k)>& result) {
    w.e.For(to[dft.axis], false, [&](const Dim& k) {
      const Complex y = result(k);
      for (int64_t i = 0; i < to.back().value(); ++i) {
        Place at = place(line, k);
        at.back() = i;
        Value part = i == 0 ? y.real : y.imaginary;
        if (dft.op.inverse()) part = s.Mul(part, factor);
        w.e.Store(w.memory[0], w.e.space().Flatten(at, to), s.Cast(part, w.Element(0)));
      }
    });
  };
  FourierTransforms(w, lines, n, dft.op.inverse() ? 1 : -1).Write(source, sink);
}

// ---- stft ----

Dim FrameLength(const Operation& op, const std::vector<Dim>& signal,
                const std::vector<Dim>& window) {
  using Op = nn::StftOp;
  if (const auto given = ConstantInts(op, Op::kFrameLength)) return given->front();
  return window.empty() ? signal[1] : window[0];
}

std::string RefuseStft(const Operation& op) {
  using Op = nn::StftOp;
  if (std::string why = NeedConstants<Op::kFrameStep, Op::kFrameLength>(op); !why.empty()) {
    return why;
  }
  Fits fits(op);
  const std::vector<Dim> signal = fits.Dims(Op::kSignal), window = fits.Dims(Op::kWindow);
  if (!signal[2].is_constant()) return "the parts of numbers are not known";
  const Dim n = FrameLength(op, signal, window);
  if (fits.Has(Op::kWindow)) fits.Same(window[0], n);
  if (!fits.why().empty()) return fits.why();
  const std::string why = FourierTransforms::Refusal(n);
  return why.empty() ? NeedSizes(op) : why;
}

void WriteStft(const WholeTensorEmitter& w) {
  using Op = nn::StftOp;
  const Scalars s(w.e);
  const std::vector<Dim> signal = w.Dims(Op::kSignal), to = w.ResultDims(0);
  const std::vector<Dim> window = w.Has(Op::kWindow) ? w.Dims(Op::kWindow) : std::vector<Dim>();
  const Dim n = FrameLength(*w.op, signal, window);
  const int64_t step = ConstantInts(*w.op, Op::kFrameStep)->front();
  ExpectLength(w, n, 1);
  const auto source = [&](const Dim& line, const Dim& t) -> Complex {
    const Place frame = w.e.space().Unflatten(line, {to[0], to[1]});
    const auto part = [&](int64_t i) {
      const Value x = w.Operand(Op::kSignal, {frame[0], frame[1] * step + t, i});
      if (window.empty()) return s.Cast(x, kWide);
      return s.Mul(s.Cast(x, kWide), s.Cast(w.Operand(Op::kWindow, {t}), kWide));
    };
    return {part(0), signal[2].IsConstant(2) ? part(1) : s.Number(kWide, 0.0)};
  };
  const auto sink = [&](const Dim& line, const std::function<Complex(const Dim& k)>& result) {
    w.e.For(to[2], false, [&](const Dim& k) {
      const Complex y = result(k);
      const Dim at = (line * to[2] + k) * 2;
      w.e.Store(w.memory[0], at, s.Cast(y.real, w.Element(0)));
      w.e.Store(w.memory[0], at + 1, s.Cast(y.imaginary, w.Element(0)));
    });
  };
  FourierTransforms(w, to[0] * to[1], n, -1).Write(source, sink);
}

// ---- windows ----

// a - b cos(2 pi i / n) + d cos(4 pi i / n); a symmetric window of one element is 1.
template <class OpT>
Value Cosines(const ElementOf& c, double a, double b, double d) {
  const Scalars s(c.e);
  const auto number = [&](double value) { return s.Number(kWide, value); };
  const bool periodic = OpT(c.op).periodic();
  const Dim size = c.ResultDims()[0];
  const Value period = s.Sub(s.Number(kWide, size), number(periodic ? 0 : 1));
  const Value turn = s.Mul(number(2 * std::numbers::pi), s.Number(kWide, c.at[0]));
  const Value angle = s.Div(turn, s.Max(period, number(1)));
  Value y = s.Sub(number(a), s.Mul(number(b), Cos(c.e, angle)));
  if (d != 0) y = s.Add(y, s.Mul(number(d), Cos(c.e, s.Mul(number(2), angle))));
  y = s.Select(s.Less(number(0), period), y, number(1));
  return s.Cast(y, c.Element());
}

Value Blackman(const ElementOf& c) { return Cosines<nn::BlackmanWindowOp>(c, 0.42, 0.5, 0.08); }
Value Hann(const ElementOf& c) { return Cosines<nn::HannWindowOp>(c, 0.5, 0.5, 0); }
Value Hamming(const ElementOf& c) {
  return Cosines<nn::HammingWindowOp>(c, 25.0 / 46.0, 21.0 / 46.0, 0);
}

constexpr Compute kSignalComputes[] = {
    {nn::kBlackmanWindow, Blackman},
    {nn::kDft, nullptr, RefuseDft, nullptr, WriteDft},
    {nn::kHammingWindow, Hamming},
    {nn::kHannWindow, Hann},
    {nn::kStft, nullptr, RefuseStft, nullptr, WriteStft},
};

}  // namespace

bool SaysExtentOfDft(const Operation& op, size_t axis) {
  if (!NeedConstants<nn::DftOp::kAxis>(op).empty()) return false;
  const Dft dft(op);
  return axis == dft.axis && IsAsLongAsTold(dft);
}

std::span<const Compute> SignalComputes() { return kSignalComputes; }

}  // namespace lathe::lower
