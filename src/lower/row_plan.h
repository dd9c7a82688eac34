#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/lower/loop_builder.h"
#include "src/lower/row_program.h"

namespace lathe::lower {

/// How a reduction combines two elements.
struct Combination {
  std::string_view op;    ///< of two vectors
  std::string_view kind;  ///< of loop.reduce
  double neutral;         ///< of floats
};
Combination CombinationOf(const Operation* reduction, ElementType element);

/// Loops for the operations of a RowProgram: which axes each walks, and what is computed in which
/// pass over a row.
class RowPlan {
 public:
  RowPlan(const Block& function, const Machine& machine)
      : function_(function), machine_(machine), program_(function, machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();

 protected:
  /// Axes that one loop walks.
  struct Group {
    Dim extent;
    bool reduced;
    std::vector<size_t> axes;
  };
  static constexpr size_t kNoGroup = SIZE_MAX;

  size_t last() const { return groups_.size() - 1; }
  /// Whether rows are too short for vectors along them.
  bool is_short() const { return is_short_; }
  /// The group that vectors go along: the last one, or of short rows that before.
  size_t lanes_group() const { return is_short_ ? last() - 1 : last(); }
  /// Whether vectors lie along rows, or across them.
  bool along() const { return groups_[lanes_group()].reduced; }
  /// The extent, or d0 where it is symbolic.
  Dim SizeOf(size_t group) const {
    const Dim& extent = groups_[group].extent;
    return extent.is_constant() ? extent : LoopBuilder::D0();
  }
  /// Whether the loops see the memory of an argument or result under other extents.
  bool IsReshaped(Value v) const;
  /// Reductions whose operand is known in that pass.
  std::vector<const Operation*> ReductionsIn(int pass) const;
  /// Elements that the pass reduces, keeps or stores.
  std::vector<Value> ComputedIn(int pass) const;
  /// Per operation of the program: whether the pass computes it for the targets' sake.
  std::vector<bool> Needed(std::span<const Value> targets, int pass) const;

  const Block& function_;
  const Machine& machine_;
  RowProgram program_;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;  ///< per axis
  int passes_ = 1;
  std::unordered_map<Value, size_t> kept_in_;  ///< the result whose memory keeps it; looked up only
  int64_t lanes_ = 1;
  bool parallel_ = false;

 private:
  std::string CombinationRefusal(const Operation* reduction);
  bool AllStatic() const;
  std::vector<std::vector<bool>> WholeAxes() const;
  void FormGroups();
  bool EndsShort() const;
  void PlanPasses();
  void PlanKept();
  int LastUse(Value v) const;
  bool MayKeep(Value v, Value result) const;

  bool reshaped_ = false;
  bool is_short_ = false;
};

}  // namespace lathe::lower
