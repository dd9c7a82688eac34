#include "src/transform/rank_values.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/dist/collective.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/transform/multi_devices.h"

namespace lathe {
namespace {

// Whatever the operands are.
bool IsShared(const Operation* op) {
  return op->isa<dist::AllReduceOp>() || op->isa<dist::AllReduceBucketOp>() ||
         op->isa<dist::BroadcastOp>() || op->isa<dist::AllGatherOp>() ||
         op->isa<dist::StartAllReduceOp>() || op->isa<dist::StartAllGatherOp>();
}

// Whatever the operands are.
bool IsDiffering(const Operation* op) {
  return op->isa<nn::FeedOp>() || op->HasTrait<Random>() || IsCollective(op);
}

bool ReadsMoreThanArguments(Operation* function) {
  for (OpWalker w(function); const Operation* op = w.Next();) {
    if (IsDiffering(op) || op->isa<builtin::GetParameterOp>()) return true;
  }
  return false;
}

}  // namespace

RankValues::RankValues(const Program& program) {
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    const auto function = op->dyn_cast<builtin::FuncOp>();
    if (function && ReadsMoreThanArguments(op)) functions_.emplace(function.name());
  }
  do {  // what loops and parameters carry comes round again
    changed_ = false;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->isa<builtin::FuncOp>()) {
        w.SkipRegions();
      } else {
        Visit(op);
      }
    }
  } while (changed_);
}

bool RankValues::RunsApart(const Operation* op) const {
  const auto differs = [&](size_t i) {
    return i < op->num_operands() && op->operand(i) && MayDiffer(op->operand(i));
  };
  if (op->isa<cf::IfOp>()) return differs(0);
  if (!op->isa<cf::WhileOp>()) return ReadsDiffering(op);
  const Operation* yield = op->region(0).front()->back();
  return differs(cf::WhileOp::kTripCount) || differs(cf::WhileOp::kCond) ||
         MayDiffer(yield->operand(0));
}

void RankValues::Visit(Operation* op) {
  if (op->isa<cf::YieldOp>()) return VisitYield(op);
  if (auto set = op->dyn_cast<builtin::SetParameterOp>()) {
    if (MayDiffer(set.value())) changed_ |= variables_.emplace(set.name()).second;
    return;
  }
  if (op->isa<cf::WhileOp>()) {  // arguments: the round, whether it goes on, what is carried
    Block& body = *op->region(0).front();
    for (size_t i = 0; i < body.num_arguments(); ++i) {
      const Value given = i < op->num_operands() ? op->operand(i) : Value();
      const bool is_carried = i >= cf::WhileOp::kCarried;
      if (is_carried ? given && MayDiffer(given) : RunsApart(op)) Mark(body.argument(i));
    }
    if (RunsApart(op)) MarkAll(op);
    return;
  }
  if (ResultsDiffer(op)) MarkAll(op);
  if (op->isa<cf::IfOp>() || !RunsApart(op)) return;
  for (Region& region : op->regions()) {
    for (Block& block : region) {
      for (size_t i = 0; i < block.num_arguments(); ++i) Mark(block.argument(i));
    }
  }
}

void RankValues::VisitYield(Operation* yield) {
  Operation* op = yield->parent_op();
  if (op == nullptr) return;
  const size_t first = op->isa<cf::WhileOp>() ? 1 : 0;  // before it: whether the loop goes on
  const bool is_structured = op->isa<cf::WhileOp>() || op->isa<cf::IfOp>();
  for (size_t i = first; i < yield->num_operands(); ++i) {
    if (!MayDiffer(yield->operand(i))) continue;
    if (!is_structured) return MarkAll(op);
    if (i - first < op->num_results()) Mark(op->result(i - first));
    const size_t argument = cf::WhileOp::kCarried + i - first;
    Block& body = *yield->block();
    if (first == 1 && argument < body.num_arguments()) Mark(body.argument(argument));
  }
}

bool RankValues::ResultsDiffer(Operation* op) const {
  if (IsShared(op)) return false;
  const auto wait = op->dyn_cast<dist::WaitOp>();
  if (op->isa<dist::BarrierOp>() || op->isa<dist::SendOp>() || (wait && !wait.part())) {
    return ReadsDiffering(op);
  }
  if (IsDiffering(op)) return true;
  if (op->isa<cf::IfOp>()) return RunsApart(op);
  if (op->isa<builtin::DependOp>()) return MayDiffer(op->operand(0));  // tokens say when, not what
  if (const auto get = op->dyn_cast<builtin::GetParameterOp>()) {
    return variables_.contains(get.name());
  }
  const auto call = op->dyn_cast<builtin::CallOp>();
  return ReadsDiffering(op) || (call && functions_.contains(call.callee()));
}

bool RankValues::ReadsDiffering(const Operation* op) const {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (op->operand(i) && MayDiffer(op->operand(i))) return true;
  }
  return false;
}

void RankValues::Mark(Value value) { changed_ |= differing_.insert(value).second; }

void RankValues::MarkAll(const Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) Mark(op->result(i));
}

// ---- collectives ----

CollectiveFinder::CollectiveFinder(const Program& program) {
  for (bool changed = true; changed;) {  // functions that call such functions
    changed = false;
    for (Operation& op : *program.block()) {
      const auto function = op.dyn_cast<builtin::FuncOp>();
      if (function && HoldsWithin(&op)) changed |= functions_.emplace(function.name()).second;
    }
  }
}

bool CollectiveFinder::Holds(Operation* op) const {
  return !op->isa<builtin::FuncOp>() && HoldsWithin(op);
}

bool CollectiveFinder::HoldsWithin(Operation* op) const {
  const auto is = [&](Operation* inner) {
    const auto call = inner->dyn_cast<builtin::CallOp>();
    return IsCollective(inner) || (call && functions_.contains(call.callee()));
  };
  if (is(op)) return true;
  if (op->num_regions() == 0) return false;
  for (OpWalker w(op); Operation* inner = w.Next();) {
    if (is(inner)) return true;
  }
  return false;
}

}  // namespace lathe
