#include "src/lower/tiles.h"

#include <algorithm>

#include "lathe/support/divide.h"
#include "src/lower/register_tile.h"

namespace lathe::lower {
namespace {

// What a tile of `rows` costs: below four rows the latency of the additions shows.
double TileCost(int64_t rows) { return static_cast<double>(std::max<int64_t>(rows, 4)) + 0.3; }

}  // namespace

// One register holds the broadcast element, `vectors` the row of the panel, the others sums.
Tile PickTile(const Dim& rows, const Dim& columns, int64_t lanes, int registers, int64_t few_rows,
              int64_t most_vectors) {
  const int64_t vectors_of_row =
      columns.is_constant() ? std::max<int64_t>(CeilDiv(columns.value(), lanes), 1) : 1 << 20;
  if (rows.is_constant() && rows.value() <= few_rows) {
    const int64_t m = std::max<int64_t>(rows.value(), 1);
    const int64_t most = std::max<int64_t>((registers - 3) / (m + 1), 1);
    // Of a number of columns that only a run knows, the last panel may be most of the work.
    const int64_t widest = columns.is_constant() ? 8 : 4;
    return {m, std::min({most, vectors_of_row, widest})};
  }
  const int64_t vectors = std::min(most_vectors, vectors_of_row);
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

void PanelProduct::Write(Value rows, Value depth) {
  if (long_finish) {
    const SymShape shape({Dim(tile_.rows), Dim(tile_.vectors * lanes())});
    sums_ = lb_.Alloc(VTensorType::Get(lb_.context(), shape, element_));
  }
  const Value full = lb_.Index(FloorDiv(LoopBuilder::D0(), tile_.rows), rows);
  lb_.For(full, false, [&](Value i) {
    WriteTile(lb_.Index(LoopBuilder::D0() * tile_.rows, i), tile_.rows, depth);
  });
  WriteRest(full, lb_.Index(Mod(LoopBuilder::D0(), tile_.rows), rows), depth);
}

// Rows whose number is known are one tile; otherwise there is a tile per power of two.
void PanelProduct::WriteRest(Value full_tiles, Value rest, Value depth) {
  const Dim first = LoopBuilder::D0() * tile_.rows;
  if (const auto known = LoopBuilder::Known(rest)) {
    if (*known > 0) WriteTile(lb_.Index(first, full_tiles), *known, depth);
    return;
  }
  int64_t size = 1;
  while (2 * size < tile_.rows) size *= 2;
  for (; size > 0 && tile_.rows > 1; size /= 2) {
    const Value has = lb_.Index(FloorDiv(Mod(LoopBuilder::D0(), 2 * size), size), rest);
    lb_.For(has, false, [&](Value) {
      const Value both[] = {full_tiles, rest};
      const Dim above = FloorDiv(LoopBuilder::D1(), 2 * size) * (2 * size);
      WriteTile(lb_.Index(first + above, both), size, depth);
    });
  }
}

Value PanelProduct::Start(Value row, int64_t v) {
  if (start) return start(row, v);
  return initial ? lb_.Widen(initial(row), lanes()) : lb_.Splat(element_, 0, lanes());
}

void PanelProduct::WriteTile(Value first_row, int64_t rows, Value depth) {
  std::vector<Value> row_at;
  for (int64_t r = 0; r < rows; ++r) {
    row_at.push_back(lb_.Index(LoopBuilder::D0() + r, first_row));
  }
  const auto row = [&](int64_t r) { return row_at[static_cast<size_t>(r)]; };
  RegisterTile tile{rows, tile_.vectors, element_, {}, {}, {}, {}};
  tile.scalar = [&](int64_t r, Value k) { return left(row(r), k); };
  tile.vector = [&](int64_t v, Value k) { return right(k, v); };
  tile.start = [&](int64_t r, int64_t v) { return Start(row(r), v); };
  tile.finish = [&](int64_t r, int64_t v, Value sum) {
    if (!long_finish) return finish(row(r), v, sum);
    const Value at[] = {lb_.Int(r), lb_.Int(v * lanes())};
    lb_.Store(sums_, sum, at);
  };
  if (beside && rows == tile_.rows) tile.beside = [&](Value k) { beside(first_row, k); };
  tile.Write(lb_, machine_, depth);
  if (long_finish) FinishRows(first_row, rows);
}

void PanelProduct::FinishRows(Value first_row, int64_t rows) {
  lb_.For(lb_.Int(rows), false, [&](Value r) {
    const Value both[] = {first_row, r};
    const Value row = lb_.Index(LoopBuilder::D0() + LoopBuilder::D1(), both);
    for (int64_t v = 0; v < tile_.vectors; ++v) {
      const Value at[] = {r, lb_.Int(v * lanes())};
      finish(row, v, lb_.Load(sums_, at, lanes()));
    }
  });
}

}  // namespace lathe::lower
