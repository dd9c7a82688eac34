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

struct Compute {
  std::string_view op;
  Value (*element)(const ElementOf& c);
  /// Why not for this operation; null: always.
  std::string (*refuse)(const Operation& op) = nullptr;
};

/// By name; null for operations without. Elementwise operations with instructions need none.
const Compute* FindCompute(std::string_view op);

// Families.
std::span<const Compute> ShapeComputes();
std::span<const Compute> MovementComputes();
std::span<const Compute> IndexingComputes();
std::span<const Compute> WindowComputes();
std::span<const Compute> ResizeComputes();

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
/// `axis` counted from the front.
size_t AxisOf(int64_t axis, size_t rank);
/// Which of its starts and ends a slice applies to that axis; nothing if to none, or if its axes or
/// steps are computed or go backwards from a computed start.
std::optional<size_t> SliceEntry(const Operation& op, size_t axis);
/// How many elements a slice takes of an axis, as its operands say at run time.
Value SliceCountAt(Elements& e, const Operation& op, size_t axis);
/// A loaded scalar of any integer type as an index of an axis; negative ones count from the back,
/// those outside are brought inside.
Dim IndexAt(const ElementOf& c, size_t operand, const Place& where, const Dim& extent);
/// Operations of nn on scalars.
Value Where(Elements& e, Value condition, Value x, Value y);
Value ToInt64(Elements& e, Value scalar);

}  // namespace lathe::lower
