#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/ir/block.h"
#include "lathe/support/kernel.h"

/// From loops to machine code.
namespace lathe::codegen {

/// A lowered function: its block's arguments are the inputs, the operands of its terminator the
/// outputs. Inputs are `v_tensor`s; each output is `builtin.to_vtensor` of a `loop.alloc` of its
/// own.
struct KernelSource {
  std::string name;  ///< a C identifier; unique among the sources compiled together
  const Block* body;
};

/// Machine code in memory that may be called. Threads: everything is const.
class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  /// Valid as long as the library; an unknown name is an internal error.
  virtual KernelFunction Find(std::string_view name) const = 0;
};

enum class CodeText : uint8_t { kLlvm, kOptimizedLlvm, kAssembly };

/// LLVM behind an interface without LLVM: it lives in a library of its own, so that whoever does
/// not compile does not load it.
class CodeGenerator {
 public:
  virtual ~CodeGenerator() = default;

  /// Errors: codegen/unsupported names the operation and its type.
  virtual std::unique_ptr<KernelLibrary> Compile(std::span<const KernelSource> sources,
                                                 const Target& target) = 0;
  /// The same as an object file for the target.
  virtual std::string EmitObject(std::span<const KernelSource> sources, const Target& target) = 0;
  /// The same to read.
  virtual std::string EmitText(std::span<const KernelSource> sources, const Target& target,
                               CodeText kind) = 0;
  /// Whether the elementwise operation has instructions, on scalars and vectors of its element
  /// types.
  virtual bool Supports(const Operation& op, const Target& target) const = 0;

  /// Loads the library on first use. Errors: codegen/missing.
  static CodeGenerator& Get();
};

}  // namespace lathe::codegen
