#include "lathe/dialect/nn/features.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

// Piecewise constant.
std::vector<Value> BinarizerOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}
std::vector<Value> TreeEnsembleOp::Grad(Operation*, std::span<const Value>, Builder&) {
  return {Value()};
}

std::vector<Value> ArrayFeatureExtractorOp::Grad(Operation* o, std::span<const Value> g,
                                                 Builder& b) {
  return {GradOfSelection(o, g[0], b), Value()};
}

}  // namespace lathe::nn
