#include "lathe/pass/fold.h"

#include <algorithm>

#include "lathe/ir/context.h"

namespace lathe {

const Tensor* ProgramConstants::Constant(Value value) {
  const Tensor* constant = ConstantValue(program_, value);
  return constant != nullptr && constant->byte_size() <= limit_ ? constant : nullptr;
}

namespace {

/// Nothing that `result` says is lost by `type`. A mutable result is a tensor of its own: what is
/// written to it must not be seen in the value that it would be folded to.
bool SaysAsMuch(Type type, Type result) {
  if (result.isa<TensorType>()) return false;
  if (type == result) return true;
  const auto a = type.dyn_cast<VTensorType>();
  const auto b = result.dyn_cast<VTensorType>();
  if (!a || !b || a.element() != b.element() || !Compatible(a, b)) return false;
  return Meet(a.shape(), b.shape()) == a.shape();
}

}  // namespace

std::vector<Value> FoldResults(Operation* op, ValueFacts& facts, Rewriter& rewriter) {
  const auto fold = op->dyn_cast<FoldInterface>();
  if (!fold || TouchesMutableTensor(op)) return {};
  FoldContext context(op, facts);
  fold.Fold(context);
  const auto says = [](const FoldContext::Result& r) { return r.value || r.constant; };
  if (std::none_of(context.results().begin(), context.results().end(), says)) return {};
  std::vector<Value> values(op->num_results());
  bool any = false;
  for (size_t i = 0; i < values.size(); ++i) {
    const FoldContext::Result& folded = context.results()[i];
    const Type type = op->result(i).type();
    if (op->result(i).use_empty()) continue;
    if (folded.value && SaysAsMuch(folded.value.type(), type)) {
      values[i] = folded.value;
    } else if (const auto constant = folded.constant.dyn_cast<TensorAttribute>()) {
      rewriter.SetInsertionPoint(op);
      rewriter.set_location(op->location());
      values[i] = rewriter.Constant(constant.value());
    }
    any |= static_cast<bool>(values[i]);
  }
  return any ? values : std::vector<Value>();
}

}  // namespace lathe
