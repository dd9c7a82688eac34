#include "src/lower/register_tile.h"

#include "lathe/dialect/nn/elementwise_binary.h"

namespace lathe::lower {
namespace {

bool IsOfFloats(Value v) { return IsFloat(v.type().cast<AnyTensorType>().element()); }

// Unsigned bytes that loop.dot multiplies.
bool IsGroup(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  return type.element() == ElementType::kU8 && type.rank() == 1;
}

// Of bf16, or of bytes as i16, that loop.dot_pairs multiplies.
bool IsPair(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  const ElementType element = type.element();
  return (element == ElementType::kBF16 || element == ElementType::kI16) && type.rank() == 1;
}

// `Depth`: a Dim or a Value.
template <class Depth>
void WriteTile(const RegisterTile& tile, LoopBuilder& lb, const Machine& machine,
               const Depth& depth) {
  std::vector<Value> starts;
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t v = 0; v < tile.vectors; ++v) {
      starts.push_back(lb.Widen(tile.start(r, v), machine.lanes(tile.element)));
    }
  }
  const auto step = [&](Value k, std::span<const Value> sums) {
    std::vector<Value> columns, next;
    if (tile.beside) tile.beside(k);
    for (int64_t v = 0; v < tile.vectors; ++v) columns.push_back(tile.vector(v, k));
    for (int64_t r = 0; r < tile.rows; ++r) {
      const Value scalar = tile.scalar(r, k);
      for (const Value column : columns) {
        next.push_back(MulAdd(lb, machine, scalar, column, sums[next.size()]));
      }
    }
    return next;
  };
  const std::vector<Value> sums = lb.For(depth, starts, step);
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t v = 0; v < tile.vectors; ++v) {
      tile.finish(r, v, sums[static_cast<size_t>(r * tile.vectors + v)]);
    }
  }
}

}  // namespace

Value MulAdd(LoopBuilder& lb, const Machine& machine, Value a, Value b, Value sum) {
  if (IsGroup(a)) return lb.Dot(a, b, sum);
  if (IsPair(a)) return lb.DotPairs(a, b, sum);
  if (machine.has_fma && IsOfFloats(sum)) return loop::FmaOp::Create(lb.b(), a, b, sum).y();
  return nn::AddOp::Create(lb.b(), nn::MulOp::Create(lb.b(), a, b).c(), sum).c();
}

void RegisterTile::Write(LoopBuilder& lb, const Machine& machine, const Dim& depth) const {
  WriteTile(*this, lb, machine, depth);
}

void RegisterTile::Write(LoopBuilder& lb, const Machine& machine, Value depth) const {
  WriteTile(*this, lb, machine, depth);
}

}  // namespace lathe::lower
