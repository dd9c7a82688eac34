#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/data_sizes.h"
#include "src/transform/refine_types.h"

namespace lathe {

/// A size that was bound because nobody could say what it is, and that inference knows now, is what
/// inference says: patterns have replaced what hid it, such as the mask of an attention. The
/// binding stays for the constraints that name it; nothing else is made of it any more.
class ReleaseSizesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    if (graph.block() != program.block() || !BindsAny(*graph.block())) return;
    rewriter_.emplace(program, this);
    facts_.emplace(&program.parameters());
    for (Operation* op = graph.block()->front(); op != nullptr; op = op->next()) Visit(op);
  }

 private:
  static bool BindsAny(Block& block) {
    for (const Operation& op : block) {
      if (op.isa<nn::BindSizesOp>()) return true;
    }
    return false;
  }

  void Visit(Operation* op) {
    const auto bind = op->dyn_cast<nn::BindSizesOp>();
    if (bind && !bind.bound().use_empty() && IsKnown(bind)) {
      rewriter_->ReplaceAllUses(bind.bound(), bind.sizes());
      Count("released");
      MarkChanged();
    }
    if (InferAgain(op, *facts_) == true) MarkChanged();
  }

  // All that it names.
  bool IsKnown(nn::BindSizesOp bind) {
    const std::vector<Dim>* known = facts_->Contents(bind.sizes());
    const std::vector<std::string> names = bind.names();
    if (known == nullptr || known->size() != names.size()) return false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].empty() && (*known)[i].is_unknown()) return false;
    }
    return true;
  }

  std::optional<Rewriter> rewriter_;
  std::optional<ShapeInferencer> facts_;
};

REGISTER_PASS(release_sizes, ReleaseSizesPass)
    .Doc("sizes that the program binds, and that inference knows by now, are what inference says");

}  // namespace lathe
