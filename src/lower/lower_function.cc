#include "lathe/lower/lower_function.h"

#include <array>

#include "lathe/dialect/op_kind.h"
#include "lathe/ir/builder.h"
#include "lathe/support/error.h"
#include "src/lower/strategies/list.h"

namespace lathe::lower {
namespace {

// In order of preference.
constexpr std::array kStrategies = {
    LoopStrategy{"elementwise", &LowerElementwise},
    LoopStrategy{"matmul", &LowerMatmul},
    LoopStrategy{"conv", &LowerConv},
};

// A block with the same arguments as the function's.
Block* AddBodyLike(const Block& old, Region& region) {
  Block* body = region.AddBlock();
  for (size_t i = 0; i < old.num_arguments(); ++i) body->AddArgument(old.argument(i).type());
  return body;
}

bool ShouldDecompose(const Operation& op, const Machine& machine) {
  const OpKind kind = KindOf(&op);
  return (kind == OpKind::kElementwise || kind == OpKind::kBroadcast) &&
         op.HasInterface<DecomposeInterface>() && !machine.has_instruction(op);
}

// Elementwise operations without instructions, such as gelu, become simpler ones.
void Decompose(Block& block, const Machine& machine) {
  for (Operation* op = block.front(); op != nullptr;) {
    Operation* next = op->next();
    if (ShouldDecompose(*op, machine)) {
      Operation* before = op->prev();
      Builder b = Builder::Before(op);
      b.set_location(op->location());
      op->ReplaceAllUsesWith(op->dyn_cast<DecomposeInterface>().Decompose(b));
      next = before == nullptr ? block.front() : before->next();  // what it became may go on
      op->Erase();
    }
    op = next;
  }
}

}  // namespace

Lowered LowerFunction(Operation* function, const Machine& machine,
                      const std::vector<bool>& constant) {
  Lowered lowered;
  Decompose(*function->region(0).front(), machine);
  Region& region = function->region(0);
  for (const LoopStrategy& strategy : kStrategies) {
    Region loops(function);
    Block* body = AddBodyLike(*region.front(), loops);
    Lowering lowering{*region.front(), body, machine, constant};
    if (strategy.lower(lowering)) {
      region.Clear();
      region.TakeBody(loops);
      lowered.done = true;
      lowered.strategy = strategy.name;
      lowered.packed = std::move(lowering.packed);
      return lowered;
    }
    lowered.why_not +=
        StrCat(lowered.why_not.empty() ? "" : "; ", strategy.name, ": ", lowering.why);
  }
  return lowered;
}

}  // namespace lathe::lower
