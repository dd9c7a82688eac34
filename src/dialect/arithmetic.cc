#include "lathe/dialect/arithmetic.h"

#include <array>

#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/interfaces.h"

namespace lathe {
namespace {

AnyTensorType TypeOf(Value v) { return v ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType(); }

bool IsFloating(Value v) {
  const AnyTensorType type = TypeOf(v);
  return type && IsFloat(type.element());
}

Dim SizeOf(const Operation* op, size_t operand) {
  const Value v = operand < op->num_operands() ? op->operand(operand) : Value();
  return v ? ElementsOf(v.type()) : Dim::Unknown();
}
Dim Given(Operation* op) { return ElementsOf(op->result(0).type()); }

// Counted from the front, or from the end if negative.
Dim Extent(const Operation* op, size_t operand, int axis) {
  const AnyTensorType type =
      operand < op->num_operands() ? TypeOf(op->operand(operand)) : AnyTensorType();
  if (!type || !type.has_rank()) return {};
  const auto rank = static_cast<int>(type.rank());
  const int at = axis < 0 ? axis + rank : axis;
  return at < 0 || at >= rank ? Dim() : type.dims()[static_cast<size_t>(at)];
}

// Elements of an operand but for those along its first axis.
Dim PerRow(const Operation* op, size_t operand) {
  const AnyTensorType type = TypeOf(op->operand(operand));
  if (!type || !type.has_rank() || type.rank() == 0) return {};
  Dim count = 1;
  for (const Dim& d : type.dims().subspan(1)) count *= d;
  return count;
}

bool IsTrue(const Operation* op, const char* attribute) {
  const auto value = op->attribute(attribute).dyn_cast<BoolAttribute>();
  return value && value.value();
}

// ---- a function per kind of op; y is the result ----

Dim Matmul(Operation* op) {
  return 2 * Given(op) * Extent(op, 0, IsTrue(op, "transpose_x") ? -2 : -1);
}
Dim Gemm(Operation* op) { return 2 * Given(op) * Extent(op, 0, IsTrue(op, "transA") ? -2 : -1); }

// x, w [M, C / group, k...]: each of y sees a row of w.
Dim Conv(Operation* op) { return 2 * Given(op) * PerRow(op, 1); }
// x, w [C, M / group, k...]: each of x goes to a row of w.
Dim ConvTranspose(Operation* op) { return 2 * SizeOf(op, 0) * PerRow(op, 1); }

// x [steps, batch, features] or [batch, steps, features], w and r: all of both at each step.
Dim Recurrent(Operation* op) {
  return 2 * Extent(op, 0, 0) * Extent(op, 0, 1) * (SizeOf(op, 1) + SizeOf(op, 2));
}

// Both products, whatever is masked: each element of q, and of y, meets all keys.
Dim Attention(Operation* op) {
  constexpr size_t kKey = 1, kPastKey = 4;
  Dim keys = Extent(op, kKey, -2);
  const bool has_past = op->num_operands() > kPastKey && TypeOf(op->operand(kPastKey));
  if (has_past) keys += Extent(op, kPastKey, -2);
  return 2 * keys * (SizeOf(op, 0) + Given(op));
}

// Of each pair four products, a sum and a difference; the caches have the pairs.
Dim RotaryEmbedding(Operation* op) {
  const AnyTensorType x = TypeOf(op->operand(0));
  if (!x || !x.has_rank() || x.rank() < 3) return {};
  const auto num_heads = op->attribute("num_heads").dyn_cast<IntAttribute>();
  const Dim heads = x.rank() > 3 ? x.dims()[1] : Dim(num_heads ? num_heads.value() : 1);
  return 6 * x.dims()[0] * heads * Extent(op, 0, -2) * Extent(op, 1, -1);
}

template <class OpT>
Dim Window(Operation* op) {
  Dim flops = Given(op);
  for (const int64_t k : OpT(op).kernel_shape()) flops *= k;
  return flops;
}

// The square, the sum of `size` of them, the factor, the bias, the power, the division.
Dim Lrn(Operation* op) { return SizeOf(op, 0) * (nn::LrnOp(op).size() + 4); }

template <int64_t kEach>
Dim Each(Operation* op) {
  return SizeOf(op, 0) * kEach;
}

Dim None(Operation*) { return 0; }

struct Count {
  std::string_view op;
  Dim (*count)(Operation* op);
};

// Where a number of operations per element is given: exp, log, a power and a root are one.
constexpr std::array kCounts = {
    Count{"nn.matmul", Matmul},
    Count{"nn.matmul_integer", Matmul},
    Count{"nn.qlinear_matmul", Matmul},
    Count{"nn.gemm", Gemm},
    Count{"nn.conv", Conv},
    Count{"nn.conv_integer", Conv},
    Count{"nn.conv_transpose", ConvTranspose},
    Count{"nn.rnn", Recurrent},
    Count{"nn.gru", Recurrent},
    Count{"nn.lstm", Recurrent},
    Count{"nn.attention", Attention},
    Count{"nn.rotary_embedding", RotaryEmbedding},
    Count{"nn.max_pool", Window<nn::MaxPoolOp>},
    Count{"nn.average_pool", Window<nn::AveragePoolOp>},
    Count{"nn.lp_pool", Window<nn::LpPoolOp>},
    Count{"nn.global_max_pool", Each<1>},
    Count{"nn.global_average_pool", Each<1>},
    Count{"nn.global_lp_pool", Each<2>},
    Count{"nn.lrn", Lrn},
    // A product and a sum, with what belongs to a channel worked out before.
    Count{"nn.batch_normalization", Each<2>},
    // The sum, the difference from the mean, its square, their sum, the division; scale and shift.
    Count{"nn.mean_variance_normalization", Each<5>},
    Count{"nn.instance_normalization", Each<7>},
    Count{"nn.group_normalization", Each<7>},
    Count{"nn.layer_normalization", Each<7>},
    Count{"nn.rms_normalization", Each<4>},
    Count{"nn.lp_normalization", Each<3>},
    // The greatest, the difference from it, exp, the sum, the division or difference.
    Count{"nn.softmax", Each<5>},
    Count{"nn.log_softmax", Each<5>},
    Count{"nn.identity", None},
    Count{"nn.cast", None},
    Count{"nn.cast_like", None},
    Count{"nn.where", None},
};

// Of ops that count themselves, for static shapes.
Dim Counted(const FlopsInterface& op) {
  const double flops = op.Flops();
  return flops >= 0 && flops < 0x1p62 ? Dim(static_cast<int64_t>(flops)) : Dim::Unknown();
}

}  // namespace

Dim ElementsOf(Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  return tensor ? tensor.shape().NumElements() : Dim::Unknown();
}

Dim ArithmeticOf(Operation* op) {
  for (const Count& c : kCounts) {
    if (c.op == op->name()) return c.count(op);
  }
  if (const auto counted = op->dyn_cast<FlopsInterface>()) return Counted(counted);
  if (op->num_operands() == 0 || !IsFloating(op->operand(0))) return 0;
  switch (KindOf(op)) {
    case OpKind::kElementwise:
    case OpKind::kBroadcast:
      return Given(op);
    case OpKind::kReduction:
      return SizeOf(op, 0);
    default:
      return 0;
  }
}

}  // namespace lathe
