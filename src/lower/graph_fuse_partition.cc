#include <optional>
#include <unordered_map>

#include "lathe/dialect/builtin/group.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/fusion.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

/// Moves the operations of one group into the region of a new `builtin.group`.
class GroupBuilder {
 public:
  GroupBuilder(Rewriter& rewriter, const FusionGroup& group, bool embed_constants)
      : rewriter_(rewriter), group_(group), embed_constants_(embed_constants) {}

  Operation* Build() {
    for (const Operation* op : group_.ops) {
      for (size_t r = 0; r < op->num_results(); ++r) made_.emplace(op->result(r), true);
    }
    for (const bool constants : {true, false}) {
      for (const Operation* op : group_.ops) Sort(op, constants);
    }
    Operation* group = CreateGroup();
    Block* body = group->region(0).AddBlock();
    for (const Value v : arguments_) inside_.Map(v, body->AddArgument(v.type()));
    for (Operation* constant : constants_) body->PushBack(Clone(constant, inside_));
    const std::vector<Value> yields = ReplaceRoot(group);
    for (Operation* op : group_.ops) {
      op->MoveToEnd(body);
      for (size_t i = 0; i < op->num_operands(); ++i) {
        const Value v = op->operand(i);
        if (v && inside_.Contains(v)) rewriter_.SetOperand(op, i, inside_.Lookup(v));
      }
    }
    Builder::AtEnd(body).Create(rewriter_.context().GetOp<cf::YieldOp>(), yields, {}, {});
    for (Operation* constant : constants_) {
      if (constant->use_empty()) rewriter_.Erase(constant);
    }
    return group;
  }

 private:
  /// What the op reads from outside becomes an argument or, if a constant, a part of the group.
  void Sort(const Operation* op, bool constants) {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v || made_.count(v) != 0 || (constants && !Embeds(op, i))) continue;
      made_.emplace(v, true);
      if (constants) {
        constants_.push_back(v.defining_op());
      } else {
        arguments_.push_back(v);
      }
    }
  }

  bool Embeds(const Operation* op, size_t i) const {
    const Operation* maker = op->operand(i).defining_op();
    if (maker == nullptr || !maker->HasTrait<ConstantLike>()) return false;
    if (embed_constants_ || NeedsWhole(op, i)) return true;
    const auto type = op->operand(i).type().dyn_cast<AnyTensorType>();
    return type && type.is_static() && type.shape().NumElements().IsConstant(1);
  }

  Operation* CreateGroup() {
    std::vector<Type> types;
    const Operation* root = group_.root();
    for (size_t i = 0; i < root->num_results(); ++i) {
      if (!root->result(i).use_empty()) types.push_back(root->result(i).type());
    }
    std::vector<Location> locations;
    for (const Operation* op : group_.ops) locations.push_back(op->location());
    rewriter_.set_location(Location::Fused(rewriter_.context(), locations));
    rewriter_.SetInsertionPoint(group_.root());
    const std::vector<NamedAttribute> attributes = {
        rewriter_.Named(builtin::GroupOp::kKindAttr, rewriter_.Attr(Name(group_.kind))),
        rewriter_.Named(builtin::GroupOp::kMasterAttr,
                        rewriter_.Attr(static_cast<int64_t>(constants_.size() + group_.master)))};
    const OpInfo info = rewriter_.context().GetOp<builtin::GroupOp>();
    return rewriter_.Builder::Create(info, arguments_, attributes, types, 1);
  }

  std::vector<Value> ReplaceRoot(Operation* group) {
    std::vector<Value> yields;
    Operation* root = group_.root();
    for (size_t i = 0; i < root->num_results(); ++i) {
      if (root->result(i).use_empty()) continue;
      rewriter_.ReplaceAllUses(root->result(i), group->result(yields.size()));
      yields.push_back(root->result(i));
    }
    return yields;
  }

  Rewriter& rewriter_;
  const FusionGroup& group_;
  bool embed_constants_;
  std::unordered_map<Value, bool> made_;  // inside, or sorted already; looked up, never iterated
  std::vector<Value> arguments_;
  std::vector<Operation*> constants_;
  IrMapping inside_;
};

}  // namespace

class GraphFusePartitionPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    FusionOptions options;
    options.fuse = option_int("opt_level") > 0;
    options.max_ops = static_cast<size_t>(std::max<int64_t>(option_int("max_ops"), 1));
    options.explain = context() != nullptr && context()->wants_remarks();
    Rewriter rewriter(graph.program(), this);
    for (Block* block : BlocksOf(graph.block())) Partition(rewriter, block, options);
  }

 private:
  /// The block and those of regions within, not of groups and kernels.
  static std::vector<Block*> BlocksOf(Block* top) {
    std::vector<Block*> blocks{top};
    for (OpWalker w(top); Operation* op = w.Next();) {
      if (op->isa<builtin::GroupOp>() || op->attribute(builtin::GroupOp::kKindAttr)) {
        w.SkipRegions();
        continue;
      }
      for (Region& region : op->regions()) {
        for (Block& block : region) blocks.push_back(&block);
      }
    }
    return blocks;
  }

  void Partition(Rewriter& rewriter, Block* block, const FusionOptions& options) {
    const FusionPlan plan = PlanFusion(block, options);
    for (const FusionRefusal& r : plan.refusals) {
      rewriter.Missed(r.op, r.into == nullptr
                                ? StrCat("not fused: ", r.why)
                                : StrCat("not fused into ", r.into->Describe(), ": ", r.why));
    }
    for (const FusionGroup& group : plan.groups) {
      Operation* made = GroupBuilder(rewriter, group, option_bool("embed_constants")).Build();
      rewriter.Applied(made, StrCat(group.ops.size(), group.ops.size() == 1 ? " op, " : " ops, ",
                                    Name(group.kind), ", by ", group.ops[group.master]->name()));
      Count("fused", static_cast<int64_t>(group.ops.size()) - 1);
    }
    Count("groups", static_cast<int64_t>(plan.groups.size()));
  }
};

REGISTER_PASS(graph_fuse_partition, GraphFusePartitionPass)
    .Doc("puts operations that one kernel computes into a builtin.group [NNVM GraphFusePartition]")
    .Details(
        "Groups follow from the kinds of the ops (elementwise, broadcast, injective, reduction, "
        "out_elementwise_fusable, opaque) and from how values are used, never from the order in "
        "which the program is written. Only the last op of a group is used outside it, so no path "
        "leaves a group and comes back, and no diamond is cut. Results of the program are always "
        "written. Constants of one element, and those that say sizes or axes, move into the group; "
        "others are arguments. The runtime attribute fuse_stop = true ends a group at its op.")
    .Option("opt_level", PassOption::Kind::kInt, "1", "0: each operation is a group of its own")
    .Option("max_ops", PassOption::Kind::kInt, "256", "operations in one group")
    .Option("embed_constants", PassOption::Kind::kBool, "false",
            "constants of any size move into the group");

}  // namespace lathe
