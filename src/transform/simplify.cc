#include <algorithm>
#include <unordered_map>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/hash.h"

namespace lathe {

namespace {

/// Operations that stand in open blocks by (type, attributes, operands, result types). Open
/// addressing keyed by handles; nothing iterates it, so addresses decide nothing.
class ValueTable {
 public:
  ValueTable() : slots_(1024) {}

  /// An equal operation seen before in an open scope, or null after remembering `op`.
  Operation* FindOrInsert(Operation* op) {
    const uint64_t hash = HashOf(op);
    size_t i = hash & (slots_.size() - 1);
    for (; slots_[i].op != nullptr; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].hash == hash && Equal(slots_[i].op, op)) return slots_[i].op;
    }
    slots_[i] = {hash, op};
    inserted_.push_back(slots_[i]);
    if (inserted_.size() * 2 > slots_.size()) Grow();
    return nullptr;
  }

  size_t OpenScope() const { return inserted_.size(); }
  /// Forgets what was remembered since OpenScope gave `mark`. Entries go in the reverse order of
  /// their coming, so that no probe sequence is broken.
  void CloseScope(size_t mark) {
    for (; inserted_.size() > mark; inserted_.pop_back()) *Locate(inserted_.back()) = Slot();
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    Operation* op = nullptr;
  };

  static uint64_t Mix(uint64_t seed, const void* p) {
    return (seed ^ reinterpret_cast<uintptr_t>(p)) * 0x9e3779b97f4a7c15U;
  }

  static bool SwapsFirstTwo(const Operation* op) {
    return op->num_operands() >= 2 && op->HasTrait<Commutative>();
  }

  static uint64_t HashOf(const Operation* op) {
    uint64_t h = Mix(Mix(1, op->info().impl()), op->attributes().storage());
    const auto operands = op->operands();
    size_t i = 0;
    if (SwapsFirstTwo(op)) {
      h += Mix(2, operands[0].value) + Mix(2, operands[1].value);
      i = 2;
    }
    for (; i < operands.size(); ++i) h = Mix(h, operands[i].value);
    for (size_t r = 0; r < op->num_results(); ++r) h = Mix(h, op->result(r).type().storage());
    return HashMix(h);
  }

  static bool Equal(const Operation* a, const Operation* b) {
    if (a->info() != b->info() || a->attributes() != b->attributes() ||
        a->num_operands() != b->num_operands() || a->num_results() != b->num_results()) {
      return false;
    }
    for (size_t r = 0; r < a->num_results(); ++r) {
      if (a->result(r).type() != b->result(r).type()) return false;
    }
    size_t i = 0;
    if (SwapsFirstTwo(a)) {
      const bool straight = a->operand(0) == b->operand(0) && a->operand(1) == b->operand(1);
      const bool swapped = a->operand(0) == b->operand(1) && a->operand(1) == b->operand(0);
      if (!straight && !swapped) return false;
      i = 2;
    }
    for (; i < a->num_operands(); ++i) {
      if (a->operand(i) != b->operand(i)) return false;
    }
    return true;
  }

  /// Re-inserts in order of age, which CloseScope relies on.
  void Grow() {
    slots_.assign(slots_.size() * 4, Slot());
    for (const Slot& s : inserted_) *Locate({s.hash, nullptr}) = s;
  }

  /// The slot that holds `wanted.op` (null: the first free one) on the probe sequence of its hash.
  Slot* Locate(const Slot& wanted) {
    size_t i = wanted.hash & (slots_.size() - 1);
    while (slots_[i].op != wanted.op) i = (i + 1) & (slots_.size() - 1);
    return &slots_[i];
  }

  std::vector<Slot> slots_;
  std::vector<Slot> inserted_;
};

/// Constants and immutable parameters of at most `limit` bytes.
class ProgramConstants : public ValueFacts {
 public:
  ProgramConstants(const Program& program, size_t limit) : program_(program), limit_(limit) {}
  const Tensor* Constant(Value value) override {
    const Tensor* constant = ConstantValue(program_, value);
    return constant != nullptr && constant->byte_size() <= limit_ ? constant : nullptr;
  }

 private:
  const Program& program_;
  size_t limit_;
};

}  // namespace

/// One forward walk folds and merges, one backward walk drops what is unused. Near linear; the
/// blocks being walked are kept on a stack of its own.
class SimplifyPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override;

 private:
  struct Frame {
    Block* block;
    Operation* next;
    size_t scope;
  };
  void Forward(Block* top);
  void Visit(Operation* op);
  bool Fold(Operation* op);
  bool FoldConstants(Operation* op);
  void Replace(Operation* op, size_t i, Value value);
  void Merge(Operation* op, Operation* earlier);
  void Backward(Block* top);

  Program* program_ = nullptr;
  std::optional<Rewriter> rewriter_;
  std::optional<ProgramConstants> constants_;
  ValueTable table_;
  int64_t folded_ = 0, merged_ = 0, dead_ = 0;
};

void SimplifyPass::ApplyImpl(Graph& graph) {
  program_ = &graph.program();
  rewriter_.emplace(*program_, this);
  constants_.emplace(*program_, static_cast<size_t>(option_int("max_bytes")));
  table_ = ValueTable();
  folded_ = merged_ = dead_ = 0;
  Forward(graph.block());
  Backward(graph.block());
  Count("folded", folded_);
  Count("merged", merged_);
  Count("dead", dead_);
}

void SimplifyPass::Forward(Block* top) {
  std::vector<Frame> stack{{top, top->front(), table_.OpenScope()}};
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next == nullptr) {
      table_.CloseScope(frame.scope);
      stack.pop_back();
      continue;
    }
    Operation* op = std::exchange(frame.next, frame.next->next());
    if (op->num_regions() == 0) {
      Visit(op);
      continue;
    }
    for (size_t r = op->num_regions(); r-- > 0;) {
      for (Block* b = op->region(r).back(); b != nullptr; b = b->prev()) {
        stack.push_back({b, b->front(), table_.OpenScope()});
      }
    }
  }
}

void SimplifyPass::Visit(Operation* op) {
  if (op->num_results() == 0) return;
  if (Fold(op)) return;
  if (!IsMergeable(op)) return;
  if (Operation* earlier = table_.FindOrInsert(op)) Merge(op, earlier);
}

void SimplifyPass::Replace(Operation* op, size_t i, Value value) {
  if (!op->result(i).use_empty()) rewriter_->ReplaceAllUses(op->result(i), value);
}

void SimplifyPass::Merge(Operation* op, Operation* earlier) {
  for (size_t i = 0; i < op->num_results(); ++i) Replace(op, i, earlier->result(i));
  if (op->location() != earlier->location()) {
    const Location both[] = {earlier->location(), op->location()};
    earlier->set_location(Location::Fused(program_->context(), both));
  }
  ++merged_;
}

/// Whether every used result was replaced.
bool SimplifyPass::Fold(Operation* op) {
  const auto fold = op->dyn_cast<FoldInterface>();
  if (!fold) return FoldConstants(op);
  FoldContext context(op, *constants_);
  fold.Fold(context);
  bool changed = false;
  for (size_t i = 0; i < op->num_results(); ++i) {
    const FoldContext::Result& result = context.results()[i];
    if (result.value && Compatible(result.value.type(), op->result(i).type())) {
      Replace(op, i, result.value);
      changed = true;
    }
  }
  if (!changed) return FoldConstants(op);
  ++folded_;
  return op->use_empty();
}

namespace {

bool IsFoldable(const Operation* op) {
  return op->num_operands() != 0 && IsMergeable(op) && op->HasInterface<EvalInterface>() &&
         !op->HasTrait<ConstantLike>();
}

/// Bytes of the static results, or more than any limit.
uint64_t ResultBytes(const Operation* op) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < op->num_results(); ++i) {
    const auto type = op->result(i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.is_static() || type.element() == ElementType::kString) return UINT64_MAX;
    const auto count = static_cast<uint64_t>(NumElements(*type.shape().Constants()));
    bytes += (count * static_cast<uint64_t>(BitWidth(type.element())) + 7) / 8;
  }
  return bytes;
}

}  // namespace

bool SimplifyPass::FoldConstants(Operation* op) {
  if (!IsFoldable(op) || ResultBytes(op) > static_cast<uint64_t>(option_int("max_bytes")))
    return false;
  std::vector<RtValue> inputs;
  for (const detail::OpOperandImpl& o : op->operands()) {
    const Tensor* constant = o.value == nullptr ? nullptr : constants_->Constant(Value(o.value));
    if (o.value != nullptr && constant == nullptr) return false;
    inputs.push_back(constant == nullptr ? RtValue() : RtValue(*constant));
  }
  std::vector<RtValue> results;
  try {
    results = EvalOp(op, inputs);
  } catch (const Error& error) {
    Missed(op, StrCat("can not be computed ahead: ", error.message()));
    return false;  // the run reports it, if it gets there
  }
  rewriter_->SetInsertionPoint(op);
  rewriter_->set_location(op->location());
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (op->result(i).use_empty()) continue;
    Operation* constant = rewriter_->Constant(results[i].tensor()).defining_op();
    Operation* earlier = table_.FindOrInsert(constant);
    Replace(op, i, (earlier != nullptr ? earlier : constant)->result(0));
  }
  ++folded_;
  return true;
}

/// From the end, so that what only a dead operation reads is dead when it is reached.
void SimplifyPass::Backward(Block* top) {
  std::vector<Operation*> stack{top->back()};  // the next operation of each open block
  while (!stack.empty()) {
    Operation* op = stack.back();
    if (op == nullptr) {
      stack.pop_back();
      continue;
    }
    stack.back() = op->prev();
    if (op->use_empty() && IsRemovableWhenUnused(op)) {
      rewriter_->Erase(op);
      ++dead_;
      continue;
    }
    for (const Region& region : op->regions()) {
      for (const Block& block : region) stack.push_back(block.back());
    }
  }
}

REGISTER_PASS(simplify, SimplifyPass)
    .Doc("folds constants, merges equal operations and drops unused ones, in one near-linear walk")
    .Option("max_bytes", PassOption::Kind::kInt, "65536",
            "largest result, in bytes, that is computed ahead; bigger ones are left to "
            "precompute_prune");

}  // namespace lathe
