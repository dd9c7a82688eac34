#include <unordered_set>

#include "lathe/ir/walk.h"
#include "lathe/pass/fold.h"
#include "lathe/pass/pass.h"
#include "src/transform/layout_region.h"

namespace lathe {

/// Transposes move to where there are fewest of them. Each is the seed of a region once; a region
/// that gains nothing settles all the transposes that it has seen.
class TransposeSinkingPass : public Pass, private RewriteListener {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    Rewriter rewriter(program, this);
    rewriter.set_listener(this);
    ProgramConstants constants(program);
    do {
      queue_.clear();
      settled_.clear();
      for (OpWalker w(program.module()); Operation* op = w.Next();) Inserted(op);
      while (Step(rewriter, constants)) {
      }
    } while (MergeTransposes(program, this));
    queue_.clear();
  }

 private:
  void Inserted(Operation* op) override {
    if (TransposePerm(op).empty()) return;
    queue_.push_back(op);
    alive_.insert(op);
  }
  void Erasing(Operation* op) override {
    alive_.erase(op);
    settled_.erase(op);
  }

  bool Step(Rewriter& rewriter, ProgramConstants& constants) {
    if (next_ >= queue_.size()) {
      next_ = 0;
      return false;
    }
    Operation* op = queue_[next_++];
    if (alive_.count(op) == 0 || settled_.count(op) != 0) return true;
    LayoutRegion region(rewriter, constants, op->block());
    if (!option_bool("layouts")) region.KeepLayouts();
    region.AddTranspose(op);
    if (region.Solve() > 0) {
      region.Apply();
      Count("regions");
    } else {
      settled_.insert(region.sources().begin(), region.sources().end());
    }
    return true;
  }

  std::vector<Operation*> queue_;
  size_t next_ = 0;
  std::unordered_set<const Operation*> alive_, settled_;  // look-up only
};

REGISTER_PASS(transpose_sinking, TransposeSinkingPass)
    .Doc("moves transposes through what commutes with them, where that leaves fewer")
    .Details(
        "Regions of operations that commute with a permutation (each op says how: interface "
        "Permute; element by element ones all do) work on permuted data when that needs fewer "
        "transposes, or as many of smaller tensors. Never leaves more than there were. "
        "Convolutions and pools keep their attribute `layout` unless `layouts` is set: ONNX has no "
        "such attribute.")
    .Option("layouts", PassOption::Kind::kBool, "false", "convolutions may change their layout");

}  // namespace lathe
