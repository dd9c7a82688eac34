#include "lathe/dialect/nn/random.h"

namespace lathe::nn {

// Only the shape of the operand counts, or how often a 1 is drawn.
std::vector<Value> RandomNormalLikeOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}
std::vector<Value> RandomUniformLikeOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}
std::vector<Value> BernoulliOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}

}  // namespace lathe::nn
