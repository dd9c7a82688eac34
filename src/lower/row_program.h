#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/ir/builder.h"
#include "lathe/lower/lower_function.h"

namespace lathe::lower {

/// Which axes a value has: all, or those that a reduction without `keepdims` leaves.
enum class RowAxes : uint8_t { kAll, kKept };

/// A copy of a function in which all that reduces is sums, means, extremes and products over the
/// same axes of tensors of one shape, and everything else is elementwise. Softmax and the
/// normalizations become that. A row is what is reduced to one element.
class RowProgram {
 public:
  RowProgram(const Block& function, const Machine& machine);

  /// Why the function is nothing of that kind; empty if it is.
  std::string Refusal();

  struct Info {
    RowAxes axes = RowAxes::kAll;
    bool per_row = true;   ///< the same for all elements of a row
    int level = 0;         ///< reductions that must be done before, one after another
    int cost = 0;          ///< of one element, per row left out: about 1 per instruction
    bool is_leaf = false;  ///< read from memory
  };

  const Block& block() const { return *copy_.front(); }
  /// The shape that is reduced.
  const std::vector<Dim>& dims() const { return dims_; }
  /// Per axis of it.
  const std::vector<bool>& reduced() const { return reduced_; }
  const std::vector<const Operation*>& reductions() const { return reductions_; }
  bool IsReduction(const Operation* op) const;
  const Info& info(Value v) const { return infos_.at(v); }
  /// Arguments, and arguments with other extents, that operations read.
  const std::vector<Value>& leaves() const { return leaves_; }
  /// For each axis of the value the axis of `dims` that it has, or kNoAxis: extent 1.
  std::vector<size_t> AxesOf(Value v) const;
  static constexpr size_t kNoAxis = SIZE_MAX;
  /// Bytes of the widest element that is computed.
  int64_t widest() const;
  /// Whether it has an element for each of all elements or, if it is the same for all of a row, for
  /// each row.
  bool IsWhole(Value v) const;
  /// The operation that computes a value here; null for leaves and reductions.
  const Operation* Computed(Value v) const;

 private:
  void CopyOps(const Block& function);
  void Simplify();
  bool SimplifyOne(Operation* op);
  bool ComputeWider(Operation* op);
  bool Decompose(Operation* op);
  void DropUnused();
  std::string FindRows();
  std::string ReductionRefusal(const Operation* op);
  bool ReducedAxes(const Operation* op, std::vector<bool>& axes) const;
  std::string FindAxes();
  bool AxesFromOperands(const Operation& op);
  std::string AxesFromUses(Value v);
  std::string Describe();
  std::string OpRefusal(const Operation& op);
  std::string ShapeRefusal(Value v) const;
  std::string DescribeLeaf(Value v);
  std::vector<size_t> AxisNumbers(RowAxes axes) const;

  const Machine& machine_;
  Region copy_;
  std::vector<Dim> dims_;
  std::vector<bool> reduced_;
  std::vector<const Operation*> reductions_;
  std::vector<Value> leaves_;
  std::unordered_map<Value, Info> infos_;  // looked up, never iterated
};

}  // namespace lathe::lower
