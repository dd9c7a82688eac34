#pragma once

#include <cstdint>

/// How compiled kernels are called: C structures only, which the run time and generated code share.
namespace lathe {

/// One argument of a kernel: an input or an output, row-major.
struct KernelBuffer {
  void* data;  ///< aligned to its element type; may be null if there are no elements
  /// One entry per axis; read only where the kernel's type is symbolic, or if it checks accesses:
  /// then of workspaces, too, which have one axis of bytes.
  const int64_t* shape;
};

/// Runs pieces of a parallel loop.
struct KernelTeam {
  using Body = void (*)(int64_t begin, int64_t end, void* captured);
  /// Calls `body` on ranges that cover 0 .. extent-1 once, on any threads; returns when all are
  /// done.
  void (*run)(KernelTeam* team, int64_t extent, Body body, void* captured);
  /// Whether the kernel is to end early, its outputs unfinished; null: never. Kernels ask now and
  /// then, from any thread.
  bool (*stopped)(KernelTeam* team) = nullptr;
  /// That share a loop, the caller counted. Kernels cut their work by it; it changes no result.
  int64_t num_threads = 1;
};

/// What a kernel that checks indices or accesses leaves in its last buffer, behind the workspaces.
struct KernelStatus {
  static constexpr int64_t kIndex = 1;   ///< an index is none of its axis
  static constexpr int64_t kAccess = 2;  ///< an access is out of bounds; it was not made

  int64_t failed;  ///< 0: all is well; else it ended there, and its outputs mean nothing
  union {
    int64_t axis;        ///< of the tensor that was indexed
    const char* access;  ///< operation and memory; lives as long as the code
  };
  int64_t index;   ///< the first one that is none of the axis; of an access its first byte
  int64_t extent;  ///< of the axis; of an access the bytes that there are
};

/// `buffers`: the inputs in order, then the outputs. Without a team everything runs on the caller's
/// thread. Inputs and outputs do not overlap, but for pairs that the compiler names.
using KernelFunction = void (*)(const KernelBuffer* buffers, KernelTeam* team);

}  // namespace lathe
