#include "lathe/dialect/decompose.h"

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

/// False if this form of the op has no other.
bool DecomposeOne(Operation* op, Builder& b) {
  Operation* before = op->prev();
  b.SetInsertionPoint(op);
  b.set_location(op->location());
  const std::vector<Value> results = op->dyn_cast<DecomposeInterface>().Decompose(b);
  if (results.empty()) {
    while (op->prev() != before) op->prev()->Erase();
    return false;
  }
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
