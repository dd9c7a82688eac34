#include <algorithm>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/error.h"
#include "src/lower/schedule/touched.h"

namespace lathe::schedule {
namespace {

Block* BodyOf(const Operation* loop) { return loop->region(0).front(); }

// Moves the computation of a memory into a loop that reads it.
class Mover {
 public:
  Mover(const Operation* producer, const Operation* loop)
      : producer_(const_cast<Operation*>(producer)), loop_(const_cast<Operation*>(loop)) {}

  std::string Refusal();
  Operation* Move();

 private:
  std::string FindNest();
  std::string FindStore();
  std::string CheckAxes();
  std::string CheckOrder();
  std::string CheckUses();

  Operation* producer_;
  Operation* loop_;
  Leaves leaves_;
  std::vector<Operation*> nest_;  // of the producer, outermost first
  Operation* store_ = nullptr;    // the only one in it
  Value memory_;
  std::vector<Operation*> axis_loop_;  // that counts each axis; null: it is one element long
  Touched touched_;
};

std::string Mover::FindNest() {
  for (Operation* at = producer_; at != nullptr; at = PerfectlyNested(at)) {
    if (at->name() != loop::ForOp::kName) return StrCat(at->name(), " is not a loop");
    if (at->num_results() > 0) return "the loops that compute the memory carry values";
    nest_.push_back(at);
  }
  return "";
}

std::string Mover::FindStore() {
  for (OpWalker w(producer_); Operation* op = w.Next();) {
    if (op->name() != loop::StoreInplaceOp::kName) continue;
    if (store_ != nullptr) return "the loops store more than once";
    store_ = op;
  }
  if (store_ == nullptr) return "the loops store nothing";
  if (store_->block() != BodyOf(nest_.back())) return "the store is not in the innermost loop";
  const loop::StoreInplaceOp store(store_);
  if (store.value().type().cast<AnyTensorType>().rank() != 0) return "the loops store vectors";
  if (!store_->result(0).use_empty()) return "what a store gives is used";
  memory_ = store_->operand(0);
  const Operation* alloc = memory_.defining_op();
  return alloc != nullptr && alloc->isa<loop::AllocOp>() ? ""
                                                         : "it is not the function's own memory";
}

// The producer computes element (i, j, ...) in iteration (i, j, ...), all of them.
std::string Mover::CheckAxes() {
  const Operation* alloc = memory_.defining_op();
  const auto type = memory_.type().cast<AnyTensorType>();
  std::vector<Operation*> left = nest_;
  for (size_t a = 0; a < type.rank(); ++a) {
    const Dim index = leaves_.Of(store_->operand(loop::StoreInplaceOp::kIndices + a));
    const Dim extent = alloc->num_operands() > 0 ? leaves_.Of(alloc->operand(a)) : type.dims()[a];
    const auto at = std::ranges::find_if(left, [&](const Operation* l) {
      return index == leaves_.SymbolOf(CounterOf(l)) && ExtentOf(l, leaves_) == extent;
    });
    if (at != left.end()) {
      axis_loop_.push_back(*at);
      left.erase(at);
    } else if (index.IsConstant(0) && extent.IsConstant(1)) {
      axis_loop_.push_back(nullptr);
    } else {
      return "an iteration does not compute the element of its number";
    }
  }
  return left.empty() ? "" : "an element is computed more than once";
}

// What the producer reads is the same where its elements are computed instead.
std::string Mover::CheckOrder() {
  Operation* around = loop_;
  while (around != nullptr && around->block() != producer_->block()) around = around->parent_op();
  Operation* at = producer_->next();
  while (around != nullptr && at != nullptr && at != around) at = at->next();
  if (around == nullptr || at == nullptr) return "the loop is not behind those that compute it";
  for (OpWalker w(producer_); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v || v == memory_ || !v.type().isa<AnyTensorType>()) continue;
      if (IsInside(v.is_block_argument() ? v.argument_block()->parent_op() : v.defining_op(),
                   producer_)) {
        continue;
      }
      for (Operation* later = producer_->next(); later != nullptr; later = later->next()) {
        if (StoresIn(later, v)) return "what it is computed from is stored in meanwhile";
        if (later == around) break;
      }
    }
  }
  return "";
}

std::string Mover::CheckUses() {
  for (const OpOperand use : memory_.uses()) {
    const Operation* user = use.owner();
    if (user == store_) continue;
    if (!IsInside(user, loop_)) return StrCat(user->name(), " outside of the loop uses the memory");
  }
  if (std::string why = FindTouched(loop_, Scope::kIteration, memory_, leaves_, touched_);
      !why.empty()) {
    return why;
  }
  return touched_.stores.empty() ? "" : "the loop stores in that memory";
}

std::string Mover::Refusal() {
  if (loop_->name() != loop::ForOp::kName) return StrCat(loop_->name(), " is not a loop");
  if (std::string why = FindNest(); !why.empty()) return why;
  if (std::string why = FindStore(); !why.empty()) return why;
  if (std::string why = CheckAxes(); !why.empty()) return why;
  if (std::string why = CheckOrder(); !why.empty()) return why;
  return CheckUses();
}

Operation* Mover::Move() {
  const Box& box = touched_.box;
  Builder b = Builder::Before(BodyOf(loop_)->front());
  b.set_location(producer_->location());
  const Value part = AllocBox(b, box, memory_.type().cast<AnyTensorType>().element());
  std::vector<Operation*> loops;
  std::vector<Dim> counters;
  IrMapping mapping;
  for (size_t a = 0; a < box.extent.size(); ++a) {
    counters.emplace_back(0);
    if (box.extent[a] > 1) {
      loops.push_back(MakeLoop(b, leaves_, box.extent[a]));
      counters.back() = leaves_.SymbolOf(CounterOf(loops.back()));
      b.SetInsertionPointToEnd(BodyOf(loops.back()));
    }
  }
  for (size_t a = 0; a < box.extent.size(); ++a) {
    if (axis_loop_[a] == nullptr) continue;
    mapping.Map(CounterOf(axis_loop_[a]), leaves_.Emit(b, box.begin[a] + counters[a]));
  }
  for (Operation& op : *BodyOf(nest_.back())) {
    if (&op != store_ && !op.HasTrait<Terminator>()) b.Insert(Clone(&op, mapping));
  }
  std::vector<Value> at;
  for (const Dim& counter : counters) at.push_back(leaves_.Emit(b, counter));
  const Value value = mapping.Lookup(store_->operand(loop::StoreInplaceOp::kValue));
  loop::StoreInplaceOp::Create(b, part, value, {}, at);
  for (size_t i = loops.size(); i-- > 0;) EndLoop(loops[i]);
  for (Operation* load : touched_.loads) Redirect(load, part, box.begin, leaves_);
  Operation* alloc = memory_.defining_op();
  producer_->Erase();
  if (alloc->use_empty()) alloc->Erase();
  return loops.empty() ? nullptr : loops[0];
}

}  // namespace

std::string WhyNotComputeAt(const Operation* producer, const Operation* loop) {
  return Mover(producer, loop).Refusal();
}

Operation* ComputeAt(Operation* producer, Operation* loop) {
  Mover mover(producer, loop);
  if (const std::string why = mover.Refusal(); !why.empty()) Refuse(producer, "compute_at", why);
  return mover.Move();
}

}  // namespace lathe::schedule
