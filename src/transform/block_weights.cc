#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/matmul_nbits.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/divide.h"
#include "src/dialect/nn/term.h"
#include "src/transform/conv_constants.h"

namespace lathe {

namespace {

/// The weights of a product in the file's own form: a matrix, and what unpacks it along one axis.
struct Unpacking {
  nn::DequantizeLinearOp op;
  Tensor integers, scales;
  Tensor zeros = {};        // undefined: none
  bool by_columns = false;  // the integers are [N, K], not [K, N]
};

/// As nn.matmul_nbits has them.
struct Packed {
  int64_t columns, depth, bits, block;
  int64_t blocks() const { return CeilDiv(depth, block); }
  int64_t zero_bytes() const { return CeilDiv(blocks() * bits, int64_t{8}); }
};

bool IsTurned(const Operation* op) {
  const auto perm = nn::TransposeOp(op).perm();
  return perm.value_or(std::vector<int64_t>{1, 0}) == std::vector<int64_t>{1, 0};
}

// What is added to integers of this type so that none is negative.
int ShiftOf(ElementType e) { return e == ElementType::kI4 ? 8 : e == ElementType::kI8 ? 128 : 0; }

std::vector<uint8_t> Unsigned(const Tensor& integers) {
  const int shift = ShiftOf(integers.element_type());
  const bool is_signed = shift != 0;
  const Tensor bytes = Cast(integers, is_signed ? ElementType::kI8 : ElementType::kU8);
  std::vector<uint8_t> numbers(static_cast<size_t>(bytes.num_elements()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<uint8_t>(is_signed ? bytes.data<int8_t>()[i] + shift
                                                : bytes.data<uint8_t>()[i]);
  }
  return numbers;
}

// Number i of a row.
void SetNumber(uint8_t* row, int64_t i, int64_t bits, uint8_t number) {
  if (bits == 8) {
    row[i] = number;
  } else {
    row[i / 2] = static_cast<uint8_t>(row[i / 2] | (number << (i % 2 * 4)));
  }
}

}  // namespace

/// Products by constant weights that a dequantize_linear unpacks become nn.matmul_nbits.
class BlockWeightsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> products;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      if (op->isa<nn::MatmulOp>() || op->isa<nn::GemmOp>()) products.push_back(op);
    }
    for (Operation* op : products) {
      if (Rewrite(op)) Count("products");
    }
  }

 private:
  const Tensor* ConstantOf(Value v) const { return ConstantValue(rewriter_->program(), v); }

  bool Rewrite(Operation* op) {
    const auto turned = IsPlain(op);
    if (!turned) return false;
    const auto w = UnpackingOf(op->operand(1), *turned);
    const auto form = w ? FormOf(*w) : std::nullopt;
    if (!form || TensorOrNull(op->result(0)).element() != w->scales.element_type()) return false;
    rewriter_->Applied(op, "its weights are integers by blocks");
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    rewriter_->ReplaceOp(op, Product(op, *w, *form));
    return true;
  }

  // Whether the right matrix is transposed; nothing of products with more to them.
  static std::optional<bool> IsPlain(const Operation* o) {
    auto* op = const_cast<Operation*>(o);
    const AnyTensorType x = TensorOrNull(op->operand(0));
    if (!x || !x.has_rank() || x.rank() == 0) return std::nullopt;
    if (op->isa<nn::MatmulOp>()) {
      const nn::MatmulOp matmul(op);
      return matmul.transpose_x() ? std::nullopt : std::optional(matmul.transpose_y());
    }
    const nn::GemmOp gemm(op);
    const bool is_plain = !gemm.transA() && gemm.alpha() == 1 && gemm.beta() == 1;
    return is_plain ? std::optional(gemm.transB()) : std::nullopt;
  }

  std::optional<Unpacking> UnpackingOf(Value v, bool by_columns) const {
    Operation* op = v.defining_op();
    if (op != nullptr && op->isa<nn::TransposeOp>() && IsTurned(op)) {
      by_columns = !by_columns;
      op = op->operand(0).defining_op();
    }
    if (op == nullptr || !op->isa<nn::DequantizeLinearOp>()) return std::nullopt;
    const nn::DequantizeLinearOp dequantize(op);
    const Tensor *integers = ConstantOf(dequantize.x()), *scales = ConstantOf(dequantize.x_scale());
    if (integers == nullptr || scales == nullptr) return std::nullopt;
    if (integers->rank() != 2 || integers->num_elements() == 0) return std::nullopt;
    Unpacking w{dequantize, *integers, *scales, {}, by_columns};
    const Value zeros = dequantize.x_zero_point();
    if (!zeros || zeros.type().isa<NoneType>()) return w;
    const Tensor* known = ConstantOf(zeros);
    if (known == nullptr) return std::nullopt;
    w.zeros = *known;
    return w;
  }

  // Nothing where nn.matmul_nbits has no form for it.
  static std::optional<Packed> FormOf(const Unpacking& w) {
    const ElementType type = w.integers.element_type();
    const bool halves = type == ElementType::kI4 || type == ElementType::kU4;
    const bool bytes = type == ElementType::kI8 || type == ElementType::kU8;
    const ElementType scale = w.scales.element_type();
    const bool is_real =
        scale == ElementType::kF32 || scale == ElementType::kF16 || scale == ElementType::kBF16;
    if ((!halves && !bytes) || !is_real || w.op.output_dtype().value_or(scale) != scale) {
      return std::nullopt;
    }
    const size_t along = w.by_columns ? 1 : 0;  // the depth
    const int64_t axis = w.op.axis() < 0 ? w.op.axis() + 2 : w.op.axis();
    Packed p{w.integers.dim(1 - along), w.integers.dim(along), halves ? 4 : 8, w.op.block_size()};
    const bool is_one = w.scales.num_elements() == 1 && w.scales.rank() < 2;
    const bool is_whole = p.block == 0 && (is_one || axis != static_cast<int64_t>(along));
    if (is_whole || (axis == static_cast<int64_t>(along) && p.block >= p.depth)) {
      p.block = RoundUp(p.depth, 8 / p.bits);
    } else if (p.block == 0 || axis != static_cast<int64_t>(along) || p.block * p.bits % 8 != 0) {
      return std::nullopt;
    }
    return p;
  }

  Value Product(Operation* op, const Unpacking& w, const Packed& p) {
    const std::string base = ParameterBase(w.op.x(), "matmul.w");
    const Value b = rewriter_->Parameter(base, Bytes(w, p));
    const Value scales = rewriter_->Parameter(StrCat(base, ".scales"), Scales(w, p));
    const std::optional<Tensor> given = Zeros(w, p);
    const Value zeros = given ? rewriter_->Parameter(StrCat(base, ".zeros"), *given) : Value();
    const nn::Term y(*rewriter_,
                     nn::MatmulNbitsOp::Create(
                         *rewriter_, op->operand(0), b, scales, zeros,
                         {.K = p.depth, .N = p.columns, .bits = p.bits, .block_size = p.block})
                         .y());
    const Value addend = op->isa<nn::GemmOp>() ? nn::GemmOp(op).c() : Value();
    return addend && !addend.type().isa<NoneType>() ? y + nn::Term(*rewriter_, addend) : y;
  }

  // [N, blocks, bytes of a block]
  static Tensor Bytes(const Unpacking& w, const Packed& p) {
    const std::vector<uint8_t> numbers = Unsigned(w.integers);
    const int64_t row_bytes = p.blocks() * p.block * p.bits / 8;
    Tensor bytes(ElementType::kU8, {p.columns, p.blocks(), p.block * p.bits / 8});
    uint8_t* to = bytes.mutable_data<uint8_t>().data();
    std::fill_n(to, p.columns * row_bytes, uint8_t{0});
    for (int64_t n = 0; n < p.columns; ++n) {
      for (int64_t k = 0; k < p.depth; ++k) {
        const int64_t at = w.by_columns ? n * p.depth + k : k * p.columns + n;
        SetNumber(to + n * row_bytes, k, p.bits, numbers[static_cast<size_t>(at)]);
      }
    }
    return bytes;
  }

  // Where the scale or zero point of a block lies.
  static size_t PlaceOf(const Unpacking& w, const Packed& p, int64_t column, int64_t block) {
    if (w.scales.num_elements() == 1) return 0;
    if (w.scales.rank() < 2) return static_cast<size_t>(column);
    return static_cast<size_t>(w.by_columns ? column * p.blocks() + block
                                            : block * p.columns + column);
  }

  static Tensor Scales(const Unpacking& w, const Packed& p) {
    const std::vector<double> given = ToDoubles(w.scales);
    std::vector<double> scales;
    for (int64_t n = 0; n < p.columns; ++n) {
      for (int64_t i = 0; i < p.blocks(); ++i) scales.push_back(given[PlaceOf(w, p, n, i)]);
    }
    return Cast(Tensor::Of<double>({p.columns, p.blocks()}, scales), w.scales.element_type());
  }

  // Nothing where all of them are the middle of the range.
  static std::optional<Tensor> Zeros(const Unpacking& w, const Packed& p) {
    const auto shift = static_cast<uint8_t>(ShiftOf(w.integers.element_type()));
    std::vector<uint8_t> given(static_cast<size_t>(w.scales.num_elements()), shift);
    if (w.zeros.is_defined()) given = Unsigned(w.zeros);
    const uint8_t middle = p.bits == 4 ? 8 : 128;
    if (std::ranges::all_of(given, [&](uint8_t z) { return z == middle; })) return std::nullopt;
    Tensor zeros(ElementType::kU8, {p.columns, p.zero_bytes()});
    uint8_t* to = zeros.mutable_data<uint8_t>().data();
    std::fill_n(to, zeros.num_elements(), uint8_t{0});
    for (int64_t n = 0; n < p.columns; ++n) {
      for (int64_t i = 0; i < p.blocks(); ++i) {
        SetNumber(to + n * p.zero_bytes(), i, p.bits, given[PlaceOf(w, p, n, i)]);
      }
    }
    return zeros;
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(block_weights, BlockWeightsPass)
    .Doc("makes nn.matmul_nbits of products by constant integers that a dequantize_linear unpacks")
    .Details(
        "Weights of 4 and 8 bits, with a scale for all, for each column or for each block along "
        "the depth, and zero points or none, stay as small as they are: kernels unpack them in "
        "registers.");

}  // namespace lathe
