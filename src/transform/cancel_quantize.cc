#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

// They move what operand 0 holds and compute nothing, or take the greatest of some.
constexpr std::string_view kMoves[] = {nn::kDepthToSpace, nn::kExpand,    nn::kFlatten,
                                       nn::kGather,       nn::kIdentity,  nn::kMaxPool,
                                       nn::kReshape,      nn::kSlice,     nn::kSpaceToDepth,
                                       nn::kSqueeze,      nn::kTranspose, nn::kUnsqueeze};

// Of integers of that type.
bool Moves(const Operation* op, ElementType type) {
  if (op->name() == nn::kMaxPool && BitWidth(type) != 8) return false;
  return std::ranges::find(kMoves, op->name()) != std::end(kMoves) && op->num_results() == 1;
}

// How all of a tensor is quantized.
struct Quantization {
  double scale = 0, zero_point = 0;
  ElementType type = ElementType::kUndefined;
  bool operator==(const Quantization&) const = default;
};

std::optional<double> Number(const Program& program, Value v) {
  const Tensor* t = ConstantValue(program, v);
  if (t == nullptr || t->num_elements() != 1 || t->rank() > 1) return std::nullopt;
  return ToDoubles(*t)[0];
}

// Of which (q - zero point) * scale / scale, in f32, rounds to q - zero point; greater numbers are
// greater integers.
bool IsExact(const Quantization& q) {
  return IsInteger(q.type) && BitWidth(q.type) <= 16 && q.scale > 1e-30 && q.scale < 1e30;
}

// `quantized`: the side of integers; scale and zero point are operands 1 and 2.
std::optional<Quantization> QuantizationOf(const Program& program, Operation* op, Value quantized,
                                           Value real) {
  if (!TensorOrNull(quantized) || !TensorOrNull(real) ||
      TensorOrNull(real).element() != ElementType::kF32) {
    return std::nullopt;
  }
  if (TensorOrNull(op->operand(1)).element() != ElementType::kF32) return std::nullopt;
  const auto scale = Number(program, op->operand(1));
  const bool has_zero = op->num_operands() > 2 && op->operand(2);
  const auto zero = has_zero ? Number(program, op->operand(2)) : std::optional(0.0);
  if (!scale || !zero) return std::nullopt;
  const Quantization q{*scale, *zero, TensorOrNull(quantized).element()};
  return IsExact(q) ? std::optional(q) : std::nullopt;
}

}  // namespace

/// Integers that become numbers, are moved, and become integers again by the same scale are moved
/// as they are.
class CancelQuantizePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> ops;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<nn::QuantizeLinearOp>()) ops.push_back(op);
    }
    for (Operation* op : ops) Cancel(op);
  }

 private:
  void Cancel(Operation* op) {
    const nn::QuantizeLinearOp quantize(op);
    if (quantize.precision().value_or(ElementType::kF32) != ElementType::kF32) return;
    const auto wanted = QuantizationOf(rewriter_->program(), op, quantize.y(), quantize.x());
    if (!wanted) return;
    std::vector<Operation*> moves;  // the last one first
    Value v = quantize.x();
    while (v.defining_op() != nullptr && Moves(v.defining_op(), wanted->type) && v.has_one_use()) {
      moves.push_back(v.defining_op());
      v = moves.back()->operand(0);
    }
    const Value integers = Integers(v, *wanted);
    if (!integers) return;
    rewriter_->Applied(op, "it undoes a dequantize_linear");
    Retype(moves, integers);
    rewriter_->ReplaceOp(op, moves.empty() ? integers : moves[0]->result(0));
    Count("cancelled");
  }

  // The integers that are `v` by that quantization; null if there are none.
  Value Integers(Value v, const Quantization& wanted) {
    Operation* op = v.defining_op();
    if (op == nullptr) return {};
    if (op->isa<nn::ConcatOp>() && v.has_one_use()) return Joined(op, wanted);
    if (!op->isa<nn::DequantizeLinearOp>()) return {};
    const Value integers = op->operand(nn::DequantizeLinearOp::kX);
    const auto given = QuantizationOf(rewriter_->program(), op, integers, v);
    return given == wanted ? integers : Value();
  }

  Value Joined(Operation* concat, const Quantization& wanted) {
    std::vector<Value> parts;
    for (size_t i = 0; i < concat->num_operands(); ++i) {
      const Operation* op = concat->operand(i).defining_op();
      const bool is_part = op != nullptr && op->isa<nn::DequantizeLinearOp>();
      parts.push_back(is_part ? Integers(concat->operand(i), wanted) : Value());
      if (!parts.back()) return {};
    }
    for (size_t i = 0; i < parts.size(); ++i) rewriter_->SetOperand(concat, i, parts[i]);
    SetElement(concat, wanted.type);
    return concat->result(0);
  }

  void Retype(const std::vector<Operation*>& moves, Value integers) {
    for (size_t i = moves.size(); i-- > 0;) {
      if (i + 1 == moves.size()) rewriter_->SetOperand(moves[i], 0, integers);
      SetElement(moves[i], TensorOrNull(integers).element());
    }
  }

  void SetElement(Operation* op, ElementType element) {
    const AnyTensorType type = TensorOrNull(op->result(0));
    rewriter_->SetResultType(op, 0, type.With(element, type.shape()));
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(cancel_quantize, CancelQuantizePass)
    .Doc("drops a quantize_linear that undoes a dequantize_linear, across what moves elements")
    .Details(
        "(q - z) s / s rounds to q - z again, so the result is exact. Scale and zero point are "
        "constants for all of the tensor, the same on both sides, and the scale is positive; "
        "integers have at most 16 bits. Between them may stand reshapes, transposes, slices, "
        "gathers, max pools of bytes and one concat whose parts are all quantized so.");

}  // namespace lathe
