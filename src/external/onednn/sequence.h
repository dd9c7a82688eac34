#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lathe/support/kernel.h"
#include "src/external/onednn/descriptors.h"

namespace lathe::onednn {

/// Where the bytes of a tensor are during a run.
struct Place {
  enum class Kind : uint8_t {
    kArgument,  ///< of the function: `index`
    kResult,    ///< of the function: `index`
    kConstant,  ///< Sequence::constants[index]
    kArena,     ///< scratch memory, Sequence::offsets[index] bytes in
  };
  Kind kind = Kind::kArena;
  uint32_t index = 0;
};

/// A primitive and what it reads and writes.
struct Piece {
  struct Operand {
    int name;  ///< DNNL_ARG_...
    Layout layout;
    Place place;
    int64_t offset = 0;  ///< bytes
  };
  dnnl::primitive primitive;
  std::vector<Operand> operands;
};

/// Primitives that may run side by side.
struct Step {
  std::vector<Piece> pieces;
  bool moves = false;  ///< it only brings a tensor into another order
};

/// Bytes that do not change from run to run.
struct ConstantBytes {
  std::shared_ptr<const void> owner;
  const void* data = nullptr;
};

/// Primitives in an order. Immutable: any number of threads may run it at once; each run has
/// memory objects of its own, which later runs take over.
class Sequence {
 public:
  explicit Sequence(dnnl::engine engine);
  ~Sequence();

  std::vector<Step> steps;
  std::vector<ConstantBytes> constants;
  std::vector<int64_t> offsets;  ///< of storages in the arena
  size_t num_arguments = 0;
  size_t num_results = 0;

  enum class Which : uint8_t {
    kAll,
    kWithoutMoves,  ///< after a run of all with the same buffers: to measure the rest alone
  };
  /// `buffers`: arguments, results, and the arena, if there are offsets. Errors: external/run.
  void Run(const KernelBuffer* buffers, KernelTeam* team = nullptr,
           Which which = Which::kAll) const;

 private:
  struct Context;
  std::unique_ptr<Context> MakeContext() const;
  std::unique_ptr<Context> Take() const;
  static void RunStep(const Step& step, const Context& context, size_t first, KernelTeam* team);

  dnnl::engine engine_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace lathe::onednn
