#include "lathe/dialect/builtin/group.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

/// Groups give back their operations.
class GraphUnfusePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    std::vector<Operation*> groups;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<builtin::GroupOp>()) groups.push_back(op);
    }
    for (Operation* group : groups) Dissolve(rewriter, group);
    Count("groups", static_cast<int64_t>(groups.size()));
  }

 private:
  static void Dissolve(Rewriter& rewriter, Operation* group) {
    Block* body = group->region(0).front();
    for (size_t i = 0; i < group->num_operands(); ++i) {
      rewriter.ReplaceAllUses(body->argument(i), group->operand(i));
    }
    std::vector<Value> results;
    const Operation* yield = body->terminator();
    for (size_t i = 0; i < yield->num_operands(); ++i) results.push_back(yield->operand(i));
    while (body->front() != yield) rewriter.MoveBefore(body->front(), group);
    rewriter.ReplaceOp(group, results);
  }
};

REGISTER_PASS(graph_unfuse, GraphUnfusePass)
    .Doc("puts the operations of every builtin.group back where the group stands");

}  // namespace lathe
