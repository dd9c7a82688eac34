#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/dialect/loop/loop.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/type.h"
#include "lathe/support/element_type.h"
#include "lathe/support/tensor.h"

namespace lathe::lower {

/// Writes the loops of a strategy (OpImplementation::lower) as operations of the dialect `loop`.
///
///     LoopBuilder lb(lowering.body);
///     const Value to = lb.Alloc(type);
///     lb.For(rows, true, [&](Value row) { lb.Store(to, lb.Load(from, {&row, 1}), {&row, 1}); });
///     lb.Return({&to, 1});
///
/// Three kinds of values: a *memory* is a tensor with an address, an argument of the function or
/// what Alloc gives; a *register* is a scalar `v_tensor<[], T>` or a vector `v_tensor<[lanes], T>`,
/// which operations of `nn` compute with, element by element; an *integer* is a scalar i64, such as
/// an index. Nothing is checked to be within bounds. Dims are of the types of the function, whose
/// symbols are known at run time; those given to Index are over d0, d1, ... instead.
///
/// Errors end the strategy, not the compilation: the function is computed another way, and a remark
/// says why. lower/budget: it has become longer than kMaxOperations.
class LoopBuilder {
 public:
  /// At the end of the body of a function: its arguments are those of the function that is lowered.
  explicit LoopBuilder(Block* body);

  /// Where the next operation comes: in the loop that is being written. For operations on
  /// registers, such as nn::AddOp::Create(lb.b(), ...).
  Builder& b() { return b_; }
  IrContext& context() { return b_.context(); }

  // ---- integers ----

  Value Int(int64_t value);
  /// `expr` with symbols[i] for d<i>, all of them 0 or more: D0() * 16 + D1() of a row and a
  /// column. What is known is computed now, and only the rest at run time.
  Value Index(const Dim& expr, std::span<const Value> symbols);
  /// `expr` over one value, written in D0.
  Value Index(const Dim& expr, Value d0) { return Index(expr, std::span(&d0, 1)); }
  static Dim D0() { return Dim::Symbol("d0"); }
  static Dim D1() { return Dim::Symbol("d1"); }
  static Dim D2() { return Dim::Symbol("d2"); }
  static Dim D3() { return Dim::Symbol("d3"); }
  /// The number that an integer is in every run, if it is one.
  static std::optional<int64_t> Known(Value integer);
  /// The value of a dim at run time, of whatever extents the arguments have. lower/dim: none of
  /// them says what a symbol of it is.
  Value Extent(const Dim& dim);
  /// Says what `dim`, which no argument has, is: an integer that is computed outside of all loops.
  void Define(const Dim& dim, Value extent) { defined_.emplace_back(dim, extent); }

  // ---- loops ----

  using Body = std::function<void(Value i)>;
  /// for i in 0 .. extent-1. Loops that run never or once, as far as is known, are not written.
  /// `parallel`: iterations may run at once and in any order; none writes what another one reads or
  /// writes.
  void For(const Dim& extent, bool parallel, const Body& body);
  void For(Value extent, bool parallel, const Body& body);
  using CarryingBody = std::function<std::vector<Value>(Value i, std::span<const Value> carried)>;
  /// A loop that carries registers from one iteration to the next: the first one gets `initial`,
  /// the others what the body returned, of the same types. Returns those of the last iteration;
  /// `initial` if there was none.
  std::vector<Value> For(const Dim& extent, std::span<const Value> initial,
                         const CarryingBody& body);
  std::vector<Value> For(Value extent, std::span<const Value> initial, const CarryingBody& body);

  // ---- memory ----

  /// Memory of that type, its contents undefined: of a result, or scratch. What is allocated in a
  /// loop, each iteration has of its own.
  Value Alloc(AnyTensorType type);
  /// `memory` as one axis.
  Value Flat(Value memory);
  /// `memory` with each group of neighboring axes as one axis: {2, 0, 1} makes [A, B, C] of rank 3,
  /// [A * B, 1, C].
  Value Grouped(Value memory, std::span<const int64_t> groups);
  /// The element at an index per axis; with `lanes` a vector that begins there and goes along the
  /// last axis. `live`, an integer: only so many lanes are read, the others are zero.
  Value Load(Value memory, std::span<const Value> indices, int64_t lanes = 0, Value live = {});
  /// A vector of elements `stride` apart along any axis (-1: the last one).
  Value LoadApart(Value memory, std::span<const Value> indices, int64_t lanes, int64_t axis,
                  int64_t stride, Value live = {});
  /// Vectors among the indices: lane i of the result is read where lanes i of them say.
  Value Gather(Value memory, std::span<const Value> indices, Value live = {});
  /// A scalar, or the (first `live`) lanes of a vector, to where Load would read them.
  void Store(Value memory, Value value, std::span<const Value> indices, Value live = {});
  void StoreApart(Value memory, Value value, std::span<const Value> indices, int64_t axis,
                  int64_t stride, Value live = {});
  /// Asks for the cache line of an element, which need not exist.
  void Prefetch(Value memory, std::span<const Value> indices);
  /// Ends the function: `results`, one for each result of it and of its type, are what Alloc gave
  /// outside of all loops. Every strategy ends so; nothing comes after it.
  void Return(std::span<const Value> results);

  // ---- registers ----

  Value Constant(const Tensor& value);
  /// A scalar (lanes 0), or a vector of equal elements.
  Value Splat(ElementType element, double value, int64_t lanes = 0);
  /// A vector of `lanes` elements, each the scalar; a vector stays.
  Value Widen(Value value, int64_t lanes);
  /// An elementwise operation of the function, on registers instead of its tensors.
  Value Elementwise(const Operation* op, std::span<const Value> operands);
  /// A vector's lanes combined into a scalar; `kind`: "add", "mul", "max", "min", "and", "or".
  Value Reduce(std::string_view kind, Value vector);
  /// The columns of a square tile that is held as vectors, its rows.
  std::vector<Value> Transpose(std::span<const Value> rows);
  /// One vector of several, whose lanes take turns: a0 b0 a1 b1 ...
  Value Interleave(std::span<const Value> parts);
  /// Scalars or vectors of f32 as bf16, vectors one after the other; see loop.narrow.
  Value Narrow(std::span<const Value> parts);
  /// Scalars or vectors of another type; none where it is theirs already.
  Value As(Value v, ElementType to);
  /// `sums` and the products of pairs; see loop.dot_pairs.
  Value DotPairs(Value a, Value b, Value sums);
  /// `sums` and the products of groups of bytes; see loop.dot.
  Value Dot(Value a, Value b, Value sums);

 private:
  // The symbol, of an argument that has so many times it as an extent; null if there is none.
  Value PartOfExtent(const Dim& symbol);
  Operation* OpenLoop(const Dim& extent, std::span<const Value> initial, bool parallel);
  Operation* OpenLoop(Value size, std::span<const Value> initial, loop::ForOp::Attrs attrs);
  void CloseLoop(Operation* op, Block* around, const Body& body);
  std::vector<Value> CloseLoop(Operation* op, Block* around, const CarryingBody& body);
  void Count();

  Builder b_;
  Block* top_;
  std::vector<std::pair<Dim, Value>> defined_;
  size_t written_ = 0;  // operations, most of them
};

}  // namespace lathe::lower
