#include "src/lower/factors.h"

#include "lathe/dialect/decompose.h"
#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/ir/operation.h"

namespace lathe::lower {
namespace {

using nn::Term;

/// `y`, which is about exp(x) for negative x, or 0 where that is subnormal.
Term NormalOrZero(const Term& x, const Term& y) {
  constexpr double kLeast = -87.3365;  // whose power is normal
  if (x.element() != ElementType::kF32) return y;
  return Where(x.Call(nn::kLess, {x.Number(kLeast)}), x.Number(0), y);
}

/// The operation whose result the decomposition of `op` multiplies by; null if there is none.
const char* NameOfFactor(const Operation& op) {
  if (op.isa<nn::SoftmaxOp>()) return nn::kExp;
  return op.isa<nn::SwishOp>() || op.isa<nn::SwiGluOp>() ? nn::kSigmoid : nullptr;
}

}  // namespace

Term FactorOfScore(const Term& x) { return NormalOrZero(x, Exp(x)); }

std::vector<Value> DecomposeForKernel(Operation* op, Builder& b) {
  const Operation* before = op->prev();
  std::vector<Value> results = DecomposeInFloats(op, b);
  const char* factor = NameOfFactor(*op);
  if (factor == nullptr) return results;
  for (Operation* made = op->prev(); made != before; made = made->prev()) {
    if (made->name() != factor) continue;
    Builder after = Builder::Before(made->next());
    after.set_location(op->location());
    const Value y = made->result(0);
    const Value normal = NormalOrZero(Term(after, made->operand(0)), Term(after, y));
    if (normal == y) continue;
    y.ReplaceAllUsesWith(normal);
    normal.defining_op()->set_operand(2, y);  // what it chooses otherwise
  }
  return results;
}

}  // namespace lathe::lower
