#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/fold.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/pass/pointer_map.h"

namespace lathe {

namespace {

/// First in, first out; an op stands in it once; erased ops leave a hole. Membership is looked up
/// by address, order never is.
class Worklist {
 public:
  void Push(Operation* op) {
    if (place_.Get(op) != 0) return;
    items_.push_back(op);
    place_.Set(op, items_.size());
  }
  void Remove(Operation* op) {
    const size_t place = place_.Get(op);
    if (place == 0) return;
    items_[place - 1] = nullptr;
    place_.Set(op, 0);
  }
  Operation* Pop() {
    while (next_ < items_.size()) {
      Operation* op = items_[next_++];
      if (op == nullptr) continue;
      place_.Set(op, 0);
      return op;
    }
    items_.clear();
    next_ = 0;
    return nullptr;
  }

 private:
  std::vector<Operation*> items_;
  size_t next_ = 0;
  detail::PointerMap<size_t> place_;  // from 1 on; 0: not in it
};

class GreedyDriver : public RewriteListener {
 public:
  GreedyDriver(Program& program, Pass* pass, const PatternSet& patterns,
               const GreedyOptions& options)
      : rewriter_(program, pass),
        pass_(pass),
        options_(options),
        constants_(program),
        scope_(pass != nullptr && pass->scope() != nullptr ? pass->scope() : program.block()),
        whole_(scope_ == program.block()) {
    for (const auto& p : patterns) {
      (p->root().empty() ? anywhere_ : by_root_[p->root()]).push_back(p.get());
    }
    for (auto& [root, list] : by_root_) {
      list.insert(list.end(), anywhere_.begin(), anywhere_.end());
      Sort(list);
    }
    Sort(anywhere_);
    rewriter_.set_listener(this);
  }

  int64_t Run() {
    int64_t initial = 0;
    for (OpWalker w(scope_); Operation* op = w.Next();) {
      ++initial;
      if (IsRoot(op)) worklist_.Push(op);
    }
    const int64_t limit = (initial + 100) * options_.max_rewrites_per_op;
    int64_t rewrites = 0;
    while (Operation* op = worklist_.Pop()) {
      const std::string_view fired = Rewrite(op);
      if (!fired.empty() && ++rewrites > limit) {
        throw Error(ErrorCode::kInternal, "pass/no-convergence",
                    StrCat("patterns do not come to an end; '", fired, "' fired last"));
      }
    }
    return rewrites;
  }

  void Inserted(Operation* op) override { Queue(op); }
  void Modified(Operation* op) override { QueueAround(op); }
  void ResultsReplaced(Operation* op) override { QueueAround(op); }
  void Erasing(Operation* op) override {
    for (const detail::OpOperandImpl& o : op->operands()) {
      if (o.value == nullptr) continue;
      if (Operation* maker = Value(o.value).defining_op()) Queue(maker);
    }
    worklist_.Remove(op);
  }

 private:
  using PatternList = std::vector<const RewritePattern*>;

  static void Sort(PatternList& list) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto* a, const auto* b) { return a->benefit() > b->benefit(); });
  }

  const PatternList& PatternsFor(const Operation* op) const {
    auto at = by_root_.find(op->name());
    return at == by_root_.end() ? anywhere_ : at->second;
  }

  bool IsRoot(const Operation* op) const {
    return (options_.fold && op->HasInterface<FoldInterface>()) || !PatternsFor(op).empty();
  }

  /// The name of what fired, or nothing.
  std::string_view Rewrite(Operation* op) {
    const std::string_view fired = options_.fold && Fold(op) ? "fold" : TryPatterns(op);
    if (!fired.empty() && pass_ != nullptr) pass_->Count(fired);
    return fired;
  }

  bool Fold(Operation* op) {
    const std::vector<Value> values = FoldResults(op, constants_, rewriter_);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i]) rewriter_.ReplaceAllUses(op->result(i), values[i]);
    }
    if (!values.empty()) rewriter_.EraseDead(op);
    return !values.empty();
  }

  std::string_view TryPatterns(Operation* op) {
    for (const RewritePattern* p : PatternsFor(op)) {
      rewriter_.SetInsertionPoint(op);
      rewriter_.set_location(op->location());
      if (p->MatchAndRewrite(op, rewriter_)) return p->name();
    }
    return {};
  }

  void Queue(Operation* op) {
    if (op->block() != nullptr && IsRoot(op) && IsInScope(op)) worklist_.Push(op);
  }

  /// Not what a nested pipeline's block reads from around it.
  bool IsInScope(const Operation* op) const {
    while (!whole_ && op != nullptr && op->block() != scope_) op = op->parent_op();
    return op != nullptr;
  }

  /// The op, its producers and its users: a pattern rooted at a neighbor may match now.
  void QueueAround(Operation* op) {
    Queue(op);
    for (const detail::OpOperandImpl& o : op->operands()) {
      if (o.value == nullptr) continue;
      if (Operation* maker = Value(o.value).defining_op()) Queue(maker);
    }
    for (size_t i = 0; i < op->num_results(); ++i) {
      for (const OpOperand use : op->result(i).uses()) Queue(use.owner());
    }
  }

  Rewriter rewriter_;
  Pass* pass_;
  GreedyOptions options_;
  ProgramConstants constants_;
  Block* scope_;
  bool whole_;
  std::map<std::string, PatternList, std::less<>> by_root_;
  PatternList anywhere_;
  Worklist worklist_;
};

}  // namespace

int64_t ApplyPatternsGreedily(Program& program, Pass* pass, const PatternSet& patterns,
                              const GreedyOptions& options) {
  return GreedyDriver(program, pass, patterns, options).Run();
}

}  // namespace lathe
