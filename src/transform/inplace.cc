#include <optional>
#include <unordered_map>

#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/transform/aliases.h"

namespace lathe {

namespace {

bool WritesFirst(const Operation* op) {
  return op->HasTrait<Inplace>() && op->num_operands() > 0 && IsMutable(op->operand(0));
}

/// Equal, and known well enough for that to hold of the tensors.
bool SameSize(Type a, Type b) {
  const auto type = a.dyn_cast<AnyTensorType>();
  if (a != b || !type || !type.has_rank()) return false;
  for (const Dim& d : type.dims()) {
    if (d.is_unknown()) return false;
  }
  return true;
}

/// Operation of `block` that is `op` or holds it.
Operation* AncestorIn(const Block* block, Operation* op) {
  while (op != nullptr && op->block() != block) op = op->parent_op();
  return op;
}

}  // namespace

/// A value op whose mutable operand dies there becomes its in-place twin.
class InplacePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    root_of_.clear();
    buffers_.clear();
    Collect(graph.block());
    std::vector<Operation*> ops;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) ops.push_back(op);
    int64_t count = 0;
    for (Operation* op : ops) count += Try(op) ? 1 : 0;
    Count("inplace", count);
  }

 private:
  /// What a tensor that an op made holds, under all its names.
  struct Buffer {
    Operation* last = nullptr;  ///< last use, in the block of the tensor
    const char* refused = nullptr;
  };

  void Collect(Block* top) {
    for (OpWalker w(top); Operation* op = w.Next();) {
      for (size_t i = 0; i < op->num_operands(); ++i) {
        if (IsMutable(op->operand(i))) Use(op, i);
      }
      for (size_t i = 0; i < op->num_results(); ++i) {
        const Value result = op->result(i);
        if (!IsMutable(result)) continue;
        const bool writes = i == 0 && WritesFirst(op);
        root_of_[result] = writes ? Root(op->operand(0)) : result;
        if (!writes) buffers_[result].refused = RefuseMaker(op);
      }
    }
  }

  static const char* RefuseMaker(const Operation* op) {
    if (op->num_regions() > 0) return "it is the result of a region";
    return op->HasTrait<HasValueSemantics>() && !op->HasTrait<ConstantLike>()
               ? nullptr
               : "it is fed, a parameter, or of unknown origin";
  }

  Value Root(Value value) const {
    const auto at = root_of_.find(value);
    return at == root_of_.end() ? Value() : at->second;  // a region's argument has none
  }

  void Use(Operation* op, size_t i) {
    const Value root = Root(op->operand(i));
    if (!root) return;
    Buffer& b = buffers_.at(root);
    Operation* here = AncestorIn(root.parent_block(), op);
    if (b.last == nullptr || b.last->IsBefore(here)) b.last = here;
    if (WritesFirst(op) && i == 0) return;
    if (op->HasTrait<ViewLike>()) b.refused = "there is a view of it";
    if (op->isa<nn::FetchOp>()) b.refused = "it is fetched";
    if (!op->HasTrait<HasValueSemantics>() && !b.refused) b.refused = "an op may keep it";
  }

  bool Try(Operation* op) {
    const std::string twin = TwinOf(op);
    if (twin.empty()) return false;
    const Value root = Root(op->operand(0));
    if (!root) return Refuse(op, "operand 0 is an argument of a region");
    Buffer& b = buffers_.at(root);
    if (!SameSize(op->operand(0).type(), op->result(0).type())) {
      return Refuse(op, "the types differ or are not known");
    }
    if (b.refused != nullptr) return Refuse(op, b.refused);
    if (b.last != op) return Refuse(op, "operand 0 is read later");
    for (size_t i = 1; i < op->num_operands(); ++i) {
      if (IsMutable(op->operand(i)) && Root(op->operand(i)) == root) {
        return Refuse(op, "operand 0 is another operand too");
      }
    }
    Replace(op, twin, root);
    return true;
  }

  /// Name of the in-place op that does the same to a mutable operand 0.
  static std::string TwinOf(const Operation* op) {
    if (!op->HasTrait<HasValueSemantics>() || op->num_results() != 1 || op->num_operands() == 0 ||
        !IsMutable(op->operand(0)) || !IsMutable(op->result(0))) {
      return {};
    }
    const std::string name = StrCat(op->name(), "_");
    const OpInfo info = op->context()->FindOp(name);
    return info && info.is_registered() && info.HasTrait<Inplace>() ? name : std::string();
  }

  bool Refuse(const Operation* op, const char* why) {
    rewriter_->Missed(op, StrCat("not done in place: ", why));
    return false;
  }

  void Replace(Operation* op, const std::string& twin, Value root) {
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    Operation* made = rewriter_->Create(twin, operands, op->attributes().entries(), 1);
    // The result lives on in the operand's memory: what is said of one is now said of the other.
    buffers_[root] = buffers_.at(op->result(0));
    root_of_[made->result(0)] = root;
    rewriter_->Applied(op, "done in place");
    Rename(op->result(0), root);
    rewriter_->ReplaceAllUses(op->result(0), made->result(0));
    rewriter_->Erase(op);
  }

  /// In-place ops that follow wrote `from`; they write `root` now.
  void Rename(Value from, Value root) {
    std::vector<Value> open{from};
    while (!open.empty()) {
      const Value value = open.back();
      open.pop_back();
      root_of_[value] = root;
      for (const OpOperand use : value.uses()) {
        if (use.index() == 0 && WritesFirst(use.owner())) open.push_back(use.owner()->result(0));
      }
    }
  }

  std::optional<Rewriter> rewriter_;
  // Looked up, never iterated.
  std::unordered_map<Value, Value> root_of_;
  std::unordered_map<Value, Buffer> buffers_;
};

REGISTER_PASS(inplace, InplacePass)
    .Doc("b = relu(a) on mutable tensors becomes b = relu_(a) where a dies")
    .Details(
        "Not where a is read later, fetched, fed, a parameter, of another type than b, viewed, or "
        "made outside the region. v_tensor programs have no such ops.");

}  // namespace lathe
