#include "lathe/dialect/decompose.h"

#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

/// Replaces composite ops by what their own Decompose makes of them.
class DecomposePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const std::vector<std::string> kinds = option_list("ops");
    for (const std::string& kind : kinds) CheckKind(graph.context().GetOrMakeOp(kind));
    std::vector<Operation*> ops;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      const bool wanted =
          kinds.empty() || std::find(kinds.begin(), kinds.end(), op->name()) != kinds.end();
      if (wanted && op->HasInterface<DecomposeInterface>()) ops.push_back(op);
    }
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : ops) Decompose(op, rewriter);
  }

 private:
  static void CheckKind(const OpInfo& info) {
    if (info.GetInterface<DecomposeInterface>() != nullptr) return;
    throw Error(ErrorCode::kInvalidArgument, "decompose/op",
                StrCat(info.name(), " is not made of other ops"))
        .Hint("leave it out, or leave out `ops` to decompose whatever can be");
  }

  void Decompose(Operation* op, Rewriter& rewriter) {
    for (const detail::OpOperandImpl& o : op->operands()) {
      if (o.value != nullptr && Value(o.value).type().isa<TensorType>()) return;
    }
    rewriter.SetInsertionPoint(op);
    rewriter.set_location(op->location());
    const Operation* before = op->prev();
    const std::vector<Value> results = DecomposeInFloats(op, rewriter);
    if (results.empty()) {
      Missed(op, "this form has no other, or its rank is not known");
      return;
    }
    for (Operation* made = op->prev(); made != before; made = made->prev()) Carry(op, made);
    for (size_t i = 0; i < results.size(); ++i) rewriter.ReplaceAllUses(op->result(i), results[i]);
    rewriter.Erase(op);
    Count("decomposed");
  }

  /// What the declaration of `op` does not list goes on to what it is made of.
  static void Carry(const Operation* op, Operation* made) {
    const auto declared = op->info().impl()->attribute_names();
    for (const NamedAttribute& a : op->attributes().entries()) {
      const bool own = std::find(declared.begin(), declared.end(), a.name) != declared.end();
      if (!own && !made->HasTrait<ConstantLike>() && !made->attribute(a.name.value())) {
        made->SetAttribute(a.name.value(), a.value);
      }
    }
  }
};

REGISTER_PASS(decompose, DecomposePass)
    .Doc("replaces composite operations by the simpler ones that they are made of")
    .Details(
        "Activations, normalizations, softmax, norms of vectors, global pools, nn.gemm and others "
        "whose declaration lists Decompose become arithmetic, reductions and products: equal up "
        "to rounding. What is computed in a wider type by definition (integers under a factor "
        "that is not an integer) stays, and so does what needs a rank that is not known.")
    .Option("ops", PassOption::Kind::kStrings, "[]", "kinds to decompose; empty: all that can be");

}  // namespace lathe
