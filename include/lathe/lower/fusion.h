#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lathe/dialect/op_kind.h"
#include "lathe/ir/operation.h"

/// Which operations of a block one kernel computes [NNVM GraphFusePartition].
namespace lathe {

struct FusionOptions {
  bool fuse = true;      ///< false: each operation is a group of its own
  size_t max_ops = 256;  ///< operations in one group
  bool explain = false;  ///< record refusals
};

/// Operations that become one kernel, each after what it reads, the root last. Only the root's
/// results are used outside the group, so that no path leaves the group and comes back.
struct FusionGroup {
  std::vector<Operation*> ops;
  OpKind kind = OpKind::kOpaque;  ///< the most complex one among them
  size_t master = 0;              ///< index in `ops` of the operation that gives the loops
  Operation* root() const { return ops.back(); }
};

/// Why a group is not larger: `op` is not computed together with `into`.
struct FusionRefusal {
  const Operation* op;
  const Operation* into;  ///< null: with nothing
  std::string why;
};

struct FusionPlan {
  std::vector<FusionGroup> groups;  ///< in program order of their roots
  std::vector<FusionRefusal> refusals;
};

/// An op with value semantics on tensors: one that a kernel can compute.
bool IsKernelOp(const Operation* op);

/// What is a kernel as a whole: a `builtin.group`, or a function made of one or for an external
/// compiler. Passes that look for kernels leave its regions alone.
bool IsKernel(const Operation* op);

/// Name of the runtime attribute (true) on an op whose result is always written to memory.
inline constexpr const char* kFuseStop = "fuse_stop";

/// Groups every kernel op of the block. The result depends on what the program computes, not on the
/// order in which it is written. Takes O(n log n).
///
/// An op joins the group of the nearest op through which all its uses pass, if all its users are in
/// that group and the kinds fit:
///   - elementwise, broadcast: into any group but that of an op that reads its operands whole;
///   - injective: the same, without a convolution or product in the group;
///   - reduction: into elementwise ops of the reduced shape, or of the full shape if the reduced
///   axes
///     stay, and with reductions of the same rows (softmax, layer normalization);
///   - out-elementwise-fusable: into elementwise ops of its result's shape; one to a group, the
///   first
///     by operands; an injective op in the group goes first.
FusionPlan PlanFusion(Block* block, const FusionOptions& options = {});

}  // namespace lathe
