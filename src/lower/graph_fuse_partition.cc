#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/group.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/external.h"
#include "lathe/lower/fusion.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/lower/contiguous.h"
#include "src/lower/outline.h"

namespace lathe {

namespace {

/// Constants of one element, and those that say sizes or axes, belong to the loops. Convolutions
/// take weights and biases as arguments, however many filters there are.
bool Embeds(const Operation* op, size_t i) {
  const Operation* maker = op->operand(i).defining_op();
  if (maker == nullptr || !maker->HasTrait<ConstantLike>()) return false;
  if (NeedsWhole(op, i)) return true;
  if (op->isa<nn::ConvOp>() || op->isa<nn::ConvTransposeOp>()) return false;
  const auto type = op->operand(i).type().dyn_cast<AnyTensorType>();
  return type && type.is_static() && type.shape().NumElements().IsConstant(1);
}

bool EmbedsAll(const Operation* op, size_t i) {
  const Operation* maker = op->operand(i).defining_op();
  return maker != nullptr && maker->HasTrait<ConstantLike>();
}

/// Moves the operations of one group into the region of a new `builtin.group`.
Operation* BuildGroup(Rewriter& rewriter, const FusionGroup& group, bool embed_constants) {
  Outliner out(rewriter, group.ops, embed_constants ? EmbedsAll : Embeds);
  rewriter.set_location(out.location());
  rewriter.SetInsertionPoint(group.root());
  const auto anchor = static_cast<int64_t>(out.embedded().size() + group.anchor);
  const std::vector<NamedAttribute> attributes = {
      rewriter.Named(builtin::GroupOp::kKindAttr, rewriter.Attr(Name(group.kind))),
      rewriter.Named(builtin::GroupOp::kAnchorAttr, rewriter.Attr(anchor))};
  const OpInfo info = rewriter.context().GetOp<builtin::GroupOp>();
  Operation* made =
      rewriter.Builder::Create(info, out.arguments(), attributes, out.result_types(), 1);
  std::vector<Value> replacements;
  for (size_t i = 0; i < made->num_results(); ++i) replacements.push_back(made->result(i));
  Block* body = made->region(0).AddBlock();
  out.MoveInto(body, replacements);
  Builder::AtEnd(body).Create(rewriter.context().GetOp<cf::YieldOp>(), out.results(), {}, {});
  return made;
}

}  // namespace

bool IsKernel(const Operation* op) {
  if (op->isa<builtin::GroupOp>()) return true;
  return op->isa<builtin::FuncOp>() &&
         (op->attribute(builtin::GroupOp::kKindAttr) || op->attribute(kCompilerAttr));
}

class GraphFusePartitionPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    FusionOptions options;
    options.fuse = option_int("opt_level") > 0;
    options.max_ops = static_cast<size_t>(option_int("max_ops"));
    options.explain = context() != nullptr && context()->wants_remarks();
    Rewriter rewriter(graph.program(), this);
    for (Block* block : BlocksOf(graph.block())) Partition(rewriter, block, options);
  }

 private:
  /// The block and those of regions within, not of groups and kernels.
  static std::vector<Block*> BlocksOf(Block* top) {
    std::vector<Block*> blocks{top};
    for (OpWalker w(top); Operation* op = w.Next();) {
      if (IsKernel(op)) {
        w.SkipRegions();
        continue;
      }
      for (Region& region : op->regions()) {
        for (Block& block : region) blocks.push_back(&block);
      }
    }
    return blocks;
  }

  /// A group of which the last op alone is read outside may stand where that op does; others need
  /// what reads them to stand behind.
  static void Arrange(Block* block, const FusionPlan& plan) {
    std::vector<std::vector<Operation*>> groups;
    for (const FusionGroup& group : plan.groups) {
      if (group.HasSeveralResults()) groups.push_back(group.ops);
    }
    if (!groups.empty()) MakeContiguous(block, groups);
  }

  void Partition(Rewriter& rewriter, Block* block, const FusionOptions& options) {
    const FusionPlan plan = PlanFusion(block, options);
    for (const FusionRefusal& r : plan.refusals) {
      rewriter.Missed(r.op, r.into == nullptr ? StrCat("not fused: ", r.ToString())
                                              : StrCat("not fused into ", r.into->Describe(), ": ",
                                                       r.ToString()));
    }
    Arrange(block, plan);
    for (const FusionGroup& group : plan.groups) {
      Operation* made = BuildGroup(rewriter, group, option_bool("embed_constants"));
      rewriter.Applied(made, StrCat(group.ops.size(), group.ops.size() == 1 ? " op, " : " ops, ",
                                    Name(group.kind), ", by ", group.ops[group.anchor]->name()));
      Count("fused", static_cast<int64_t>(group.ops.size()) - 1);
    }
    Count("groups", static_cast<int64_t>(plan.groups.size()));
  }
};

REGISTER_PASS(graph_fuse_partition, GraphFusePartitionPass)
    .Doc("puts operations that one kernel computes into a builtin.group [NNVM GraphFusePartition]")
    .Details(
        "Groups follow from the kinds of the ops (elementwise, broadcast, injective, reduction, "
        "out_elementwise_fusable, opaque), from how values are used and from what is computed more "
        "than once, never from the order in which the program is written. Only the last op of a "
        "group is used outside it, so no path "
        "leaves a group and comes back, and no diamond is cut. Results of the program are always "
        "written. Constants of one element, and those that say sizes or axes, move into the group; "
        "others are arguments. The runtime attribute fuse_stop = true ends a group at its op.")
    .Option("opt_level", PassOption::Kind::kInt, "1", "0: each operation is a group of its own")
    .AtLeast(0)
    .Option("max_ops", PassOption::Kind::kInt, "256", "operations in one group")
    .AtLeast(1)
    .Option("embed_constants", PassOption::Kind::kBool, "false",
            "constants of any size move into the group");

}  // namespace lathe
