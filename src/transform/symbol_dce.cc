#include "lathe/ir/functions.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

class SymbolDcePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    if (graph.block() != graph.program().block()) return;
    const FunctionTable functions(graph.program());
    const std::vector<Operation*> reachable = functions.Reachable();
    Rewriter rewriter(graph.program(), this);
    size_t next = 0;
    for (Operation* function : functions.functions()) {
      if (next < reachable.size() && reachable[next] == function) {
        ++next;
        continue;
      }
      Applied(function, "nothing calls it");
      rewriter.Erase(function);
      Count("functions");
    }
  }
};

REGISTER_PASS(symbol_dce, SymbolDcePass)
    .Doc("drops functions that no call reaches from the top of the program");

}  // namespace lathe
