#include "lathe/pass/pass.h"

namespace lathe {

/// Chains what can wait: constants, inputs and parameters have no operand that could.
class SequentialExecutionPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Operation* before = nullptr;
    int64_t count = 0;
    for (Operation* op : graph.TopologySortOperations()) {
      if (op->num_operands() == 0 || !op->operand(0)) continue;
      // What works on mutable tensors keeps its order anyway; waiting would hand it a copy.
      if (!op->operand(0).type().isa<VTensorType>()) continue;
      if (before != nullptr) {
        graph.CreateControlDepVar(Node(before), Node(op));
        ++count;
      }
      if (op->num_results() > 0) before = op;
    }
    Count("operations that wait", count);
    if (count > 0) MarkChanged();
  }
};

REGISTER_PASS(sequential_execution, SequentialExecutionPass)
    .Doc("makes each operation wait for the one before it, through tokens")
    .Details(
        "For finding errors of order: whatever runs operations as they become ready then runs "
        "them in the order of the program.");

}  // namespace lathe
