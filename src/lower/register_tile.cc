#include "src/lower/register_tile.h"

#include "lathe/dialect/nn/elementwise_binary.h"

namespace lathe::lower {
namespace {

Value MulAdd(LoopBuilder& lb, const Machine& machine, Value a, Value b, Value sum) {
  if (machine.has_fma) return loop::FmaOp::Create(lb.b(), a, b, sum).y();
  return nn::AddOp::Create(lb.b(), nn::MulOp::Create(lb.b(), a, b).c(), sum).c();
}

}  // namespace

void RegisterTile::Write(LoopBuilder& lb, const Machine& machine, const Dim& depth) const {
  std::vector<Value> starts;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < vectors; ++v) {
      starts.push_back(lb.Widen(start(r, v), machine.lanes(element)));
    }
  }
  const auto step = [&](Value k, std::span<const Value> sums) {
    std::vector<Value> columns, next;
    for (int64_t v = 0; v < vectors; ++v) columns.push_back(vector(v, k));
    for (int64_t r = 0; r < rows; ++r) {
      const Value element_of_row = scalar(r, k);
      for (const Value column : columns) {
        next.push_back(MulAdd(lb, machine, element_of_row, column, sums[next.size()]));
      }
    }
    return next;
  };
  const std::vector<Value> sums = lb.For(depth, starts, step);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < vectors; ++v) finish(r, v, sums[static_cast<size_t>(r * vectors + v)]);
  }
}

}  // namespace lathe::lower
