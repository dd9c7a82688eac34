#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/permute_interface.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/min_cut.h"

namespace lathe {

/// Operations of one block that could work on permuted data, so that what lies between them needs
/// no transpose. Grown from a seed over everything that commutes with the permutation; which of
/// them then really do is a cheapest cut, a transpose costing more than any size of what it moves.
class LayoutRegion {
 public:
  /// `suffix`: transposes to the permuted side are named after what they read and this, if it is
  /// not empty.
  LayoutRegion(Rewriter& rewriter, ValueFacts& facts, Block* block, std::string suffix = "")
      : rewriter_(rewriter), facts_(facts), block_(block), suffix_(std::move(suffix)) {}

  /// Ops keep their attribute `layout`.
  void KeepLayouts() { keep_layouts_ = true; }
  /// What undoes the transpose.
  void AddTranspose(Operation* transpose);
  /// The op has to work on operand 0 permuted; false if it cannot.
  bool AddAnchor(Operation* op, const Permutation& perm);
  /// Chooses. The cost of the transposes there are less that of those there would be, positive if
  /// something is gained; anchors come at any cost.
  int64_t Solve();
  void Apply();
  /// Transposes of which the region took notice as where permuted data come from.
  const std::vector<Operation*>& sources() const { return sources_; }

 private:
  struct Member {
    Operation* op;
    PermuteContext plan;
    bool forced = false;
    size_t node = 0;
    bool chosen = false;
  };
  struct Readers {
    std::vector<size_t> members;         ///< that would read it permuted
    std::vector<Operation*> transposes;  ///< that give just what is wanted
    bool others = false;
  };

  void Grow();
  void Visit(Value value);
  bool Join(PermuteContext plan, bool forced);
  bool MayLabel(const std::vector<std::pair<Value, Permutation>>& wanted) const;
  void Label(Value value, const Permutation& perm);
  Member* MemberOf(const Operation* op);
  Readers ReadersOf(Value value);
  bool IsSource(Value value) const;
  void AddValue(Value value, MinCut& cut);
  void Rebuild(Member& member);
  std::vector<Value> OperandsOf(const Member& member);
  Value Permuted(Value value, const Permutation& perm);
  Value PermutedConstant(const Tensor& constant, Operation* transpose);
  Value NewTranspose(Value value, const Permutation& perm, bool permutes);
  void FinishValue(Value value);

  Rewriter& rewriter_;
  ValueFacts& facts_;
  Block* block_;
  std::string suffix_;
  bool keep_layouts_ = false;
  std::vector<Value> values_;  ///< labelled, in order
  size_t next_ = 0;
  std::unordered_map<Value, Permutation> labels_;  // look-up only, like the next
  std::unordered_map<const Operation*, size_t> member_of_;
  std::vector<Member> members_;
  std::vector<Operation*> sources_;
  std::unordered_map<Value, Value> permuted_;
  int64_t cost_now_ = 0;
};

/// The permutation of a transpose of known rank; empty for other ops.
Permutation TransposePerm(const Operation* op);
/// Merges transposes of transposes and drops those that do nothing. Returns whether any did.
bool MergeTransposes(Program& program, Pass* pass);

}  // namespace lathe
