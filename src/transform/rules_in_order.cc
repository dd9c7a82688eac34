#include "src/transform/rules_in_order.h"

#include <algorithm>
#include <map>

#include "lathe/dialect/shape_inference.h"
#include "lathe/pass/pass.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

class Walk : public RewriteListener {
 public:
  Walk(Program& program, Pass* pass, const PatternSet& patterns)
      : rewriter_(program, pass), pass_(pass), inferencer_(&program.parameters()) {
    for (const auto& p : patterns) by_root_[p->root()].push_back(p.get());
    for (auto& [root, list] : by_root_) {
      std::stable_sort(list.begin(), list.end(),
                       [](const auto* a, const auto* b) { return a->benefit() > b->benefit(); });
    }
    rewriter_.set_listener(this);
  }

  /// Whether something is left to do: an earlier op may match now, or one in a region.
  bool Run(Block* block) {
    bool has_regions = false;
    for (Operation *op = block->front(), *next = nullptr; op != nullptr; op = next) {
      next = op->next();  // a rewrite erases its root and what stands before it
      has_regions |= op->num_regions() != 0;
      due_ = {op};
      for (size_t i = 0; i < due_.size(); ++i) {
        if (due_[i] == nullptr) continue;
        if (RefineTypes(due_[i], inferencer_) != 0) rewriter_.MarkChanged();
        Rewrite(due_[i]);
      }
    }
    return has_regions || rewrites_ != 0;
  }
  int64_t rewrites() const { return rewrites_; }

  void Inserted(Operation* op) override { due_.push_back(op); }
  void Erasing(Operation* op) override {
    std::replace(due_.begin(), due_.end(), op, static_cast<Operation*>(nullptr));
  }

 private:
  void Rewrite(Operation* op) {
    const auto at = by_root_.find(op->name());
    if (at == by_root_.end()) return;
    for (const RewritePattern* p : at->second) {
      rewriter_.SetInsertionPoint(op);
      rewriter_.set_location(op->location());
      if (!p->MatchAndRewrite(op, rewriter_)) continue;
      ++rewrites_;
      pass_->Count(p->name());
      return;
    }
  }

  Rewriter rewriter_;
  Pass* pass_;
  ShapeInferencer inferencer_;
  std::map<std::string, std::vector<const RewritePattern*>, std::less<>> by_root_;
  std::vector<Operation*> due_;  ///< the op at hand, then what rewriting it has made
  int64_t rewrites_ = 0;
};

}  // namespace

int64_t ApplyRulesInOrder(Program& program, Pass* pass, std::vector<Rule> rules) {
  PatternSet patterns;
  for (Rule& rule : rules) AddRule(std::move(rule), program.context(), patterns);
  Walk walk(program, pass, patterns);
  const bool more = walk.Run(pass->scope() != nullptr ? pass->scope() : program.block());
  return walk.rewrites() + (more ? ApplyPatternsGreedily(program, pass, patterns) : 0);
}

}  // namespace lathe
