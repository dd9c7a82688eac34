#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/loop/vector.h"
#include "lathe/ir/builder.h"

namespace lathe::lower {

/// Writes loops. Integers are scalars of type i64; a dim expression is over d0, d1, ..., the values
/// that follow it. What becomes longer than kMaxOperations throws lower/budget.
class LoopBuilder {
 public:
  /// At the end of a block whose arguments are those of the function that is lowered.
  explicit LoopBuilder(Block* block);

  Builder& b() { return b_; }
  IrContext& context() { return b_.context(); }

  Value Int(int64_t value);
  Value Index(const Dim& expr, std::span<const Value> symbols);
  /// `expr` over one value, written in D0.
  Value Index(const Dim& expr, Value d0) { return Index(expr, std::span(&d0, 1)); }
  /// The number that an integer is in every run, if it is one.
  static std::optional<int64_t> Known(Value v);
  static Dim D0() { return Dim::Symbol("d0"); }
  static Dim D1() { return Dim::Symbol("d1"); }
  static Dim D2() { return Dim::Symbol("d2"); }
  static Dim D3() { return Dim::Symbol("d3"); }

  /// The value of a dim of the function's types at run time. Throws lower/dim where no argument has
  /// what it is made of.
  Value Extent(const Dim& dim);
  /// Says what `dim`, of a type that no argument has, is: a value of the function's own block.
  void Define(const Dim& dim, Value extent) { defined_.emplace_back(dim, extent); }

  using Body = std::function<void(Value i)>;
  /// for i in 0 .. extent-1. Loops of no and of one iteration are not
  /// written.
  void For(const Dim& extent, bool parallel, const Body& body);
  /// The same with a number that is only known at run time.
  void For(Value extent, bool parallel, const Body& body);
  void ForValue(Value extent, const Body& body, bool parallel = false) {
    For(extent, parallel, body);
  }
  using CarryingBody = std::function<std::vector<Value>(Value i, std::span<const Value> carried)>;
  std::vector<Value> For(const Dim& extent, std::span<const Value> initial,
                         const CarryingBody& body);
  std::vector<Value> For(Value extent, std::span<const Value> initial, const CarryingBody& body);

  /// Memory for a result of that type; static or made of the arguments' extents.
  Value Alloc(AnyTensorType type);
  Value Load(Value memory, std::span<const Value> indices, int64_t lanes = 0, Value live = {});
  void Store(Value memory, Value value, std::span<const Value> indices, Value live = {});
  /// Elements `stride` apart along `axis` (-1: the last one), which may be any.
  Value LoadApart(Value memory, std::span<const Value> indices, int64_t lanes, int64_t axis,
                  int64_t stride, Value live = {});
  void StoreApart(Value memory, Value value, std::span<const Value> indices, int64_t axis,
                  int64_t stride, Value live = {});
  /// A lane per entry of the vectors among the indices.
  Value Gather(Value memory, std::span<const Value> indices, Value live = {});
  /// Asks for the cache line of an element, which need not exist.
  void Prefetch(Value memory, std::span<const Value> indices);
  /// A vector's lanes combined into a scalar; `kind`: see loop.reduce.
  Value Reduce(std::string_view kind, Value vector);
  /// The columns of a square tile that is held as vectors.
  std::vector<Value> Transpose(std::span<const Value> rows);
  /// One vector of several, whose lanes take turns.
  Value Interleave(std::span<const Value> parts);
  /// Scalars or vectors of f32 as bf16; see loop.narrow.
  Value Narrow(std::span<const Value> parts);
  /// `sums` and the products of pairs of bf16; see loop.dot_pairs.
  Value DotPairs(Value a, Value b, Value sums);
  /// `sums` and the products of groups of bytes; see loop.dot.
  Value Dot(Value a, Value b, Value sums);
  /// `memory` with each group of neighboring axes, which may be empty, as one axis.
  Value Grouped(Value memory, std::span<const int64_t> groups);
  Value Constant(const Tensor& value);
  /// A scalar (lanes 0) or vector of equal elements.
  Value Splat(ElementType element, double value, int64_t lanes = 0);
  /// A vector of `lanes` elements, each the scalar; a vector stays.
  Value Widen(Value value, int64_t lanes);
  /// `op` on scalars and vectors instead of tensors.
  Value Elementwise(const Operation* op, std::span<const Value> operands);

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

/// Throws lower/budget.
[[noreturn]] void ThrowTooLong(size_t most);

/// `v_tensor<[], element>` or, with lanes, `v_tensor<[lanes], element>`.
Type RegisterType(IrContext& context, ElementType element, int64_t lanes);

}  // namespace lathe::lower
