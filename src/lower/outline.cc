#include "src/lower/outline.h"

#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {

Outliner::Outliner(Rewriter& rewriter, std::span<Operation* const> ops, const Embeds& embeds)
    : rewriter_(rewriter), ops_(ops.begin(), ops.end()) {
  for (const Operation* op : ops_) inside_.emplace(op, true);
  FindInputs(embeds);
  FindResults();
}

/// A value that some operand embeds is embedded for all.
void Outliner::FindInputs(const Embeds& embeds) {
  std::unordered_map<Value, bool> seen;  // looked up, never iterated
  for (const bool embed : {true, false}) {
    for (const Operation* op : ops_) {
      for (size_t i = 0; i < op->num_operands(); ++i) {
        const Value v = op->operand(i);
        if (!v || IsInside(v.defining_op()) || (embed && !embeds(op, i))) continue;
        if (!seen.emplace(v, true).second) continue;
        if (embed) {
          embedded_.push_back(v.defining_op());
        } else {
          arguments_.push_back(v);
        }
      }
    }
  }
}

void Outliner::FindResults() {
  for (const Operation* op : ops_) {
    for (size_t r = 0; r < op->num_results(); ++r) {
      for (const OpOperand use : op->result(r).uses()) {
        if (IsInside(use.owner())) continue;
        results_.push_back(op->result(r));
        break;
      }
    }
  }
}

std::vector<Type> Outliner::result_types() const {
  std::vector<Type> types;
  for (const Value v : results_) types.push_back(v.type());
  return types;
}

Location Outliner::location() const {
  std::vector<Location> parts;
  for (const Operation* op : ops_) parts.push_back(op->location());
  return Location::Fused(rewriter_.context(), parts);
}

void Outliner::MoveInto(Block* body, std::span<const Value> replacements) {
  LATHE_CHECK(replacements.size() == results_.size(), "one value per result");
  IrMapping mapping;
  for (const Value v : arguments_) mapping.Map(v, body->AddArgument(v.type()));
  for (const Operation* op : embedded_) body->PushBack(Clone(op, mapping));
  for (Operation* op : ops_) {
    op->MoveToEnd(body);
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (v && mapping.Contains(v)) rewriter_.SetOperand(op, i, mapping.Lookup(v));
    }
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    std::vector<OpOperand> outside;
    for (const OpOperand use : results_[i].uses()) {
      if (!IsInside(use.owner())) outside.push_back(use);
    }
    for (const OpOperand use : outside) {
      rewriter_.SetOperand(use.owner(), use.index(), replacements[i]);
    }
  }
  for (Operation* op : embedded_) {
    if (op->use_empty()) rewriter_.Erase(op);
  }
}

}  // namespace lathe
