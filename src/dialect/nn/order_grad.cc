#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/order.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

// The running sum of the gradient from the other end.
std::vector<Value> CumSumOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const CumSumOp op(o);
  const CumSumAttrs back{.exclusive = op.exclusive(), .reverse = !op.reverse()};
  return {CumSumOp::Create(b, g[0], op.axis(), back).y()};
}

}  // namespace lathe::nn
