#include "lathe/pass/pass.h"
#include "src/transform/widening.h"

namespace lathe {

class SkipRoundingPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    if (Widen(graph.program(), {.keeps_products = true}).changed) MarkChanged();
  }
};

REGISTER_PASS(skip_rounding, SkipRoundingPass)
    .Doc("leaves what is rounded to f16 or bf16 between operations in f32")
    .Details(
        "Outputs of the program, parameters and what moves elements of inputs have the types that "
        "they had. Numbers that f16 cannot hold stay finite on the way. Casts to f16 and bf16 are "
        "roundings, too, but for those that are taken back at once, with nothing but moves in "
        "between.");

}  // namespace lathe
