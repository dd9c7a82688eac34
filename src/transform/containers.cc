#include "src/transform/containers.h"

#include <vector>

#include "lathe/dialect/nn/io.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/walk.h"

namespace lathe {

bool HoldsMutable(Type type) {
  std::vector<Type> open{type};
  while (!open.empty()) {
    const auto container = open.back().dyn_cast<ContainerType>();
    open.pop_back();
    if (!container) continue;
    for (const Type t : container.elements()) {
      if (t.isa<TensorType>()) return true;
      open.push_back(t);
    }
  }
  return false;
}

namespace {

/// The op puts copies into containers and takes copies out of them.
bool Copies(const Operation* op) {
  return op->info().is_registered() &&
         (op->HasTrait<HasValueSemantics>() || op->isa<nn::FeedOp>() || op->isa<nn::FetchOp>() ||
          (op->num_regions() > 0 && op->HasInterface<EvalInterface>()));
}

}  // namespace

Containers::Containers(const Program& program) {
  for (OpWalker w(program.block()); Operation* op = w.Next();) Visit(op);
}

void Containers::Visit(Operation* op) {
  Value group;
  for (size_t i = 0; i < op->num_operands(); ++i) Join(group, op->operand(i));
  for (size_t i = 0; i < op->num_results(); ++i) Join(group, op->result(i));
  for (Region& region : op->regions()) {
    for (Block& block : region) {
      for (size_t i = 0; i < block.num_arguments(); ++i) Join(group, block.argument(i));
      const Operation* yield = block.terminator();
      for (size_t i = 0; yield != nullptr && i < yield->num_operands(); ++i) {
        Join(group, yield->operand(i));
      }
    }
  }
  if (group && !Copies(op)) unknown_.try_emplace(Find(group), op);
}

Value Containers::Find(Value value) const {
  for (auto at = parent_.find(value); at != parent_.end() && at->second != value;
       at = parent_.find(value)) {
    value = at->second;
  }
  return value;
}

void Containers::Join(Value& group, Value value) {
  if (!value || !HoldsMutable(value.type())) return;
  const Value from = Find(value);
  if (!group) {
    group = from;
    return;
  }
  const Value to = Find(group);
  group = to;
  if (from == to) return;
  parent_[from] = to;
  const auto known = unknown_.find(from);
  if (known != unknown_.end()) unknown_.try_emplace(to, known->second);
}

const Operation* Containers::UnknownUser(Value value) const {
  if (!HoldsMutable(value.type())) return nullptr;
  const auto at = unknown_.find(Find(value));
  return at == unknown_.end() ? nullptr : at->second;
}

}  // namespace lathe
