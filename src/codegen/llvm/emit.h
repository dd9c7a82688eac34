#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>
#include <string_view>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/ir/operation.h"
#include "lathe/support/element_type.h"
#include "src/support/dim_node.h"

namespace lathe::codegen {

/// What instructions for one operation are made from.
struct EmitContext {
  llvm::IRBuilder<>& b;
  const Target& target;
  const Operation* op;                   ///< null where the row needs none
  ElementType element;                   ///< of the first operand; of narrower floats: f32
  llvm::Type* type;                      ///< of the result: a scalar or a vector
  std::span<llvm::Value* const> inputs;  ///< widened to vectors if the result is one

  bool is_float() const { return inputs[0]->getType()->isFPOrFPVectorTy(); }
  bool is_signed() const;
  bool is_bool() const { return element == ElementType::kBool; }
};

/// Instructions for an elementwise operation; its inputs are widened to vectors if the result,
/// whose type in registers is `type`, is one. One table: see instructions.cc. Throws
/// codegen/unsupported.
llvm::Value* EmitInstruction(llvm::IRBuilder<>& b, const Target& target, const Operation* op,
                             llvm::Type* type, std::vector<llvm::Value*> inputs);
/// x and y as loop.reduce combines them: `kind` is its attribute.
llvm::Value* EmitCombination(llvm::IRBuilder<>& b, const Target& target, std::string_view kind,
                             ElementType element, llvm::Value* x, llvm::Value* y);
/// Whether there are instructions for `op` on scalars and vectors of its operands' element types.
bool HasInstruction(const Operation& op, const Target& target);

/// The type of one element in a register; null for types that generated code does not know. Bools
/// are i1 in registers and i8 in memory; f16 and bf16 are 16-bit integers, 8-bit floats 8-bit ones.
llvm::Type* RegisterType(llvm::LLVMContext& context, ElementType element);
llvm::Type* MemoryType(llvm::LLVMContext& context, ElementType element);

/// A function of dim expressions, such as floordiv.
llvm::Value* EmitDimFunction(llvm::IRBuilder<>& b, internal::DimKind kind, llvm::Value* x,
                             llvm::Value* y);

/// `value` for each lane of `like`, which may be a scalar type.
llvm::Constant* Splat(llvm::Type* like, double value);
/// Throws codegen/unsupported.
[[noreturn]] void FailUnsupported(const Operation* op, std::string_view why);

}  // namespace lathe::codegen
