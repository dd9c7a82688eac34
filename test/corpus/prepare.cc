#include "test/corpus/prepare.h"

#include <algorithm>

#include "lathe/pass/pass_manager.h"
#include "lathe/support/random.h"

namespace lathe::testing {

namespace {

/// Numbers around the one there; of more than one axis with both signs. What is positive and has
/// one axis, a variance say, stays so.
Tensor Varied(const Tensor& weights, uint64_t stream) {
  std::vector<double> values = ToDoubles(weights);
  RandomStream random(7, stream);
  for (double& v : values) {
    const double about = v == 0 ? 0.1 : v;
    const double sign = weights.rank() > 1 && random.Int(0, 1) == 0 ? -1 : 1;
    v = sign * about * random.Uniform(0.5, 1.5);
  }
  return Cast(Tensor::Of<double>(weights.shape(), values), weights.element_type());
}

bool IsOneNumber(const Tensor& t) {
  if (!IsFloat(t.element_type()) || t.num_elements() < 2) return false;
  const std::vector<double> values = ToDoubles(t);
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
}

}  // namespace

Program Prepare(const Program& program) {
  Program prepared = program.Clone();
  PassManager manager;
  manager.Add("fold_shapes,simplify,precompute_prune,simplify");
  manager.Run(prepared);
  uint64_t stream = 0;
  for (auto& entry : prepared.parameters()) {
    ++stream;
    if (IsOneNumber(entry.variable.data)) {
      entry.variable.data = Varied(entry.variable.data, stream);
    }
  }
  return prepared;
}

}  // namespace lathe::testing
