#pragma once

#include <vector>

#include "lathe/dialect/op_kind.h"
#include "lathe/lower/fusion.h"
#include "src/lower/dataflow.h"
#include "src/lower/same_shapes.h"

namespace lathe {

/// Why operations do not share a kernel; `why` is null if they do.
struct Obstacle {
  const char* why = nullptr;
  FusionObstacle obstacle = FusionObstacle::kKinds;
  double apart_ns = -1, together_ns = -1;
  bool exists() const { return why != nullptr; }
};

/// Groups in the making. Each is known by its root: the last op that joined.
class FusionDraft {
 public:
  struct Group {
    OpKind kind = OpKind::kOpaque;
    uint32_t size = 1;
    uint32_t anchor = 0;
    uint32_t first = 0;                    ///< least number of a member
    uint32_t last = 0;                     ///< end of the list of members
    uint32_t reduction = Dataflow::kNone;  ///< one of its reductions
    bool injective = false;                ///< holds an injective op
    double work = 0;                       ///< arithmetic of elementwise ops, in nanoseconds
    size_t streams = 0;                    ///< tensors that it reads or writes; 0: not counted yet
  };
  /// What a reduction reads and gives.
  struct Rows {
    Value full, reduced;
    bool kept;  ///< the reduced axes stay, with extent 1
  };

  FusionDraft(Block* block, const FusionOptions& options);

  const FusionOptions& options() const { return options_; }
  const Dataflow& flow() const { return flow_; }
  const SameShapes& shapes() const { return shapes_; }
  uint32_t size() const { return flow_.size(); }
  bool is_kernel(uint32_t op) const { return kernel_[op]; }
  OpKind own_kind(uint32_t op) const { return own_[op]; }
  /// Where it is computed a second time; 0: it is computed once.
  int64_t recomputed_at(uint32_t op) const { return recomputed_at_[op]; }

  uint32_t Find(uint32_t op);
  Group& group(uint32_t root) { return groups_[root]; }
  const Group& group(uint32_t root) const { return groups_[root]; }
  /// The op after `op` in the list of members, which begins with the root; kNone after the last.
  uint32_t next(uint32_t op) const { return next_[op]; }
  /// The group of `from` becomes part of that of `into`. `work`: what its arithmetic is then.
  void Join(uint32_t from, uint32_t into, double work);

  Rows RowsOf(uint32_t reduction) const;
  bool SameRows(uint32_t a, uint32_t b) const;

  void Refused(uint32_t op, uint32_t into, const Obstacle& o, bool is_merge = false);
  /// Forgets the refusals so far that say that others read what `op` gives.
  void ForgetUsers(uint32_t op) { forgotten_[op] = true; }
  FusionPlan Collect();

 private:
  struct Refusal {
    uint32_t op, into;
    Obstacle obstacle;
    bool is_merge;  // of groups
  };
  FusionGroup Finish(uint32_t root) const;
  bool IsElementwiseHere(const Operation* op) const;

  FusionOptions options_;
  Dataflow flow_;
  SameShapes shapes_;
  std::vector<Group> groups_;
  std::vector<OpKind> own_;  // of the op by itself
  std::vector<bool> kernel_;
  std::vector<int64_t> recomputed_at_;
  std::vector<uint32_t> root_, next_;
  std::vector<bool> forgotten_;
  std::vector<Refusal> refusals_;
};

/// Joins groups of which several ops are read outside, where that is cheaper: one computes from
/// what another gives, or both read the same. The dearest edge first.
void MergeGroups(FusionDraft& draft);

}  // namespace lathe
