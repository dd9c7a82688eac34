#include "lathe/dialect/decompose.h"

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/context.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/op_def.h"
#include "lathe/ir/program.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"

namespace lathe {

namespace {

bool IsRuntimeAttribute(const Operation* op, std::string_view name) {
  if (op->info().def() == nullptr) return false;
  for (const AttrDef& a : op->info().def()->attributes) {
    if (name == a.name) return false;
  }
  return true;
}

void CarryAttributes(const Operation* from, Operation* to) {
  if (to->HasTrait<ConstantLike>()) return;  // equal ones merge
  for (const NamedAttribute& a : from->attributes().entries()) {
    const std::string_view name = a.name.value();
    if (IsRuntimeAttribute(from, name) && !to->attribute(name)) to->SetAttribute(name, a.value);
  }
}

bool IsHalf(Value v) {
  const auto type = v ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType();
  return type && (type.element() == ElementType::kF16 || type.element() == ElementType::kBF16);
}

/// Nothing is rounded, or all of it at once.
bool RoundsOnce(const Operation* op) {
  return KindOf(op) == OpKind::kInjective || op->isa<nn::CastLikeOp>() || op->isa<nn::ClipOp>();
}

/// The same operation on f32 in place of halves, before `op`; null if it has none.
Operation* InFloats(Operation* op, Builder& b) {
  bool any = false;
  for (size_t i = 0; i < op->num_operands(); ++i) any |= IsHalf(op->operand(i));
  if (!any || RoundsOnce(op)) return nullptr;
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    operands.push_back(IsHalf(v) ? nn::CastOp::Create(b, v, {.to = ElementType::kF32}).output()
                                 : v);
  }
  Operation* wide =
      b.CreateInferred(op->info(), operands, op->attributes().entries(), op->num_results());
  for (size_t i = 0; i < op->num_results(); ++i) {
    const auto given = op->result(i).type().dyn_cast<VTensorType>();
    if (!given) continue;
    const ElementType element = wide->result(i).type().cast<AnyTensorType>().element();
    wide->result(i).set_type(VTensorType::Get(b.context(), given.shape(), element));
  }
  return wide;
}

/// False if this form of the op has no other.
bool DecomposeOne(Operation* op, Builder& b) {
  Operation* before = op->prev();
  b.SetInsertionPoint(op);
  b.set_location(op->location());
  const std::vector<Value> results = DecomposeInFloats(op, b);
  if (results.empty()) return false;
  for (size_t i = 0; i < results.size(); ++i) {
    if (op->result(i).use_empty()) continue;
    const Operation* maker = results[i].defining_op();
    const bool made = maker != nullptr && maker->block() == op->block() &&
                      (before == nullptr || before->IsBefore(maker));
    if (made) results[i].set_type(op->result(i).type());  // inference here knows no constants
    op->result(i).ReplaceAllUsesWith(results[i]);
  }
  for (Operation* made = op->prev(); made != before; made = made->prev()) CarryAttributes(op, made);
  op->Erase();
  return true;
}

}  // namespace

std::vector<Value> DecomposeInFloats(Operation* op, Builder& b) {
  Operation* before = op->prev();
  Operation* wide = InFloats(op, b);
  Operation* whole = wide != nullptr ? wide : op;
  std::vector<Value> results = whole->dyn_cast<DecomposeInterface>().Decompose(b);
  if (results.empty()) {
    while (op->prev() != before) op->prev()->Erase();
    return results;
  }
  for (size_t i = 0; wide != nullptr && i < results.size(); ++i) {
    const ElementType to = op->result(i).type().cast<AnyTensorType>().element();
    const bool rounds = results[i].type().cast<AnyTensorType>().element() != to;
    if (rounds) results[i] = nn::CastOp::Create(b, results[i], {.to = to}).output();
  }
  if (wide != nullptr) wide->Erase();
  return results;
}

int64_t DecomposeOps(Program& program, Builder& b,
                     const std::function<bool(const Operation*)>& wanted) {
  int64_t count = 0;
  for (int64_t before = -1; before != count;) {
    before = count;
    std::vector<Operation*> ops;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->HasInterface<DecomposeInterface>() && wanted(op)) ops.push_back(op);
    }
    for (Operation* op : ops) count += DecomposeOne(op, b) ? 1 : 0;
  }
  return count;
}

}  // namespace lathe
