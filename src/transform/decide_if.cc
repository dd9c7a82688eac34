#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

Operation* YieldOf(const Region& region) { return region.front()->back(); }

std::optional<bool> Truth(const Tensor* condition) {
  if (condition == nullptr || condition->element_type() != ElementType::kBool) return std::nullopt;
  if (condition->num_elements() != 1) return std::nullopt;
  return condition->data<bool>()[0];
}

std::optional<int64_t> OneInt(const Tensor* t) {
  if (t == nullptr || !IsInteger(t->element_type()) || t->num_elements() != 1) return std::nullopt;
  return ToInt64s(*t)[0];
}

// Types of what follows an `if`, were it to take one of its regions; all are put back at the end.
class Trial {
 public:
  explicit Trial(ShapeInferencer facts, int depth = 0) : facts_(std::move(facts)), depth_(depth) {}
  Trial(const Trial&) = delete;
  ~Trial() {
    std::ranges::reverse(before_);
    for (const auto& [value, type] : before_) value.set_type(type);
  }

  /// Whether an operation of the same block, which runs whenever the `if` does, cannot be then,
  /// whatever regions the next ones of open condition take.
  bool Fails(Operation* op, const Region& region) {
    Take(op, region);
    for (op = op->next(); op != nullptr; op = op->next()) {
      const Outcome outcome = VisitAny(op);
      if (outcome == Outcome::kOpen && op->isa<cf::IfOp>()) return FailsWithEither(op);
      if (outcome != Outcome::kFits) return outcome == Outcome::kFails;
    }
    return false;
  }

 private:
  enum class Outcome : uint8_t { kFits, kFails, kOpen };
  static constexpr int kMostOpen = 3;  // conditions, of which all regions are tried

  void Keep(Operation* op) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      before_.emplace_back(op->result(i), op->result(i).type());
    }
  }

  void Take(Operation* op, const Region& region) {
    Keep(op);
    for (size_t i = 0; i < op->num_results(); ++i) {
      op->result(i).set_type(YieldOf(region)->operand(i).type());
    }
  }

  Outcome VisitAny(Operation* op) { return op->num_regions() == 0 ? Visit(op) : VisitIf(op); }

  Outcome Walk(Operation* op) {
    for (; op != nullptr; op = op->next()) {
      if (const Outcome outcome = VisitAny(op); outcome != Outcome::kFits) return outcome;
    }
    return Outcome::kFits;
  }

  // Inference may refuse one region: it is an error only if it refuses the other one, too.
  bool FailsWithEither(Operation* op) {
    if (depth_ == kMostOpen) return false;
    return std::ranges::all_of(op->regions(), [&](const Region& region) {
      Trial taken(facts_, depth_ + 1);
      const Outcome outcome = taken.Walk(region.front()->front());
      return outcome == Outcome::kFits ? taken.Fails(op, region) : outcome == Outcome::kFails;
    });
  }

  Outcome Visit(Operation* op) {
    Keep(op);
    try {
      facts_.Visit(op);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kLimit) throw;
      const bool is_wrong = error.code() == ErrorCode::kShape || error.code() == ErrorCode::kType ||
                            error.code() == ErrorCode::kInvalidArgument;
      return is_wrong ? Outcome::kFails : Outcome::kOpen;
    }
    return Outcome::kFits;
  }

  // As deep as programs nest.
  Outcome VisitIf(Operation* op) {
    if (!op->isa<cf::IfOp>()) return Outcome::kOpen;
    const auto truth = Truth(facts_.Constant(cf::IfOp(op).cond()));
    if (!truth) return Outcome::kOpen;
    const Region& region = op->region(*truth ? 0 : 1);
    const Outcome outcome = Walk(region.front()->front());
    if (outcome == Outcome::kFits) Take(op, region);
    return outcome;
  }

  ShapeInferencer facts_;
  int depth_;
  std::vector<std::pair<Value, Type>> before_;
};

}  // namespace

/// An `if` whose condition follows from sizes becomes what it runs. So does what exporters make of
/// torch.squeeze(x, d), an `if` that drops an axis where its extent is 1 and else gives x as it is:
/// where what follows can only be with the lower rank, it is a squeeze, which checks the extent.
class DecideIfPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    bool any = false;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) any |= op->isa<cf::IfOp>();
    if (!any) return;
    rewriter_.emplace(graph.program(), this);
    ShapeInferencer facts(&graph.program().parameters());
    VisitBlock(graph.block(), facts);
  }

 private:
  // As deep as programs nest. What is decided is visited in its new place.
  void VisitBlock(Block* block, ShapeInferencer& facts) {
    for (Operation* op = block->front(); op != nullptr;) {
      Operation* before = op->prev();
      if (op->isa<cf::IfOp>() && Decide(op, facts)) {
        op = before == nullptr ? block->front() : before->next();
        continue;
      }
      // What a loop hands its body has no type before.
      if (op->num_regions() != 0 && !op->isa<cf::IfOp>()) Infer(op, facts);
      for (Region& region : op->regions()) VisitBlock(region.front(), facts);
      Infer(op, facts);
      op = op->next();
    }
  }

  void Infer(Operation* op, ShapeInferencer& facts) {
    if (RefineTypes(op, facts) != 0) MarkChanged();
  }

  bool Decide(Operation* op, ShapeInferencer& facts) {
    if (const auto truth = Truth(facts.Constant(cf::IfOp(op).cond()))) {
      Inline(op, op->region(*truth ? 0 : 1));
      return true;
    }
    if (!IsSqueezeOfOne(op, facts)) return false;
    const auto fails = [&](const Region& region) { return Trial(facts).Fails(op, region); };
    if (!fails(op->region(1)) || fails(op->region(0))) {
      rewriter_->Missed(op, "what follows may be for either branch");
      return false;
    }
    Inline(op, op->region(0));
    return true;
  }

  void Inline(Operation* op, Region& region) {
    rewriter_->Applied(op, "runs one branch only");
    Operation* yield = YieldOf(region);
    while (region.front()->front() != yield) rewriter_->MoveBefore(region.front()->front(), op);
    for (size_t i = 0; i < op->num_results(); ++i) {
      rewriter_->SetResultType(op, i, yield->operand(i).type());
      rewriter_->ReplaceAllUses(op->result(i), yield->operand(i));
    }
    rewriter_->Erase(op);
    Count("decided");
  }

  // if (shape(x)[k] == 1) squeeze(x, k) else x
  static bool IsSqueezeOfOne(Operation* op, ShapeInferencer& facts) {
    if (op->num_results() != 1) return false;
    const Operation* squeeze = op->region(0).front()->front();
    const Operation* other = op->region(1).front()->front();
    if (!squeeze->isa<nn::SqueezeOp>() || squeeze->next() != YieldOf(op->region(0))) return false;
    const bool is_whole = other == YieldOf(op->region(1)) &&
                          other->operand(0) == squeeze->operand(0) &&
                          squeeze->next()->operand(0) == squeeze->result(0);
    if (!is_whole || squeeze->num_operands() < 2) return false;
    const auto type = squeeze->operand(0).type().dyn_cast<AnyTensorType>();
    const auto axis = OneInt(facts.Constant(squeeze->operand(1)));
    const auto asked = AxisComparedWithOne(cf::IfOp(op).cond(), squeeze->operand(0), facts);
    if (!type || !type.has_rank() || !axis || !asked) return false;
    const auto rank = static_cast<int64_t>(type.rank());
    return (*axis + rank) % rank == (*asked + rank) % rank;
  }

  // k of shape(x)[k] == 1
  static std::optional<int64_t> AxisComparedWithOne(Value condition, Value x,
                                                    ShapeInferencer& facts) {
    const Operation* equal = condition.defining_op();
    if (equal == nullptr || !equal->isa<nn::EqualOp>()) return std::nullopt;
    for (const size_t i : {0, 1}) {
      const Operation* gather = equal->operand(i).defining_op();
      if (OneInt(facts.Constant(equal->operand(1 - i))) != 1) continue;
      if (gather == nullptr || !gather->isa<nn::GatherOp>()) continue;
      Operation* shape = gather->operand(0).defining_op();
      if (shape == nullptr || !shape->isa<nn::ShapeOp>() || shape->operand(0) != x) continue;
      const nn::ShapeOp whole(shape);
      if (whole.start() != 0 || whole.end()) continue;
      return OneInt(facts.Constant(gather->operand(1)));
    }
    return std::nullopt;
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(decide_if, DecideIfPass)
    .Doc(
        "an if that sizes decide becomes the branch it takes; so does one that drops an axis of "
        "extent 1 where what follows needs that");

}  // namespace lathe
