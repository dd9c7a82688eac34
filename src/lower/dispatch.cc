#include "src/lower/dispatch.h"

#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/lower/loop_builder.h"
#include "lathe/support/error.h"

// A choice is a loop of one iteration or of none: there is no other control flow between loops.
namespace lathe::lower {
namespace {

// Memory that a body gives back: the operand of the to_vtensor of each result.
std::vector<Value> ResultMemory(const Block& body) {
  std::vector<Value> memory;
  for (size_t i = 0; i < body.back()->num_operands(); ++i) {
    const Operation* copy = body.back()->operand(i).defining_op();
    LATHE_CHECK(copy != nullptr && copy->isa<builtin::ToVtensorOp>() &&
                    copy->operand(0).defining_op()->isa<loop::AllocOp>(),
                "a result is not memory of the function's own");
    memory.push_back(copy->operand(0));
  }
  return memory;
}

// Drops a body's terminator and results, has it write `shared` and read `arguments` instead.
void Open(Block& body, const Block& arguments, std::span<const Value> shared) {
  const std::vector<Value> own = ResultMemory(body);
  std::vector<Operation*> copies;
  for (size_t i = 0; i < own.size(); ++i) copies.push_back(body.back()->operand(i).defining_op());
  body.back()->Erase();
  for (Operation* copy : copies) copy->Erase();
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].ReplaceAllUsesWith(shared[i]);
    own[i].defining_op()->Erase();
  }
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    body.argument(i).ReplaceAllUsesWith(arguments.argument(i));
  }
}

void MoveAll(Block& from, Block* to) {
  while (!from.empty()) from.front()->MoveToEnd(to);
}

// Memory of static size lies outside of the choice: only there may it be large.
void MoveMemory(Block& from, Block* to) {
  for (Operation* op = from.front(); op != nullptr;) {
    Operation* next = op->next();
    if (op->isa<loop::AllocOp>() && op->num_operands() == 0) op->MoveToEnd(to);
    op = next;
  }
}

}  // namespace

void WriteDispatch(std::span<const Variant> variants, Block* body) {
  LoopBuilder lb(body);
  std::vector<Value> results;
  for (const Value memory : ResultMemory(*variants.front().body)) {
    results.push_back(lb.Alloc(memory.type().cast<AnyTensorType>()));
  }
  Dim left = 1;
  for (const Variant& variant : variants) {
    Open(*variant.body, *body, results);
    MoveMemory(*variant.body, body);
    const Dim holds = variant.where.Indicator();
    lb.For(lb.Extent(left * holds), false, [&](Value) { MoveAll(*variant.body, lb.b().block()); });
    left = left * (Dim(1) - holds);
  }
  lb.Return(results);
}

}  // namespace lathe::lower
