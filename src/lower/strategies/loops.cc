#include "src/lower/compute/compute.h"
#include "src/lower/compute/nest.h"
#include "src/lower/strategies/list.h"

// Any operations whose elements are known one by one (src/lower/compute): a nest of loops per
// result, with everything before it computed where it is read.
namespace lathe::lower {

namespace {

class Writer {
 public:
  explicit Writer(Lowering& l)
      : l_(l), lb_(l.body), elements_(lb_, l.function, *l.body), end_(l.function.terminator()) {}

  void Write() {
    for (size_t i = 0; i < end_->num_operands(); ++i) {
      results_.push_back(elements_.Alloc(end_->operand(i)));
      flat_.push_back(lb_.Flat(results_.back()));
    }
    is_done_.assign(results_.size(), false);
    for (const Operation& op : l_.function) Visit(op);
    for (size_t i = 0; i < results_.size(); ++i) {
      if (is_done_[i]) continue;
      Nest(elements_, l_.function, *l_.body, l_.machine).Write(end_->operand(i), flat_[i]);
    }
    lb_.Return(results_);
  }

 private:
  void Visit(const Operation& op) {
    WholeTensorEmitter whole{elements_, &op, l_.function, *l_.body, l_.machine};
    CheckIndices(whole);
    const Compute* compute = FindCompute(op.name());
    if (compute == nullptr || !compute->IsWhole(op)) return;
    for (size_t r = 0; r < op.num_results(); ++r) whole.memory.push_back(MemoryOf(op.result(r)));
    elements_.Reset();
    compute->whole(whole);
    for (size_t r = 0; r < op.num_results(); ++r) elements_.Bind(op.result(r), whole.memory[r]);
  }

  Value MemoryOf(Value v) {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (is_done_[i] || !(end_->operand(i) == v)) continue;
      is_done_[i] = true;
      return flat_[i];
    }
    return lb_.Flat(elements_.Alloc(v));
  }

  Lowering& l_;
  LoopBuilder lb_;
  Elements elements_;
  const Operation* end_;
  std::vector<Value> results_, flat_;
  std::vector<bool> is_done_;
};

}  // namespace

bool LowerLoops(Lowering& l) {
  l.why = Elements::Refusal(l.function, l.machine);
  if (!l.why.empty()) return false;
  Writer(l).Write();
  return true;
}

}  // namespace lathe::lower
