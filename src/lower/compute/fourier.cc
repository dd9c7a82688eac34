#include "src/lower/compute/fourier.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/elementwise_unary.h"
#include "src/lower/compute/scalars.h"

// A length is an odd number times 2^levels: of each residue modulo 2^levels the transform of odd
// length is taken by its definition, then pairs become one (Cooley and Tukey, 1965). Where the odd
// number is large, the transform is a convolution with a chirp, and so two transforms of a power of
// two (Bluestein, A linear filtering approach to the computation of discrete Fourier transform,
// 1970).
namespace lathe::lower {
namespace {

constexpr int64_t kMostLevels = 62;
constexpr int64_t kMostOdd = 16;                      // that is transformed by definition
constexpr int64_t kLongest = int64_t{1} << 26;        // lengths
constexpr int64_t kLongestChirp = int64_t{1} << 23;   // of those that are known
constexpr int64_t kLargestFactor = int64_t{1} << 15;  // of longer ones

// Arithmetic of complex numbers.
class ComplexNumbers {
 public:
  explicit ComplexNumbers(Elements& e) : s_(e), e_(e) {}

  const Scalars& scalars() const { return s_; }
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
  Complex Conjugate(const Complex& x) const { return {x.real, s_.Sub(Number(0), x.imaginary)}; }
  Complex Zero() const { return {Number(0), Number(0)}; }
  Complex Turn(double angle) const { return {Number(std::cos(angle)), Number(std::sin(angle))}; }
  // e^(i angle)
  Complex Turn(Value angle) const {
    Builder& b = e_.lb().b();
    return {nn::CosOp::Create(b, angle).y(), nn::SinOp::Create(b, angle).y()};
  }
  Value Number(double x) const { return s_.Number(kWide, x); }
  Value Number(const Dim& x) const { return s_.Number(kWide, x); }

  // Tables of real parts, and of imaginary ones so many places behind them.
  Complex Load(Value table, const Dim& at, const Dim& apart) const {
    return {e_.LoadFrom(table, at), e_.LoadFrom(table, at + apart)};
  }
  void Store(Value table, const Dim& at, const Dim& apart, const Complex& x) const {
    e_.Store(table, at, x.real);
    e_.Store(table, at + apart, x.imaginary);
  }

 private:
  Scalars s_;
  Elements& e_;
};

// The transform of one line: from table 1 of its memory, elements in order, to table 0 or 1. A
// table holds n real parts and n imaginary ones.
class Transform {
 public:
  Transform(const WholeTensorEmitter& w, const Dim& n, int sign)
      : w_(w), e_(w.e), c_(w.e), s_(c_.scalars()), n_(n), sign_(sign) {}

  // Outside of loops.
  void Define() {
    roots_ = e_.Scratch(kWide, n_ * 2);
    FindFactors();
  }
  // Of a length of at most `most`, which is two to the power of `levels`.
  void DefineAsPower(const Dim& most, const Dim& levels) {
    roots_ = e_.Scratch(kWide, most * 2);
    odd_ = 1;
    residues_ = n_;
    levels_ = levels;
  }
  // Before all lines.
  void Prepare() {
    w_.ForLanes(n_, [&](const Dim& i) {
      const Value turn = s_.Mul(c_.Number(sign_ * 2 * std::numbers::pi), c_.Number(i));
      c_.Store(roots_, i, n_, c_.Turn(s_.Div(turn, c_.Number(n_))));
    });
  }
  const Dim& odd() const { return odd_; }

  // Where the memory of a line begins.
  void SetMemory(Value work, const Dim& base) { work_ = work, base_ = base; }
  Complex Load(const Dim& table, const Dim& i) const { return c_.Load(work_, At(table, i), n_); }
  void Store(const Dim& table, const Dim& i, const Complex& x) const {
    c_.Store(work_, At(table, i), n_, x);
  }
  // The table in which the transform is in the end.
  Dim Write() {
    OddTransforms();
    return Merge();
  }

 private:
  Dim At(const Dim& table, const Dim& i) const { return base_ + table * n_ * 2 + i; }
  Complex Root(const Dim& i) const { return c_.Load(roots_, i, n_); }

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

  // To table 0: transform k of residue j at j odd + k.
  void OddTransforms() {
    if (odd_.IsConstant(1)) {
      return w_.ForLanes(residues_, [&](const Dim& j) { Store(0, j, Load(1, j)); });
    }
    e_.For(residues_, false, [&](const Dim& j) {
      e_.For(odd_, false, [&](const Dim& k) {
        const auto next = [&](const Dim& t, std::span<const Value> sum) {
          const Dim turn = e_.Loaded(e_.Int(Mod(k * t, odd_)), odd_);
          const Complex product = c_.Mul(Root(turn * residues_), Load(1, t * residues_ + j));
          const Complex both = c_.Add({sum[0], sum[1]}, product);
          return std::vector<Value>{both.real, both.imaginary};
        };
        const Complex none = c_.Zero();
        const std::vector<Value> sum = e_.For(odd_, {none.real, none.imaginary}, next);
        Store(0, j * odd_ + k, {sum[0], sum[1]});
      });
    });
  }

  // Of residues j and j + pairs: the transforms are `half` long, and become one of twice that.
  void MergePairs(const Dim& pairs, const Dim& half, const Dim& from, const Dim& to) {
    e_.For(pairs, false, [&](const Dim& j) {
      w_.ForLanes(half, [&](const Dim& k) {
        const Complex even = Load(from, j * half + k);
        const Complex odd = c_.Mul(Root(k * pairs), Load(from, (j + pairs) * half + k));
        Store(to, j * half * 2 + k, c_.Add(even, odd));
        Store(to, j * half * 2 + half + k, c_.Sub(even, odd));
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
          x.push_back(c_.Mul(turn, Load(1 - to, (j + groups * i) * part + k)));
        }
        for (int64_t q = 0; q < factor; ++q) {
          Complex sum = x[0];
          for (int64_t i = 1; i < factor; ++i) {
            const double angle = sign_ * 2 * std::numbers::pi *
                                 static_cast<double>(i * q % factor) / static_cast<double>(factor);
            sum = c_.Add(sum, c_.Mul(c_.Turn(angle), x[static_cast<size_t>(i)]));
          }
          Store(to, j * part * factor + part * q + k, sum);
        }
      });
    });
  }

  Dim Merge() { return levels_.is_unknown() ? MergeFactors() : MergeLevels(); }

  Dim MergeFactors() {
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

  Dim MergeLevels() {
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
  ComplexNumbers c_;
  const Scalars& s_;
  Dim n_, odd_, residues_, base_;
  Dim levels_;                    // of a length that is open
  std::vector<int64_t> factors_;  // of another one
  int sign_;
  Value roots_, work_;
};

// The same by transforms of a power of two: with c[t] = exp(sign pi i t^2 / n), out[k] is c[k]
// times the convolution of c[t] in[t] with the conjugate of c, whose spectrum is taken once.
class ChirpTransform {
 public:
  ChirpTransform(const WholeTensorEmitter& w, const Dim& n, int sign)
      : w_(w), e_(w.e), c_(w.e), s_(c_.scalars()), n_(n), sign_(sign) {}

  // Of the power of two, which is at least 2 n - 1.
  Dim MostLength() const {
    if (!n_.is_constant()) return n_ * 4;
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n_.value() - 1)));
  }
  void Define() {
    if (n_.is_constant()) {
      length_ = MostLength();
      power_.emplace(w_, length_, -1).Define();
    } else {
      const Value one = e_.lb().Int(1), least = e_.Int(n_ * 2 - 1);
      const std::vector<Value> found = e_.For(
          kMostLevels, {one, e_.lb().Int(0)}, [&](const Dim&, std::span<const Value> before) {
            const Value grows = s_.Less(before[0], least);
            const Value twice = s_.Add(before[0], before[0]);
            const Value step = s_.Cast(grows, ElementType::kI64);
            return std::vector<Value>{s_.Select(grows, twice, before[0]), s_.Add(before[1], step)};
          });
      length_ = e_.Loaded(found[0], MostLength() + 1);
      power_.emplace(w_, length_, -1)
          .DefineAsPower(MostLength(), e_.Loaded(found[1], kMostLevels + 1));
    }
    chirp_ = e_.Scratch(kWide, n_ * 2);
    spectrum_ = e_.Scratch(kWide, MostLength() * 2);
  }
  void Prepare(Value work) {
    power_->Prepare();
    power_->SetMemory(work, 0);
    // t^2 modulo 2 n, or so: an angle may be some turns more.
    w_.ForLanes(n_, [&](const Dim& t) {
      const Value square = s_.Mul(c_.Number(t), c_.Number(t)), period = c_.Number(n_ * 2);
      const Value turns = s_.Floor(s_.Div(square, period));
      const Value rest = s_.Sub(square, s_.Mul(turns, period));
      const Value turn = s_.Mul(c_.Number(sign_ * std::numbers::pi), rest);
      c_.Store(chirp_, t, n_, c_.Turn(s_.Div(turn, c_.Number(n_))));
    });
    w_.ForLanes(n_, [&](const Dim& t) { power_->Store(1, t, c_.Conjugate(Chirp(t))); });
    FillWithZeros();
    w_.ForLanes(n_ - 1, [&](const Dim& t) {
      power_->Store(1, length_ - 1 - t, c_.Conjugate(Chirp(t + 1)));
    });
    const Dim last = power_->Write();
    const Value factor = s_.Div(c_.Number(1), c_.Number(length_));
    w_.ForLanes(length_, [&](const Dim& k) {
      const Complex x = power_->Load(last, k);
      c_.Store(spectrum_, k, length_, {s_.Mul(x.real, factor), s_.Mul(x.imaginary, factor)});
    });
  }

  void SetMemory(Value work, const Dim& base) { power_->SetMemory(work, base); }
  void Store(const Dim& t, const Complex& x) { power_->Store(1, t, c_.Mul(Chirp(t), x)); }
  // Transforms there and, of conjugates, back.
  Dim Write() {
    FillWithZeros();
    const Dim there = power_->Write();
    w_.ForLanes(length_, [&](const Dim& k) {
      const Complex product = c_.Mul(power_->Load(there, k), c_.Load(spectrum_, k, length_));
      power_->Store(1, k, c_.Conjugate(product));
    });
    return power_->Write();
  }
  Complex Load(const Dim& table, const Dim& k) const {
    return c_.Mul(Chirp(k), c_.Conjugate(power_->Load(table, k)));
  }

 private:
  Complex Chirp(const Dim& t) const { return c_.Load(chirp_, t, n_); }
  // Behind the line.
  void FillWithZeros() {
    const Dim rest = length_ - n_;
    w_.ForLanes(rest.is_constant() ? rest : e_.Loaded(e_.Int(rest), MostLength()),
                [&](const Dim& t) { power_->Store(1, n_ + t, c_.Zero()); });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  ComplexNumbers c_;
  const Scalars& s_;
  Dim n_, length_;
  std::optional<Transform> power_;
  Value chirp_, spectrum_;
  int sign_;
};

}  // namespace

std::string FourierTransforms::Refusal(const Dim& n) {
  if (!n.is_constant()) return "";
  const int64_t length = n.value();
  if (length < 1 || length > kLongest) return "it has no such length";
  const int64_t odd = length >> std::countr_zero(static_cast<uint64_t>(length));
  return odd > kLargestFactor && length > kLongestChirp ? "its length has a large odd factor" : "";
}

void FourierTransforms::Write(const Source& from, const Sink& to) {
  Elements& e = w_.e;
  Transform plain(w_, n_, sign_);
  ChirpTransform chirp(w_, n_, sign_);
  plain.Define();
  const Dim odd = plain.odd();
  const bool is_long = n_.is_constant() && n_.value() > kLongestChirp;
  const Dim by_chirp = odd.is_constant() ? Dim(odd.value() > kMostOdd && !is_long ? 1 : 0)
                                         : e.Loaded(e.Int(Min(Max(odd - kMostOdd, 0), 1)), 2);
  const auto when = [&](const Dim& condition, const std::function<void()>& write) {
    if (condition.IsConstant(1)) return write();
    if (!condition.IsConstant(0)) e.For(condition, false, [&](const Dim&) { write(); });
  };
  const bool may_chirp = !by_chirp.IsConstant(0);
  if (may_chirp) chirp.Define();
  const bool is_much = WholeTensorEmitter::IsWorthParallelizing(lines_ * n_);
  constexpr int64_t kParts = 32;  // of the lines; each has a place for one
  const Dim parts = is_much ? Min(lines_, kParts) : Dim(1);
  const Dim place = (may_chirp ? chirp.MostLength() : n_) * 4;
  const Value work = e.Scratch(kWide, (may_chirp ? Max(parts, 1) : parts) * place);
  when(1 - by_chirp, [&] { plain.Prepare(); });
  when(by_chirp, [&] { chirp.Prepare(work); });
  e.For(parts, is_much, [&](const Dim& part) {
    const Dim count = is_much ? CeilDiv(lines_ - part, kParts) : lines_;
    e.For(count, false, [&](const Dim& round) {
      const Dim line = is_much ? round * kParts + part : round;
      const auto write = [&](auto& transform, const auto& store) {
        transform.SetMemory(work, part * place);
        w_.ForLanes(n_, [&](const Dim& t) { store(t, from(line, t)); });
        const Dim last = transform.Write();
        to(line, [&](const Dim& k) { return transform.Load(last, k); });
      };
      when(1 - by_chirp,
           [&] { write(plain, [&](const Dim& t, const Complex& x) { plain.Store(1, t, x); }); });
      when(by_chirp,
           [&] { write(chirp, [&](const Dim& t, const Complex& x) { chirp.Store(t, x); }); });
    });
  });
}

}  // namespace lathe::lower
