#include "lathe/dialect/nn/matmul.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/matmul_job.h"
#include "src/lower/strategies/matmul_plan.h"
#include "src/lower/tiles.h"

// A matrix product and the elementwise operations after it. The right matrix is cut into panels as
// wide as a tile of registers, the left one into blocks of rows that stay in cache while panel
// after panel is multiplied by them [Goto, van de Geijn: Anatomy of High-Performance Matrix
// Multiplication, 2008]. A panel lies in one piece: packed when the program is compiled if the
// matrix is constant, else when it is needed. What follows the product is computed while the sums
// are in registers. The sums of deep products go to memory and back between blocks of depth, so
// that how the work is cut changes no bit.
namespace lathe::lower {
namespace {

class Matmul : ProductWriter {
 public:
  explicit Matmul(Lowering& lowering) : ProductWriter(lowering), function_(lowering.function) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string TypeRefusal();
  RightPlace PlaceOfRight() const;

  // The loops, outermost first.
  void WriteItems();
  void WriteItem(Value number);
  void WriteGroup(Value group);
  void WriteDepthBlock(Value group, bool last);
  void WritePanel(Value panel, bool rest, bool last);

  void PrefetchNext(Value panel, Value first_row, Value k);
  std::vector<Value> StackOfRight();
  void ForRest(Value extent, const std::function<void(Value)>& body);
  void PackLeft();
  void PackRight(Value panel, Tile tile);
  void CopyRight(Value k, Value first_column, Tile tile);
  void CopyTransposedRight(Value first_column, Tile tile);
  void CopyElements(Value first_column, Tile tile);
  void SetLive(Value first_column, bool rest, Tile tile);

  Value Left(Value row, Value k);
  Value Right(Value panel, Value k, int64_t vector);
  Value Start(Value row, Value first_column, int64_t vector, bool last);
  void Finish(Value row, Value first_column, int64_t vector, bool last, Value sum);
  Value LoadOf(const MatrixOperand& m, Value memory, Value row, Value k, Value column,
               int64_t lanes, Value live = {});
  std::vector<Value> PartialAt(Value row, Value first_column, int64_t vector);
  std::vector<Value> At(Value row, Value column);
  Value Centered(const MatrixOperand& m, Value v, Value column, Value live = {});
  Value Scratch(int64_t rows, int64_t columns);

  Value Product(Value v, Value factor) {
    const Value both[] = {v, factor};
    return lb_->Index(LoopBuilder::D0() * LoopBuilder::D1(), both);
  }
  int64_t width() const { return plan_.tile.vectors * plan_.lanes; }

  const Block& function_;
  ProductPlan plan_;

  // While writing; per item, then per block.
  Value left_, right_;
  std::vector<Value> batch_at_;
  Value first_row_, rows_;
  Value first_k_, depth_, depth_block_;
  Value left_block_, panel_, partial_;
  Value first_panel_;
  std::vector<Value> live_;  // lanes of each vector of the panel; null: all
};

std::string Matmul::Refusal() {
  if (std::string why = job_.Refusal(true); !why.empty()) return why;
  l_.where = job_.form.where;
  if (std::string why = TypeRefusal(); !why.empty()) return why;
  const bool writes_sums =
      job_.after->IsPlain(0) &&
      TensorOf(function_.terminator()->operand(0)).element() == SumElement(job_.form.left.element);
  plan_ = PlanProduct(job_.form, PlaceOfRight(), l_.machine, writes_sums,
                      job_.before_left.has_value(), l_.knobs);
  return job_.before_left && !plan_.pack_left ? "the left matrix is computed, and not packed" : "";
}

std::string Matmul::TypeRefusal() {
  const ElementType element = job_.form.left.element;
  switch (element) {
    case ElementType::kF32:
    case ElementType::kF64:
    case ElementType::kF16:
    case ElementType::kBF16:
    case ElementType::kI8:
    case ElementType::kU8:
    case ElementType::kI32:
    case ElementType::kU32:
    case ElementType::kI64:
    case ElementType::kU64:
      return "";
    default:
      return StrCat("elements are ", Name(element));
  }
}

RightPlace Matmul::PlaceOfRight() const {
  if (job_.CanPackRight()) return RightPlace::kPacked;
  const bool few = job_.form.rows.is_constant() && job_.form.rows.value() <= kFewRows;
  return few && job_.form.right.EndsWith(kColumn) ? RightPlace::kInPlace : RightPlace::kPanel;
}

// ---- writing ----

void Matmul::Write() {
  if (plan_.right == RightPlace::kPacked) l_.Pack(job_.PanelsOfRight(width()));
  lb_.emplace(l_.body);
  job_.after->Open(*lb_, *l_.body);
  left_ = job_.Open(*lb_, *l_.body, job_.form.left);
  right_ = plan_.right == RightPlace::kPacked
               ? l_.body->argument(job_.anchor->operand(job_.form.right.operand).index())
               : job_.Open(*lb_, *l_.body, job_.form.right);
  if (!plan_.items.IsConstant(0)) WriteItems();
  job_.after->Close(*lb_);
}

void Matmul::WriteItems() {
  const Value items = lb_->Extent(plan_.items), chunk = lb_->Extent(plan_.chunk);
  const Value both[] = {items, chunk};
  const Value chunks = lb_->Index(CeilDiv(LoopBuilder::D0(), LoopBuilder::D1()), both);
  lb_->For(chunks, true, [&](Value c) {
    if (plan_.chunk.IsConstant(1)) return WriteItem(c);
    const Value first = Product(c, chunk);
    const Value three[] = {items, first, chunk};
    const Dim left = LoopBuilder::D0() - LoopBuilder::D1();
    lb_->For(lb_->Index(Min(left, LoopBuilder::D2()), three), true,
             [&](Value i) { WriteItem(Sum(first, i)); });
  });
}

// The batch, the rows and the panels of an item from its number.
void Matmul::WriteItem(Value number) {
  std::vector<Dim> extents = job_.form.batch;
  extents.push_back(plan_.row_blocks);
  extents.push_back(plan_.groups);
  std::vector<Value> at(extents.size());
  for (size_t i = extents.size(); i-- > 0;) {
    const Value both[] = {number, lb_->Extent(extents[i])};
    at[i] = i == 0 ? number : lb_->Index(Mod(LoopBuilder::D0(), LoopBuilder::D1()), both);
    number = lb_->Index(FloorDiv(LoopBuilder::D0(), LoopBuilder::D1()), both);
  }
  batch_at_.assign(at.begin(), at.end() - 2);
  first_row_ = Times(at[at.size() - 2], plan_.block_rows);
  rows_ = lb_->Extent(job_.form.rows);
  if (!plan_.row_blocks.IsConstant(1)) {
    const Value both[] = {rows_, first_row_};
    rows_ = lb_->Index(Min(LoopBuilder::D0() - LoopBuilder::D1(), plan_.block_rows), both);
  }
  WriteGroup(at.back());
}

void Matmul::WriteGroup(Value group) {
  first_panel_ = Times(group, plan_.group_panels);
  if (plan_.pack_left) {
    const bool by_rows = job_.form.left.EndsWith(kDepth);
    left_block_ = by_rows ? Scratch(plan_.block_rows, plan_.block_depth)
                          : Scratch(plan_.block_depth, plan_.block_rows);
  }
  if (plan_.right == RightPlace::kPanel) {
    const int64_t depth = RoundUp(plan_.block_depth, plan_.lanes);
    panel_ = lb_->Alloc(
        VTensorType::Get(lb_->context(), SymShape({Dim(depth), Dim(width())}), plan_.sum));
  }
  if (!plan_.leading_blocks.IsConstant(0)) {
    partial_ = plan_.writes_sums ? job_.after->memory(0)
                                 : Scratch(plan_.block_rows, plan_.group_panels * width());
    depth_ = lb_->Int(plan_.block_depth);
    lb_->For(plan_.leading_blocks, false, [&](Value block) {
      depth_block_ = block;
      first_k_ = Times(block, plan_.block_depth);
      WriteDepthBlock(group, false);
    });
  }
  depth_block_ = lb_->Extent(plan_.leading_blocks);
  first_k_ = Times(depth_block_, plan_.block_depth);
  const Value both[] = {lb_->Extent(job_.form.depth), first_k_};
  depth_ = lb_->Index(LoopBuilder::D0() - LoopBuilder::D1(), both);
  WriteDepthBlock(group, true);
}

// The panels of a group by a block of rows; the last group ends with what is not a full panel.
void Matmul::WriteDepthBlock(Value group, bool last) {
  if (plan_.pack_left) PackLeft();
  const Dim full = FloorDiv(job_.form.columns, width()), rest = Mod(job_.form.columns, width());
  const Value both[] = {lb_->Extent(full), first_panel_};
  const Value count =
      lb_->Index(Min(LoopBuilder::D0() - LoopBuilder::D1(), plan_.group_panels), both);
  lb_->For(count, false, [&](Value i) { WritePanel(Sum(first_panel_, i), false, last); });
  if (rest.IsConstant(0)) return;
  const Value three[] = {group, lb_->Extent(plan_.groups), lb_->Extent(rest)};
  const Dim is_last = FloorDiv(LoopBuilder::D0() + 1, LoopBuilder::D1());
  lb_->For(lb_->Index(is_last * Min(LoopBuilder::D2(), 1), three), false,
           [&](Value) { WritePanel(lb_->Extent(full), true, last); });
}

void Matmul::WritePanel(Value panel, bool rest, bool last) {
  const Dim columns = Mod(job_.form.columns, width());
  Tile tile = plan_.tile;
  if (rest && columns.is_constant()) {
    tile.vectors = CeilDiv(columns.value(), plan_.lanes);
  }
  const Value first_column = Times(panel, width());
  SetLive(first_column, rest, tile);
  if (plan_.right == RightPlace::kPanel) PackRight(first_column, tile);
  PanelProduct product(*lb_, l_.machine, plan_.sum, tile);
  product.left = [&](Value row, Value k) { return Left(row, k); };
  product.right = [&](Value k, int64_t v) { return Right(panel, k, v); };
  product.start = [&](Value row, int64_t v) { return Start(row, first_column, v, last); };
  product.finish = [&](Value row, int64_t v, Value sum) {
    Finish(row, first_column, v, last, sum);
  };
  product.long_finish = last && job_.after->IsLong();
  const bool few = job_.form.rows.is_constant() && job_.form.rows.value() <= kFewRows;
  if (plan_.right == RightPlace::kPacked && !few && !rest) {
    product.beside = [&](Value row, Value k) { PrefetchNext(panel, row, k); };
  }
  product.Write(rows_, depth_);
}

// The first tiles of rows bring the next panel near, a cache line at each step.
void Matmul::PrefetchNext(Value panel, Value first_row, Value k) {
  const int64_t line = 512 / BitWidth(job_.form.right.element);
  const Value three[] = {first_row, depth_, k};
  const Dim step =
      FloorDiv(LoopBuilder::D0(), plan_.tile.rows) * LoopBuilder::D1() + LoopBuilder::D2();
  const Value both[] = {lb_->Index(step, three), depth_};
  const Dim last = FloorDiv(LoopBuilder::D1() * width(), line);
  std::vector<Value> at = StackOfRight();
  at.insert(at.end(),
            {Plus(panel, 1), first_k_, lb_->Index(Min(LoopBuilder::D0(), last) * line, both)});
  lb_->Prefetch(right_, at);
}

// Where the panels of an item begin.
std::vector<Value> Matmul::StackOfRight() {
  std::vector<Value> at;
  const std::vector<Value> batch = job_.BatchOf(*lb_, job_.form.right, batch_at_);
  for (const int role : job_.form.right.roles) {
    if (role == kOne) at.push_back(lb_->Int(0));
    if (role >= 0) at.push_back(batch[static_cast<size_t>(role)]);
  }
  return at;
}

void Matmul::SetLive(Value first_column, bool rest, Tile tile) {
  live_.assign(static_cast<size_t>(tile.vectors), Value());
  for (int64_t v = 0; rest && v < tile.vectors; ++v) {
    const Value values[] = {first_column, lb_->Extent(job_.form.columns)};
    const Dim left = LoopBuilder::D1() - LoopBuilder::D0() - v * plan_.lanes;
    const Value live = lb_->Index(Max(Min(left, plan_.lanes), 0), values);
    if (LoopBuilder::Known(live) == plan_.lanes) continue;
    live_[static_cast<size_t>(v)] = live;
  }
}

// ---- what a tile reads and writes; rows and depths count from the block's first ones ----

Value Matmul::Left(Value row, Value k) {
  if (plan_.pack_left) {
    const bool by_rows = job_.form.left.EndsWith(kDepth);
    const Value at[] = {by_rows ? row : k, by_rows ? k : row};
    return lb_->Load(left_block_, at);
  }
  const Value v = LoadOf(job_.form.left, left_, Sum(first_row_, row), Sum(first_k_, k), {}, 0);
  return Centered(job_.form.left, v, {});
}

Value Matmul::Right(Value panel, Value k, int64_t vector) {
  const Value column = lb_->Int(vector * plan_.lanes);
  if (plan_.right == RightPlace::kPanel) {
    const Value at[] = {k, column};
    return lb_->Load(panel_, at, plan_.lanes);
  }
  const Value deep = Sum(first_k_, k);
  const auto number = static_cast<size_t>(vector);
  if (plan_.right == RightPlace::kInPlace) {
    const Value at = Plus(Times(panel, width()), vector * plan_.lanes);
    const Value v = LoadOf(job_.form.right, right_, {}, deep, at, plan_.lanes, live_[number]);
    return Centered(job_.form.right, v, at, live_[number]);
  }
  std::vector<Value> at = StackOfRight();
  at.insert(at.end(), {panel, deep, column});
  const Value first = Plus(Times(panel, width()), vector * plan_.lanes);
  return Centered(job_.form.right, lb_->Load(right_, at, plan_.lanes), first, live_[number]);
}

std::vector<Value> Matmul::PartialAt(Value row, Value first_column, int64_t vector) {
  if (plan_.writes_sums) {
    return At(Sum(first_row_, row), Plus(first_column, vector * plan_.lanes));
  }
  const Value both[] = {first_column, Times(first_panel_, width())};
  return {row, lb_->Index(LoopBuilder::D0() - LoopBuilder::D1() + vector * plan_.lanes, both)};
}

// Sums of the first block of depth start from zero, the others from what was stored.
Value Matmul::Start(Value row, Value first_column, int64_t vector, bool last) {
  const Dim& blocks = plan_.leading_blocks;
  const bool first = last ? blocks.IsConstant(0) : blocks.IsConstant(1);
  if (first) return lb_->Splat(plan_.sum, 0, plan_.lanes);
  const std::vector<Value> at = PartialAt(row, first_column, vector);
  const Value live = plan_.writes_sums ? live_[static_cast<size_t>(vector)] : Value();
  if (last && blocks.is_constant()) return lb_->Load(partial_, at, plan_.lanes, live);
  const Value both[] = {depth_block_, live ? live : lb_->Int(plan_.lanes)};
  const Dim lanes = Min(LoopBuilder::D0(), 1) * LoopBuilder::D1();
  return lb_->Load(partial_, at, plan_.lanes, lb_->Index(lanes, both));
}

void Matmul::Finish(Value row, Value first_column, int64_t vector, bool last, Value sum) {
  const Value live = live_[static_cast<size_t>(vector)];
  if (!last) {
    lb_->Store(partial_, sum, PartialAt(row, first_column, vector),
               plan_.writes_sums ? live : Value());
    return;
  }
  const Value column = Plus(first_column, vector * plan_.lanes);
  job_.after->Store(*lb_, At(Sum(first_row_, row), column), plan_.lanes, live,
                    lb_->As(sum, job_.product_element()));
}

Value Matmul::LoadOf(const MatrixOperand& m, Value memory, Value row, Value k, Value column,
                     int64_t lanes, Value live) {
  const std::vector<Value> at =
      MatmulJob::At(*lb_, m.roles, row, k, column, job_.BatchOf(*lb_, m, batch_at_));
  return job_.Load(*lb_, m, memory, at, lanes, live);
}

std::vector<Value> Matmul::At(Value row, Value column) {
  return MatmulJob::At(*lb_, job_.form.result_roles, row, {}, column, batch_at_);
}

// An element, or neighbors from `column` on if there is a zero point per column and they are many,
// as they are multiplied.
Value Matmul::Centered(const MatrixOperand& m, Value v, Value column, Value live) {
  const Value wide = lb_->As(v, plan_.sum);
  if (!m.zero_point) return wide;
  const Value zero_point = l_.body->argument(m.zero_point.index());
  std::vector<Value> at(TensorOf(zero_point).rank(), lb_->Int(0));
  const bool along_columns = m.EndsWith(kColumn) || plan_.right == RightPlace::kPacked;
  int64_t lanes = 0;
  if (!m.one_zero_point) {
    at.back() = column;
    if (along_columns && TensorOf(v).rank() == 1) lanes = plan_.lanes;
  }
  const Value zero = lb_->Load(zero_point, at, lanes, lanes == 0 ? Value() : live);
  return nn::SubOp::Create(lb_->b(), wide, lb_->As(zero, plan_.sum)).c();
}

// ---- packing ----

// Rows are an odd number of cache lines apart: so they lie in different sets of the cache.
Value Matmul::Scratch(int64_t rows, int64_t columns) {
  const int64_t line = 512 / BitWidth(plan_.sum);
  const int64_t lines = CeilDiv(columns, line) | 1;
  return lb_->Alloc(
      VTensorType::Get(lb_->context(), SymShape({Dim(rows), Dim(lines * line)}), plan_.sum));
}

// What is behind the last full vector, if there is anything: memory may end there.
void Matmul::ForRest(Value extent, const std::function<void(Value)>& body) {
  const Value rest = lb_->Index(Mod(LoopBuilder::D0(), plan_.lanes), extent);
  if (const auto known = LoopBuilder::Known(rest)) {
    if (*known != 0) body(rest);
    return;
  }
  lb_->For(lb_->Index(Min(LoopBuilder::D0(), 1), rest), false, [&](Value) { body(rest); });
}

// A block of the left matrix, its rows close to each other.
void Matmul::PackLeft() {
  const bool by_rows = job_.form.left.EndsWith(kDepth);
  const auto copy = [&](Value outer, Value first, Value live) {
    const Value row = Sum(first_row_, by_rows ? outer : first);
    const Value k = Sum(first_k_, by_rows ? first : outer);
    const Value at[] = {outer, first};
    const Value v = LoadOf(job_.form.left, left_, row, k, {}, plan_.lanes, live);
    lb_->Store(left_block_, Centered(job_.form.left, v, {}), at);
  };
  const Value inner = by_rows ? depth_ : rows_;
  lb_->For(by_rows ? rows_ : depth_, false, [&](Value outer) {
    const Value full = lb_->Index(FloorDiv(LoopBuilder::D0(), plan_.lanes), inner);
    lb_->For(full, false, [&](Value i) { copy(outer, Times(i, plan_.lanes), {}); });
    ForRest(inner, [&](Value rest) { copy(outer, Times(full, plan_.lanes), rest); });
  });
}

// The panel's columns as they are multiplied: `width` neighbors for each row.
void Matmul::PackRight(Value first_column, Tile tile) {
  if (job_.form.right.EndsWith(kDepth)) return CopyTransposedRight(first_column, tile);
  if (!job_.form.right.EndsWith(kColumn)) return CopyElements(first_column, tile);
  lb_->For(depth_, false, [&](Value k) { CopyRight(k, first_column, tile); });
}

void Matmul::CopyRight(Value k, Value first_column, Tile tile) {
  for (int64_t v = 0; v < tile.vectors; ++v) {
    const Value column = Plus(first_column, v * plan_.lanes);
    const Value from = LoadOf(job_.form.right, right_, {}, Sum(first_k_, k), column, plan_.lanes,
                              live_[static_cast<size_t>(v)]);
    const Value to[] = {k, lb_->Int(v * plan_.lanes)};
    lb_->Store(panel_, Centered(job_.form.right, from, column, live_[static_cast<size_t>(v)]), to);
  }
}

// Neither columns nor depths are neighbors.
void Matmul::CopyElements(Value first_column, Tile tile) {
  const Value both[] = {first_column, lb_->Extent(job_.form.columns)};
  const Dim left = LoopBuilder::D1() - LoopBuilder::D0();
  const Value count = lb_->Index(Min(left, tile.vectors * plan_.lanes), both);
  lb_->For(depth_, false, [&](Value k) {
    lb_->For(count, false, [&](Value column) {
      const Value at = Sum(first_column, column);
      const Value from = LoadOf(job_.form.right, right_, {}, Sum(first_k_, k), at, 0);
      const Value to[] = {k, column};
      lb_->Store(panel_, Centered(job_.form.right, from, at), to);
    });
  });
}

// Square tiles of the matrix are turned in registers. What lies behind its last column is a copy of
// that column; nobody reads it.
void Matmul::CopyTransposedRight(Value first_column, Tile tile) {
  const Value last = lb_->Index(LoopBuilder::D0() - 1, lb_->Extent(job_.form.columns));
  const auto turn = [&](Value first, Value to, Value k, Value live) {
    std::vector<Value> columns;
    for (int64_t i = 0; i < plan_.lanes; ++i) {
      const Value both[] = {first, last};
      const Value column = lb_->Index(Min(LoopBuilder::D0() + i, LoopBuilder::D1()), both);
      const Value v =
          LoadOf(job_.form.right, right_, {}, Sum(first_k_, k), column, plan_.lanes, live);
      columns.push_back(Centered(job_.form.right, v, column));
    }
    const std::vector<Value> turned = lb_->Transpose(columns);
    for (int64_t i = 0; i < plan_.lanes; ++i) {
      const Value at[] = {Plus(k, i), to};
      lb_->Store(panel_, turned[static_cast<size_t>(i)], at);
    }
  };
  const Value full = lb_->Index(FloorDiv(LoopBuilder::D0(), plan_.lanes), depth_);
  lb_->For(tile.vectors, false, [&](Value v) {
    const Value to = Times(v, plan_.lanes), first = Sum(first_column, to);
    lb_->For(full, false, [&](Value i) { turn(first, to, Times(i, plan_.lanes), {}); });
    ForRest(depth_, [&](Value rest) { turn(first, to, Times(full, plan_.lanes), rest); });
  });
}

}  // namespace

bool LowerMatmul(Lowering& l) { return WriteUnlessRefused<Matmul>(l); }

}  // namespace lathe::lower
