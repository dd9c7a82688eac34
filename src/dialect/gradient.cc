#include "lathe/dialect/gradient.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/ir/block.h"
#include "lathe/ir/interfaces.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe {
namespace {

void CheckFloat(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (type && IsFloat(type.element())) return;
  throw Error(ErrorCode::kType, "gradient/type",
              StrCat("a gradient belongs to tensors of floats, not ", v.type().ToString()));
}

class Backward {
 public:
  Backward(Builder& b, std::span<const Value> xs, std::span<const Value> held) : b_(b) {
    stops_.insert(xs.begin(), xs.end());
    depends_ = stops_;
    stops_.insert(held.begin(), held.end());
  }

  void Run(Value y) {
    grads_[y] = nn::FilledLike(b_, y, 1);
    Operation* last = stops_.contains(y) ? nullptr : y.defining_op();
    if (last == nullptr || last->block() != b_.block()) return;
    for (Operation& op : *last->block()) {
      MarkDependent(op);
      if (&op == last) break;
    }
    // What the rules add comes behind `last`.
    for (Operation* op = last; op != nullptr; op = op->prev()) Visit(op);
  }

  Value Of(Value x) {
    const auto found = grads_.find(x);
    return found == grads_.end() ? nn::FilledLike(b_, x, 0) : found->second;
  }

 private:
  void MarkDependent(Operation& op) {
    const auto reads = [this](const detail::OpOperandImpl& operand) {
      return operand.value != nullptr && depends_.contains(Value(operand.value));
    };
    if (!std::any_of(op.operands().begin(), op.operands().end(), reads)) return;
    for (size_t i = 0; i < op.num_results(); ++i) {
      if (!stops_.contains(op.result(i))) depends_.insert(op.result(i));
    }
  }

  void Visit(Operation* op) {
    std::vector<Value> results(op->num_results());
    bool wanted = false;
    for (size_t i = 0; i < results.size(); ++i) {
      const Value result = op->result(i);
      const auto found = grads_.find(result);
      if (found == grads_.end() || stops_.contains(result) || !depends_.contains(result)) continue;
      results[i] = found->second;
      wanted = true;
    }
    if (!wanted) return;
    const auto rule = op->dyn_cast<GradInterface>();
    if (!rule) {
      throw Error(ErrorCode::kUnsupported, "gradient/unsupported",
                  StrCat(op->name(), " has no gradient"))
          .At(op->location().ToString(*op->context()));
    }
    const std::vector<Value> operands = rule.Grad(results, b_);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] && depends_.contains(op->operand(i))) Add(op->operand(i), operands[i]);
    }
  }

  void Add(Value to, Value grad) {
    Value& sum = grads_[to];
    sum = sum ? nn::AddOp::Create(b_, sum, grad).c() : grad;
  }

  Builder& b_;
  // Looked up, never iterated.
  std::unordered_set<Value> stops_, depends_;
  std::unordered_map<Value, Value> grads_;
};

}  // namespace

std::vector<Value> BuildGradients(Builder& b, Value y, std::span<const Value> xs,
                                  std::span<const Value> held) {
  CheckFloat(y);
  for (const Value x : xs) CheckFloat(x);
  Backward backward(b, xs, held);
  backward.Run(y);
  std::vector<Value> gradients;
  for (const Value x : xs) gradients.push_back(backward.Of(x));
  return gradients;
}

}  // namespace lathe
