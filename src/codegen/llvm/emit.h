#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>
#include <string_view>

#include "lathe/ir/operation.h"
#include "lathe/support/dim.h"
#include "lathe/support/element_type.h"

namespace lathe::codegen {

/// What instructions for one operation are made from.
struct EmitContext {
  llvm::IRBuilder<>& b;
  const Operation* op;
  ElementType element;                   ///< of the first operand
  llvm::Type* type;                      ///< of the result: a scalar or a vector
  std::span<llvm::Value* const> inputs;  ///< widened to vectors if the result is one

  bool is_float() const { return inputs[0]->getType()->isFPOrFPVectorTy(); }
  bool is_signed() const;
  bool is_bool() const { return element == ElementType::kBool; }
};

using Emitter = llvm::Value* (*)(EmitContext&);

/// Instructions for the elementwise operation `name`, or null. One table: see instructions.cc.
Emitter FindInstruction(std::string_view name);
/// Whether there are instructions for `op` on scalars and vectors of its operands' element types.
bool HasInstruction(const Operation& op);

/// The type of one element in a register; null for types that generated code does not know. Bools
/// are i1 in registers and i8 in memory.
llvm::Type* RegisterType(llvm::LLVMContext& context, ElementType element);
llvm::Type* MemoryType(llvm::LLVMContext& context, ElementType element);

/// The value of a dim expression over the symbols d0, d1, ...
llvm::Value* EmitDim(llvm::IRBuilder<>& b, const Dim& dim, std::span<llvm::Value* const> symbols);

/// `value` for each lane of `like`, which may be a scalar type.
llvm::Constant* Splat(llvm::Type* like, double value);
/// Throws codegen/unsupported.
[[noreturn]] void FailUnsupported(const Operation* op, std::string_view why);

}  // namespace lathe::codegen
