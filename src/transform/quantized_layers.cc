#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/term.h"
#include "src/transform/conv_constants.h"

namespace lathe {

namespace {

using nn::Term;
using Numbers = std::vector<double>;  // integers, too: all of them are exact

constexpr double kSignBit = 128;         // what makes signed bytes unsigned ones
constexpr int64_t kFilterMultiple = 16;  // of a group, where there are several
constexpr int64_t kLeastChannels = 4;

bool IsByte(ElementType e) { return e == ElementType::kI8 || e == ElementType::kU8; }
double ShiftOf(ElementType e) { return e == ElementType::kI8 ? kSignBit : 0; }

// Entry i of one for all or one for each.
double At(const Numbers& numbers, size_t i) { return numbers[numbers.size() == 1 ? 0 : i]; }

// What a dequantize_linear reads: integers, and one scale and zero point for all or for each index
// of an axis.
struct Quantized {
  Value integers;
  Numbers scale, zero;
  int64_t axis = 0;

  ElementType element() const { return TensorOrNull(integers).element(); }
};

// Weights as signed bytes: those of each result lie along `axis`.
struct Weights {
  Tensor bytes;
  Numbers zero;   // one or one for each result
  Numbers sums;   // of the bytes of each result
  Numbers sizes;  // the same of their absolute values

  int64_t results() const { return static_cast<int64_t>(sums.size()); }
  double depth() const { return static_cast<double>(bytes.num_elements() / results()); }
  bool is_centered() const {
    return std::ranges::all_of(zero, [](double z) { return z == 0; });
  }
  // Whether i32 holds all that is added up for any unsigned bytes, zero points and `bias` included.
  bool FitI32(const Numbers& bias) const {
    constexpr double kMost = 2147483647, kMostByte = 255;
    for (size_t i = 0; i < sums.size(); ++i) {
      const double products = 2 * kMostByte * (sizes[i] + depth() * std::abs(At(zero, i)));
      if (products + std::abs(At(bias, i)) > kMost) return false;
    }
    return true;
  }
};

// Whether there is one number for all or one for each of so many.
bool AreFor(const Numbers& numbers, int64_t results) {
  return numbers.size() == 1 || static_cast<int64_t>(numbers.size()) == results;
}

// Scales of which products and quotients are ordinary numbers of f32.
bool AreOrdinary(const Numbers& scales) {
  return std::ranges::all_of(scales, [](double s) { return s > 1e-30 && s < 1e30; });
}

// Bytes less 128 are signed; so are their zero points.
Weights SignedWeights(const Tensor& bytes, Numbers zero, size_t axis) {
  const double shift = bytes.element_type() == ElementType::kU8 ? kSignBit : 0;
  Numbers values = ToDoubles(bytes);
  const Numbers none(static_cast<size_t>(bytes.dim(axis)));
  Weights w{{}, std::move(zero), none, none};
  int64_t inner = 1;
  const Shape& shape = bytes.shape();
  for (size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] -= shift;
    const size_t result = i / static_cast<size_t>(inner) % w.sums.size();
    w.sums[result] += values[i];
    w.sizes[result] += std::abs(values[i]);
  }
  for (double& z : w.zero) z -= shift;
  w.bytes = Cast(Tensor::Of<double>(bytes.shape(), values), ElementType::kI8);
  return w;
}

// Filters as signed bytes, less their zero points where signed bytes hold that.
Weights SignedFilters(const Tensor& bytes, const Numbers& zero) {
  Weights w = SignedWeights(bytes, zero, 0);
  if (w.is_centered()) return w;
  Numbers values = ToDoubles(w.bytes);
  const size_t filter = values.size() / w.sums.size();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] -= At(w.zero, i / filter);
    if (values[i] < -kSignBit || values[i] >= kSignBit) return w;
  }
  const Tensor centered = Tensor::Of<double>(bytes.shape(), values);
  return SignedWeights(Cast(centered, ElementType::kI8), {0}, 0);
}

// One filter that sums up the windows that these go over.
Weights OnesLike(const Tensor& filters) {
  Shape shape = filters.shape();
  shape[0] = 1;
  const Numbers ones(static_cast<size_t>(filters.num_elements() / filters.dim(0)), 1);
  return SignedWeights(Cast(Tensor::Of<double>(shape, ones), ElementType::kI8), {0}, 0);
}

// A matrix of bytes, turned.
Tensor Turned(const Tensor& matrix) {
  const Numbers from = ToDoubles(matrix);
  const int64_t rows = matrix.dim(0), columns = matrix.dim(1);
  Numbers to(from.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[static_cast<size_t>(c * rows + r)] = from[static_cast<size_t>(r * columns + c)];
    }
  }
  return Cast(Tensor::Of<double>({columns, rows}, to), matrix.element_type());
}

// How the numbers that a layer gives become integers again.
struct Requantization {
  Operation* relu = nullptr;  // before
  Operation* quantize = nullptr;
  double scale = 1, zero = 0;
  ElementType type = ElementType::kUndefined;
};

}  // namespace

/// Convolutions and products of quantized tensors by quantized weights become products of unsigned
/// by signed bytes.
class QuantizedLayersPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> layers;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      if (IsLayer(op)) layers.push_back(op);
    }
    for (Operation* op : All<nn::QuantizeLinearOp, nn::DynamicQuantizeLinearOp>()) {
      QuantizeConstant(op);
    }
    for (Operation* op : Conversions()) MakeUnsigned(op);
    for (Operation* op : layers) {
      rewriter_->SetInsertionPoint(op);
      rewriter_->set_location(op->location());
      if (Rewrite(op)) Count("layers");
    }
    for (Operation* op : Conversions()) MakeParameters(op);
  }

 private:
  template <class... Ops>
  std::vector<Operation*> All() {
    std::vector<Operation*> ops;
    for (OpWalker w(rewriter_->program().module()); Operation* op = w.Next();) {
      if ((op->isa<Ops>() || ...)) ops.push_back(op);
    }
    return ops;
  }
  std::vector<Operation*> Conversions() {
    return All<nn::QuantizeLinearOp, nn::DequantizeLinearOp>();
  }

  // Some exporters leave weights in floats and quantize them in the program.
  void QuantizeConstant(Operation* op) {
    const std::vector<RtValue> results = Computed(op);
    if (results.empty()) return;
    rewriter_->Applied(op, "it quantizes a constant");
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    const std::string base = ParameterBase(op->operand(0), "quantized");
    for (size_t i = 0; i < results.size(); ++i) {
      const Tensor& tensor = results[i].tensor();
      const bool is_one = tensor.num_elements() == 1;
      rewriter_->ReplaceAllUses(
          op->result(i), is_one ? rewriter_->Constant(tensor) : rewriter_->Parameter(base, tensor));
    }
    rewriter_->Erase(op);
  }

  // What the operation gives if it is known here, through a few moves of constants; else nothing.
  std::vector<RtValue> Computed(Operation* op, int moves = 4) {
    std::vector<RtValue> inputs;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v || v.type().isa<NoneType>()) {
        inputs.emplace_back();
      } else if (const Tensor* constant = ConstantOf(v)) {
        inputs.emplace_back(*constant);
      } else {
        Operation* maker = v.defining_op();
        const bool is_moved =
            maker != nullptr && (maker->isa<nn::IdentityOp>() || maker->isa<nn::TransposeOp>());
        std::vector<RtValue> moved;
        if (is_moved && moves > 0) moved = Computed(maker, moves - 1);
        if (moved.empty()) return {};
        inputs.push_back(std::move(moved[0]));
      }
    }
    try {
      return EvalOp(op, inputs);
    } catch (const Error& error) {
      rewriter_->Missed(op, StrCat("cannot be computed ahead: ", error.message()));
      return {};  // the run reports it, if it gets there
    }
  }

  // As List says.
  void MakeParameters(Operation* op) {
    for (size_t i = 1; i < op->num_operands(); ++i) {
      const Operation* maker = op->operand(i) ? op->operand(i).defining_op() : nullptr;
      if (maker == nullptr || !maker->HasTrait<ConstantLike>()) continue;
      const Tensor* number = ConstantOf(op->operand(i));
      if (number == nullptr || number->num_elements() != 1) continue;
      rewriter_->SetInsertionPoint(op);
      rewriter_->SetOperand(op, i, rewriter_->Parameter("quantized", *number));
    }
  }

  static bool IsLayer(const Operation* op) {
    return op->isa<nn::ConvOp>() || op->isa<nn::ConvIntegerOp>() || op->isa<nn::QlinearConvOp>() ||
           op->isa<nn::MatmulOp>() || op->isa<nn::GemmOp>() || op->isa<nn::MatmulIntegerOp>() ||
           op->isa<nn::QlinearMatmulOp>();
  }

  bool Rewrite(Operation* op) {
    if (op->isa<nn::ConvOp>()) return RewriteConv(nn::ConvOp(op));
    if (op->isa<nn::ConvIntegerOp>()) return RewriteConvInteger(nn::ConvIntegerOp(op));
    if (op->isa<nn::QlinearConvOp>()) return RewriteQlinearConv(nn::QlinearConvOp(op));
    if (op->isa<nn::MatmulOp>()) return RewriteMatmul(nn::MatmulOp(op));
    if (op->isa<nn::GemmOp>()) return RewriteGemm(nn::GemmOp(op));
    if (op->isa<nn::QlinearMatmulOp>()) return RewriteQlinearMatmul(nn::QlinearMatmulOp(op));
    return RewriteMatmulInteger(nn::MatmulIntegerOp(op));
  }

  // ---- what is known ----

  const Tensor* ConstantOf(Value v) const {
    return v ? ConstantValue(rewriter_->program(), v) : nullptr;
  }
  // A scalar or list that is constant; of no value: zero.
  std::optional<Numbers> ListOf(Value v) const {
    if (!v || v.type().isa<NoneType>()) return Numbers{0};
    const Tensor* t = ConstantOf(v);
    if (t == nullptr || t->rank() > 1 || t->num_elements() == 0) return std::nullopt;
    return ToDoubles(*t);
  }
  std::optional<double> NumberOf(Value v) const {
    const auto list = ListOf(v);
    return list && list->size() == 1 ? std::optional((*list)[0]) : std::nullopt;
  }

  std::optional<Quantized> QuantizedOf(Value v) const {
    Operation* op = v ? v.defining_op() : nullptr;
    if (op == nullptr || !op->isa<nn::DequantizeLinearOp>()) return std::nullopt;
    const nn::DequantizeLinearOp dequantize(op);
    const bool is_plain =
        dequantize.block_size() == 0 && TensorOrNull(v).element() == ElementType::kF32;
    const auto scale = ListOf(dequantize.x_scale());
    const auto zero = ListOf(op->num_operands() > 2 ? op->operand(2) : Value());
    if (!is_plain || !scale || !zero || !TensorOrNull(dequantize.x()).has_rank())
      return std::nullopt;
    if (TensorOrNull(dequantize.x_scale()).element() != ElementType::kF32) return std::nullopt;
    const auto rank = static_cast<int64_t>(TensorOrNull(dequantize.x()).rank());
    const int64_t axis = dequantize.axis() < 0 ? dequantize.axis() + rank : dequantize.axis();
    return Quantized{dequantize.x(), *scale, *zero, axis};
  }
  // Of bytes, all by one scale.
  std::optional<Quantized> ActivationOf(Value v) const {
    auto q = QuantizedOf(v);
    const bool fits = q && q->scale.size() == 1 && q->zero.size() == 1 && IsByte(q->element());
    return fits ? q : std::nullopt;
  }
  // Whose scales and zero points are one for all, or go along `axis`.
  std::optional<Quantized> WeightsOf(Value v, int64_t axis) const {
    auto q = QuantizedOf(v);
    if (!q || !IsByte(q->element()) || ConstantOf(q->integers) == nullptr) return std::nullopt;
    const bool is_list = q->scale.size() > 1 || q->zero.size() > 1;
    return is_list && q->axis != axis ? std::nullopt : q;
  }

  // Whether the kernels of bytes take a convolution by weights of this shape.
  static bool HasKernel(const Tensor& w, int64_t group) {
    if (w.rank() < 3 || w.num_elements() == 0) return false;
    return group == 1 || (w.dim(0) / group % kFilterMultiple == 0 && w.dim(1) >= kLeastChannels);
  }

  // ---- what is written ----

  Term Cast(Value v, ElementType to) {
    if (TensorOrNull(v).element() == to) return {*rewriter_, v};
    return {*rewriter_, nn::CastOp::Create(*rewriter_, v, {.to = to}).output()};
  }
  // The same bytes and 128 more, where they are signed.
  Value Unsigned(Value v) {
    const bool is_signed = TensorOrNull(v).element() == ElementType::kI8;
    const Term bits = Cast(v, ElementType::kU8);
    return is_signed ? bits.Call(nn::kBitwiseXor, {bits.Number(kSignBit)}) : bits;
  }
  // A parameter: of layers that differ in such numbers alone the kernels are the same.
  Value List(const Numbers& numbers, ElementType type, size_t axes_behind = 0) {
    Shape shape{static_cast<int64_t>(numbers.size())};
    shape.insert(shape.end(), axes_behind, 1);
    if (numbers.size() == 1) shape = {};
    const Tensor exact = Tensor::Of<double>(shape, numbers);
    return rewriter_->Parameter("quantized", lathe::Cast(exact, type));
  }
  // Of one number that each of several is the same as, that number.
  static Numbers Merged(Numbers numbers) {
    const bool same = std::ranges::all_of(numbers, [&](double v) { return v == numbers[0]; });
    if (same) numbers.resize(1);
    return numbers;
  }

  // ---- convolutions ----

  // Whether ConvSums takes them: sums over windows, which zero points need, are of all channels.
  static bool FitConv(const Weights& w, int64_t group, const Numbers& bias) {
    return (w.is_centered() || group == 1) && w.FitI32(bias);
  }

  // sum of (x - zero) * (w - w.zero) and `bias`; `zero`, of unsigned bytes, is constant or a scalar
  // value.
  template <class OpT>
  Term ConvSums(OpT op, Value x, const Weights& w, std::optional<double> zero, Value zero_value,
                const Numbers& bias) {
    const Value padding = zero ? List({*zero}, ElementType::kU8) : zero_value;
    const auto products = [&](const Weights& by, const Numbers& start) -> Term {
      Numbers offset;
      for (size_t m = 0; m < by.sums.size(); ++m) {
        offset.push_back(zero ? At(start, m) - *zero * by.sums[m] : -by.sums[m]);
      }
      Value first = rewriter_->Parameter("conv.b", FromDoubles(ElementType::kI32, offset));
      if (!zero) first = Cast(padding, ElementType::kI32) * Term(*rewriter_, first);
      const Value bytes = rewriter_->Parameter(ParameterBase(op.w(), "conv.w"), by.bytes);
      const nn::ConvBytesOp::Attrs attributes{.kernel_shape = op.kernel_shape(),
                                              .strides = op.strides(),
                                              .pads = op.pads(),
                                              .dilations = op.dilations(),
                                              .auto_pad = std::string(op.auto_pad()),
                                              .group = op.group()};
      return {*rewriter_,
              nn::ConvBytesOp::Create(*rewriter_, x, bytes, first, padding, attributes).y()};
    };
    const Term sums = products(w, bias);
    if (w.is_centered()) return sums;
    const size_t axes_behind = w.bytes.shape().size() - 2;
    return sums - products(OnesLike(w.bytes), {0}) *
                      Term(*rewriter_, List(Merged(w.zero), ElementType::kI32, axes_behind));
  }

  bool RewriteConv(nn::ConvOp op) {
    const auto x = ActivationOf(op.x());
    const auto w = WeightsOf(op.w(), 0);
    if (!x || !w || op.layout().value_or("NCHW") != "NCHW") return false;
    const Tensor bytes = *ConstantOf(w->integers);
    if (!HasKernel(bytes, op.group())) return false;
    const Weights weights = SignedFilters(bytes, w->zero);
    const auto scale = ScalesOf(*x, *w, weights.results());
    const auto bias = BiasOf(op.b(), scale);
    if (!bias || !scale || !FitConv(weights, op.group(), bias->integers)) return false;
    rewriter_->Applied(op.operation(), "its input and weights are bytes");
    const double zero = x->zero[0] + ShiftOf(x->element());
    const Term sums = ConvSums(op, Unsigned(x->integers), weights, zero, {}, bias->integers);
    Finish(op.operation(), sums, *scale, bias->numbers, bytes.shape().size() - 2);
    return true;
  }

  bool RewriteConvInteger(nn::ConvIntegerOp op) {
    Operation* o = op.operation();
    const Tensor* w = ConstantOf(op.w());
    const auto w_zero = ListOf(op.w_zero_point());
    if (w == nullptr || !w_zero || !HasKernel(*w, op.group())) return false;
    if (!AreFor(*w_zero, w->dim(0))) return false;
    const Weights weights = SignedFilters(*w, *w_zero);
    if (!FitConv(weights, op.group(), {0})) return false;
    rewriter_->Applied(o, "its weights are bytes");
    const Value x_zero = op.x_zero_point();
    auto zero = NumberOf(x_zero);
    Value zero_value;
    if (zero) *zero += ShiftOf(TensorOrNull(op.x()).element());
    if (!zero) zero_value = AsScalar(Unsigned(x_zero));
    rewriter_->ReplaceOp(o, ConvSums(op, Unsigned(op.x()), weights, zero, zero_value, {0}));
    return true;
  }

  Value AsScalar(Value v) {
    if (TensorOrNull(v).has_rank() && TensorOrNull(v).rank() == 0) return v;
    const Value shape = rewriter_->Constant(Tensor::Of<int64_t>({0}, std::vector<int64_t>{}));
    return Term(*rewriter_, v).Call(nn::kReshape, {shape});
  }

  // What qlinear_conv and qlinear_matmul have at the same operands.
  struct Qlinear {
    Tensor weights;
    Numbers w_scale, w_zero;
    double x_zero = 0, y_zero = 0;
    double factor = 1;  // x_scale / y_scale
  };

  std::optional<Qlinear> QlinearOf(Operation* op) const {
    const Tensor* w = ConstantOf(op->operand(3));
    const auto w_scale = ListOf(op->operand(4)), w_zero = ListOf(op->operand(5));
    const auto x_scale = NumberOf(op->operand(1)), x_zero = NumberOf(op->operand(2)),
               y_scale = NumberOf(op->operand(6)), y_zero = NumberOf(op->operand(7));
    if (w == nullptr || !w_scale || !w_zero || !x_scale || !x_zero || !y_scale || !y_zero) {
      return std::nullopt;
    }
    const bool are_bytes = IsByte(TensorOrNull(op->operand(0)).element()) &&
                           IsByte(w->element_type()) &&
                           IsByte(TensorOrNull(op->result(0)).element());
    const bool fits = are_bytes && TensorOrNull(op->operand(1)).element() == ElementType::kF32 &&
                      AreOrdinary(*w_scale) && AreOrdinary({*x_scale, *y_scale});
    if (!fits) return std::nullopt;
    const double zero = *x_zero + ShiftOf(TensorOrNull(op->operand(0)).element());
    return Qlinear{*w, *w_scale, *w_zero, zero, *y_zero, *x_scale / *y_scale};
  }

  bool RewriteQlinearConv(nn::QlinearConvOp op) {
    const auto q = QlinearOf(op.operation());
    const auto bias = ListOf(op.b());
    if (!q || !bias || !HasKernel(q->weights, op.group())) return false;
    const int64_t filters = q->weights.dim(0);
    if (!AreFor(q->w_scale, filters) || !AreFor(q->w_zero, filters) || !AreFor(*bias, filters)) {
      return false;
    }
    const Weights weights = SignedFilters(q->weights, q->w_zero);
    if (!FitConv(weights, op.group(), *bias)) return false;
    rewriter_->Applied(op.operation(), "its weights are bytes");
    const Term sums = ConvSums(op, Unsigned(op.x()), weights, q->x_zero, {}, *bias);
    FinishQlinear(op.operation(), sums, *q, q->weights.shape().size() - 2);
    return true;
  }

  // What `op` gives: the product with the scales is rounded to f32 once.
  void FinishQlinear(Operation* op, const Term& sums, const Qlinear& q, size_t axes_behind) {
    Numbers scale = q.w_scale;
    for (double& s : scale) s *= q.factor;
    const Term exact = Cast(sums, ElementType::kF64) *
                       Term(*rewriter_, List(Merged(scale), ElementType::kF64, axes_behind));
    const Requantization to{nullptr, nullptr, 1, q.y_zero, TensorOrNull(op->result(0)).element()};
    rewriter_->ReplaceOp(op, Rounded(Cast(exact, ElementType::kF32), to));
  }

  // ---- products of matrices ----

  // sum of (a - zero) * (w - w.zero) and `bias`; a: unsigned bytes.
  Term ProductSums(Value a, const Weights& w, std::optional<double> zero, Value zero_value,
                   const Numbers& bias, std::string_view name) {
    const Value bytes = rewriter_->Parameter(name, w.bytes);
    Term sums(*rewriter_, nn::MatmulIntegerOp::Create(*rewriter_, a, bytes, {}, {}).y());
    if (!w.is_centered()) {
      const int64_t last = static_cast<int64_t>(TensorOrNull(a).rank()) - 1;
      const Term rows = nn::Reduced(Cast(a, ElementType::kI32), nn::kReduceSum, {last});
      sums = sums - rows * Term(*rewriter_, List(Merged(w.zero), ElementType::kI32));
    }
    Numbers offset;
    for (size_t n = 0; n < w.sums.size(); ++n) {
      const double factor = w.depth() * At(w.zero, n) - w.sums[n];
      offset.push_back(zero ? At(bias, n) + *zero * factor : factor);
    }
    const bool is_none = std::ranges::all_of(offset, [](double v) { return v == 0; });
    if (is_none) return sums;
    const Term start(*rewriter_, List(offset, ElementType::kI32));
    return sums + (zero ? start : Cast(zero_value, ElementType::kI32) * start);
  }

  bool RewriteMatmulInteger(nn::MatmulIntegerOp op) {
    Operation* o = op.operation();
    const Tensor* b = ConstantOf(op.b());
    const auto b_zero = ListOf(op.b_zero_point());
    const Value a_zero = op.a_zero_point();
    const bool has_zero = a_zero && !a_zero.type().isa<NoneType>();
    if (b == nullptr || b->rank() != 2 || b->num_elements() == 0 || !b_zero) return false;
    if (!TensorOrNull(op.a()).has_rank() || TensorOrNull(op.a()).rank() == 0) return false;
    if (!AreFor(*b_zero, b->dim(1)) || (has_zero && !HasOneElement(a_zero))) return false;
    const Weights weights = SignedWeights(*b, *b_zero, 1);
    if (!weights.FitI32({0})) return false;
    auto zero = has_zero ? NumberOf(a_zero) : std::optional(0.0);
    const bool is_plain = TensorOrNull(op.a()).element() == ElementType::kU8 && zero == 0 &&
                          b->element_type() == ElementType::kI8 && weights.is_centered();
    if (is_plain) return false;
    rewriter_->Applied(o, "its right matrix is of bytes");
    Value zero_value;
    if (zero) *zero += ShiftOf(TensorOrNull(op.a()).element());
    if (!zero) zero_value = Unsigned(a_zero);
    rewriter_->ReplaceOp(o, ProductSums(Unsigned(op.a()), weights, zero, zero_value, {0},
                                        ParameterBase(op.b(), "matmul.w")));
    return true;
  }

  bool RewriteQlinearMatmul(nn::QlinearMatmulOp op) {
    const auto q = QlinearOf(op.operation());
    const AnyTensorType a = TensorOrNull(op.a());
    if (!q || q->weights.rank() != 2 || q->weights.num_elements() == 0) return false;
    const int64_t columns = q->weights.dim(1);
    if (!AreFor(q->w_scale, columns) || !AreFor(q->w_zero, columns)) return false;
    const Weights weights = SignedWeights(q->weights, q->w_zero, 1);
    if (!a.has_rank() || a.rank() == 0 || !weights.FitI32({0})) return false;
    rewriter_->Applied(op.operation(), "its right matrix is of bytes");
    const Term sums = ProductSums(Unsigned(op.a()), weights, q->x_zero, {}, {0},
                                  ParameterBase(op.b(), "matmul.w"));
    FinishQlinear(op.operation(), sums, *q, 0);
    return true;
  }

  static bool HasOneElement(Value v) {
    const AnyTensorType type = TensorOrNull(v);
    return type.has_rank() &&
           std::ranges::all_of(type.dims(), [](const Dim& d) { return d.IsConstant(1); });
  }

  bool RewriteMatmul(nn::MatmulOp op) {
    if (op.transpose_x()) return false;
    return RewriteProduct(op.operation(), op.transpose_y(), {});
  }

  bool RewriteGemm(nn::GemmOp op) {
    if (op.transA() || op.alpha() != 1 || op.beta() != 1) return false;
    return RewriteProduct(op.operation(), op.transB(), op.c());
  }

  bool RewriteProduct(Operation* op, bool turned, Value bias_value) {
    const auto x = ActivationOf(op->operand(0));
    Value right = op->operand(1);
    if (IsTransposedMatrix(right)) {
      turned = !turned;
      right = right.defining_op()->operand(0);
    }
    const auto w = WeightsOf(right, turned ? 0 : 1);
    if (!x || !w || TensorOrNull(x->integers).rank() == 0) return false;
    Tensor bytes = *ConstantOf(w->integers);
    if (bytes.rank() != 2 || bytes.num_elements() == 0) return false;
    if (turned) bytes = Turned(bytes);
    const Weights weights = SignedWeights(bytes, w->zero, 1);
    const auto scale = ScalesOf(*x, *w, weights.results());
    const auto bias = BiasOf(bias_value, scale);
    if (!scale || !bias || !weights.FitI32(bias->integers)) return false;
    rewriter_->Applied(op, "its input and weights are bytes");
    const double zero = x->zero[0] + ShiftOf(x->element());
    const Term sums = ProductSums(Unsigned(x->integers), weights, zero, {}, bias->integers,
                                  ParameterBase(w->integers, "matmul.w"));
    Finish(op, sums, *scale, bias->numbers, 0);
    return true;
  }

  static bool IsTransposedMatrix(Value v) {
    const Operation* op = v.defining_op();
    return op != nullptr && op->isa<nn::TransposeOp>() && TensorOrNull(v).has_rank() &&
           TensorOrNull(v).rank() == 2 && TensorOrNull(op->operand(0)).has_rank() &&
           nn::TransposeOp(op).perm().value_or(std::vector<int64_t>{1, 0}) ==
               std::vector<int64_t>{1, 0};
  }

  // ---- scales, biases and the epilogue ----

  // Of the products, for each result.
  static std::optional<Numbers> ScalesOf(const Quantized& x, const Quantized& w, int64_t results) {
    if (!AreFor(w.scale, results) || !AreFor(w.zero, results)) return std::nullopt;
    Numbers scale;
    for (size_t i = 0; i < static_cast<size_t>(results); ++i) {
      scale.push_back(static_cast<float>(x.scale[0]) * static_cast<float>(At(w.scale, i)));
    }
    return AreOrdinary(scale) ? std::optional(scale) : std::nullopt;
  }

  struct Bias {
    Numbers integers{0};  // in units of the products
    Numbers numbers;      // empty: none
  };

  // A bias that is quantized as products are is added to them.
  std::optional<Bias> BiasOf(Value v, const std::optional<Numbers>& scale) const {
    if (!scale || !v || v.type().isa<NoneType>()) return Bias{};
    const auto results = static_cast<int64_t>(scale->size());
    const auto q = QuantizedOf(v);
    const auto given = ListOf(q ? q->integers : v);
    if (!given || !AreFor(*given, results)) return std::nullopt;
    if (!q) return AreFinite(*given) ? std::optional(Bias{{0}, *given}) : std::nullopt;
    if (!AreFor(q->scale, results) || !AreFor(q->zero, results)) return std::nullopt;
    Bias bias;
    bool same = q->element() == ElementType::kI32 && given->size() == scale->size();
    for (size_t i = 0; i < scale->size(); ++i) {
      const double unit = At(q->scale, i), zero = At(q->zero, i), size = (*scale)[i];
      same = same && zero == 0 && std::abs(unit - size) <= 1e-6 * size;
      bias.numbers.push_back((At(*given, i) - zero) * unit);
    }
    if (same) return Bias{*given, {}};
    return AreFinite(bias.numbers) ? std::optional(bias) : std::nullopt;
  }

  static bool AreFinite(const Numbers& numbers) {
    return std::ranges::all_of(numbers, [](double v) { return std::isfinite(v); });
  }

  std::optional<Requantization> RequantizationOf(Value v) const {
    Requantization r;
    // In the same block: a loop would do it again and again.
    const auto only_use = [](Value value) -> Operation* {
      if (!value.has_one_use()) return nullptr;
      Operation* user = (*value.uses().begin()).owner();
      return user->block() == value.defining_op()->block() ? user : nullptr;
    };
    Operation* user = only_use(v);
    if (user != nullptr && user->name() == nn::kRelu) {
      r.relu = user;
      user = only_use(user->result(0));
    }
    if (user == nullptr || !user->isa<nn::QuantizeLinearOp>()) return std::nullopt;
    const nn::QuantizeLinearOp quantize(user);
    const auto scale = NumberOf(quantize.y_scale());
    const auto zero = NumberOf(user->num_operands() > 2 ? user->operand(2) : Value());
    r.type = TensorOrNull(quantize.y()).element();
    const bool is_plain = quantize.block_size() == 0 && IsByte(r.type) &&
                          TensorOrNull(quantize.y_scale()).element() == ElementType::kF32 &&
                          quantize.precision().value_or(ElementType::kF32) == ElementType::kF32;
    if (!is_plain || !scale || !zero || !(*scale > 1e-30 && *scale < 1e30)) return std::nullopt;
    r.quantize = user;
    r.scale = *scale;
    r.zero = *zero;
    return r;
  }

  // `y`, in f32, rounded to integers.
  Value Rounded(const Term& y, const Requantization& to) {
    const Value zero = to.zero == 0 ? Value() : List({to.zero}, ElementType::kF32);
    return nn::Requantized(y, zero, to.type);
  }

  // Integer sums as what `op` gives, or as the integers that are made of that.
  void Finish(Operation* op, const Term& sums, const Numbers& scale, const Numbers& bias,
              size_t axes_behind) {
    const auto to = RequantizationOf(op->result(0));
    if (to) rewriter_->SetInsertionPoint(to->quantize);
    const double divisor = to ? to->scale : 1;
    const auto scaled = [&](Numbers numbers) {
      for (double& v : numbers) v /= divisor;
      return Term(*rewriter_, List(Merged(numbers), ElementType::kF32, axes_behind));
    };
    Term y = Cast(sums, ElementType::kF32) * scaled(scale);
    if (!bias.empty()) y = y + scaled(bias);
    if (!to) return rewriter_->ReplaceOp(op, y);
    if (to->relu != nullptr) y = nn::Greatest(y, 0);
    rewriter_->ReplaceOp(to->quantize, Rounded(y, *to));
    if (to->relu != nullptr) rewriter_->Erase(to->relu);
    rewriter_->Erase(op);
  }

  // Signed integers that only become numbers again may as well be unsigned.
  void MakeUnsigned(Operation* op) {
    if (!op->isa<nn::QuantizeLinearOp>()) return;
    if (TensorOrNull(op->result(0)).element() != ElementType::kI8 || op->num_operands() < 3) return;
    const auto zero = NumberOf(op->operand(2));
    if (!zero || ConstantOf(op->operand(2)) == nullptr ||
        nn::QuantizeLinearOp(op).block_size() != 0)
      return;
    for (const OpOperand use : op->result(0).uses()) {
      const Operation* user = use.owner();
      const bool fits = user->isa<nn::DequantizeLinearOp>() && user->num_operands() > 2 &&
                        ConstantOf(user->operand(2)) != nullptr &&
                        NumberOf(user->operand(2)) == zero &&
                        nn::DequantizeLinearOp(user).block_size() == 0;
      if (!fits) return;
    }
    std::vector<Operation*> all{op};
    for (const OpOperand use : op->result(0).uses()) all.push_back(use.owner());
    for (Operation* each : all) {
      rewriter_->SetInsertionPoint(each);
      Tensor moved = *ConstantOf(each->operand(2));
      moved = lathe::Cast(Tensor::Of<double>(moved.shape(), Numbers{*zero + kSignBit}),
                          ElementType::kU8);
      rewriter_->SetOperand(each, 2, rewriter_->Constant(moved));
    }
    if (nn::QuantizeLinearOp(op).output_dtype()) {
      rewriter_->SetAttribute(
          op, nn::QuantizeLinearOp::kOutputDtypeAttr,
          TypeAttribute::Get(ElemType::Get(rewriter_->context(), ElementType::kU8)));
    }
    const AnyTensorType type = TensorOrNull(op->result(0));
    rewriter_->SetResultType(op, 0, type.With(ElementType::kU8, type.shape()));
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(quantized_layers, QuantizedLayersPass)
    .Doc("makes products of bytes of layers whose input and constant weights are quantized")
    .Details(
        "Convolutions and products of matrices between dequantize_linear and quantize_linear, "
        "conv_integer, qlinear_conv, matmul_integer and qlinear_matmul by constant weights become "
        "nn.conv_bytes and nn.matmul_integer of unsigned by signed bytes, summed exactly; zero "
        "points go into a "
        "constant that is added. Between dequantize_linear and quantize_linear the sums are "
        "multiplied by the quotient of the scales, so a result may be one off where it lay between "
        "two. Groups of convolutions have at least four channels, a multiple of 16 filters, and "
        "zero points in the middle of the weights' range; where zero points of a convolution of "
        "one group lie elsewhere, another of a single filter sums up the windows. Constants that "
        "the program quantizes are quantized first.");

}  // namespace lathe
