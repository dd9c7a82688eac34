#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
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

/// Operations that become one kernel, each after what it reads, the root last. Others than the root
/// may be used outside the group, too; but no path leaves the group and comes back.
struct FusionGroup {
  std::vector<Operation*> ops;
  OpKind kind = OpKind::kOpaque;  ///< the most complex one among them
  size_t anchor = 0;  ///< index in `ops` of the anchor op, whose loops compute the group
  Operation* root() const { return ops.back(); }
  /// Whether results of others than the root are used outside.
  bool HasSeveralResults() const;
};

/// What keeps two operations in different kernels.
enum class FusionObstacle : uint8_t {
  kNoKernel,   ///< one of them is not computed by a kernel, or nothing is known of it
  kOutput,     ///< the value is a result of the program
  kMarked,     ///< the user wants the value in memory
  kKinds,      ///< one loop nest does not compute operations of these kinds
  kShape,      ///< extents differ, or are not known to be equal
  kUsers,      ///< others read the value as well
  kConvexity,  ///< a path would leave the kernel and come back
  kLimit,      ///< the kernel would be too large
  kPrice,      ///< two kernels take less time
};

/// "kinds", "users", ...
std::string_view Name(FusionObstacle obstacle);

/// Why a group is not larger: `op` is not computed together with `into`. There is one for each edge
/// between groups that the plan looked at, in program order of `op`.
struct FusionRefusal {
  const Operation* op;
  const Operation* into;  ///< null: with nothing
  std::string why;        ///< without figures: equal for equal reasons, so that they can be counted
  FusionObstacle obstacle = FusionObstacle::kKinds;
  /// Estimated microseconds of what both do as two kernels and as one; negative: not priced.
  double apart_us = -1, together_us = -1;

  /// "it is computed 64 times (0.1 us apart, 2.3 us together)".
  std::string ToString() const;
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
/// that group, the kinds fit, and computing it there costs no more than writing and reading it:
///   - elementwise, broadcast: into any group; into that of a convolution or product that reads it
///     where it packs or copies the operand;
///   - injective: the same, without a convolution or product in the group, but for a matrix that is
///     transposed for a product;
///   - reduction: into elementwise ops of the reduced shape, or of the full shape if the reduced
///     axes stay, and with reductions of the same rows (softmax, layer normalization);
///   - out-elementwise-fusable: into elementwise ops of its result's shape; one to a group, the
///     first by operands; an injective op in the group goes first. A transposition behind it, with
///     reshapes around it, says where the result is stored, if rows stay in one piece.
/// Then groups that read the same, or of which one reads what another gives, are joined where that
/// saves time; several of their ops may then be read outside.
FusionPlan PlanFusion(Block* block, const FusionOptions& options = {});

}  // namespace lathe
