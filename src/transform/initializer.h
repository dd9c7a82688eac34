#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/pass/pass.h"
#include "src/dialect/nn/term.h"

namespace lathe {

/// How many numbers go into an element of what a weight computes, and how many it goes into.
struct Fans {
  double in = 1, out = 1;
};

/// What is filled, and from which random numbers.
struct InitialTensor {
  ElementType element;
  Shape shape;
  Fans fans;
  float seed;
};

/// The names of the ways to fill a tensor: zeros, xavier_uniform, orthogonal, ...
std::vector<std::string> InitializerNames();

/// Builds a tensor filled in that way, with the numbers that the options `gain`, `mode`, `mean`,
/// `std` and `value` of the pass give it. Bits depend on the seed and the shape alone.
Value BuildInitial(Builder& b, const Pass& options, std::string_view method,
                   const InitialTensor& tensor);

}  // namespace lathe
