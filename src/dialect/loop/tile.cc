#include "lathe/dialect/loop/tile.h"

#include <array>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/loop.h"
#include "lathe/support/error.h"
#include "src/dialect/loop/indices.h"
#include "src/dialect/loop/scalars.h"
#include "src/dialect/move.h"
#include "src/dialect/wide.h"

namespace lathe::loop {
namespace {

// Throws unless a tile register can hold it.
void CheckTile(InferShapeContext& c, int64_t rows, int64_t columns, ElementType element) {
  const int64_t bytes = columns * BitWidth(element) / 8;
  if (rows <= kTileRows && bytes <= kTileRowBytes) return;
  c.Fail("loop/tile", StrCat("a tile has at most ", kTileRows, " rows of at most ", kTileRowBytes,
                             " bytes, not ", rows, " of ", bytes));
}

// Throws unless there is an index per axis of operand 0, from operand `first` on, and the axis of
// the rows.
void CheckIndices(InferShapeContext& c, size_t first, int64_t axis) {
  CheckIndexCount(c, first);
  const SymShape memory = c.shape(0);
  if (memory.ranked && axis >= static_cast<int64_t>(memory.rank())) {
    c.Fail("loop/tile", StrCat("there is no axis ", axis, " for the rows"));
  }
  CheckScalars(c, first);
}

// Where the rows of a tile lie in memory.
struct Rows {
  int64_t begin;
  int64_t pitch;
};

Rows RowsOf(EvalContext& c, const Tensor& memory, size_t first, int64_t axis, int64_t rows,
            int64_t columns) {
  const Shape& shape = memory.shape();
  Rows result{0, 1};
  int64_t within = 0;
  for (size_t a = 0; a < shape.size(); ++a) {
    const int64_t index = ScalarOf(c, first + a);
    const int64_t last = static_cast<int64_t>(a) == axis ? index + rows - 1 : index;
    if (index < 0 || last >= shape[a]) {
      c.Fail("loop/bounds", StrCat("elements ", index, " to ", last, " are outside axis ", a,
                                   " of extent ", shape[a]));
    }
    result.begin = result.begin * shape[a] + index;
    if (static_cast<int64_t>(a) <= axis) continue;
    within = within * shape[a] + index;
    result.pitch *= shape[a];
  }
  if (within + columns > result.pitch) {
    c.Fail("loop/bounds", StrCat("a row of ", columns, " elements from ", within,
                                 " on is outside of ", result.pitch));
  }
  return result;
}

// Rows and columns of operand `i`; nothing if that is not known yet.
std::optional<std::array<int64_t, 2>> TileOf(InferShapeContext& c, size_t i) {
  const SymShape shape = c.shape(i);
  if (!shape.ranked) return std::nullopt;
  if (shape.rank() != 2) c.Fail("loop/tile", StrCat("operand ", i, " is not a tile"));
  if (!shape.dims[0].is_constant() || !shape.dims[1].is_constant()) return std::nullopt;
  CheckTile(c, shape.dims[0].value(), shape.dims[1].value(), c.element(i));
  return std::array{shape.dims[0].value(), shape.dims[1].value()};
}

}  // namespace

// ---- zero ----

void TileZeroOp::InferShape(InferShapeContext& c) {
  const TileZeroOp op(c.op());
  CheckTile(c, op.rows(), op.columns(), op.element());
  if (op.element() != ElementType::kF32 && op.element() != ElementType::kI32) {
    c.Fail("loop/tile", StrCat("sums are of f32 or i32, not ", Name(op.element())));
  }
  c.SetType(kTile, VTensorType::Get(c.context(), SymShape({Dim(op.rows()), Dim(op.columns())}),
                                    op.element()));
}

void TileZeroOp::Eval(EvalContext& c) {
  const TileZeroOp op(c.op());
  c.SetOutput(kTile, ZeroLike(Tensor(op.element(), Shape{op.rows(), op.columns()})));
}

// ---- load ----

void TileLoadOp::InferShape(InferShapeContext& c) {
  const TileLoadOp op(c.op());
  CheckIndices(c, kIndices, op.axis());
  CheckTile(c, op.rows(), op.columns(), c.element(kMemory));
  c.SetType(kTile, VTensorType::Get(c.context(), SymShape({Dim(op.rows()), Dim(op.columns())}),
                                    c.element(kMemory)));
}

void TileLoadOp::Eval(EvalContext& c) {
  const TileLoadOp op(c.op());
  const Tensor& memory = c.input(kMemory);
  Tensor tile(memory.element_type(), Shape{op.rows(), op.columns()});
  const Rows rows = RowsOf(c, memory, kIndices, op.axis(), op.rows(), op.columns());
  const eval::ElementMover mover(memory, tile);
  for (int64_t r = 0; r < op.rows(); ++r) {
    mover.Copy(r * op.columns(), rows.begin + r * rows.pitch, op.columns());
  }
  c.SetOutput(kTile, std::move(tile));
}

// ---- store ----

void TileStoreOp::InferShape(InferShapeContext& c) {
  CheckIndices(c, kIndices, TileStoreOp(c.op()).axis());
  TileOf(c, kTile);
  c.SetShape(kResult, c.shape(kMemory));
}

void TileStoreOp::Eval(EvalContext& c) {
  Tensor memory = c.TakeInput(kMemory);
  const Tensor& tile = c.input(kTile);
  const int64_t count = tile.shape()[0], columns = tile.shape()[1];
  const Rows rows = RowsOf(c, memory, kIndices, TileStoreOp(c.op()).axis(), count, columns);
  const eval::ElementMover mover(tile, memory);
  for (int64_t r = 0; r < count; ++r) {
    mover.Copy(rows.begin + r * rows.pitch, r * columns, columns);
  }
  c.SetOutput(kResult, std::move(memory));
}

// ---- mma ----

void TileMmaOp::InferShape(InferShapeContext& c) {
  const ElementType left = c.element(kA), right = c.element(kB);
  const bool floats = IsFloat(left);
  if (floats != IsFloat(right) || floats != IsFloat(c.element(kC))) {
    c.Fail("loop/tile", "bf16 are summed in f32, 8-bit integers in i32");
  }
  const auto a = TileOf(c, kA), b = TileOf(c, kB), sum = TileOf(c, kC);
  const int64_t group = 32 / BitWidth(left);
  if (a && b && sum) {
    const bool fits =
        (*a)[0] == (*sum)[0] && (*a)[1] == (*b)[0] * group && (*b)[1] == (*sum)[1] * group;
    if (!fits) {
      c.Fail("loop/tile",
             StrCat("a tile of ", (*a)[0], " x ", (*a)[1], " by one of ", (*b)[0], " x ", (*b)[1],
                    " in groups of ", group, " is not one of ", (*sum)[0], " x ", (*sum)[1]));
    }
  }
  c.SetShape(kY, c.shape(kC));
}

namespace {

// Calls `element(row, column, k -> where its factors lie)` for each element of the sum.
template <class Fn>
void ForElements(EvalContext& c, const Fn& element) {
  const Shape& a = c.input(TileMmaOp::kA).shape();
  const Shape& sum = c.input(TileMmaOp::kC).shape();
  const int64_t group = 32 / BitWidth(c.input(TileMmaOp::kA).element_type());
  for (int64_t m = 0; m < sum[0]; ++m) {
    for (int64_t n = 0; n < sum[1]; ++n) {
      const auto left = [=, depth = a[1]](int64_t k) { return m * depth + k; };
      const auto right = [=, width = sum[1] * group](int64_t k) {
        return k / group * width + n * group + k % group;
      };
      element(m * sum[1] + n, a[1], left, right);
    }
  }
}

}  // namespace

void TileMmaOp::Eval(EvalContext& c) {
  if (IsFloat(c.input(kA).element_type())) {
    const std::vector<double> a = ToDoubles(c.input(kA)), b = ToDoubles(c.input(kB));
    std::vector<double> sums = ToDoubles(c.input(kC));
    ForElements(c, [&](int64_t at, int64_t depth, const auto& left, const auto& right) {
      float parts[] = {0, 0};
      for (int64_t k = 0; k < depth; ++k) {
        const auto x = static_cast<float>(a[static_cast<size_t>(left(k))]);
        const auto y = static_cast<float>(b[static_cast<size_t>(right(k))]);
        parts[k % 2] = std::fma(x, y, parts[k % 2]);
      }
      double& sum = sums[static_cast<size_t>(at)];
      sum = static_cast<float>(sum) + (parts[0] + parts[1]);
    });
    c.SetOutput(kY, Cast(Tensor::Of<double>(c.input(kC).shape(), sums), ElementType::kF32));
    return;
  }
  const std::vector<int64_t> a = ToInt64s(c.input(kA)), b = ToInt64s(c.input(kB));
  std::vector<int64_t> sums = ToInt64s(c.input(kC));
  ForElements(c, [&](int64_t at, int64_t depth, const auto& left, const auto& right) {
    int64_t& sum = sums[static_cast<size_t>(at)];
    for (int64_t k = 0; k < depth; ++k) {
      sum += a[static_cast<size_t>(left(k))] * b[static_cast<size_t>(right(k))];
    }
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum));
  });
  c.SetOutput(kY, Cast(Tensor::Of<int64_t>(c.input(kC).shape(), sums), ElementType::kI32));
}

}  // namespace lathe::loop
