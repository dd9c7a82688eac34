#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "src/transform/data_sizes.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

// Whether a run may give it another number of elements than one.
bool MayBeMore(Value v) {
  const AnyTensorType type = v ? TensorOrNull(v) : AnyTensorType();
  return type && type.is_value() &&
         (!type.has_rank() ||
          std::ranges::any_of(type.dims(), [](const Dim& d) { return !d.is_constant(); }));
}

// Operands that hold one element wherever the program is right.
std::vector<size_t> ScalarOperands(const Operation* op) {
  if (op->isa<cf::IfOp>()) return {cf::IfOp::kCond};
  if (op->isa<cf::WhileOp>()) return {cf::WhileOp::kTripCount, cf::WhileOp::kCond};
  const Operation* parent = op->isa<cf::YieldOp>() ? op->parent_op() : nullptr;
  return parent != nullptr && parent->isa<cf::WhileOp>() ? std::vector<size_t>{0}
                                                         : std::vector<size_t>();
}

bool Broadcasts(const Operation* op) {
  return op->num_results() == 1 && op->HasTrait<Elementwise>() && op->HasTrait<HasValueSemantics>();
}

}  // namespace

/// Exporters compute conditions of vectors whose length nobody states. As a condition has one
/// element, so have those that it is made of; what else reads them then knows their sizes.
class ScalarConditionsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    if (graph.block() != program.block()) return;
    const std::vector<std::pair<Operation*, size_t>> found = Find(*graph.block());
    if (found.empty()) return;
    std::set<std::string> names = SymbolNames(program);
    rewriter_.emplace(program, this);
    facts_.emplace(&program.parameters());
    build_.emplace(*rewriter_, *facts_, names);
    for (const auto& [op, operand] : found) Shape(op, operand);
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (InferAgain(op, *facts_) == true) MarkChanged();
    }
  }

 private:
  static std::vector<std::pair<Operation*, size_t>> Find(Block& block) {
    std::vector<std::pair<Operation*, size_t>> found;
    for (OpWalker w(&block); Operation* op = w.Next();) {
      for (const size_t i : ScalarOperands(op)) {
        if (i < op->num_operands() && MayBeMore(op->operand(i))) found.emplace_back(op, i);
      }
    }
    return found;
  }

  void Shape(Operation* op, size_t operand) {
    ShapeSources(op->operand(operand), op->block());
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    rewriter_->SetOperand(op, operand, build_->AsScalar(op->operand(operand)));
    rewriter_->Applied(op, "it reads one element");
    Count("shaped");
    MarkChanged();
  }

  // What broadcasts to one element has operands of one. In the block of the condition they are
  // computed wherever it is.
  void ShapeSources(Value condition, const Block* block) {
    std::vector<Value> left{condition};
    while (!left.empty()) {
      const Value v = left.back();
      left.pop_back();
      Operation* made = v.defining_op();
      if (!MayBeMore(v) || made == nullptr || made->block() != block) continue;
      if (Broadcasts(made)) {
        for (size_t i = 0; i < made->num_operands(); ++i) left.push_back(made->operand(i));
      } else if (TensorOrNull(v).has_rank()) {
        ShapeSource(v, made);
      }
    }
  }

  void ShapeSource(Value v, Operation* made) {
    std::vector<OpOperand> readers;
    for (const OpOperand use : v.uses()) readers.push_back(use);
    if (readers.size() == 1 && readers[0].owner()->isa<nn::ReshapeOp>()) return;
    rewriter_->SetInsertionPoint(made->next());
    rewriter_->set_location(made->location());
    const std::vector<int64_t> ones(TensorOrNull(v).rank(), 1);
    const Value one = build_->Create(nn::kReshape, {v, build_->Vector(ones)});
    for (const OpOperand& use : readers) rewriter_->SetOperand(use.owner(), use.index(), one);
  }

  std::optional<Rewriter> rewriter_;
  std::optional<ShapeInferencer> facts_;
  std::optional<SizeBuilder> build_;
};

REGISTER_PASS(scalar_conditions, ScalarConditionsPass)
    .Doc(
        "conditions and counts that may have several elements, as far as types tell, are given "
        "one: "
        "anything else is an error");

}  // namespace lathe
