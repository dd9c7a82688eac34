#include <map>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/group.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/structure.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

struct Kernel {
  std::string name;
  Operation* function = nullptr;
  std::vector<Location> locations;  ///< of the groups that it serves
};

std::string Hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

/// `fused_<op>_<op>...`, at most 80 characters, of the region's operations without dialect and
/// constants; then `_<hash>` of its structure.
std::string KernelName(const Region& function) {
  std::string name = "fused";
  for (const Operation& op : *function.front()) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    const std::string_view full = op.name();
    name += StrCat("_", full.substr(full.find('.') + 1));
    if (name.size() > 80) break;
  }
  return StrCat(name.substr(0, 80), "_", Hex(StructureHash(function)));
}

}  // namespace

/// Groups of equal structure become calls of one function.
class GraphFuseCompilePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    Rewriter rewriter(program, this);
    names_.clear();
    const FunctionTable functions(program);
    for (const Operation* f : functions.functions()) names_.insert(FunctionTable::NameOf(f));
    std::vector<Operation*> groups;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<builtin::GroupOp>()) groups.push_back(op);
    }
    std::map<std::string, Kernel> kernels;  // by structure
    std::vector<Kernel*> made;
    for (Operation* group : groups) {
      Kernel& kernel = kernels[StrCat(Describe(program, group), StructureText(group->region(0)))];
      kernel.locations.push_back(group->location());
      if (kernel.function == nullptr) {
        Outline(rewriter, group, kernel);
        made.push_back(&kernel);
      }
      Call(rewriter, group, kernel.name);
    }
    for (const Kernel* kernel : made) {
      kernel->function->set_location(Location::Fused(rewriter.context(), kernel->locations));
      const size_t count = kernel->locations.size();
      rewriter.Applied(kernel->function,
                       StrCat(kernel->name, " serves ", count, count == 1 ? " group" : " groups"));
    }
    Count("functions", static_cast<int64_t>(kernels.size()));
    Count("calls", static_cast<int64_t>(groups.size()));
  }

 private:
  /// What of a group is not in its region. Weights are packed for a kernel, values cannot be: one
  /// function for both would have to do without.
  static std::string Describe(const Program& program, const Operation* group) {
    const builtin::GroupOp op(group);
    std::string text = StrCat(op.kind(), " ", op.anchor(), " ");
    for (size_t i = 0; i < group->num_operands(); ++i) {
      text += ConstantValue(program, group->operand(i)) != nullptr ? 'c' : 'v';
    }
    return text + "\n";
  }

  /// The region of `group` moves into a new function at the end of the program.
  void Outline(Rewriter& rewriter, Operation* group, Kernel& kernel) {
    Region& body = group->region(0);
    kernel.name = FreshName(KernelName(body));
    rewriter.SetInsertionPointToEnd(rewriter.program().block());
    rewriter.set_location(group->location());
    const std::vector<NamedAttribute> attributes = {
        rewriter.Named(builtin::FuncOp::kNameAttr, rewriter.Attr(kernel.name)),
        rewriter.Named(builtin::GroupOp::kKindAttr, group->attribute(builtin::GroupOp::kKindAttr)),
        rewriter.Named(builtin::GroupOp::kAnchorAttr,
                       group->attribute(builtin::GroupOp::kAnchorAttr))};
    const OpInfo info = rewriter.context().GetOp<builtin::FuncOp>();
    kernel.function = rewriter.Builder::Create(info, {}, attributes, {}, 1);
    kernel.function->region(0).TakeBody(body);
    EndInReturn(rewriter, kernel.function->region(0).front());
  }

  static void EndInReturn(Rewriter& rewriter, Block* block) {
    Operation* yield = block->terminator();
    std::vector<Value> values;
    for (size_t i = 0; i < yield->num_operands(); ++i) values.push_back(yield->operand(i));
    rewriter.SetInsertionPoint(yield);
    rewriter.set_location(yield->location());
    rewriter.Builder::Create(rewriter.context().GetOp<builtin::ReturnOp>(), values, {}, {});
    rewriter.Erase(yield);
  }

  static void Call(Rewriter& rewriter, Operation* group, std::string_view callee) {
    std::vector<Value> arguments, results;
    std::vector<Type> types;
    for (size_t i = 0; i < group->num_operands(); ++i) arguments.push_back(group->operand(i));
    for (size_t i = 0; i < group->num_results(); ++i) types.push_back(group->result(i).type());
    rewriter.SetInsertionPoint(group);
    rewriter.set_location(group->location());
    const NamedAttribute name = rewriter.Named(builtin::CallOp::kCalleeAttr, rewriter.Attr(callee));
    const OpInfo info = rewriter.context().GetOp<builtin::CallOp>();
    Operation* call = rewriter.Builder::Create(info, arguments, {&name, 1}, types);
    for (size_t i = 0; i < call->num_results(); ++i) results.push_back(call->result(i));
    rewriter.ReplaceOp(group, results);
  }

  std::string FreshName(const std::string& base) {
    std::string name = base;
    for (int i = 1; !names_.insert(name).second; ++i) name = StrCat(base, "_", i);
    return name;
  }

  std::set<std::string> names_;
};

REGISTER_PASS(graph_fuse_compile, GraphFuseCompilePass)
    .Doc("makes every builtin.group a call; groups of equal structure share one function")
    .Details(
        "[NNVM GraphFuseCompile] Equal are the operations, the attributes that matter, the types, "
        "the flow of values and which operands are constants; not names, locations or runtime "
        "attributes. The function is named "
        "after its operations and the hash of its structure, and carries the kind and anchor of "
        "the group, so that it can be lowered by itself.");

}  // namespace lathe
