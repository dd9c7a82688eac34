#include "src/transform/simplify.h"

#include <algorithm>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/support/budget.h"
#include "src/transform/conv_constants.h"

namespace lathe {

namespace {

/// What the option and the attribute `skip` of cse forbid.
SimplifyPass::Skip SkipOf(const Pass& pass) {
  SimplifyPass::Skip given;
  if (pass.Has("skip")) given = pass.Get<SimplifyPass::Skip>("skip");
  return [given, kinds = pass.option_list("skip")](const Operation* op) {
    return (given && given(op)) || std::find(kinds.begin(), kinds.end(), op->name()) != kinds.end();
  };
}

}  // namespace

void SimplifyPass::ApplyImpl(Graph& graph) {
  program_ = &graph.program();
  rewriter_.emplace(*program_, this);
  constants_.emplace(*program_,
                     parts_.fold ? static_cast<size_t>(option_int("max_bytes")) : size_t{0});
  skip_ = parts_.merge && !parts_.drop ? SkipOf(*this) : nullptr;
  functions_.emplace(*program_);
  folded_ = merged_ = dead_ = 0;
  if (parts_.fold || parts_.merge) Forward(graph.block());
  if (parts_.drop) Backward(graph.block());
  if (parts_.fold) Count("folded", folded_);
  if (parts_.merge) Count("merged", merged_);
  if (parts_.drop) Count("dead", dead_);
}

/// What stands outside an isolated op must not be read inside: each has a table of its own.
void SimplifyPass::Forward(Block* top) {
  std::vector<Block*> tops{top};
  for (size_t i = 0; i < tops.size(); ++i) {
    table_ = ValueTable();
    ForwardIn(tops[i], tops);
  }
}

void SimplifyPass::ForwardIn(Block* top, std::vector<Block*>& isolated) {
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
    if (op->HasTrait<IsolatedFromAbove>()) {
      for (const Region& region : op->regions()) {
        for (Block& block : region) isolated.push_back(&block);
      }
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
  CheckBudget();
  if (parts_.fold && Fold(op)) return;
  if (!parts_.merge || !(IsMergeable(op) || functions_->IsMergeableCall(op)) ||
      (skip_ && skip_(op)))
    return;
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
  if (!parts_.drop) rewriter_->Erase(op);
}

/// Whether every used result was replaced.
bool SimplifyPass::Fold(Operation* op) {
  const std::vector<Value> values = FoldResults(op, *constants_, *rewriter_);
  if (values.empty()) return FoldConstants(op);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]) Replace(op, i, Known(values[i]));
  }
  ++folded_;
  return op->use_empty();
}

/// `value`, or an equal constant made before.
Value SimplifyPass::Known(Value value) {
  Operation* maker = value.defining_op();
  if (maker == nullptr || !maker->HasTrait<ConstantLike>()) return value;
  Operation* earlier = table_.FindOrInsert(maker);
  return earlier != nullptr ? earlier->result(0) : value;
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
  if (IsNumberOfParameter(op)) return false;
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
    Missed(op, StrCat("cannot be computed ahead: ", error.message()));
    return false;  // the run reports it, if it gets there
  }
  rewriter_->SetInsertionPoint(op);
  rewriter_->set_location(op->location());
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (op->result(i).use_empty()) continue;
    Replace(op, i, Known(rewriter_->Constant(results[i].tensor())));
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
    if (op->use_empty() && (IsRemovableWhenUnused(op) || functions_->IsRemovableCall(op))) {
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
            "precompute_prune")
    .AtLeast(0);

}  // namespace lathe
