#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/support/text.h"
#include "src/lower/compute/elements.h"

/// What an element of an operation's result is, in terms of elements of its operands: one compute
/// function per operation, by family in this folder.
namespace lathe::lower {

struct ElementOf {
  Elements& e;
  const Operation* op;
  size_t result;
  const Place& at;

  Value Operand(size_t i, const Place& where) const { return e.At(op->operand(i), where); }
  bool Has(size_t i) const { return i < op->num_operands() && op->operand(i); }
  std::vector<Dim> Dims(size_t i) const { return e.Dims(op->operand(i)); }
  std::vector<Dim> ResultDims() const { return e.Dims(op->result(result)); }
  ElementType Element() const { return TensorOf(op->result(result)).element(); }
  /// The only element of a tensor of one.
  Value Scalar(size_t i) const { return Operand(i, Place(Dims(i).size(), 0)); }
  Value Zero() const { return e.lb().Splat(Element(), 0); }
};

/// An operation that computes all it gives at once: no element of it stands alone.
struct WholeTensorEmitter {
  Elements& e;
  const Operation* op;
  const Block& function;
  Block& body;
  const Machine& machine;
  std::vector<Value> memory = {};  ///< of each result, flat

  Value Operand(size_t i, const Place& where) const { return e.At(op->operand(i), where); }
  bool Has(size_t i) const { return i < op->num_operands() && op->operand(i); }
  std::vector<Dim> Dims(size_t i) const { return e.Dims(op->operand(i)); }
  std::vector<Dim> ResultDims(size_t i) const { return e.Dims(op->result(i)); }
  ElementType Element(size_t result) const { return TensorOf(op->result(result)).element(); }
  /// Writes a result that has an element per element of an operand, or of its own.
  using Filler = std::function<Value(Elements& e, const Place& at)>;
  void Fill(size_t result, const Filler& element) const {
    Fill(ResultDims(result), memory[result], element);
  }
  void Fill(const std::vector<Dim>& dims, Value into, const Filler& element) const;
  /// A loop over independent elements, in vectors where that can be.
  void ForLanes(const Dim& extent, const std::function<void(const Dim& i)>& body) const;
  /// Whether threads are worth it for that many elements.
  static bool IsWorthParallelizing(const Dim& elements);
};

/// Numbers of an operand that must be places along an axis.
struct IndexUse {
  size_t operand;
  size_t axis;                            ///< of what is indexed
  Dim extent;                             ///< of the axis
  std::optional<int64_t> component = {};  ///< only this entry of the operand's last axis
  /// What must be an index, made of such a number, an i64 unless it is of floating point; none:
  /// the number.
  std::function<Value(Elements& e, Value number)> made = {};
};

struct Compute {
  std::string_view op;
  Value (*element)(const ElementOf& c);
  /// Why not for this operation; null: always.
  std::string (*refuse)(const Operation& op) = nullptr;
  /// The indices that the interpreter would check; null: none.
  std::vector<IndexUse> (*indices)(const ElementOf& c) = nullptr;
  /// In place of `element`.
  void (*whole)(const WholeTensorEmitter& w) = nullptr;
  /// Only for a function of nothing else: strategies are better where it is a part.
  bool alone = false;
  /// Where `whole` is better than `element`; null: always.
  bool (*prefers_whole)(const Operation& op) = nullptr;

  bool IsWhole(const Operation& of) const {
    return whole != nullptr && (prefers_whole == nullptr || prefers_whole(of));
  }
};

/// By name; null for operations without. Elementwise operations with instructions need none.
const Compute* FindCompute(std::string_view op);

/// Loops that end with run/index where the operation has an index that is none, before anything is
/// computed with it.
void CheckIndices(const WholeTensorEmitter& w);

// Families.
std::span<const Compute> ShapeComputes();
std::span<const Compute> MovementComputes();
std::span<const Compute> IndexingComputes();
std::span<const Compute> WindowComputes();
std::span<const Compute> ResizeComputes();
std::span<const Compute> OrderComputes();
std::span<const Compute> ScatterComputes();
std::span<const Compute> QuantizeComputes();
std::span<const Compute> AttentionComputes();
std::span<const Compute> SamplingComputes();
std::span<const Compute> BoxComputes();
std::span<const Compute> ProductComputes();
std::span<const Compute> LossComputes();
std::span<const Compute> DeformComputes();
std::span<const Compute> TrainingComputes();
std::span<const Compute> RecurrenceComputes();
std::span<const Compute> RecurrentComputes();
std::span<const Compute> SignalComputes();
std::span<const Compute> TreeComputes();
std::span<const Compute> LabelComputes();
std::span<const Compute> GramComputes();
std::span<const Compute> NormComputes();
std::span<const Compute> RandomComputes();

// ---- what families share ----

/// A constant operand as numbers; nothing if it is absent or not constant.
std::optional<std::vector<int64_t>> ConstantInts(const Operation& op, size_t i);
/// Refuses unless each of these operands is a constant or absent.
template <size_t... kOperands>
std::string NeedConstants(const Operation& op) {
  const bool all = ((kOperands >= op.num_operands() || !op.operand(kOperands) ||
                     ConstantOf(op.operand(kOperands)) != nullptr) &&
                    ...);
  return all ? "" : StrCat(op.name(), " takes sizes that are computed");
}
/// Refuses where memory of symbolic size would have no size for a caller: unless each symbol of the
/// types is an extent of an argument.
std::string NeedSizes(const Operation& op);
/// 1, or 0 if one of the extents is.
Dim AreSome(Elements& e, const std::vector<Dim>& extents);
/// `axis` counted from the front.
size_t AxisOf(int64_t axis, size_t rank);
/// Which of its starts and ends a slice applies to that axis; nothing if to none, or if its axes or
/// steps are computed or go backwards from a computed start.
std::optional<size_t> SliceEntry(const Operation& op, size_t axis);
/// How many elements a slice takes of an axis, as its operands say at run time.
Value SliceCountAt(Elements& e, const Operation& op, size_t axis);
/// Whether the amounts of a pad say how long that axis of the result is, and how long it is then.
bool SaysExtentOfPad(const Operation& op, size_t axis);
Value PaddedExtentAt(Elements& e, const Operation& op, size_t axis);
/// Whether the pieces of a split are as long there as its `split` says.
bool SaysExtentsOfSplit(const Operation& op, size_t axis);
/// Whether that axis of the result of a transform is as long as its `dft_length` says.
bool SaysExtentOfDft(const Operation& op, size_t axis);
/// How many steps, none of size 0, go from `begin` to before `end`.
Value StepsBetween(Elements& e, Value begin, Value end, int64_t step);
/// Whether the step of a range is a constant other than 0, and how many numbers it has then, as
/// its bounds say at run time.
bool CountsRange(const Operation& op);
Value RangeCountAt(Elements& e, const Operation& op);
/// A loaded scalar of any integer type as an index of an axis; negative ones count from the back,
/// those outside are brought inside.
Dim IndexAt(const ElementOf& c, size_t operand, const Place& where, const Dim& extent);
/// Operations of nn on scalars.
Value Where(Elements& e, Value condition, Value x, Value y);
Value ToInt64(Elements& e, Value scalar);

}  // namespace lathe::lower
