#include "src/lower/factors.h"

#include <limits>

#include "lathe/dialect/decompose.h"
#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/ir/operation.h"

namespace lathe::lower {
namespace {

using nn::Term;

/// `x`, or less than any number where exp(x), of x below 0, is subnormal: it is 0 then, at once.
Term NormalOrNone(const Term& x) {
  constexpr double kLeast = -87.3365;  // whose power is normal
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (x.element() != ElementType::kF32) return x;
  return Where(x.Call(nn::kLess, {x.Number(kLeast)}), x.Number(-kInfinity), x);
}

/// The operation whose result the decomposition of `op` multiplies by; null if there is none.
const char* NameOfFactor(const Operation& op) {
  if (op.isa<nn::SoftmaxOp>()) return nn::kExp;
  return op.isa<nn::SwishOp>() || op.isa<nn::SwiGluOp>() ? nn::kSigmoid : nullptr;
}

}  // namespace

Term FactorOfScore(const Term& x) { return Exp(NormalOrNone(x)); }

std::vector<Value> DecomposeForKernel(Operation* op, Builder& b) {
  const Operation* before = op->prev();
  std::vector<Value> results = DecomposeInFloats(op, b);
  const char* factor = NameOfFactor(*op);
  if (factor == nullptr) return results;
  for (Operation* made = op->prev(); made != before; made = made->prev()) {
    if (made->name() != factor) continue;
    Builder ahead = Builder::Before(made);
    ahead.set_location(op->location());
    made->set_operand(0, NormalOrNone(Term(ahead, made->operand(0))));
  }
  return results;
}

}  // namespace lathe::lower
