#include "lathe/dialect/decompose.h"

#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

class DecomposePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const std::vector<std::string> names = option_list("ops");
    for (const std::string& name : names) (void)graph.context().GetOrMakeOp(name);
    Rewriter rewriter(graph.program(), this);
    const int64_t count = DecomposeOps(graph.program(), rewriter, [&](const Operation* op) {
      return names.empty() || std::find(names.begin(), names.end(), op->name()) != names.end();
    });
    Count("decomposed", count);
    if (count > 0) MarkChanged();
  }
};

REGISTER_PASS(decompose, DecomposePass)
    .Doc("replaces ops by simpler ones: slice_scatter by scatter_elements, copy by expand ...")
    .Details("Every op that has the Decompose interface, or those that `ops` names.")
    .Option("ops", PassOption::Kind::kStrings, "[]", "names of the ops; empty: all that can be");

}  // namespace

}  // namespace lathe
