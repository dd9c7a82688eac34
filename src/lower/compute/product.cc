#include <algorithm>

#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/features.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/matmul_nbits.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/dialect/nn/einsum.h"
#include "src/dialect/nn/rounded_rows.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/fits.h"
#include "src/lower/compute/scalars.h"

// Products of any shapes and element types, an element at a time, where no strategy takes them, and
// what else matrices are asked for.
namespace lathe::lower {
namespace {

/// The axes of a matrix operand that are rows and columns, whichever way it lies; a vector is a row
/// on the left and a column on the right.
struct Matrix {
  std::vector<Dim> batch;
  Dim rows = 1, columns = 1;
  bool is_left, is_vector, transposed;

  Matrix(const std::vector<Dim>& dims, bool left, bool turned)
      : is_left(left), is_vector(dims.size() < 2), transposed(turned) {
    if (is_vector) {
      (is_left ? columns : rows) = dims[0];
      return;
    }
    batch.assign(dims.begin(), dims.end() - 2);
    rows = dims[dims.size() - (turned ? 1 : 2)];
    columns = dims[dims.size() - (turned ? 2 : 1)];
  }

  /// Where the operand has that element; `of_batch`: the place in the stack of results.
  Place At(const Place& of_batch, const std::vector<Dim>& whole, const Dim& row,
           const Dim& column) const {
    if (is_vector) return {is_left ? column : row};
    Place at = BroadcastPlace(of_batch, batch, whole);
    at.push_back(transposed ? column : row);
    at.push_back(transposed ? row : column);
    return at;
  }
};

Matrix LeftOf(const Operation& product, const std::vector<Dim>& dims) {
  return {dims, true, nn::MatmulOp(&product).transpose_x()};
}

Matrix RightOf(const Operation& product, const std::vector<Dim>& dims) {
  return {dims, false, nn::MatmulOp(&product).transpose_y()};
}

Value MatrixProduct(const ElementOf& c) {
  const Scalars s(c.e);
  const Matrix a = LeftOf(*c.op, c.Dims(0)), b = RightOf(*c.op, c.Dims(1));
  const std::vector<Dim> y = c.ResultDims();
  const size_t matrix = (a.is_vector ? 0U : 1U) + (b.is_vector ? 0U : 1U);
  const auto batches = static_cast<std::ptrdiff_t>(y.size() - matrix);
  const std::vector<Dim> whole(y.begin(), y.begin() + batches);
  const Place batch(c.at.begin(), c.at.begin() + batches);
  const Dim row = a.is_vector ? Dim(0) : c.at[static_cast<size_t>(batches)];
  const Dim column = b.is_vector ? Dim(0) : c.at.back();
  const ElementType type = SumType(c.Element());
  const Value sum = c.e.Reduce({a.columns}, s.Number(type, 0.0), [&](const Place& k, Value so_far) {
    const Value x = s.Cast(c.Operand(0, a.At(batch, whole, row, k[0])), type);
    const Value z = s.Cast(c.Operand(1, b.At(batch, whole, k[0], column)), type);
    return s.Add(so_far, s.Mul(x, z));
  });
  return s.Cast(sum, c.Element());
}

Value Binarized(const ElementOf& c) {
  const Scalars s(c.e);
  const nn::BinarizerOp op(c.op);
  const Value x = s.Cast(c.Operand(0, c.at), ElementType::kF64);
  const Value above = s.Less(s.Number(ElementType::kF64, op.threshold()), x);
  return s.Cast(above, c.Element());
}

Value Shrunk(const ElementOf& c) {
  const Scalars s(c.e);
  const nn::ShrinkOp op(c.op);
  const auto wide = [&](double v) { return s.Number(ElementType::kF64, v); };
  const Value x = s.Cast(c.Operand(0, c.at), ElementType::kF64);
  const double limit = op.lambd();
  const Value above = s.Select(s.Less(wide(limit), x), s.Sub(x, wide(op.bias())), wide(0));
  const Value y = s.Select(s.Less(x, wide(-limit)), s.Add(x, wide(op.bias())), above);
  // A double next to the greatest one may be beyond it.
  return BitWidth(c.Element()) == 64 ? SaturatedCast(c.e.lb(), y, c.Element())
                                     : s.Cast(y, c.Element());
}

std::string RefuseFloats(const Operation& op) {
  return IsFloat(TensorOf(op.result(0)).element()) ? "it has a simpler form" : "";
}

// The places are the same for all rows of x.
Value Extracted(const ElementOf& c) {
  using Op = nn::ArrayFeatureExtractorOp;
  const std::vector<Dim> x = c.Dims(Op::kX), y = c.Dims(Op::kY);
  const Place picked = c.e.space().Unflatten(c.at.back(), y);
  Place place(c.at.begin(), c.at.end() - 1);
  if (x.size() == 1) place.clear();
  place.push_back(IndexAt(c, Op::kY, picked, x.back()));
  return c.Operand(Op::kX, place);
}

std::vector<IndexUse> PlacesExtracted(const ElementOf& c) {
  using Op = nn::ArrayFeatureExtractorOp;
  const std::vector<Dim> x = c.Dims(Op::kX);
  const Dim extent = x.back();
  const auto from_front = [extent](Elements& e, Value number) {
    const Scalars s(e);
    return s.Select(s.Less(number, e.lb().Int(0)), s.Sub(number, e.Int(extent)), number);
  };
  return {{Op::kY, x.size() - 1, extent, {}, from_front}};
}

// That the depths are equal is a condition on the sizes of each run.
std::string RefuseProduct(const Operation& op) {
  const Dim left = LeftOf(op, DimsOf(op.operand(0))).columns;
  const Dim right = RightOf(op, DimsOf(op.operand(1))).rows;
  return left.is_unknown() || right.is_unknown() ? "a depth is not known" : "";
}

// ---- matmul_nbits ----

using NbitsOp = nn::MatmulNbitsOp;

NbitsOp NbitsOf(const Operation* op) { return NbitsOp(op); }

// Number i of a row of bytes.
Value PackedNumber(const ElementOf& c, size_t operand, Place row, const Dim& i) {
  const Scalars s(c.e);
  constexpr ElementType kInteger = ElementType::kI32;
  const bool halves = NbitsOf(c.op).bits() == 4;
  row.push_back(halves ? c.e.space().Div(i, 2) : i);
  Value number = s.Cast(c.Operand(operand, row), kInteger);
  if (!halves) return number;
  Builder& b = c.e.lb().b();
  const Value places = s.Number(kInteger, c.e.space().Mod(i, 2) * 4);
  number = nn::BitShiftOp::Create(b, number, places, {.direction = "RIGHT"}).z();
  return nn::BitwiseAndOp::Create(b, number, s.Number(kInteger, 15.0)).c();
}

Value ZeroOfBlock(const ElementOf& c, const Dim& block, ElementType type) {
  const Scalars s(c.e);
  const auto middle = static_cast<double>(int64_t{1} << (NbitsOf(c.op).bits() - 1));
  if (!c.Has(NbitsOp::kZeroPoints)) return s.Number(type, middle);
  const Value zeros = c.op->operand(NbitsOp::kZeroPoints);
  const Dim& n = c.at.back();
  if (TensorOf(zeros).element() != ElementType::kU8) {
    return s.Cast(c.Operand(NbitsOp::kZeroPoints, {n, block}), type);
  }
  return s.Cast(PackedNumber(c, NbitsOp::kZeroPoints, {n}, block), type);
}

Value NbitsProduct(const ElementOf& c) {
  const Scalars s(c.e);
  const ElementType type = SumType(c.Element());
  const int64_t block_size = NbitsOf(c.op).block_size();
  const Value sum =
      c.e.Reduce({Dim(NbitsOf(c.op).K())}, s.Number(type, 0.0), [&](const Place& k, Value so_far) {
        const Dim& n = c.at.back();
        const auto [block, inner] = c.e.space().Divide(k[0], block_size);
        Place row(c.at.begin(), c.at.end() - 1);
        row.push_back(k[0]);
        const Value x = s.Cast(c.Operand(NbitsOp::kA, row), type);
        const Value q = s.Cast(PackedNumber(c, NbitsOp::kB, {n, block}, inner), type);
        const Value scale = s.Cast(c.Operand(NbitsOp::kScales, {n, block}), type);
        const Value weight = s.Mul(s.Sub(q, ZeroOfBlock(c, block, type)), scale);
        return s.Add(so_far, s.Mul(x, weight));
      });
  return s.Cast(sum, c.Element());
}

std::string RefuseNbits(const Operation& op) {
  const NbitsOp nbits = NbitsOf(&op);
  if (nn::HasRoundedRows(nbits)) return "rows are rounded first";
  Fits fits(op);
  fits.Same(fits.Dims(NbitsOp::kA).back(), nbits.K());
  const Dim rows = nbits.N(), blocks = CeilDiv(Dim(nbits.K()), nbits.block_size());
  fits.Is(NbitsOp::kB, {rows, blocks, nbits.block_size() * nbits.bits() / 8});
  fits.Is(NbitsOp::kScales, {rows, blocks});
  if (!fits.Has(NbitsOp::kZeroPoints)) return fits.why();
  const bool is_packed = TensorOf(op.operand(NbitsOp::kZeroPoints)).element() == ElementType::kU8;
  const Dim across = is_packed ? CeilDiv(blocks * nbits.bits(), 8) : blocks;
  return fits.Is(NbitsOp::kZeroPoints, {rows, across}).why();
}

// ---- det ----

// Matrices of n rows in a memory of their own, row-major. Elimination with row exchanges.
class Elimination {
 public:
  Elimination(const WholeTensorEmitter& w, Value memory, const Dim& first, const Dim& n)
      : w_(w), e_(w.e), s_(w.e), memory_(memory), first_(first), n_(n) {}

  Value Determinant() {
    const Value one = s_.Number(kWide, 1.0), none = s_.Number(kWide, 0.0);
    // A pivot of 0 ends it, whatever is computed behind it.
    const auto next = [&](const Dim& k, std::span<const Value> before) {
      const Value best = LargestFrom(k);
      const Value stays = s_.Equal(best, e_.Int(k));
      Exchange(k, e_.Loaded(best, n_));
      const Value pivot = Load(k, k);
      const Value done = s_.Or(s_.Equal(before[1], one), s_.Equal(pivot, none));
      const Value turned = s_.Select(stays, pivot, s_.Sub(none, pivot));
      Eliminate(k, pivot);
      return std::vector<Value>{s_.Select(done, none, s_.Mul(before[0], turned)),
                                s_.Select(done, one, none)};
    };
    return e_.For(n_, {one, none}, next)[0];
  }

 private:
  Dim At(const Dim& row, const Dim& column) const { return first_ + row * n_ + column; }
  Value Load(const Dim& row, const Dim& column) { return e_.LoadFrom(memory_, At(row, column)); }

  Value LargestFrom(const Dim& k) {
    return e_.For(n_ - k, {s_.Abs(Load(k, k)), e_.Int(k)},
                  [&](const Dim& i, std::span<const Value> before) {
                    const Value size = s_.Abs(Load(k + i, k));
                    const Value better = s_.Less(before[0], size);
                    return std::vector<Value>{s_.Select(better, size, before[0]),
                                              s_.Select(better, e_.Int(k + i), before[1])};
                  })[1];
  }

  void Exchange(const Dim& k, const Dim& row) {
    e_.For(n_, false, [&](const Dim& column) {
      const Value x = Load(k, column), y = Load(row, column);
      e_.Store(memory_, At(k, column), y);
      e_.Store(memory_, At(row, column), x);
    });
  }

  void Eliminate(const Dim& k, Value pivot) {
    e_.For(n_ - 1 - k, false, [&](const Dim& i) {
      const Dim row = k + 1 + i;
      const Value factor = s_.Div(Load(row, k), pivot);
      w_.ForLanes(n_, [&](const Dim& column) {
        const Value less = s_.Sub(Load(row, column), s_.Mul(factor, Load(k, column)));
        e_.Store(memory_, At(row, column), less);
      });
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  Value memory_;
  Dim first_, n_;
};

void WriteDeterminants(const WholeTensorEmitter& w) {
  const Scalars s(w.e);
  const std::vector<Dim> dims = w.Dims(0), batch = w.ResultDims(0);
  const Dim n = dims.back();
  const Dim count = ProductOf(batch);
  const Value memory = w.e.Scratch(kWide, count * n * n);
  w.e.For(count, WholeTensorEmitter::IsWorthParallelizing(count * n * n), [&](const Dim& number) {
    const Place of_batch = w.e.space().Unflatten(number, batch);
    w.e.For(n, false, [&](const Dim& row) {
      w.ForLanes(n, [&](const Dim& column) {
        Place at = of_batch;
        at.push_back(row);
        at.push_back(column);
        const Value x = s.Cast(w.Operand(0, at), kWide);
        w.e.Store(memory, (number * n + row) * n + column, x);
      });
    });
    const Value det = Elimination(w, memory, number * n * n, n).Determinant();
    w.e.Store(w.memory[0], number, s.Cast(det, w.Element(0)));
  });
}

std::string RefuseDeterminant(const Operation& op) {
  const std::vector<Dim> dims = DimsOf(op.operand(0));
  const std::string why = Fits(op).Same(dims[dims.size() - 2], dims.back()).why();
  return why.empty() ? NeedSizes(op) : why;
}

// ---- einsum ----

nn::EinsumPlan EinsumOf(const Operation& op, const std::function<std::vector<Dim>(Value v)>& dims) {
  std::vector<SymShape> shapes;
  for (size_t i = 0; i < op.num_operands(); ++i) shapes.emplace_back(dims(op.operand(i)));
  return nn::EinsumPlan::Of(nn::EinsumOp(&op).equation(), shapes);
}

Value Contracted(const ElementOf& c) {
  const Scalars s(c.e);
  const nn::EinsumPlan plan = EinsumOf(*c.op, [&](Value v) { return c.e.Dims(v); });
  const auto index = [&](int label, const Place& sum) {
    const auto of = [label](const std::vector<int>& labels) {
      return static_cast<size_t>(std::ranges::find(labels, label) - labels.begin());
    };
    const size_t at = of(plan.result);
    return at < plan.result.size() ? c.at[at] : sum[of(plan.summed)];
  };
  std::vector<Dim> extents;
  for (const int label : plan.summed) extents.push_back(plan.ExtentOf(label));
  const ElementType type = SumType(c.Element());
  const Value sum = c.e.Reduce(extents, s.Number(type, 0.0), [&](const Place& at, Value so_far) {
    Value product;
    for (size_t i = 0; i < plan.operands.size(); ++i) {
      const std::vector<Dim> dims = c.Dims(i);
      Place place;
      for (size_t d = 0; d < dims.size(); ++d) {
        const Dim extent = plan.ExtentOf(plan.operands[i][d]);
        const Place own = BroadcastPlace({index(plan.operands[i][d], at)}, {dims[d]}, {extent});
        place.push_back(own[0]);
      }
      const Value x = s.Cast(c.Operand(i, place), type);
      product = product ? s.Mul(product, x) : x;
    }
    return s.Add(so_far, product);
  });
  return s.Cast(sum, c.Element());
}

constexpr Compute kProductComputes[] = {
    {nn::kArrayFeatureExtractor, Extracted, nullptr, PlacesExtracted},
    {nn::kBinarizer, Binarized},
    {nn::kDet, nullptr, RefuseDeterminant, nullptr, WriteDeterminants},
    {nn::kEinsum, Contracted, nullptr, nullptr, nullptr, true},
    {nn::kShrink, Shrunk, RefuseFloats},
    {nn::kMatmul, MatrixProduct, RefuseProduct, nullptr, nullptr, true},
    {nn::kMatmulNbits, NbitsProduct, RefuseNbits, nullptr, nullptr, true},
};

}  // namespace

std::span<const Compute> ProductComputes() { return kProductComputes; }

}  // namespace lathe::lower
