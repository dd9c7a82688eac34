#include "lathe/pass/pass.h"
#include "src/transform/wide_parameters.h"
#include "src/transform/widening.h"

namespace lathe {

namespace {

class ComputeInF32Pass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    const int64_t parameters = HoldInF32(rewriter, NarrowParameterReads(graph.program()));
    Count("parameters", parameters);
    // Roundings of what was a number of 16 bits become casts of f32 to f32.
    if (Widen(graph.program(), {}).changed || parameters > 0) MarkChanged();
  }
};

REGISTER_PASS(compute_in_f32, ComputeInF32Pass)
    .Doc("makes a model of f16 or bf16 one of f32, but for its inputs and outputs")
    .Details(
        "Parameters become f32, the same numbers; what is computed is rounded nowhere but in "
        "outputs of the program. Quantization begins with it. `canonicalize` then removes the "
        "casts "
        "that are left.");

}  // namespace

}  // namespace lathe
