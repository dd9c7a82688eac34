#pragma once

#include <vector>

#include "src/dialect/nn/term.h"

// Numbers that others are multiplied by. A product with a subnormal number takes many times as
// long on some processors, and is nothing beside what is added to it: kernels of f32 take 0 for it.
namespace lathe::lower {

/// exp(x) of x <= 0.
nn::Term FactorOfScore(const nn::Term& x);

/// `DecomposeInFloats` as kernels compute it: with such powers in softmax, and sigmoids in swish.
std::vector<Value> DecomposeForKernel(Operation* op, Builder& b);

}  // namespace lathe::lower
