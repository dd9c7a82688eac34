#include "lathe/pass/pass.h"
#include "src/transform/widening.h"

namespace lathe {

class WidenHalfPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    if (Widen(graph.program(), {.rounds = true, .keeps_products = true}).changed) {
      MarkChanged();
    }
  }
};

REGISTER_PASS(widen_half, WidenHalfPass)
    .Doc("computes each operation on f16 or bf16 in f32 and rounds its results")
    .Details(
        "The kernels of convolutions, attention and recurrent layers take f32. Products by "
        "weights, "
        "what only moves elements, random numbers, mutable tensors and calls keep their types.");

}  // namespace lathe
