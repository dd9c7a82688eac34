#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/dim_size.h"
#include "lathe/support/error.h"
#include "src/transform/data_sizes.h"

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

// Whether nobody can say how many elements some result has.
bool HasUnknown(Block& block) {
  for (OpWalker w(&block); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const AnyTensorType type = RankedType(op->result(i));
      if (type && type.shape().NumElements().is_unknown()) return true;
    }
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
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (HasLarge(op->result(i)) && !op->result(i).use_empty()) Rename(op, op->result(i));
    }
  }

  // Its readers read the same with the names.
  void Rename(Operation* op, Value value) {
    const std::vector<OpOperand> uses(value.uses().begin(), value.uses().end());
    rewriter_->SetInsertionPoint(op->next());
    rewriter_->set_location(op->location());
    const AnyTensorType type = RankedType(value);
    std::vector<Value> extents;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      extents.push_back(ExtentOf(value, axis, type.dims()[axis]));
    }
    Operation* shape =
        rewriter_->Create("nn.concat", extents, std::vector{build_->Attr("axis", int64_t{0})});
    facts_->Visit(shape);
    const Value renamed =
        build_->Create("nn.reshape", {value, shape->result(0)}, {build_->Attr("allowzero", true)});
    for (const OpOperand& use : uses) rewriter_->SetOperand(use.owner(), use.index(), renamed);
    Count("named");
    MarkChanged();
  }

  Value ExtentOf(Value value, size_t axis, const Dim& dim) {
    const auto known = std::ranges::find(named_, dim, &Named::dim);
    if (known != named_.end()) return known->size;
    const Value extent = build_->Reshape(build_->Extent(value, axis), {1});
    if (NumNodes(dim) <= kMostNodes) return extent;
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
