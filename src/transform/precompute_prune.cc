#include <algorithm>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/conv_constants.h"
#include "src/transform/learned.h"

namespace lathe {

namespace {

/// Results up to this size become constants in the text; larger ones parameters.
constexpr size_t kConstantBytes = 256;

/// No copy is made of transposed weights that are larger, which products take as they are, and no
/// tensor of equal elements that is larger is kept, which takes less time to fill than to copy.
constexpr size_t kCopiedBytes = size_t{1} << 20;

/// The last two axes change places.
bool TurnsMatrices(const Operation* op) {
  const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || type.rank() < 2) return false;
  const auto perm = op->attribute("perm").dyn_cast<ArrayAttribute>();
  const auto rank = static_cast<int64_t>(type.rank());
  if (!perm) return rank == 2;
  const std::vector<int64_t> axes = perm.AsInts().value_or(std::vector<int64_t>());
  for (int64_t i = 0; i < std::ssize(axes); ++i) {
    const int64_t turned = i == rank - 1 ? rank - 2 : i == rank - 2 ? rank - 1 : i;
    if (axes[static_cast<size_t>(i)] != turned) return false;
  }
  return !axes.empty();
}

/// A parameter that training may change.
bool IsLearned(const Operation* op) {
  return op->isa<builtin::GetParameterOp>() && !ReadsConstant(op);
}

bool IsSource(const Program& program, const Operation* op) {
  return op->num_results() == 1 && ConstantValue(program, op->result(0)) != nullptr;
}

/// Its result is one element again and again.
bool RepeatsOneElement(const Operation* op) {
  if (op->name() == nn::kConstantOfShape) return true;
  if (op->name() != nn::kExpand) return false;
  const auto type = op->operand(0).type().dyn_cast<AnyTensorType>();
  return type && type.has_rank() &&
         std::ranges::all_of(type.dims(), [](const Dim& d) { return d.IsConstant(1); });
}

}  // namespace

/// What depends only on constants and immutable parameters is computed once and becomes a
/// parameter, also where branches and loops compute it. Runs the static part of the block in
/// program order and keeps only what is still needed.
class PrecomputePrunePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override;

 private:
  bool IsStatic(const Operation* op) const;
  bool IsLeftToProducts(const Operation* op) const;
  bool IsWanted(const Operation* op) const;
  void Compute(Operation* op);
  RtValue ValueOf(Value v) const;
  void Release(const Operation* op);
  Operation* OutOfRegions(Operation* op) const;
  void Materialize(Operation* op);

  Program* program_ = nullptr;
  const Block* block_ = nullptr;
  /// Static uses that a value still waits for, and what it is; look-up only.
  struct Entry {
    std::vector<RtValue> results;
    size_t static_uses = 0;
    bool computed = false;
    bool learned = false;  ///< a weight is behind it
  };
  std::unordered_map<const Operation*, Entry> static_;
  std::optional<Rewriter> rewriter_;
  uint64_t budget_ = 0;
};

/// A transpose of large weights that only products read, which have an attribute for it.
bool PrecomputePrunePass::IsLeftToProducts(const Operation* op) const {
  if (op->name() != nn::kTranspose || !TurnsMatrices(op)) return false;
  const Tensor* weights = ConstantValue(*program_, op->operand(0));
  if (weights == nullptr || weights->byte_size() <= kCopiedBytes) return false;
  for (const OpOperand use : op->result(0).uses()) {
    if (use.owner()->name() != nn::kMatmul) return false;
  }
  return true;
}

bool PrecomputePrunePass::IsStatic(const Operation* op) const {
  if (IsSource(*program_, op)) return true;
  if (IsLeftToProducts(op)) return false;
  if (op->num_operands() == 0 || !IsMergeable(op) || !op->HasInterface<EvalInterface>())
    return false;
  for (const detail::OpOperandImpl& o : op->operands()) {
    const Operation* maker = o.value == nullptr ? nullptr : Value(o.value).defining_op();
    if (o.value != nullptr && static_.count(maker) == 0) return false;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (!op->result(i).type().isa<AnyTensorType>()) return false;
  }
  return true;
}

/// Somebody outside the static part reads a result.
bool PrecomputePrunePass::IsWanted(const Operation* op) const {
  for (size_t i = 0; i < op->num_results(); ++i) {
    for (const OpOperand use : op->result(i).uses()) {
      if (static_.count(use.owner()) == 0) return true;
    }
  }
  return false;
}

RtValue PrecomputePrunePass::ValueOf(Value v) const {
  if (!v) return {};
  if (const Tensor* constant = ConstantValue(*program_, v)) return *constant;
  return static_.at(v.defining_op()).results[v.index()];
}

void PrecomputePrunePass::Compute(Operation* op) {
  Entry& entry = static_.at(op);
  std::vector<RtValue> inputs;
  for (const detail::OpOperandImpl& o : op->operands()) {
    const Operation* maker = o.value == nullptr ? nullptr : Value(o.value).defining_op();
    const bool is_source = maker == nullptr || IsSource(*program_, maker);
    if (!is_source && !static_.at(maker).computed) return;
    entry.learned |= is_source ? maker != nullptr && IsLearned(maker) : static_.at(maker).learned;
    inputs.push_back(ValueOf(Value(o.value)));
  }
  try {
    entry.results = EvalOp(op, inputs);
  } catch (const Error& error) {
    Missed(op, StrCat("cannot be computed ahead: ", error.message()));
    return;  // the run reports it, if it gets there
  }
  entry.computed = true;
}

/// Frees the values that `op` was the last static reader of.
void PrecomputePrunePass::Release(const Operation* op) {
  for (const detail::OpOperandImpl& o : op->operands()) {
    const auto at = o.value == nullptr ? static_.end() : static_.find(Value(o.value).defining_op());
    if (at != static_.end() && --at->second.static_uses == 0) at->second.results.clear();
  }
}

/// The branch or loop that `op` is somewhere in; `op` itself if it is in none.
Operation* PrecomputePrunePass::OutOfRegions(Operation* op) const {
  while (op->block() != block_) op = op->parent_op();
  return op;
}

void PrecomputePrunePass::Materialize(Operation* op) {
  Entry& entry = static_.at(op);
  rewriter_->SetInsertionPoint(OutOfRegions(op));
  rewriter_->set_location(op->location());
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (op->result(i).use_empty()) continue;
    const Tensor& value = entry.results[i].tensor();
    if (value.byte_size() > kCopiedBytes && RepeatsOneElement(op)) continue;
    if (value.byte_size() > budget_) {
      Missed(op, StrCat("its ", value.byte_size(), " bytes exceed what is left of max_bytes"));
      continue;
    }
    budget_ -= value.byte_size();
    const bool small = value.byte_size() <= kConstantBytes && !IsNumberOfParameter(op);
    const std::string base =
        op->location().is_name() ? std::string(op->location().name()) : std::string(op->name());
    const Value replacement =
        small ? rewriter_->Constant(value) : rewriter_->Parameter(base, value);
    if (!small && !entry.learned) {
      replacement.defining_op()->SetAttribute("constant", rewriter_->Attr(true));
    }
    rewriter_->ReplaceAllUses(op->result(i), replacement);
    Count("precomputed");
  }
}

void PrecomputePrunePass::ApplyImpl(Graph& graph) {
  program_ = &graph.program();
  rewriter_.emplace(*program_, this);
  static_.clear();
  budget_ = static_cast<uint64_t>(option_int("max_bytes"));
  block_ = graph.block();
  std::vector<Operation*> order;
  for (OpWalker w(graph.block()); Operation* op = w.Next();) {
    if (!op->isa<cf::IfOp>() && !op->isa<cf::WhileOp>()) w.SkipRegions();
    if (!IsStatic(op)) continue;
    static_.emplace(op, Entry());
    if (!IsSource(*program_, op)) order.push_back(op);
  }
  for (const Operation* op : order) {
    for (const detail::OpOperandImpl& o : op->operands()) {
      const auto at =
          o.value == nullptr ? static_.end() : static_.find(Value(o.value).defining_op());
      if (at != static_.end()) ++at->second.static_uses;
    }
  }
  for (Operation* op : order) {
    Compute(op);
    const bool computed = static_.at(op).computed;
    if (computed && IsWanted(op)) Materialize(op);
    Release(op);
    if (static_.at(op).static_uses == 0) static_.at(op).results.clear();
  }
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if ((*it)->use_empty()) rewriter_->Erase(*it);
  }
}

REGISTER_PASS(precompute_prune, PrecomputePrunePass)
    .Doc(
        "computes once what depends only on constants and immutable parameters, and makes it a "
        "parameter")
    .Option("max_bytes", PassOption::Kind::kInt, "4294967296",
            "bytes that new parameters may take in all")
    .AtLeast(0);

}  // namespace lathe
