#include "src/transform/refine_types.h"

#include <vector>

#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

// Calls `fn` with each value that `root` or an operation within it defines, in program order.
template <class Fn>
void ForEachValue(Operation* root, const Fn& fn) {
  for (OpWalker w(root); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) fn(op->result(i));
    for (Region& region : op->regions()) {
      for (const Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) fn(block.argument(i));
      }
    }
  }
}

std::vector<Type> TypesWithin(Operation* root) {
  std::vector<Type> types;
  ForEachValue(root, [&](Value v) { types.push_back(v.type()); });
  return types;
}

int64_t Differences(const std::vector<Type>& before, const std::vector<Type>& after) {
  int64_t count = 0;
  for (size_t i = 0; i < before.size(); ++i) count += before[i] != after[i] ? 1 : 0;
  return count;
}

}  // namespace

int64_t RefineTypes(Operation* op, ShapeInferencer& facts) {
  const std::vector<Type> before = TypesWithin(op);
  facts.Visit(op);
  return Differences(before, TypesWithin(op));
}

int64_t RefineTypes(Program& program, ShapeInferencer& facts) {
  const std::vector<Type> before = TypesWithin(program.module());
  facts.Visit(program);
  return Differences(before, TypesWithin(program.module()));
}

std::optional<bool> InferAgain(Operation* op, ShapeInferencer& facts) {
  const std::vector<Type> before = TypesWithin(op);
  try {
    facts.Visit(op);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kLimit) throw;
    auto type = before.begin();
    ForEachValue(op, [&](Value v) { v.set_type(*type++); });
    return std::nullopt;
  }
  return Differences(before, TypesWithin(op)) != 0;
}

}  // namespace lathe
