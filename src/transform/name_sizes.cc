#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/dim_size.h"
#include "lathe/support/error.h"
#include "src/transform/data_sizes.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

// Of an expression: what is made of it is still below Dim::kMaxSize.
constexpr size_t kMostNodes = 64;

AnyTensorType RankedType(Value v) {
  const auto type = v && v.type() ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType();
  return type && type.is_value() && type.has_rank() ? type : AnyTensorType();
}

bool HasLarge(Value v) {
  const AnyTensorType type = RankedType(v);
  return type &&
         std::ranges::any_of(type.dims(), [](const Dim& d) { return NumNodes(d) > kMostNodes; });
}

// Whether nobody can say how many elements a result has.
bool IsUnknown(const Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    const AnyTensorType type = RankedType(op->result(i));
    if (type && type.shape().NumElements().is_unknown()) return true;
  }
  return false;
}

bool HasUnknown(Block& block) {
  for (OpWalker w(&block); Operation* op = w.Next();) {
    if (IsUnknown(op)) return true;
  }
  return false;
}

}  // namespace

/// Networks that add what two paths have halved, level after level, have extents whose expressions
/// double with each level, until they are unknown. In programs that have unknown ones, one that has
/// grown large becomes a symbol that the program binds (`bind_sizes`), and what follows is made of
/// that.
class NameSizesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    if (graph.block() != program.block() || !HasUnknown(*graph.block())) return;
    names_ = SymbolNames(program);
    named_.clear();
    rewriter_.emplace(program, this);
    facts_.emplace(&program.parameters());
    build_.emplace(*rewriter_, *facts_, names_);
    VisitBlock(graph.block());
  }

 private:
  struct Named {
    Dim dim, symbol;
    Value size;  // i64 [1]
  };

  // As deep as programs nest. What a region names is not known outside of it.
  void VisitBlock(Block* block) {
    const size_t known = named_.size();
    for (Operation* op = block->front(); op != nullptr;) {
      Operation* const next = op->next();
      for (Region& region : op->regions()) VisitBlock(region.front());
      if (op->num_regions() == 0) Visit(op);
      op = next;
    }
    named_.resize(known);
  }

  void Visit(Operation* op) {
    const std::optional<bool> changed = InferAgain(op, *facts_);
    if (changed == true) MarkChanged();
    if (!changed) return;
    if (IsUnknown(op)) Shorten(op);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const bool is_long = HasLarge(op->result(i)) || HasNamed(op->result(i));
      if (!is_long || op->result(i).use_empty()) continue;
      const Value result = op->result(i);
      Rename(result, {result.uses().begin(), result.uses().end()}, op->next(), kMostNodes);
    }
  }

  // What nobody can say the number of elements of is made of shorter extents.
  void Shorten(Operation* op) {
    if (const auto reshape = op->dyn_cast<nn::ReshapeOp>()) return NameEntries(reshape);
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const AnyTensorType type = RankedType(op->operand(i));
      if (!type || type.shape().NumElements().is_unknown()) continue;
      std::vector<OpOperand> uses;
      for (const OpOperand use : op->operand(i).uses()) {
        if (use.owner() == op) uses.push_back(use);
      }
      Rename(op->operand(i), uses, op, 1);
    }
    InferAgain(op, *facts_);
  }

  // What has the name of an extent elsewhere has it here, too.
  bool HasNamed(Value v) const {
    const AnyTensorType type = RankedType(v);
    return type && std::ranges::any_of(type.dims(), [&](const Dim& dim) { return IsNamed(dim); });
  }
  bool IsNamed(const Dim& dim) const {
    return std::ranges::find(named_, dim, &Named::dim) != named_.end();
  }

  // A reshape of which nobody can say how many elements its result has gives extents that have
  // names, as attention over windows of a padded length.
  void NameEntries(nn::ReshapeOp op) {
    const AnyTensorType type = RankedType(op.reshaped()), data = RankedType(op.data());
    const std::vector<Dim>* entries = facts_->Contents(op.shape());
    const bool is_known = type && data && std::ranges::none_of(type.dims(), &Dim::is_unknown);
    if (!is_known || entries == nullptr || entries->size() != type.rank()) return;
    const std::vector<Dim> given = *entries;
    rewriter_->SetInsertionPoint(op.operation());
    rewriter_->set_location(op->location());
    const Value meant = MeantEntries(op, *build_);
    std::vector<Value> extents;
    for (int64_t axis = 0; axis < std::ssize(given); ++axis) {
      const Dim& dim = type.dims()[static_cast<size_t>(axis)];
      const bool is_same = given[static_cast<size_t>(axis)] == dim;
      const bool is_short = dim.is_constant() || (dim.is_symbol() && is_same);
      const Value from = is_same ? op.shape() : meant;
      const Value extent = build_->Create(nn::kGather, {from, build_->Vector({&axis, 1})});
      extents.push_back(is_short ? OneOf(dim, extent) : NameOf(dim, extent));
    }
    rewriter_->SetOperand(op.operation(), nn::ReshapeOp::kShape, Joined(extents));
    rewriter_->SetAttribute(op.operation(), "allowzero", rewriter_->Attr(true));
    InferAgain(op.operation(), *facts_);
    Count("named");
    MarkChanged();
  }

  Value OneOf(const Dim& dim, Value extent) {
    if (!dim.is_constant()) return extent;
    const int64_t number = dim.value();
    return build_->Vector({&number, 1});
  }

  Value Joined(const std::vector<Value>& extents) {
    Operation* shape =
        rewriter_->Create(nn::kConcat, extents, std::vector{build_->Attr("axis", int64_t{0})});
    facts_->Visit(shape);
    return shape->result(0);
  }

  // Some of its readers read the same with names for extents of more nodes than `most`.
  void Rename(Value value, const std::vector<OpOperand>& uses, Operation* before, size_t most) {
    const AnyTensorType type = RankedType(value);
    const auto is_plain = [&](const Dim& dim) { return NumNodes(dim) <= most; };
    if (std::ranges::all_of(type.dims(), is_plain) && !HasNamed(value)) return;
    rewriter_->SetInsertionPoint(before);
    rewriter_->set_location(value.defining_op() ? value.defining_op()->location()
                                                : before->location());
    std::vector<Value> extents;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const Dim& dim = type.dims()[axis];
      const Value extent = build_->Reshape(build_->Extent(value, axis), {1});
      const bool stays = is_plain(dim) && !IsNamed(dim);
      extents.push_back(stays ? extent : NameOf(dim, extent));
    }
    const Value renamed =
        build_->Create(nn::kReshape, {value, Joined(extents)}, {build_->Attr("allowzero", true)});
    for (const OpOperand& use : uses) rewriter_->SetOperand(use.owner(), use.index(), renamed);
    Count("named");
    MarkChanged();
  }

  // `extent`, i64 [1], with a name of its own, or with the one that the same expression has.
  Value NameOf(const Dim& dim, Value extent) {
    const auto known = std::ranges::find(named_, dim, &Named::dim);
    if (known != named_.end()) return known->size;
    const std::string name = build_->FreshName("size");
    const Value bound = build_->BindAs(extent, {name});
    named_.push_back({dim, Dim::Symbol(name), bound});
    return bound;
  }

  std::set<std::string> names_;
  std::vector<Named> named_;
  std::optional<Rewriter> rewriter_;
  std::optional<ShapeInferencer> facts_;
  std::optional<SizeBuilder> build_;
};

REGISTER_PASS(name_sizes, NameSizesPass)
    .Doc("extents whose expressions have grown large become symbols that the program binds");

}  // namespace lathe
