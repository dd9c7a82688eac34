#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/dialect/cf/loop_sizes.h"

namespace lathe {

/// What a loop carries and never changes, such as weights that exporters of TensorFlow hand through
/// it, is read from where it was before the loop; what nothing reads is not carried. Weights are
/// constants of kernels then, and no round copies them.
class LoopInvariantsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> loops;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<cf::WhileOp>()) loops.push_back(op);
    }
    // What inner loops only hand on, the outer ones hand on then.
    for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) Shorten(*loop);
  }

 private:
  static size_t NumCarried(Operation* loop) { return cf::WhileOp(loop).carried().size(); }

  // What need not be carried. A name of its sizes has readers that nobody sees here.
  static std::vector<bool> Kept(Operation* loop) {
    const Block* body = loop->region(0).front();
    const auto sizes = cf::WhileOp(loop).sizes();
    std::vector<bool> kept(loop->num_results(), true);
    for (size_t i = 0; i < NumCarried(loop); ++i) {
      const Value argument = body->argument(cf::kLoopArguments + i);
      const Value initial = loop->operand(cf::WhileOp::kCarried + i);
      const auto type = argument.type().dyn_cast<AnyTensorType>();
      if (!type || !type.is_value() || (sizes && !(*sizes)[i].empty())) continue;
      const bool stays =
          body->back()->operand(i + 1) == argument && initial.type() == argument.type();
      kept[i] = !stays && !(argument.use_empty() && loop->result(i).use_empty());
    }
    KeepTelling(loop, kept);
    return kept;
  }

  static void Collect(Value v, std::vector<std::string>& symbols) {
    const auto type = v.type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return;
    for (const Dim& dim : type.dims()) dim.CollectSymbols(symbols);
  }

  // Of a loop without rounds, what is carried tells the extents of what is stacked.
  static void KeepTelling(Operation* loop, std::vector<bool>& kept) {
    const size_t carried = NumCarried(loop);
    std::vector<std::string> wanted, told;
    for (size_t i = carried; i < loop->num_results(); ++i) Collect(loop->result(i), wanted);
    const auto initial = [&](size_t i) { return loop->operand(cf::WhileOp::kCarried + i); };
    for (size_t i = 0; i < carried; ++i) {
      if (kept[i]) Collect(initial(i), told);
    }
    for (size_t i = 0; i < carried && !wanted.empty(); ++i) {
      std::vector<std::string> tells;
      Collect(initial(i), tells);
      const bool is_wanted = std::ranges::any_of(tells, [&](const std::string& name) {
        return std::ranges::count(wanted, name) > 0 && std::ranges::count(told, name) == 0;
      });
      if (kept[i] || !is_wanted) continue;
      kept[i] = true;
      told.insert(told.end(), tells.begin(), tells.end());
    }
  }

  void Shorten(Operation* loop) {
    const std::vector<bool> kept = Kept(loop);
    const auto dropped = static_cast<size_t>(std::ranges::count(kept, false));
    if (dropped == 0) return;
    rewriter_->Applied(loop, StrCat(dropped, " values are the same in each round, or unread"));
    Count("dropped", static_cast<int64_t>(dropped));
    Operation* made = MakeLoop(loop, kept);
    MoveBody(loop, made->region(0).AddBlock(), kept);
    for (size_t i = 0, next = 0; i < kept.size(); ++i) {
      rewriter_->ReplaceAllUses(loop->result(i), kept[i]
                                                     ? made->result(next++)
                                                     : loop->operand(cf::WhileOp::kCarried + i));
    }
    rewriter_->Erase(loop);
  }

  Operation* MakeLoop(Operation* loop, const std::vector<bool>& kept) {
    std::vector<Value> operands{loop->operand(cf::WhileOp::kTripCount),
                                loop->operand(cf::WhileOp::kCond)};
    const auto sizes = cf::WhileOp(loop).sizes();
    std::vector<Type> types;
    std::vector<std::string> names;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      if (i < NumCarried(loop)) operands.push_back(loop->operand(cf::WhileOp::kCarried + i));
      types.push_back(loop->result(i).type());
      if (sizes) names.push_back((*sizes)[i]);
    }
    rewriter_->SetInsertionPoint(loop);
    rewriter_->set_location(loop->location());
    const OpInfo info = rewriter_->context().FindOp(cf::kWhile);
    Operation* made =
        rewriter_->Builder::Create(info, operands, loop->attributes().entries(), types, 1);
    if (sizes) {
      rewriter_->SetAttribute(
          made, cf::WhileOp::kSizesAttr,
          ArrayAttribute::Get(rewriter_->context(), std::span<const std::string>(names)));
    }
    return made;
  }

  void MoveBody(Operation* loop, Block* to, const std::vector<bool>& kept) {
    Block* from = loop->region(0).front();
    Operation* yield = from->back();
    std::vector<Value> yields{yield->operand(0)};
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) yields.push_back(yield->operand(i + 1));
    }
    rewriter_->SetInsertionPoint(yield);
    rewriter_->Create(cf::kYield, yields);
    rewriter_->Erase(yield);
    for (size_t i = 0; i < from->num_arguments(); ++i) {
      const bool is_carried = i >= cf::kLoopArguments;
      const size_t carried = is_carried ? i - cf::kLoopArguments : 0;
      const bool stays = !is_carried || kept[carried];
      rewriter_->ReplaceAllUses(from->argument(i),
                                stays ? to->AddArgument(from->argument(i).type())
                                      : loop->operand(cf::WhileOp::kCarried + carried));
    }
    while (Operation* op = from->front()) op->MoveToEnd(to);
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(loop_invariants, LoopInvariantsPass)
    .Doc(
        "what loops carry and never change is read from before them; what nothing reads is "
        "dropped");

}  // namespace lathe
