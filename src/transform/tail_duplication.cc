#include <algorithm>
#include <optional>
#include <ranges>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

const Operation* YieldOf(const Region& region) { return region.front()->back(); }

/// Whether an operation may run in a branch instead of after it, and before what it stands behind.
bool IsMovable(Operation* op) {
  for (OpWalker w(op); Operation* inner = w.Next();) {
    const bool holds = inner->isa<cf::IfOp>() || inner->isa<cf::WhileOp>() ||
                       inner->isa<cf::ScanOp>() || inner->isa<cf::YieldOp>();
    if (!holds && !IsMergeable(inner)) return false;
  }
  return !op->HasTrait<Terminator>();
}

/// Calls `visit` for what an operation and those in its regions read.
template <class Visit>
void ForEachRead(Operation* op, const Visit& visit) {
  for (OpWalker w(op); Operation* inner = w.Next();) {
    for (size_t i = 0; i < inner->num_operands(); ++i) {
      if (inner->operand(i)) visit(inner->operand(i));
    }
  }
}

/// The consumers of an `if` in its block, direct and indirect.
class Tail {
 public:
  explicit Tail(Operation* branch) : branch_(branch) {
    Enter(branch, values_);
    for (Operation* op = branch->next(); op != nullptr; op = op->next()) Visit(op);
    FindRead();
  }

  /// In their order.
  const std::vector<Operation*>& ops() const { return ops_; }
  /// How many these are, with those in their regions.
  int64_t size() const {
    int64_t count = 0;
    for (Operation* op : ops_) {
      for (OpWalker w(op); w.Next() != nullptr;) ++count;
    }
    return count;
  }
  /// What `ops` read and does not depend on the `if`, but stands behind it.
  const std::vector<Operation*>& read() const { return read_; }
  /// Results of the `if` and of `ops` that others read.
  std::vector<Value> Escaping() const {
    std::vector<Value> escaping;
    const auto visit = [&](Operation* op) {
      for (size_t i = 0; i < op->num_results(); ++i) {
        if (outside_.contains(op->result(i))) escaping.push_back(op->result(i));
      }
    };
    visit(branch_);
    for (Operation* op : ops_) visit(op);
    return escaping;
  }

 private:
  static void Enter(Operation* op, std::unordered_set<Value>& to) {
    for (size_t i = 0; i < op->num_results(); ++i) to.insert(op->result(i));
  }

  void Visit(Operation* op) {
    bool depends = false, stays = !IsMovable(op);
    ForEachRead(op, [&](Value v) {
      depends |= values_.contains(v);
      stays |= staying_.contains(v);
    });
    if (depends && !stays) {
      ops_.push_back(op);
      Enter(op, values_);
    } else if (depends || stays) {
      Enter(op, staying_);
      ForEachRead(op, [&](Value v) { outside_.insert(v); });
    } else {
      apart_.push_back(op);
    }
  }

  void FindRead() {
    std::unordered_set<Value> wanted;
    const auto want = [&](Operation* op) { ForEachRead(op, [&](Value v) { wanted.insert(v); }); };
    for (Operation* op : ops_) want(op);
    for (Operation* op : apart_ | std::views::reverse) {
      bool is_wanted = false;
      for (size_t i = 0; i < op->num_results(); ++i) is_wanted |= wanted.contains(op->result(i));
      if (!is_wanted) continue;
      want(op);
      read_.push_back(op);
    }
    std::ranges::reverse(read_);
  }

  Operation* branch_;
  std::vector<Operation*> ops_, apart_, read_;
  std::unordered_set<Value> values_, staying_, outside_;  // looked up, never iterated
};

}  // namespace

/// An `if` whose branches give tensors of different ranks, as exporters write torch.squeeze(x, d)
/// of an axis of open extent: its consumers have a known rank, and so a plan, in either branch.
class TailDuplicationPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    if (!HasTwoRanks(graph)) return;
    left_ = option_int("most");
    rewriter_.emplace(graph.program(), this);
    ShapeInferencer facts(&graph.program().parameters());
    VisitBlock(graph.block(), facts, 0);
  }

 private:
  static constexpr int64_t kMostNested = 3;  // of branches that hold each other

  // As deep as programs nest, and branches that this pass has put into others.
  void VisitBlock(Block* block, ShapeInferencer& facts, int64_t depth) {
    for (Operation* op = block->front(); op != nullptr; op = op->next()) {
      Infer(op, facts);
      if (!op->isa<cf::IfOp>()) {
        for (Region& region : op->regions()) VisitBlock(region.front(), facts, depth);
        continue;
      }
      if (depth < kMostNested && GivesTwoRanks(op)) op = Duplicate(op, facts);
      for (Region& region : op->regions()) VisitBlock(region.front(), facts, depth + 1);
      Infer(op, facts);
    }
  }

  void Infer(Operation* op, ShapeInferencer& facts) {
    if (RefineTypes(op, facts) != 0) MarkChanged();
  }

  static bool HasTwoRanks(Graph& graph) {
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<cf::IfOp>() && GivesTwoRanks(op)) return true;
    }
    return false;
  }

  static bool GivesTwoRanks(const Operation* op) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto a = YieldOf(op->region(0))->operand(i).type().dyn_cast<AnyTensorType>();
      const auto b = YieldOf(op->region(1))->operand(i).type().dyn_cast<AnyTensorType>();
      const bool have_ranks = a && b && a.has_rank() && b.has_rank();
      if (have_ranks && a.rank() != b.rank() && a.is_value() && b.is_value()) return true;
    }
    return false;
  }

  // The `if` that takes its place; itself if none does.
  Operation* Duplicate(Operation* op, const ShapeInferencer& facts) {
    const Tail tail(op);
    if (tail.ops().empty()) return op;
    const int64_t size = tail.size();
    if (size > left_) {
      rewriter_->Missed(op, StrCat("its branches give different ranks, and its consumers are ",
                                   size, " operations, more than may be written twice"));
      return op;
    }
    for (Operation* read : tail.read()) rewriter_->MoveBefore(read, op);
    const std::vector<Value> escaping = tail.Escaping();
    Operation* made = Make(op, tail, escaping);
    if (!IsRight(made, facts)) {
      rewriter_->Missed(op, "its branches give different ranks, one of which its consumers refuse");
      rewriter_->Erase(made);
      return op;
    }
    rewriter_->Applied(op, StrCat("its consumers (", size, ") are in either branch"));
    left_ -= size;
    for (size_t i = 0; i < escaping.size(); ++i) {
      rewriter_->ReplaceAllUses(escaping[i], made->result(i));
    }
    for (Operation* done : tail.ops() | std::views::reverse) rewriter_->Erase(done);
    rewriter_->Erase(op);
    Count("duplicated", size);
    return made;
  }

  Operation* Make(Operation* op, const Tail& tail, const std::vector<Value>& escaping) {
    std::vector<Type> types;
    for (const Value v : escaping) types.push_back(Unranked(v.type()));
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    const Value condition = cf::IfOp(op).cond();
    Operation* made = rewriter_->Builder::Create(rewriter_->context().FindOp(cf::kIf),
                                                 {&condition, 1}, {}, types, 2);
    for (size_t r = 0; r < 2; ++r) {
      IrMapping mapping;
      rewriter_->SetInsertionPointToEnd(made->region(r).AddBlock());
      const Operation* yield = YieldOf(op->region(r));
      for (const Operation& inner : *op->region(r).front()) {
        if (&inner != yield) rewriter_->Insert(Clone(&inner, mapping));
      }
      for (size_t i = 0; i < op->num_results(); ++i) {
        mapping.Map(op->result(i), mapping.Lookup(yield->operand(i)));
      }
      for (const Operation* consumer : tail.ops()) rewriter_->Insert(Clone(consumer, mapping));
      std::vector<Value> yielded;
      for (const Value v : escaping) yielded.push_back(mapping.Lookup(v));
      rewriter_->Builder::Create(cf::kYield, yielded);
    }
    return made;
  }

  static Type Unranked(Type type) {
    const auto tensor = type.dyn_cast<AnyTensorType>();
    return tensor ? tensor.With(tensor.element(), SymShape()) : type;
  }

  // Facts about what is erased again are not kept.
  static bool IsRight(Operation* made, ShapeInferencer facts) {
    try {
      facts.Visit(made);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kLimit) throw;
      return false;
    }
    return true;
  }

  std::optional<Rewriter> rewriter_;
  int64_t left_ = 0;  // operations that may still be written twice
};

REGISTER_PASS(tail_duplication, TailDuplicationPass)
    .Doc("the consumers of an if whose branches give different ranks go into either branch")
    .Details(
        "So they have a known rank, and a plan, there. What has effects stays behind the `if`, and "
        "so do its consumers; where a consumer refuses one of the ranks, all stay.")
    .Option("most", PassOption::Kind::kInt, "2000", "operations that are written twice, at most");

}  // namespace lathe
