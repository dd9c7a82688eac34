#include "python/src/views.h"

#include "lathe/ir/block.h"

namespace lathe::python {

OpView ViewOf(const Holder& holder, Operation* op) { return {holder, holder->version, op, op}; }

ValueView ViewOf(const Holder& holder, Value value) {
  const Operation* owner =
      value.is_block_argument() ? value.argument_block()->parent_op() : value.defining_op();
  return {holder, holder->version, owner, value};
}

void Replaced(ProgramHolder& holder) {
  holder.replaced = ++holder.version;
  holder.erased.clear();
  holder.facts.reset();
  holder.block = nullptr;
  holder.before = nullptr;
}

}  // namespace lathe::python
