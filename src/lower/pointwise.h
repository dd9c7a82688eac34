#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/lower/lower_function.h"
#include "src/lower/element_layout.h"
#include "src/lower/loop_builder.h"

namespace lathe::lower {

/// A constant that is part of a kernel as a number.
bool IsScalarConstant(const Operation& op);

/// Operations that compute each element of some values from the matching elements of their
/// operands: a whole function, what follows its anchor, or what comes before it. They are evaluated
/// in registers, on scalars or on a vector along the last axis.
class Pointwise {
 public:
  /// What the function's results are computed by but for `anchor` (null: none) and what only the
  /// anchor reads; its result 0 then is an operand of the first of them. Reshapes and
  /// transpositions at the end say where behind an anchor op elements are stored.
  Pointwise(const Block& function, const Operation* anchor, const Machine& machine);
  /// What `target` is computed by: an operand of the anchor that is not an argument.
  Pointwise(const Block& function, Value target, const Machine& machine);

  /// Why they cannot be evaluated so; empty if they can.
  std::string Refusal();
  /// Instructions that an element takes, about.
  int cost() const;
  /// Whether that is so much that it is better written once, in a loop that takes what the anchor
  /// gives from memory, than for each of many registers.
  bool IsLong() const { return cost() >= 8; }
  /// Dims that the values share. Only after Refusal.
  const std::vector<Dim>& dims() const { return dims_; }

  /// Groups neighboring axes that one loop can walk.
  void GroupAxes();
  /// Given groups, which must split the axes in order; false if some argument is whole along a part
  /// of a group only, or if neighbors along the last group are stored apart.
  bool SetGroups(std::vector<std::vector<size_t>> groups);
  /// Of the loops, one per group.
  const std::vector<Dim>& extents() const { return extents_; }

  /// Elements in a vector that suits the types: the widest one fills a register.
  int64_t lanes() const;

  /// Brings arguments under the shape of the loops; Open allocates the results, too.
  void OpenArguments(LoopBuilder& lb, const Block& body);
  void Open(LoopBuilder& lb, const Block& body);
  /// The target at an index per group, or a vector of elements that lie `stride` apart along the
  /// last one. Lanes that are not live hold anything.
  Value At(LoopBuilder& lb, const std::vector<Value>& at, int64_t lanes, Value live = {},
           int64_t stride = 1) const;
  /// Evaluates at an index per group, of which the last is the first lane's, and stores the
  /// results. `anchor` is the element (lanes 0) or vector that the anchor gives there.
  void Store(LoopBuilder& lb, const std::vector<Value>& at, int64_t lanes, Value live,
             Value anchor = {}) const;
  /// Whether a result lies as the loops walk it.
  bool IsPlain(size_t result) const { return layouts_[result].empty(); }
  /// The memory of such a result under the shape of the loops. Only after Open.
  Value memory(size_t result) const { return results_[result].memory; }
  /// Returns the results from the function.
  void Close(LoopBuilder& lb);

 private:
  // An argument or result as the loops see it: equally many axes, each whole or of extent 1. Of
  // those that only a run knows to be whole, the extent.
  struct View {
    Value memory;
    std::vector<bool> whole;
    std::vector<Value> open;
  };

  using Registers = std::unordered_map<Value, Value>;  // looked up, never iterated

  void FindOperations();
  void PeelLayouts();
  bool PlaceResults();
  std::string OpRefusal(const Operation& op) const;
  std::string ShapeRefusal(Value v) const;
  bool IsOpen(AnyTensorType type, size_t axis) const;
  std::vector<bool> WholeAxes(AnyTensorType type) const;
  bool AllStatic() const;
  std::vector<Value> MovedTo(LoopBuilder& lb, size_t result, const std::vector<Value>& at) const;
  View MakeView(LoopBuilder& lb, Value memory) const;
  std::vector<int64_t> AxesOfGroups(size_t rank) const;
  Value Load(LoopBuilder& lb, const View& view, const std::vector<Value>& at, int64_t lanes,
             Value live, int64_t stride) const;
  static Value LoadOpen(LoopBuilder& lb, const View& view, std::span<const Value> indices,
                        int64_t lanes, Value live, int64_t stride);
  static Value LookedUp(LoopBuilder& lb, Value table, Value bytes);
  void Evaluate(LoopBuilder& lb, const std::vector<Value>& at, int64_t lanes, Value live,
                int64_t stride, Registers& registers) const;

  const Block& function_;
  const Operation* anchor_;
  const Machine& machine_;
  std::vector<Value> targets_;
  std::vector<std::vector<const Operation*>> layouts_;   // of each target, after it
  const bool is_before_ = false;                         // an anchor op
  std::vector<std::vector<ElementLayout::Part>> parts_;  // the axes of results with layouts
  std::vector<const Operation*> ops_;                    // in order
  std::vector<Value> arguments_;                         // that the operations read
  std::vector<Dim> dims_;
  std::vector<std::vector<size_t>> groups_;  // axes that one loop walks
  std::vector<Dim> extents_;
  bool reshaped_ = false;
  std::unordered_map<Value, View> views_;    // of arguments; looked up, never iterated
  std::unordered_map<Value, Value> tables_;  // of lookups; the same
  std::vector<Value> memory_;                // of the results
  std::vector<View> results_;
};

}  // namespace lathe::lower
