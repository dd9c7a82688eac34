#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/op_def.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe::testing {

/// Grows programs from the op table: each new op reads values made before, of element types that
/// its declaration allows. Ops that turn the operands down are tried again with others.
class ProgramGrower {
 public:
  /// Of the leaves, one in `constant_one_in` is a constant instead of an input; 0: none.
  ProgramGrower(IrContext& context, uint64_t seed, size_t constant_one_in = 0);

  Program Grow(int num_ops);
  /// What the program was grown on.
  NamedValues Inputs(const Program& program) const;
  /// Errors of ops that do not say what is wrong with the data: bugs.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  size_t Pick(size_t count);
  void AddLeaf(Builder& b, ElementType element);
  void Keep(Value value, RtValue data);
  Value Choose(const OpDef& def, const ValueDef& operand, std::vector<ElementType>& bound);
  bool TryAdd(Builder& b, OpInfo info);
  bool Accept(Builder& b, OpInfo info, const std::vector<Value>& operands,
              const std::vector<NamedAttribute>& attributes);
  std::vector<RtValue> Try(Operation* op);
  void Turned(const Error& error);

  IrContext& context_;
  RandomStream random_;
  size_t constant_one_in_;
  std::vector<OpInfo> ops_;
  std::vector<Value> values_;
  std::unordered_map<Value, RtValue> data_;
  std::vector<std::string> complaints_;
};

}  // namespace lathe::testing
