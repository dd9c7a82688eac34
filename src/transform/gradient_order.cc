#include "src/transform/gradient_order.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/transform/multi_devices.h"

namespace lathe {
namespace {

// Operations of one block that some of its operations depend on, themselves included.
class Needs {
 public:
  explicit Needs(const Block* block) : block_(block) {}

  void Add(Operation* op) {
    std::vector<Operation*> open = {op};
    while (!open.empty()) {
      Operation* next = open.back();
      open.pop_back();
      if (!needed_.insert(next).second) continue;
      std::ranges::copy(MakersFor(next), std::back_inserter(open));
    }
  }
  bool Has(const Operation* op) const { return needed_.contains(op); }

  /// Whether it reads one of them, in a region of its own, too.
  bool IsReadBy(Operation* op) const {
    return std::ranges::any_of(MakersFor(op), [&](const Operation* m) { return Has(m); });
  }
  /// Without what it depends on.
  void AddAlone(const Operation* op) { needed_.insert(op); }

 private:
  // What makes the operands of `op` and of what is in its regions.
  std::vector<Operation*> MakersFor(Operation* op) const {
    std::vector<Operation*> makers;
    AddOperands(op, makers);
    for (OpWalker w(op); op->num_regions() > 0;) {
      Operation* inner = w.Next();
      if (inner == nullptr) break;
      AddOperands(inner, makers);
    }
    return makers;
  }
  void AddOperands(const Operation* op, std::vector<Operation*>& makers) const {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      Operation* maker = op->operand(i) ? op->operand(i).defining_op() : nullptr;
      if (maker != nullptr && maker->block() == block_) makers.push_back(maker);
    }
  }

  const Block* const block_;
  std::unordered_set<const Operation*> needed_;  // asked, never iterated
};

int64_t BytesOf(const std::vector<TravelingGradient>& gradients, size_t begin, size_t end) {
  int64_t bytes = 0;
  for (size_t i = begin; i < end; ++i) bytes += gradients[i].bytes;
  return bytes;
}

// The first of the gradients before number `largest` that come behind it.
size_t FirstDelayed(const std::vector<TravelingGradient>& gradients, size_t largest) {
  const int64_t half = BytesOf(gradients, 0, largest) / 2;
  size_t first = largest;
  for (int64_t bytes = 0; first > 0 && bytes < half; --first) bytes += gradients[first - 1].bytes;
  return first;
}

bool IsRoot(const Operation& op) {
  if (op.isa<builtin::FuncOp>()) return false;
  const bool gives_gradient = op.num_results() == 0 && op.attribute(kGradOf);
  return !gives_gradient && (op.num_results() == 0 || op.HasTrait<SideEffect>());
}

}  // namespace

int64_t OrderForTravel(Program& program, std::vector<TravelingGradient>& gradients) {
  const auto at = std::ranges::max_element(gradients, {}, &TravelingGradient::bytes);
  const auto largest = static_cast<size_t>(at - gradients.begin());
  if (at == gradients.end() || BytesOf(gradients, largest + 1, gradients.size()) >= at->bytes) {
    return 0;
  }
  Operation* const last = at->value.defining_op();
  const size_t first = FirstDelayed(gradients, largest);
  Needs kept(program.block()), delayed(program.block());
  for (Operation& op : *program.block()) {
    if (IsRoot(op)) kept.Add(&op);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    const bool is_delayed = i >= first && i < largest;
    (is_delayed ? delayed : kept).Add(gradients[i].value.defining_op());
  }
  std::vector<Operation*> moved;
  Needs behind_last(program.block());
  for (Operation& op : *program.block()) {
    if (&op == last) break;
    // What nobody needs may read what moves.
    if (kept.Has(&op) || !(delayed.Has(&op) || behind_last.IsReadBy(&op))) continue;
    behind_last.AddAlone(&op);
    moved.push_back(&op);
  }
  Operation* const behind = last->next();
  if (behind == nullptr) return 0;
  for (Operation* op : moved) op->MoveBefore(behind);
  std::ranges::stable_sort(gradients, [](const TravelingGradient& a, const TravelingGradient& b) {
    return a.value.defining_op()->IsBefore(b.value.defining_op());
  });
  return static_cast<int64_t>(moved.size());
}

}  // namespace lathe
