#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lathe/dialect/size_constraints.h"
#include "lathe/ir/program.h"
#include "lathe/pass/pass_manager.h"

namespace lathe {

/// What a program relies on of sizes does not get lost where passes merge or drop the operations
/// that show it: an instrumentation of the passes that run between its construction and `Finish`.
/// It marks regions after passes, so it goes after instrumentations that compare programs.
class KeptConstraints : public PassInstrumentation {
 public:
  /// Gathers what `program` relies on, after `known`, and what it states becomes part of that.
  /// Throws where an operation cannot be right.
  explicit KeptConstraints(Program& program, std::vector<SizeConstraint> known = {});

  /// Sizes that a run computes, and those in regions, are symbols only after some passes.
  void AfterPass(const Pass& pass, Program& program) override;

  using Sizes = std::map<std::string, Dim, std::less<>>;
  /// Symbols are other sizes from here on.
  void Replace(const Sizes& became);
  /// After the passes: adds what their result relies on, all in terms of its symbols.
  void Finish(Program& program);
  /// Has the program state what it relies on and does not show. Unnamed extents of inputs get names
  /// if a statement is made of them.
  void State(Program& program) const;

  /// Of the program's block.
  const std::vector<SizeConstraint>& constraints() const { return constraints_; }
  /// Of blocks in regions, by kConditionsAttr of their terminators.
  const std::vector<SizeConstraint>& conditional() const { return conditional_; }

 private:
  void Gather(Program& program);
  void GatherOfRegions(Program& program);
  void Mark(Block& block, std::vector<SizeConstraint> found);
  void StateAll(Program& program) const;

  std::vector<SizeConstraint> constraints_, conditional_;
  std::map<std::string, Type, std::less<>> inputs_;
  bool has_regions_ = false;  ///< gathered
};

/// An attribute of the terminator of a region, while passes run and in a compiled program: indices
/// of the conditional constraints that the region relies on. Without it nobody knows.
inline constexpr const char* kConditionsAttr = "conditions";

/// Runs the passes, and has the program state what it no longer shows that it relies on.
void RunAndKeepConstraints(PassManager& manager, Program& program);

/// Gives every extent of an input that no symbol of an input decides one of its own, "x.0", so that
/// what a run must fit can be said, and infers the other types again.
void NameUnknownExtents(Program& program);

/// The size constraints of a program and of the functions that it calls. The program is the same
/// afterwards. Throws where an operation cannot be right.
std::vector<SizeConstraint> FindConstraintsWithCalls(Program& program);

}  // namespace lathe
