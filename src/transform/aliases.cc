#include "src/transform/aliases.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/transform/view_values.h"

namespace lathe {

namespace {

bool HasMutableOperand(const Operation* op) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (IsMutable(op->operand(i))) return true;
  }
  return false;
}

bool HasMutableResult(const Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (IsMutable(op->result(i))) return true;
  }
  return false;
}

bool WritesFirst(const Operation* op) {
  return op->HasTrait<Inplace>() && op->num_operands() > 0 && IsMutable(op->operand(0));
}

bool ViewsFirst(const Operation* op) {
  return op->HasTrait<ViewLike>() && op->num_operands() > 0 && IsMutable(op->operand(0));
}

}  // namespace

bool Aliases::IsKnown(const Operation* op) const {
  if (!op->info().is_registered() || UnknownHolder(op) != nullptr) return false;
  if (op->name().starts_with("loop.")) return false;  // loops fill tensors element by element
  if (op->HasTrait<HasValueSemantics>() || op->HasTrait<ConstantLike>()) return true;
  if (WritesFirst(op) || ViewsFirst(op)) return true;
  // Ops of the system whose regions take and give copies, or that only hand a value on.
  if (op->num_regions() > 0) {
    return op->HasInterface<EvalInterface>() || op->isa<builtin::FuncOp>();
  }
  if (op->isa<nn::FetchOp>() || op->isa<builtin::SetParameterOp>()) return true;
  return !HasMutableOperand(op) || (op->HasTrait<ReadOnly>() && !HasMutableResult(op));
}

bool Aliases::IsKnownContainer(Value value) const {
  return value && HoldsMutable(value.type()) && containers_.UnknownUser(value) == nullptr;
}

/// An op of which nothing is known and which reaches a container that `op` takes or makes.
const Operation* Aliases::UnknownHolder(const Operation* op) const {
  for (size_t i = 0; i < op->num_operands() + op->num_results(); ++i) {
    const bool taken = i < op->num_operands();
    const Value value = taken ? op->operand(i) : op->result(i - op->num_operands());
    const Operation* user = value ? containers_.UnknownUser(value) : nullptr;
    if (user != nullptr) return user;
  }
  return nullptr;
}

Aliases::Aliases(const Program& program) : containers_(program) {
  std::unordered_map<const Block*, bool> unknown;  // blocks of ops that are not known
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    const auto at = unknown.find(op->block());
    const bool in_unknown = at != unknown.end() && at->second;
    Visit(op, in_unknown);
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        const bool inside = in_unknown || !IsKnown(op);
        unknown[&block] = inside;
        for (size_t i = 0; i < block.num_arguments(); ++i) {
          if (!IsMutable(block.argument(i))) continue;
          AddRoot(block.argument(i));
          if (inside) Keep(block.argument(i), op, "is an argument of a region of unknown use");
        }
      }
    }
  }
}

void Aliases::Visit(Operation* op, bool in_unknown) {
  const bool known = IsKnown(op) && !in_unknown;
  if (WritesFirst(op)) AddWrite(op);
  if (ViewsFirst(op)) AddView(op);
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (IsMutable(op->result(i)) && !Contains(op->result(i))) AddRoot(op->result(i));
  }
  if (!known) KeepOperands(op, in_unknown);
}

void Aliases::KeepOperands(Operation* op, bool in_unknown) {
  const Operation* by = op;
  const char* why = in_unknown ? "is used within an operation of which nothing is known"
                               : "may be written or kept by an operation of which nothing is known";
  if (const Operation* user = in_unknown ? nullptr : UnknownHolder(op)) {
    by = user;
    why = "is held by a container that an operation of which nothing is known takes";
  }
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (IsMutable(op->operand(i))) Keep(op->operand(i), by, why);
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (IsMutable(op->result(i))) Keep(op->result(i), by, "comes from it");
  }
}

void Aliases::AddRoot(Value value) {
  same_as_[value] = value;
  places_[value] = {value, Value(), nullptr};
}

void Aliases::AddWrite(Operation* op) {
  const Value target = Canonical(op->operand(0));
  const Value root = place(target).root;
  same_as_[op->result(0)] = target;
  written_[root] = true;
  if (ValueTwin(op).empty()) Keep(root, op, "is written by an operation without a value twin");
  for (const Block* b = op->block(); b != root.parent_block(); b = b->parent_op()->block()) {
    Operation* holder = b->parent_op();
    LATHE_CHECK(holder != nullptr, op->Describe(), " writes a tensor that it does not see");
    if (!holder->isa<cf::IfOp>() && !holder->isa<cf::WhileOp>()) {
      Keep(root, op, StrCat("is written within ", holder->name()));
    }
    std::vector<Value>& inside = written_inside_[holder];
    if (std::find(inside.begin(), inside.end(), root) == inside.end()) inside.push_back(root);
  }
}

void Aliases::AddView(Operation* op) {
  const Value parent = Canonical(op->operand(0));
  const Value root = place(parent).root;
  same_as_[op->result(0)] = op->result(0);
  places_[op->result(0)] = {root, parent, op};
  if (!IsKnownView(op)) Keep(root, op, "is viewed by an operation without a value twin");
}

void Aliases::Keep(Value value, const Operation* op, std::string why) {
  kept_.try_emplace(RootOf(value), Reason{op, std::move(why)});
}

const Aliases::Reason* Aliases::kept(Value root) const {
  const auto at = kept_.find(root);
  return at == kept_.end() ? nullptr : &at->second;
}

const std::vector<Value>& Aliases::WrittenInside(const Operation* region_op) const {
  static const std::vector<Value> none;
  const auto at = written_inside_.find(region_op);
  return at == written_inside_.end() ? none : at->second;
}

}  // namespace lathe
