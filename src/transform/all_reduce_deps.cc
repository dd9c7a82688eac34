#include "lathe/dialect/dist.h"
#include "lathe/pass/pass.h"
#include "lathe/transform/multi_devices.h"
#include "src/transform/rank_values.h"

namespace lathe {

bool IsCollective(const Operation* op) {
  return op->dialect() != nullptr && op->dialect()->name() == DistDialect::kName;
}

int64_t OrderCollectives(Graph& graph) {
  const CollectiveFinder finder(graph.program());
  std::vector<Operation*> collectives;
  for (Operation& op : *graph.block()) {
    if (finder.Holds(&op)) collectives.push_back(&op);
  }
  for (size_t i = 1; i < collectives.size(); ++i) {
    graph.CreateControlDepVar(Node(collectives[i - 1]), Node(collectives[i]));
  }
  return collectives.empty() ? 0 : static_cast<int64_t>(collectives.size()) - 1;
}

class AllReduceDepsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const int64_t count = OrderCollectives(graph);
    Count("collectives that wait", count);
    if (count > 0) MarkChanged();
  }
};

REGISTER_PASS(all_reduce_deps, AllReduceDepsPass)
    .Doc("makes each collective wait for the one before it, so that all ranks issue one order")
    .Details(
        "The order is that of the program, which is the same on every rank. An operation whose "
        "regions hold collectives counts as one of them; within a region they run in its order.");

}  // namespace lathe
