#include <algorithm>

#include "lathe/dialect/loop/memory.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/nest.h"

namespace lathe::lower {
namespace {

// Whether they are known to be right.
bool AreRight(const Operation& op, const IndexUse& use) {
  const auto indices = ConstantInts(op, use.operand);
  if (!indices || !use.extent.is_constant() || use.made) return false;
  const int64_t extent = use.extent.value();
  return std::ranges::all_of(*indices, [&](int64_t i) { return i >= -extent && i < extent; });
}

}  // namespace

void CheckIndices(const WholeTensorEmitter& w) {
  const Compute* compute = FindCompute(w.op->name());
  if (compute == nullptr || compute->indices == nullptr) return;
  const Place nowhere;
  w.e.Reset();
  for (const IndexUse& use : compute->indices({w.e, w.op, 0, nowhere})) {
    if (AreRight(*w.op, use)) continue;
    const Value indices = w.op->operand(use.operand);
    std::vector<Dim> dims = w.Dims(use.operand);
    if (use.component) dims.pop_back();
    const auto check = [&](Elements& e, Place at, Value) {
      if (use.component) at.emplace_back(*use.component);
      Value index = e.At(indices, at);
      if (!use.made || !IsFloat(TensorOf(index).element())) index = ToInt64(e, index);
      if (use.made) index = use.made(e, index);
      loop::ExpectOp::Create(e.lb().b(), index, e.Int(use.extent), Value(),
                             {.axis = static_cast<int64_t>(use.axis)});
    };
    Nest(w.e, w.function, w.body, w.machine).Visit(dims, Value(), check);
  }
}

}  // namespace lathe::lower
