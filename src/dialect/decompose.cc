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

void DecomposeOne(Operation* op, Builder& b) {
  Operation* before = op->prev();
  b.SetInsertionPoint(op);
  b.set_location(op->location());
  const std::vector<Value> results = op->dyn_cast<DecomposeInterface>().Decompose(b);
  for (size_t i = 0; i < results.size(); ++i) results[i].set_type(op->result(i).type());
  op->ReplaceAllUsesWith(results);
  Operation* made = before == nullptr ? op->block()->front() : before->next();
  for (; made != op; made = made->next()) CarryAttributes(op, made);
  op->Erase();
}

}  // namespace

int64_t DecomposeOps(Program& program, Builder& b,
                     const std::function<bool(const Operation*)>& wanted) {
  int64_t count = 0;
  for (;;) {
    std::vector<Operation*> ops;
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->HasInterface<DecomposeInterface>() && wanted(op)) ops.push_back(op);
    }
    if (ops.empty()) return count;
    for (Operation* op : ops) DecomposeOne(op, b);
    count += static_cast<int64_t>(ops.size());
  }
}

}  // namespace lathe
