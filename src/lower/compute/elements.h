#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/ir/tensor_of.h"
#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lowering.h"
#include "src/lower/compute/extents.h"
#include "src/lower/compute/index_space.h"

namespace lathe::lower {

/// Where an element is: an index per axis.
using Place = std::vector<Dim>;

/// Positions, weights and sums are computed in it where the interpreter does so.
inline constexpr ElementType kWide = ElementType::kF64;

/// Computes single elements of the values of a function: of an argument, by loading it; of what an
/// operation gives, from elements of its operands, as its compute function says (compute.h).
class Elements {
 public:
  Elements(LoopBuilder& lb, const Block& function, const Block& body);
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  /// Why some value cannot be computed so; empty if all can. Independent of any instance.
  static std::string Refusal(const Block& function, const Machine& machine);

  /// Whether elements of that operation are known one by one.
  static bool CanCompute(const Operation& op, const Machine& machine);

  LoopBuilder& lb() { return lb_; }
  IndexSpace& space() { return space_; }
  /// Forgets counters and what was asked of them.
  void Reset();

  /// The dims of a value of the function, over symbols that have a value.
  std::vector<Dim> Dims(Value v) const;
  /// Memory of that shape.
  Value Alloc(Value v);
  /// The scalar at that place of a value of the function.
  Value At(Value v, const Place& at);
  /// The scalar of that number in row-major order.
  Value AtFlat(Value v, const Dim& flat);
  /// Puts the scalar into memory as long as the result, row-major.
  void Store(Value memory, const Dim& at, Value element);
  /// From here on, the value lies in that memory.
  void Bind(Value v, Value memory);
  /// What was bound, in order.
  const std::vector<Value>& bound() const { return bound_; }
  /// A symbol for an expression over symbols of the types and such as this, outside of all loops.
  Dim Name(const Dim& expr);
  /// What was named, in order.
  const std::vector<std::pair<Dim, Dim>>& named() const { return named_; }

  /// An index as a scalar i64.
  Value Int(const Dim& expr);
  /// A counter of some iterations of a loop, or a scalar i64 that is loaded, as an index below
  /// `extent`.
  Dim Counter(Value i, const Dim& extent, const IndexSpace::Piece& piece);
  Dim Loaded(Value i, const Dim& extent);
  /// `element` if the condition, 0 or 1, is 1, else `otherwise`; it is only computed in that case.
  Value Guarded(const Dim& condition, Value otherwise, const std::function<Value()>& element);
  /// The scalar `next` gives for all places, from the first to the last, each from the one before.
  using Step = std::function<Value(const Place& at, Value so_far)>;
  Value Reduce(const std::vector<Dim>& extents, Value initial, const Step& next);
  /// A loop. Parallel: no iteration reads or writes what another one writes.
  void For(const Dim& extent, bool parallel, const std::function<void(const Dim& i)>& body);
  /// A loop with values that go from one iteration to the next; gives the last ones.
  using Carry = std::function<std::vector<Value>(const Dim& i, std::span<const Value> before)>;
  std::vector<Value> For(const Dim& extent, std::vector<Value> initial, const Carry& body);
  /// Memory of one axis for what is not yet done.
  Value Scratch(ElementType element, const Dim& extent);
  Value LoadFrom(Value memory, const Dim& at);

 private:
  struct Known {
    Place at;
    Value element;
  };
  Value Compute(Value v, const Place& at);
  Value Load(Value v, const Place& at);
  Value OfConstant(const Tensor& tensor, const Place& at);
  Value SymbolValue(std::string_view name);
  Dim Shortened(const Dim& expr, const Dim& extent);
  void NameLongExtents(Value v);
  void Forget(size_t outside);
  Value ExtentAt(const Extents::Source& source);
  Value ExpandedExtentAt(const Operation& op, size_t axis);
  Value ReduceAxis(const std::vector<Dim>& extents, Place& at, Value so_far, const Step& next);

  LoopBuilder& lb_;
  Extents extents_;
  IndexSpace space_;
  std::vector<Value> integers_;                          // of the space, by number
  std::unordered_map<Value, std::vector<Known>> known_;  // looked up, never iterated
  std::vector<Value> order_;                             // of what is known
  std::unordered_map<Value, Value> memory_;              // looked up, never iterated
  std::vector<Value> bound_;
  std::vector<std::pair<std::string, Value>> symbols_;  // of the types, and names
  std::vector<std::pair<Dim, Dim>> named_;              // expressions and their symbols
};

/// Where an operand of those dims is read for an element of a result of dims `whole`. The last of
/// them are those that vectors are made along, if there is a `space` to ask for cuts.
Place BroadcastPlace(const Place& at, const std::vector<Dim>& dims, const std::vector<Dim>& whole,
                     IndexSpace* space = nullptr);
/// The dims of a value of the function.
std::vector<Dim> DimsOf(Value v);
/// The tensor that a value always is; null if that is not known.
const Tensor* ConstantOf(Value v);

}  // namespace lathe::lower
