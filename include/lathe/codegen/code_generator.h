#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/codegen/code_image.h"
#include "lathe/codegen/target.h"
#include "lathe/ir/block.h"
#include "lathe/ir/type.h"
#include "lathe/support/tensor.h"

/// From loops to machine code.
namespace lathe::codegen {

/// A lowered function: its block's arguments are the inputs, the operands of its terminator the
/// outputs. Inputs are `v_tensor`s; each output is `builtin.to_vtensor` of a `loop.alloc` of its
/// own. Other memory lies on the stack if it is small or within a parallel loop (at most 1 MiB per
/// function: threads that run kernels need stacks of 2 MiB); what is larger or of symbolic size is
/// a workspace that the caller gives.
struct KernelSource {
  std::string name;  ///< a C identifier; unique among the sources compiled together
  const Block* body;
  /// Inputs and outputs that callers may put into the same memory: what is right for the loops is
  /// then right for the code. No others overlap.
  std::vector<std::pair<size_t, size_t>> in_place = {};
  /// Each access of memory is compared with the size of the buffer that it belongs to: what a call
  /// says of its buffers, not what the types say. One that is out of bounds is not made and ends
  /// the kernel (KernelStatus::kAccess).
  bool check_accesses = false;
};

/// The types of a kernel's inputs.
std::vector<AnyTensorType> ArgumentTypes(const Block& body);

/// Scratch memory for calls of one kernel, for who has no memory plan.
class Workspaces {
 public:
  /// Of the given sizes, for inputs of the given types and shapes.
  Workspaces(std::span<const Dim> bytes, std::span<const AnyTensorType> types,
             std::span<const Shape> shapes);
  /// Puts it behind the outputs.
  void AddTo(std::vector<KernelBuffer>& buffers);

 private:
  std::vector<Tensor> memory_;
};

enum class CodeText : uint8_t { kLlvm, kOptimizedLlvm, kAssembly };

/// LLVM behind an interface without LLVM: it lives in a library of its own, so that whoever does
/// not compile does not load it.
class CodeGenerator {
 public:
  virtual ~CodeGenerator() = default;

  /// Machine code with an entry per source, in their order. Errors: codegen/unsupported names the
  /// operation and its type; codegen/image: the target's code is only made as an object file.
  virtual CodeImage EmitImage(std::span<const KernelSource> sources, const Target& target) = 0;
  /// The same, ready to be called.
  std::unique_ptr<KernelLibrary> Compile(std::span<const KernelSource> sources,
                                         const Target& target) {
    return std::make_unique<KernelLibrary>(EmitImage(sources, target));
  }
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
