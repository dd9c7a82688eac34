#include "src/transform/functionalize.h"

namespace lathe {

namespace {

class MaximizeValueSemanticsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override { Functionalize(graph, this, FunctionalizeScope::kAll); }
};

REGISTER_PASS(maximize_value_semantics, MaximizeValueSemanticsPass)
    .Doc("makes mutable tensors immutable values: writes, views and copies become new values")
    .Details(
        "Each mutable tensor has one current value at every point. A read of a view computes it "
        "from that value, a write through a view gives a new one (slice_scatter, select_scatter, "
        "or the inverse of a reshape or transpose). `cf.if` yields and `cf.while` carries what "
        "their regions write. A written input is fetched under its own name at the end, with "
        "`aliases`. What an op of which nothing is known takes stays mutable, with a remark.");

}  // namespace

}  // namespace lathe
