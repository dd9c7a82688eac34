#pragma once

#include <cstddef>
#include <vector>

#include "lathe/dialect/nn/string.h"

namespace lathe::nn {

/// Where an n-gram lies in the pool.
struct PoolGram {
  size_t begin, length;
};

/// The n-grams of a pool of that many entries, in its order. Throws run/tf-idf where attributes
/// contradict each other.
std::vector<PoolGram> PoolGramsOf(TfIdfVectorizerOp op, size_t pool);

}  // namespace lathe::nn
