#include "lathe/dialect/nn/signal.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/image.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Fourier transforms and what windows they see their signals through, in f64.
namespace lathe::lower {
namespace {

Value Cos(Elements& e, Value x) { return nn::CosOp::Create(e.lb().b(), x).y(); }
Value Sin(Elements& e, Value x) { return nn::SinOp::Create(e.lb().b(), x).y(); }

struct Complex {
  Value real, imaginary;
};

// out[k] = sum over t of exp(sign 2 pi i k t / n) in[t] for many lines of n elements. The length is
// an odd number times 2^levels: of each residue modulo 2^levels the transform of odd length is
// taken by its definition, then pairs become one (Cooley and Tukey, 1965). All is kept in tables of
// n real parts and n imaginary ones.
class Transforms {
 public:
  using Source = std::function<Complex(const Dim& line, const Dim& t)>;
  using Sink = std::function<void(const Dim& line, const std::function<Complex(const Dim& k)>&)>;

  Transforms(const WholeTensorEmitter& w, const Dim& lines, const Dim& n, int sign)
      : w_(w), e_(w.e), s_(w.e), lines_(lines), n_(n), sign_(sign) {}

  void Write(const Source& from, const Sink& to) {
    MakeRoots();
    FindFactors();
    const bool is_much = WholeTensorEmitter::IsWorthParallelizing(lines_ * n_);
    constexpr int64_t kParts = 32;  // of the lines; each has a place for one
    const Dim parts = is_much ? Min(lines_, kParts) : Dim(1);
    work_ = e_.Scratch(kWide, parts * n_ * 4);
    e_.For(parts, is_much, [&](const Dim& part) {
      const Dim count = is_much ? CeilDiv(lines_ - part, kParts) : lines_;
      base_ = part * n_ * 4;
      e_.For(count, false, [&](const Dim& round) {
        const Dim line = is_much ? round * kParts + part : round;
        w_.ForLanes(n_, [&](const Dim& t) { Store(1, t, from(line, t)); });
        OddTransforms();
        const Dim last = Merge();
        to(line, [&](const Dim& k) { return Load(last, k); });
      });
    });
  }

 private:
  Dim At(const Dim& table, const Dim& i) const { return base_ + table * n_ * 2 + i; }
  Complex Load(const Dim& table, const Dim& i) {
    return {e_.LoadFrom(work_, At(table, i)), e_.LoadFrom(work_, At(table, i) + n_)};
  }
  void Store(const Dim& table, const Dim& i, const Complex& x) {
    e_.Store(work_, At(table, i), x.real);
    e_.Store(work_, At(table, i) + n_, x.imaginary);
  }
  Complex Root(const Dim& i) { return {e_.LoadFrom(roots_, i), e_.LoadFrom(roots_, n_ + i)}; }
  Complex Add(const Complex& x, const Complex& y) const {
    return {s_.Add(x.real, y.real), s_.Add(x.imaginary, y.imaginary)};
  }
  Complex Sub(const Complex& x, const Complex& y) const {
    return {s_.Sub(x.real, y.real), s_.Sub(x.imaginary, y.imaginary)};
  }
  Complex Mul(const Complex& x, const Complex& y) const {
    return {s_.Sub(s_.Mul(x.real, y.real), s_.Mul(x.imaginary, y.imaginary)),
            s_.Add(s_.Mul(x.real, y.imaginary), s_.Mul(x.imaginary, y.real))};
  }

  void MakeRoots() {
    roots_ = e_.Scratch(kWide, n_ * 2);
    w_.ForLanes(n_, [&](const Dim& i) {
      const Value turn =
          s_.Mul(s_.Number(kWide, sign_ * 2 * std::numbers::pi), s_.Number(kWide, i));
      const Value angle = s_.Div(turn, s_.Number(kWide, n_));
      e_.Store(roots_, i, Cos(e_, angle));
      e_.Store(roots_, n_ + i, Sin(e_, angle));
    });
  }

  void FindFactors() {
    if (n_.is_constant()) {
      int64_t rest = n_.value();
      for (const int64_t factor : {2, 3, 5, 7}) {
        for (; rest % factor == 0; rest /= factor) factors_.push_back(factor);
      }
      odd_ = rest;
      residues_ = n_.value() / rest;
      return;
    }
    constexpr int64_t kMostLevels = 62;
    const Value two = e_.lb().Int(2), one = e_.lb().Int(1);
    const std::vector<Value> found = e_.For(
        kMostLevels, {e_.Int(n_), e_.lb().Int(0), one},
        [&](const Dim&, std::span<const Value> before) {
          const Value half = s_.Div(before[0], two);
          const Value even = s_.Equal(s_.Add(half, half), before[0]);
          const Value step = s_.Cast(even, ElementType::kI64);
          return std::vector<Value>{s_.Select(even, half, before[0]), s_.Add(before[1], step),
                                    s_.Select(even, s_.Add(before[2], before[2]), before[2])};
        });
    odd_ = e_.Loaded(found[0], n_ + 1);
    levels_ = e_.Loaded(found[1], kMostLevels + 1);
    residues_ = e_.Loaded(found[2], n_ + 1);
  }

  // From table 1, elements in order, to table 0: transform k of residue j at j odd + k.
  void OddTransforms() {
    e_.For(residues_, false, [&](const Dim& j) {
      e_.For(odd_, false, [&](const Dim& k) {
        if (odd_.IsConstant(1)) return Store(0, j, Load(1, j));
        const Value none = s_.Number(kWide, 0.0);
        const auto next = [&](const Dim& t, std::span<const Value> sum) {
          const Dim turn = e_.Loaded(e_.Int(Mod(k * t, odd_)), odd_);
          const Complex product = Mul(Root(turn * residues_), Load(1, t * residues_ + j));
          const Complex both = Add({sum[0], sum[1]}, product);
          return std::vector<Value>{both.real, both.imaginary};
        };
        const std::vector<Value> sum = e_.For(odd_, {none, none}, next);
        Store(0, j * odd_ + k, {sum[0], sum[1]});
      });
    });
  }

  // Of residues j and j + pairs: the transforms are `half` long, and become one of twice that.
  void MergePairs(const Dim& pairs, const Dim& half, const Dim& from, const Dim& to) {
    e_.For(pairs, false, [&](const Dim& j) {
      w_.ForLanes(half, [&](const Dim& k) {
        const Complex even = Load(from, j * half + k);
        const Complex odd = Mul(Root(k * pairs), Load(from, (j + pairs) * half + k));
        Store(to, j * half * 2 + k, Add(even, odd));
        Store(to, j * half * 2 + half + k, Sub(even, odd));
      });
    });
  }

  // The same of residues j, j + groups, j + 2 groups and so on, from the other table.
  void MergeGroups(int64_t factor, const Dim& groups, const Dim& part, const Dim& to) {
    e_.For(groups, false, [&](const Dim& j) {
      w_.ForLanes(part, [&](const Dim& k) {
        std::vector<Complex> x{Load(1 - to, j * part + k)};
        for (int64_t i = 1; i < factor; ++i) {
          const Complex turn = Root(k * groups * i);
          x.push_back(Mul(turn, Load(1 - to, (j + groups * i) * part + k)));
        }
        for (int64_t q = 0; q < factor; ++q) {
          Complex sum = x[0];
          for (int64_t i = 1; i < factor; ++i) {
            const double angle = sign_ * 2 * std::numbers::pi *
                                 static_cast<double>(i * q % factor) / static_cast<double>(factor);
            const Complex turn{s_.Number(kWide, std::cos(angle)),
                               s_.Number(kWide, std::sin(angle))};
            sum = Add(sum, Mul(turn, x[static_cast<size_t>(i)]));
          }
          Store(to, j * part * factor + part * q + k, sum);
        }
      });
    });
  }

  // The table in which the transform is in the end.
  Dim Merge() {
    if (n_.is_constant()) {
      Dim groups = residues_, half = odd_, from = 0;
      for (const int64_t factor : factors_) {
        groups = FloorDiv(groups, factor);
        if (factor == 2) {
          MergePairs(groups, half, from, 1 - from);
        } else {
          MergeGroups(factor, groups, half, 1 - from);
        }
        half = half * factor;
        from = 1 - from;
      }
      return from;
    }
    const Value zero = e_.lb().Int(0), one = e_.lb().Int(1), two = e_.lb().Int(2);
    const std::vector<Value> last =
        e_.For(levels_, {e_.Int(residues_), e_.Int(odd_), zero},
               [&](const Dim&, std::span<const Value> before) {
                 const Value pairs = s_.Div(before[0], two), to = s_.Sub(one, before[2]);
                 MergePairs(e_.Loaded(pairs, n_ + 1), e_.Loaded(before[1], n_ + 1),
                            e_.Loaded(before[2], 2), e_.Loaded(to, 2));
                 return std::vector<Value>{pairs, s_.Add(before[1], before[1]), to};
               });
    return e_.Loaded(last[2], 2);
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Dim lines_, n_, odd_, levels_, residues_, base_;
  std::vector<int64_t> factors_;  // of a length that is known
  int sign_;
  Value roots_, work_;
};

// A length of none is told at run time; others that the evaluation refuses are left to it.
std::string RefuseLength(const Dim& n) {
  constexpr int64_t kLongest = int64_t{1} << 26, kLargestFactor = int64_t{1} << 15;
  if (!n.is_constant()) return "";
  const int64_t length = n.value();
  if (length < 1 || length > kLongest) return "it has no such length";
  return length >> std::countr_zero(static_cast<uint64_t>(length)) > kLargestFactor
             ? "its length has a large odd factor"
             : "";
}

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
  const std::string why = RefuseLength(n);
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
  Transforms(w, lines, n, dft.op.inverse() ? 1 : -1).Write(source, sink);
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
  const std::string why = RefuseLength(n);
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
  Transforms(w, to[0] * to[1], n, -1).Write(source, sink);
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
