#include <map>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/external.h"
#include "lathe/lower/fusion.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/lower/convex_regions.h"
#include "src/lower/outline.h"

namespace lathe {

/// Convex regions of operations that an external compiler takes become functions for it.
class PartitionExternalPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const ExternalCompiler& compiler = ExternalCompilers::Global().Find(option("compiler"));
    Program& program = graph.program();
    Rewriter rewriter(program, this);
    names_.clear();
    next_.clear();
    const FunctionTable functions(program);
    for (const Operation* f : functions.functions()) names_.insert(FunctionTable::NameOf(f));
    for (const auto& [block, owner] : BlocksOf(graph.block())) {
      Partition(rewriter, block, owner, compiler);
    }
  }

 private:
  /// Blocks that hold operations for kernels, with the function that they are part of.
  static std::vector<std::pair<Block*, std::string>> BlocksOf(Block* top) {
    std::vector<std::pair<Block*, std::string>> blocks{{top, "main"}};
    for (Operation& outer : *top) {
      const bool is_function = outer.isa<builtin::FuncOp>();
      const std::string owner = is_function ? FunctionTable::NameOf(&outer) : "main";
      for (OpWalker w(&outer); Operation* op = w.Next();) {
        if (IsKernel(op)) {
          w.SkipRegions();
          continue;
        }
        for (Region& region : op->regions()) {
          for (Block& block : region) blocks.emplace_back(&block, owner);
        }
      }
    }
    return blocks;
  }

  void Partition(Rewriter& rewriter, Block* block, const std::string& owner,
                 const ExternalCompiler& compiler) {
    const auto supported = [&](const Operation* op) {
      if (!IsKernelOp(op) || op->HasTrait<Random>()) return false;
      const std::string why = compiler.refuse(op);
      if (!why.empty()) rewriter.Missed(op, StrCat(compiler.name, ": ", why));
      return why.empty();
    };
    ConvexRegions found(rewriter.program(), block, supported);
    if (found.regions().empty()) return;
    found.MakeContiguous();
    MarkChanged();
    for (const std::vector<Operation*>& region : found.regions()) {
      if (static_cast<int64_t>(region.size()) < option_int("min_ops")) {
        rewriter.Missed(region.front(), "the region is smaller than min_ops");
        continue;
      }
      const std::string why = compiler.refuse_region ? compiler.refuse_region(region) : "";
      if (!why.empty()) {
        rewriter.Missed(region.front(), StrCat(compiler.name, ": ", why));
        continue;
      }
      Operation* function = MoveOut(rewriter, region, FreshName(compiler.name, owner), compiler);
      rewriter.Applied(
          function,
          StrCat(region.size(), region.size() == 1 ? " op for " : " ops for ", compiler.name));
      Count("regions");
      Count("ops", static_cast<int64_t>(region.size()));
    }
  }

  Operation* MoveOut(Rewriter& rewriter, const std::vector<Operation*>& ops,
                     const std::string& name, const ExternalCompiler& compiler) {
    const Program& program = rewriter.program();
    Outliner out(rewriter, ops, [&](const Operation* op, size_t i) {
      return ConstantValue(program, op->operand(i)) != nullptr;
    });
    rewriter.set_location(out.location());
    rewriter.SetInsertionPoint(ops.back());
    const NamedAttribute callee = rewriter.Named(builtin::CallOp::kCalleeAttr, rewriter.Attr(name));
    Operation* call = rewriter.Builder::Create(rewriter.context().GetOp<builtin::CallOp>(),
                                               out.arguments(), {&callee, 1}, out.result_types());
    rewriter.SetInsertionPointToEnd(program.block());
    const std::vector<NamedAttribute> attributes = {
        rewriter.Named(builtin::FuncOp::kNameAttr, rewriter.Attr(name)),
        rewriter.Named(kCompilerAttr, rewriter.Attr(compiler.name))};
    Operation* function = rewriter.Builder::Create(rewriter.context().GetOp<builtin::FuncOp>(), {},
                                                   attributes, {}, 1);
    std::vector<Value> results;
    for (size_t i = 0; i < call->num_results(); ++i) results.push_back(call->result(i));
    Block* body = function->region(0).AddBlock();
    out.MoveInto(body, results);
    Builder::AtEnd(body).Create(rewriter.context().GetOp<builtin::ReturnOp>(), out.results(), {},
                                {});
    return function;
  }

  /// `<prefix>_<compiler>_<function>_<n>`, the first n that is free.
  std::string FreshName(const std::string& compiler, const std::string& owner) {
    const std::string base = StrCat(option("prefix"), "_", compiler, "_", owner, "_");
    size_t& n = next_[base];
    while (!names_.insert(StrCat(base, n)).second) ++n;
    return StrCat(base, n);
  }

  std::set<std::string> names_;
  std::map<std::string, size_t> next_;
};

REGISTER_PASS(partition_external, PartitionExternalPass)
    .Doc("makes convex regions of operations that an external compiler takes functions for it")
    .Details(
        "Regions are as large as can be without a path that leaves one and comes back, and without "
        "a cycle of regions; they may have several results, each given once. Constants and "
        "immutable parameters become part of the function, which is named "
        "<prefix>_<compiler>_<function>_<n> and carries the attribute `compiler`. A compiler is "
        "registered by the library or a plug-in (include/lathe/lower/external.h).")
    .Option("compiler", PassOption::Kind::kString, "", "name of a registered compiler")
    .Option("prefix", PassOption::Kind::kString, "lathe", "begins the names of the functions")
    .Option("min_ops", PassOption::Kind::kInt, "1", "smaller regions stay where they are")
    .AtLeast(0);

}  // namespace lathe
