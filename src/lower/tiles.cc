#include "src/lower/tiles.h"

#include <algorithm>

#include "lathe/dialect/nn/elementwise_binary.h"

namespace lathe::lower {
namespace {

// What a tile of `rows` costs: below four rows the latency of the additions shows.
double TileCost(int64_t rows) { return static_cast<double>(std::max<int64_t>(rows, 4)) + 0.3; }

}  // namespace

// One register holds the broadcast element, `vectors` the row of the panel, the others sums.
Tile PickTile(const Dim& rows, const Dim& columns, int64_t lanes, int registers, int64_t few_rows) {
  const int64_t vectors_of_row =
      columns.is_constant() ? (columns.value() + lanes - 1) / lanes : 1 << 20;
  if (rows.is_constant() && rows.value() <= few_rows) {
    const int64_t m = std::max<int64_t>(rows.value(), 1);
    const int64_t most = std::max<int64_t>((registers - 3) / (m + 1), 1);
    return {m, std::min({most, vectors_of_row, int64_t{8}})};
  }
  const int64_t vectors = std::min<int64_t>(2, vectors_of_row);
  const int64_t most = (registers - vectors - 1) / vectors;
  if (!rows.is_constant()) return {most, vectors};
  Tile best{most, vectors};
  double best_cost = 1e300;
  for (int64_t m = most; m >= std::max<int64_t>(most / 2, 1); --m) {
    const int64_t full = rows.value() / m, rest = rows.value() % m;
    const double cost = static_cast<double>(full) * TileCost(m) + (rest == 0 ? 0 : TileCost(rest));
    if (cost < best_cost) best_cost = cost, best.rows = m;
  }
  return best;
}

void PanelProduct::Write(const Dim& rows, const Dim& depth) {
  const Dim full = FloorDiv(rows, tile_.rows), rest = Mod(rows, tile_.rows);
  const auto first = [&](Value tile) { return lb_.Index(LoopBuilder::D0() * tile_.rows, tile); };
  lb_.For(full, false, [&](Value i) { WriteTile(first(i), tile_.rows, depth); });
  if (rest.IsConstant(0)) return;
  const Value first_rest = first(lb_.Extent(full));
  if (rest.is_constant()) return WriteTile(first_rest, rest.value(), depth);
  lb_.For(rest, false, [&](Value i) {
    const Value both[] = {first_rest, i};
    WriteTile(lb_.Index(LoopBuilder::D0() + LoopBuilder::D1(), both), 1, depth);
  });
}

Value PanelProduct::MulAdd(Value a, Value b, Value sum) {
  if (machine_.has_fma) return loop::FmaOp::Create(lb_.b(), a, b, sum).y();
  return nn::AddOp::Create(lb_.b(), nn::MulOp::Create(lb_.b(), a, b).c(), sum).c();
}

void PanelProduct::WriteTile(Value first_row, int64_t rows, const Dim& depth) {
  const auto vectors = static_cast<size_t>(tile_.vectors);
  std::vector<Value> row_at, starts;
  const Value zero = initial ? Value() : lb_.Splat(element_, 0, lanes());
  for (int64_t r = 0; r < rows; ++r) {
    row_at.push_back(lb_.Index(LoopBuilder::D0() + r, first_row));
    const Value start = initial ? lb_.Widen(initial(row_at.back()), lanes()) : zero;
    starts.insert(starts.end(), vectors, start);
  }
  const auto step = [&](Value k, std::span<const Value> sums) {
    std::vector<Value> columns, next;
    for (int64_t v = 0; v < tile_.vectors; ++v) columns.push_back(right(k, v));
    for (size_t r = 0; r < row_at.size(); ++r) {
      const Value scalar = left(row_at[r], k);
      for (size_t v = 0; v < vectors; ++v) {
        next.push_back(MulAdd(scalar, columns[v], sums[r * vectors + v]));
      }
    }
    return next;
  };
  const std::vector<Value> sums = lb_.For(depth, starts, step);
  for (size_t r = 0; r < row_at.size(); ++r) {
    for (size_t v = 0; v < vectors; ++v) {
      finish(row_at[r], static_cast<int64_t>(v), sums[r * vectors + v]);
    }
  }
}

}  // namespace lathe::lower
