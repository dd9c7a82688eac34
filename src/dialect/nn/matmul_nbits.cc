#include "lathe/dialect/nn/matmul_nbits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/divide.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/product.h"
#include "src/dialect/nn/rounded_rows.h"
#include "src/dialect/nn/term.h"

namespace lathe::nn {
namespace {

bool IsPacked(ElementType zero_points) { return zero_points == ElementType::kU8; }

// How the weights lie.
struct Layout {
  int64_t rows, depth, bits, block;

  explicit Layout(const MatmulNbitsOp& op)
      : rows(op.N()), depth(op.K()), bits(op.bits()), block(op.block_size()) {}

  int64_t blocks() const { return CeilDiv(depth, block); }
  int64_t block_bytes() const { return block * bits / 8; }
  int64_t zero_bytes() const { return CeilDiv(blocks() * bits, int64_t{8}); }
  Shape ShapeOfBytes() const { return {rows, blocks(), block_bytes()}; }
  Shape ShapeOfScales() const { return {rows, blocks()}; }
  Shape ShapeOfZeros(ElementType type) const {
    return {rows, IsPacked(type) ? zero_bytes() : blocks()};
  }
};

Layout CheckedLayout(const MatmulNbitsOp& op) {
  const Layout w(op);
  if (w.bits != 4 && w.bits != 8) {
    eval::FailArgument("attribute/bits", StrCat("weights of ", w.bits, " bits"), "4 or 8");
  }
  constexpr int64_t kMost = int64_t{1} << 40;
  if (std::max({w.rows, w.depth, w.block}) > kMost) {
    eval::FailArgument("attribute/size", "'N', 'K' or 'block_size' is too large");
  }
  if (w.block * w.bits % 8 != 0) {
    eval::FailArgument("attribute/block-size",
                       StrCat("a block of ", w.block, " weights ends within a byte"),
                       "block_size is even where bits is 4");
  }
  return w;
}

void CheckShape(const SymShape& shape, const Shape& dims, const char* what) {
  if (!shape.ranked) return;
  const SymShape expected = SymShape::FromConstants(dims);
  const auto message = [&] {
    return StrCat(what, " of shape ", shape.ToString(), " is not ", expected.ToString());
  };
  if (shape.rank() != dims.size()) eval::FailShape("shape/matmul-nbits", message());
  for (size_t a = 0; a < dims.size(); ++a) {
    Assume(SizeCondition::Equal(shape.dims[a], dims[a]), "shape/matmul-nbits", message);
  }
}

SymShape ResultShape(SymShape a, const Layout& w) {
  if (!a.ranked) return a;
  if (a.rank() == 0) eval::FailShape("shape/matmul-nbits", "the left operand is a scalar");
  Assume(SizeCondition::Equal(a.dims.back(), w.depth), "shape/matmul-nbits", [&] {
    return StrCat("the left operand ", a.ToString(), " does not have rows of ", w.depth);
  });
  a.dims.back() = w.rows;
  return a;
}

// Number i of a row of bytes.
double NumberAt(const uint8_t* bytes, int64_t i, int64_t bits) {
  if (bits == 8) return bytes[i];
  return (bytes[i / 2] >> (i % 2 * 4)) & 15;
}

// For each block of each row.
std::vector<double> ZerosOf(const EvalContext& c, const Layout& w) {
  using Op = MatmulNbitsOp;
  const double middle = static_cast<double>(int64_t{1} << (w.bits - 1));
  std::vector<double> zeros(static_cast<size_t>(w.rows * w.blocks()), middle);
  if (!c.HasInput(Op::kZeroPoints)) return zeros;
  const Tensor& given = c.input(Op::kZeroPoints);
  if (!IsPacked(given.element_type())) return ToDoubles(given);
  const uint8_t* bytes = given.data<uint8_t>().data();
  for (int64_t i = 0; i < std::ssize(zeros); ++i) {
    const uint8_t* row = bytes + i / w.blocks() * w.zero_bytes();
    zeros[static_cast<size_t>(i)] = NumberAt(row, i % w.blocks(), w.bits);
  }
  return zeros;
}

// [N, K] in f64.
Tensor WeightsOf(const EvalContext& c, const Layout& w) {
  using Op = MatmulNbitsOp;
  const std::vector<double> scales = ToDoubles(c.input(Op::kScales)), zeros = ZerosOf(c, w);
  Tensor weights(ElementType::kF64, {w.rows, w.depth});
  double* to = weights.mutable_data<double>().data();
  const uint8_t* bytes = c.input(Op::kB).data<uint8_t>().data();
  const int64_t row_bytes = w.blocks() * w.block_bytes();
  for (int64_t n = 0; n < w.rows; ++n) {
    for (int64_t k = 0; k < w.depth; ++k) {
      const auto at = static_cast<size_t>(n * w.blocks() + k / w.block);
      *to++ = (NumberAt(bytes + n * row_bytes, k, w.bits) - zeros[at]) * scales[at];
    }
  }
  return weights;
}

void RoundBlock(std::span<double> block) {
  float size = 0;
  bool is_finite = true;
  for (const double x : block) {
    is_finite = is_finite && std::isfinite(static_cast<float>(x));
    size = std::max(size, std::abs(static_cast<float>(x)));
  }
  const auto most = static_cast<float>(kMostOfByte), least = static_cast<float>(kLeastRounded);
  const float scale = is_finite ? size / most : std::numeric_limits<float>::quiet_NaN();
  const float factor = is_finite && size > least ? most / size : 0;
  for (double& x : block) x = std::nearbyint(static_cast<float>(x) * factor) * double{scale};
}

Tensor RoundedRows(const Tensor& a, const Layout& w) {
  std::vector<double> numbers = ToDoubles(a);
  const auto depth = static_cast<size_t>(w.depth), block = static_cast<size_t>(w.block);
  for (std::span<double> row(numbers); !row.empty(); row = row.subspan(depth)) {
    for (size_t k = 0; k < depth; k += block)
      RoundBlock(row.subspan(k, std::min(block, depth - k)));
  }
  return Tensor::Of<double>(a.shape(), numbers);
}

}  // namespace

void MatmulNbitsOp::InferShape(InferShapeContext& c) {
  const Layout w = CheckedLayout(MatmulNbitsOp(c.op()));
  CheckShape(c.shape(kB), w.ShapeOfBytes(), "b");
  CheckShape(c.shape(kScales), w.ShapeOfScales(), "scales");
  if (c.HasInput(kZeroPoints)) {
    CheckShape(c.shape(kZeroPoints), w.ShapeOfZeros(c.element(kZeroPoints)), "zero_points");
  }
  c.SetShape(kY, ResultShape(c.shape(kA), w));
}

void MatmulNbitsOp::Eval(EvalContext& c) {
  const Layout w = CheckedLayout(MatmulNbitsOp(c.op()));
  const auto shape = [&](size_t i) { return SymShape::FromConstants(c.input(i).shape()); };
  CheckShape(shape(kB), w.ShapeOfBytes(), "b");
  CheckShape(shape(kScales), w.ShapeOfScales(), "scales");
  if (c.HasInput(kZeroPoints)) {
    const ElementType type = c.input(kZeroPoints).element_type();
    CheckShape(shape(kZeroPoints), w.ShapeOfZeros(type), "zero_points");
  }
  static_cast<void>(ResultShape(shape(kA), w));
  const ElementType type = c.input(kA).element_type();
  const Tensor& a = c.input(kA);
  const bool is_rounded = HasRoundedRows(MatmulNbitsOp(c.op()));
  c.SetOutput(kY, Product(is_rounded ? RoundedRows(a, w) : a, WeightsOf(c, w), false, true, type));
}

Dim MatmulNbitsOp::Flops(Operation* o) {
  const MatmulNbitsOp op(o);
  return 2 * op.K() * ShapeOf(op.y()).NumElements();
}

namespace {

using Ints = std::vector<int64_t>;

// The formula of the operation, in its own type.
class Formula {
 public:
  Formula(Builder& b, const MatmulNbitsOp& op) : b_(b), op_(op), w_(op) {}

  Value Product() {
    const ElementType type = TypeOf(op_.a()).element();
    const Term numbers = As(Unpacked(op_.b(), {w_.rows, w_.blocks(), w_.block}), type);
    const Term weights = (numbers - Zeros(numbers)) * Blocks(op_.scales());
    Term flat = Reshaped(weights, {w_.rows, w_.blocks() * w_.block});
    if (w_.blocks() * w_.block != w_.depth) flat = First(flat, w_.depth);
    const auto perm = b_.Named("perm", b_.Attr(std::span<const int64_t>(Ints{1, 0})));
    const Term a = HasRoundedRows(op_) ? As(Rounded(), type) : Term(b_, op_.a());
    return a.Call(nn::kMatmul, {flat.Call(nn::kTranspose, {}, {perm})});
  }

 private:
  static AnyTensorType TypeOf(Value v) { return v.type().cast<AnyTensorType>(); }
  Value Constant(const Ints& values) {
    const Tensor list = Tensor::Of<int64_t>({std::ssize(values)}, values);
    return builtin::ConstantOp::Create(b_, {.value = list}).result();
  }
  Term Reshaped(const Term& x, const Ints& shape) {
    return x.Call(nn::kReshape, {Constant(shape)});
  }
  Term Blocks(Value x) { return Reshaped(Term(b_, x), {w_.rows, w_.blocks(), 1}); }
  // Of each row.
  Term First(const Term& rows, int64_t count) {
    return rows.Call(nn::kSlice, {Constant({0}), Constant({count}), Constant({1})});
  }
  // What RoundedRows gives; its gradient is that of what is not rounded.
  Term Rounded() {
    const Term a = As(Term(b_, op_.a()), ElementType::kF32);
    const int64_t behind = w_.blocks() * w_.block - w_.depth;
    Term padded = a;
    if (behind > 0) {
      padded = a.Call(nn::kPad, {Constant({0, behind}), a.Number(0), Constant({-1})});
    }
    const Term x = Reshaped(padded, {-1, w_.blocks(), w_.block});
    const Term size = Reduced(Abs(x), nn::kReduceMax, {-1});
    const Term checked = size + Reduced(x * 0.0, nn::kReduceSum, {-1});  // NaN if one is not finite
    const double infinity = std::numeric_limits<double>::infinity();
    const Term is_large = size.Call(nn::kGreater, {size.Number(kLeastRounded)});
    const Term is_finite = checked.Call(nn::kLess, {checked.Number(infinity)});
    const Term factor =
        Where(is_large.Call(nn::kAnd, {is_finite}), kMostOfByte / size, size.Number(0));
    const Term numbers = (x * factor).Call(nn::kRound) * (checked / kMostOfByte);
    Term rows = Reshaped(numbers, {-1, w_.blocks() * w_.block});
    if (behind > 0) rows = First(rows, w_.depth);
    const Term rounded = rows.Call(nn::kReshape, {a.Call(nn::kShape)});
    return a + (rounded - a).Call(nn::kBlockGradient);
  }
  Term Unpacked(Value bytes, const Ints& shape) {
    const Term all(b_, bytes);
    if (w_.bits == 8) return all;
    const Term low = all.Call(nn::kBitwiseAnd, {all.Number(15)});
    const Term high = all.Call(nn::kBitShift, {all.Number(4)},
                               {b_.Named("direction", b_.Attr(std::string_view("RIGHT")))});
    const auto last = [&](const Term& x) { return x.Call(nn::kUnsqueeze, {Constant({-1})}); };
    const Value pairs =
        last(low).Call(nn::kConcat, {last(high)}, {b_.Named("axis", b_.Attr(int64_t{-1}))});
    return Reshaped(Term(b_, pairs), shape);
  }
  Term Zeros(const Term& numbers) {
    const Value zeros = op_.zero_points();
    if (!zeros || zeros.type().isa<NoneType>()) {
      return numbers.Number(static_cast<double>(int64_t{1} << (w_.bits - 1)));
    }
    if (!IsPacked(TypeOf(zeros).element())) return As(Blocks(zeros), numbers.element());
    const int64_t across = w_.zero_bytes() * 8 / w_.bits;
    Term rows = Unpacked(zeros, {w_.rows, across});
    if (across != w_.blocks()) rows = First(rows, w_.blocks());
    return As(Blocks(rows), numbers.element());
  }

  Builder& b_;
  MatmulNbitsOp op_;
  Layout w_;
};

}  // namespace

std::vector<Value> MatmulNbitsOp::Decompose(Operation* o, Builder& b) {
  return {Formula(b, MatmulNbitsOp(o)).Product()};
}

}  // namespace lathe::nn
