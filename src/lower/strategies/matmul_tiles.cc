#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/dialect/loop.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/matmul_job.h"
#include "src/lower/strategies/matmul_plan.h"

// A product of bf16, or of bytes, by a weight on a processor with tile registers, and the
// elementwise operations after it; of f32 that become bf16, where the precision allows. A block of
// the left matrix is copied once, with zeros behind the ends of its rows and of its depth; the
// weight was packed into panels whose depth lies in groups, with zeros too, when the program was
// compiled. So every tile is full. Panel after panel is multiplied by all rows of the block. A
// block of tiles is written as plain loops over its elements, split and tensorized; its sums are
// read again for what follows the product.
//
// Bytes less zero points: the sum of (a - s)(b - t) is that of ab, less s times the sum of the
// column of b, less t times the sum of the row of a, and depth times s times t more.
namespace lathe::lower {
namespace {

constexpr int64_t kColumns = loop::kTileRowBytes / 4;  // of a tile of sums
constexpr int64_t kMostRows = 256;                     // of a block
constexpr int64_t kUsualRows = 64;
constexpr int64_t kAheadRows = 32;              // that a thread copies at once
constexpr int64_t kUsualColumns = 256;          // of an item
constexpr int64_t kAheadColumns = 128;          // of an item whose rows were copied ahead
constexpr int64_t kAheadCache = 2 << 20;        // that processors with tiles have
constexpr int64_t kItemWork = 1 << 22;          // multiply-adds that are worth a thread
constexpr int64_t kMostBlockBytes = 768 << 10;  // of the left matrix, on the stack of a thread

bool IsByte(ElementType e) { return e == ElementType::kI8 || e == ElementType::kU8; }

/// How a product is cut into tiles. An item of work is a block of rows by a group of panels.
struct TilePlan {
  ElementType factor = ElementType::kUndefined, sum = ElementType::kUndefined;
  int64_t group = 1;         ///< elements of depth that lie together
  int64_t depth_groups = 1;  ///< of a tile
  int64_t depth_tiles = 1;
  int64_t rows = 1;                         ///< of a tile
  int64_t row_tiles = 1, column_tiles = 1;  ///< whose sums are held at once
  int64_t block_tiles = 1;                  ///< of rows, in an item
  int64_t panels = 1, group_panels = 1;

  int64_t tile_depth() const { return depth_groups * group; }
  int64_t depth() const { return depth_tiles * tile_depth(); }  ///< with zeros behind
  int64_t width() const { return column_tiles * kColumns; }     ///< of a panel
  int64_t block_rows() const { return block_tiles * rows; }
};

class Planner {
 public:
  // `copies`: elements of the left matrix are rounded or computed on the way.
  Planner(const ProductForm& form, ElementType factor, bool copies, Knobs& knobs, int64_t cache)
      : form_(form), copies_(copies), knobs_(knobs), cache_(cache) {
    plan_.factor = factor;
  }

  TilePlan Run() {
    plan_.sum = SumElement(plan_.factor);
    plan_.group = 32 / BitWidth(plan_.factor);
    CutDepth();
    CutTiles();
    CutItems();
    return plan_;
  }

 private:
  int64_t columns() const { return form_.columns.value(); }
  // Tiles of rows, as many as there may be.
  int64_t AllRowTiles() const {
    return form_.rows.is_constant()
               ? CeilDiv(std::max<int64_t>(form_.rows.value(), 1), loop::kTileRows)
               : kMostRows / loop::kTileRows;
  }

  // Few tiles are of equal depth, so that few zeros are multiplied.
  void CutDepth() {
    const int64_t depth = form_.depth.value(), most = loop::kTileRows * plan_.group;
    const int64_t tiles = CeilDiv(depth, most);
    plan_.depth_groups =
        tiles > loop::kTileRows ? loop::kTileRows : CeilDiv(CeilDiv(depth, tiles), plan_.group);
    plan_.depth_tiles = CeilDiv(depth, plan_.tile_depth());
  }

  // Two by two, or four of one row of tiles: so many sums are needed to keep the unit busy.
  void CutTiles() {
    const int64_t all = AllRowTiles(), across = CeilDiv(columns(), kColumns);
    plan_.rows = form_.rows.is_constant() ? CeilDiv(std::max<int64_t>(form_.rows.value(), 1), all)
                                          : loop::kTileRows;
    const auto fits = [&](int64_t r, int64_t c) {
      return r <= all && c <= across && r * c + r + 1 <= loop::kTileRegisters;
    };
    const int64_t rows = std::min<int64_t>(2, all),
                  columns = std::min<int64_t>(all == 1 ? 4 : 2, across);
    std::vector<int64_t> others;
    for (const int64_t r : {1, 2, 3}) {
      if (fits(r, 1)) others.push_back(r);
    }
    plan_.row_tiles = knobs_.Choose("rows", rows, others);
    others.clear();
    int64_t widest = 1;
    for (const int64_t c : {1, 2, 3, 4}) {
      if (!fits(plan_.row_tiles, c)) continue;
      others.push_back(c);
      widest = c;
    }
    const int64_t panels = CeilDiv(across, std::min(columns, widest));
    plan_.column_tiles = knobs_.Choose("columns", CeilDiv(across, panels), others);
  }

  void CutItems() {
    const int64_t row_bytes = plan_.depth() * 4 / plan_.group;
    const int64_t unit = plan_.row_tiles, all = RoundUp(AllRowTiles(), unit);
    plan_.panels = CeilDiv(columns(), plan_.width());
    // Copied ahead, rows are nothing that an item has to make up for: it has more of them by fewer
    // columns, so that weights are read less often.
    const bool is_ahead = copies_ && plan_.panels > CeilDiv(kAheadColumns, plan_.width());
    const int64_t cache = is_ahead ? std::max(cache_, kAheadCache) : cache_;
    const int64_t most = std::clamp(cache / 2 / (row_bytes * plan_.rows) / unit * unit, unit, all);
    const int64_t usual = is_ahead ? kAheadColumns : kUsualColumns;
    plan_.group_panels = std::min(CeilDiv(usual, plan_.width()), plan_.panels);
    int64_t tiles = RoundUp(CeilDiv(is_ahead ? kMostRows : kUsualRows, plan_.rows), unit);
    const int64_t step = plan_.rows * plan_.group_panels * plan_.width() * plan_.depth();
    while (2 * tiles <= most && tiles * step < kItemWork) tiles *= 2;
    plan_.block_tiles = knobs_.Choose("block_rows", std::min(tiles, most), Doubled(unit, most));
    plan_.group_panels = knobs_.Choose("panels", plan_.group_panels, Doubled(1, plan_.panels));
  }

  static std::vector<int64_t> Doubled(int64_t from, int64_t most) {
    std::vector<int64_t> values;
    for (; from <= most; from *= 2) values.push_back(from);
    return values;
  }

  const ProductForm& form_;
  bool copies_;
  Knobs& knobs_;
  int64_t cache_;
  TilePlan plan_;
};

class MatmulTiles : ProductWriter {
 public:
  explicit MatmulTiles(Lowering& lowering) : ProductWriter(lowering) {}

  std::string Refusal();
  void Write();

 private:
  ElementType FactorElement() const;
  std::string TypeRefusal() const;
  std::string PlaceRefusal() const;

  void PackRight();
  bool CopiesLeft() const;
  bool CopiesAhead() const;
  void CopyAhead();
  void WriteItem(Value number);
  void CopyLeft();
  void CopyRow(Value to_row, Value row);
  void SumRow(Value row);
  void WritePanel(Value panel, bool rest);
  void WriteBlocks(Value panel, int64_t column_tiles, int64_t columns);
  void WriteBlock(Value first_tile, int64_t row_tiles, Value panel, int64_t column_tiles,
                  int64_t columns);
  void Multiply(Value left, Value first_row, int64_t row_tiles, Value panel, int64_t column_tiles,
                bool same_depth);
  Value SumOfDepth(Value left, Value row, Value panel, Value column, bool same_depth);
  Value SumOfTile(Value left, Value row, Value panel, Value tile, Value column, bool same_depth,
                  Value start);
  void SetColumnOffsets(Value panel, int64_t column_tiles, int64_t columns);
  void FinishRow(Value row, Value first_row, Value panel, int64_t columns);
  Value LessZeroPoints(Value sum, Value block_row, Value column, int64_t lane, Value live);
  Value ZeroPoint(const MatrixOperand& m, Value column, Value live);

  Value AsFactors(Value v);
  Value Scratch(const Dim& rows, int64_t columns, ElementType element);
  int64_t lanes() const { return l_.machine.lanes(plan_.sum); }
  // A loop over `body`; null where that is written alone, for one iteration.
  Operation* Loop(int64_t extent, const LoopBuilder::Body& body);

  TilePlan plan_;

  // While writing.
  Value left_, right_;
  Value left_block_, ones_;         // as tiles read them
  Value sums_;                      // of a block of tiles
  Value row_sums_, column_offset_;  // of bytes; null: not needed
  Value first_row_, rows_;          // of the item
};

// ---- whether ----

std::string MatmulTiles::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (!l_.machine.has_tiles) return "the target has no tile registers";
  if (std::string why = TypeRefusal(); !why.empty()) return why;
  if (std::string why = PlaceRefusal(); !why.empty()) return why;
  plan_ = Planner(job_.form, FactorElement(), CopiesLeft(), l_.knobs, l_.machine.l2_bytes).Run();
  const int64_t bytes = plan_.block_rows() * plan_.depth() * 4 / plan_.group;
  return !CopiesAhead() && bytes > kMostBlockBytes ? "the rows of a tile do not fit into the cache"
                                                   : "";
}

ElementType MatmulTiles::FactorElement() const {
  const ElementType element = job_.form.left.element;
  return element == ElementType::kF32 ? ElementType::kBF16 : element;
}

std::string MatmulTiles::TypeRefusal() const {
  const ElementType left = job_.form.left.element, right = job_.form.right.element;
  const bool halves = left == ElementType::kBF16 && right == ElementType::kBF16;
  if (halves || (IsByte(left) && IsByte(right))) return "";
  if (left == ElementType::kF32 && right == ElementType::kF32) {
    return l_.precision >= Precision::kBf16 ? "" : StrCat("the precision is ", Name(l_.precision));
  }
  return StrCat("there is no tile unit for ", Name(left));
}

std::string MatmulTiles::PlaceRefusal() const {
  const ProductForm& f = job_.form;
  if (!job_.CanPackRight()) return "the right matrix is not a weight";
  if (!f.batch.empty() || f.right.dims.size() != 2) return "the matrices are stacks";
  if (!f.left.EndsWith(kDepth)) return "the rows of the left matrix do not lie in one piece";
  const bool has_elements =
      !f.depth.IsConstant(0) && !f.columns.IsConstant(0) && !f.rows.IsConstant(0);
  return has_elements ? "" : "there is nothing to multiply";
}

// ---- writing ----

void MatmulTiles::Write() {
  PackRight();
  lb_.emplace(l_.body);
  job_.after->Open(*lb_, *l_.body);
  left_ = job_.Open(*lb_, *l_.body, job_.form.left);
  right_ = l_.body->argument(job_.anchor->operand(job_.form.right.operand).index());
  if (CopiesAhead()) CopyAhead();
  const Dim blocks = CeilDiv(job_.form.rows, plan_.block_rows());
  const int64_t groups = CeilDiv(plan_.panels, plan_.group_panels);
  lb_->For(lb_->Extent(blocks * groups), true, [&](Value number) { WriteItem(number); });
  job_.after->Close(*lb_);
}

// Panels of tiles of depth, whose columns have the elements of a group side by side.
void MatmulTiles::PackRight() {
  PackedLayout layout;
  layout.argument = job_.anchor->operand(job_.form.right.operand).index();
  const bool is_turned = job_.form.right.EndsWith(kDepth);
  const int64_t columns = plan_.panels * plan_.width();
  layout.padded = {plan_.depth(), columns};
  layout.split = {plan_.depth_tiles, plan_.depth_groups, plan_.group, plan_.panels, plan_.width()};
  layout.order = {3, 0, 1, 4, 2};
  if (is_turned) {
    std::ranges::reverse(layout.padded);
    layout.split = {plan_.panels, plan_.width(), plan_.depth_tiles, plan_.depth_groups,
                    plan_.group};
    layout.order = {0, 2, 3, 1, 4};
  }
  if (job_.form.right.element == ElementType::kF32) layout.element = plan_.factor;
  l_.Pack(std::move(layout));
}

// Whether elements are rounded or computed on the way; sums of rows are those of an item.
bool MatmulTiles::CopiesLeft() const {
  const bool is_plain = FactorElement() == job_.form.left.element && !job_.before_left;
  return !is_plain && !job_.form.right.zero_point;
}

// Items of several groups of panels read the same rows: what is computed or rounded is so once.
bool MatmulTiles::CopiesAhead() const { return CopiesLeft() && plan_.panels > plan_.group_panels; }

// What is behind the last row may be anything, for nothing is made of it.
void MatmulTiles::CopyAhead() {
  const Dim& rows = job_.form.rows;
  left_block_ = Scratch(CeilDiv(rows, plan_.rows) * plan_.rows, plan_.depth(), plan_.factor);
  lb_->For(lb_->Extent(CeilDiv(rows, kAheadRows)), true, [&](Value part) {
    first_row_ = Times(part, kAheadRows);
    lb_->For(Minus(lb_->Extent(rows), first_row_, kAheadRows), false,
             [&](Value row) { CopyRow(Sum(first_row_, row), row); });
  });
}

void MatmulTiles::WriteItem(Value number) {
  const int64_t groups = CeilDiv(plan_.panels, plan_.group_panels);
  const Value block = lb_->Index(FloorDiv(LoopBuilder::D0(), groups), number);
  const Value group = lb_->Index(Mod(LoopBuilder::D0(), groups), number);
  first_row_ = Times(block, plan_.block_rows());
  rows_ = Minus(lb_->Extent(job_.form.rows), first_row_, plan_.block_rows());
  if (!CopiesAhead()) left_block_ = Scratch(plan_.block_rows(), plan_.depth(), plan_.factor);
  sums_ = Scratch(plan_.row_tiles * plan_.rows, plan_.width(), plan_.sum);
  if (job_.form.right.zero_point) row_sums_ = Scratch(1, plan_.block_rows(), plan_.sum);
  if (job_.form.left.zero_point) {
    column_offset_ = Scratch(1, plan_.width(), plan_.sum);
    ones_ = Scratch(plan_.rows, plan_.tile_depth(), plan_.factor);
    const int64_t across = l_.machine.lanes(plan_.factor);
    Loop(plan_.rows, [&](Value row) {
      for (int64_t k = 0; k < plan_.tile_depth(); k += across) {
        const Value at[] = {row, lb_->Int(k)};
        lb_->Store(ones_, lb_->Splat(plan_.factor, 1, across), at);
      }
    });
  }
  if (!CopiesAhead()) CopyLeft();
  const Value first_panel = Times(group, plan_.group_panels);
  const int64_t full = job_.form.columns.value() / plan_.width();
  const Value count = Minus(lb_->Int(full), first_panel, plan_.group_panels);
  lb_->For(count, false, [&](Value i) { WritePanel(Sum(first_panel, i), false); });
  if (full == plan_.panels) return;
  const Dim is_last = FloorDiv(LoopBuilder::D0() + 1, groups);
  lb_->For(lb_->Index(is_last, group), false, [&](Value) { WritePanel(lb_->Int(full), true); });
}

Operation* MatmulTiles::Loop(int64_t extent, const LoopBuilder::Body& body) {
  Operation* loop = nullptr;
  lb_->For(Dim(extent), false, [&](Value i) {
    if (extent > 1) loop = lb_->b().block()->parent_op();
    body(i);
  });
  return loop;
}

// Rows an odd number of cache lines apart lie in different sets of the cache; behind each there is
// room for a vector.
Value MatmulTiles::Scratch(const Dim& rows, int64_t columns, ElementType element) {
  const int64_t line = 512 / BitWidth(element);
  const int64_t lines = CeilDiv(columns, line) | 1;
  return lb_->Alloc(VTensorType::Get(lb_->context(), SymShape({rows, Dim(lines * line)}), element));
}

// The rows of the item, and rows of zeros up to a full tile.
void MatmulTiles::CopyLeft() {
  lb_->For(rows_, false, [&](Value row) {
    CopyRow(row, row);
    if (row_sums_) SumRow(row);
  });
  const Dim all = CeilDiv(LoopBuilder::D0(), plan_.rows) * plan_.rows;
  const Value missing = lb_->Index(all - LoopBuilder::D0(), rows_);
  const int64_t across = l_.machine.lanes(plan_.factor);
  lb_->For(missing, false, [&](Value i) {
    const Value row = Sum(rows_, i);
    lb_->For(CeilDiv(plan_.depth(), across), false, [&](Value k) {
      const Value at[] = {row, Times(k, across)};
      lb_->Store(left_block_, lb_->Splat(plan_.factor, 0, across), at);
    });
  });
}

// `row` counts from the first one of the item.
void MatmulTiles::CopyRow(Value to_row, Value row) {
  const int64_t across = l_.machine.lanes(job_.form.left.element);
  const int64_t depth = job_.form.depth.value();
  const int64_t full = depth / across * across;
  const auto copy = [&](Value k, int64_t lanes, Value live) {
    const Value to[] = {to_row, k};
    const std::vector<Value> from =
        MatmulJob::At(*lb_, job_.form.left.roles, Sum(first_row_, row), k, {}, {});
    const Value v = job_.Load(*lb_, job_.form.left, left_, from, lanes, live);
    lb_->Store(left_block_, AsFactors(v), to);
  };
  for (int64_t k = full; k < plan_.depth(); k += across) {
    const Value at[] = {to_row, lb_->Int(k)};
    const bool is_copied = k < depth && !job_.before_left;
    if (!is_copied) lb_->Store(left_block_, lb_->Splat(plan_.factor, 0, across), at);
    if (is_copied) copy(lb_->Int(k), across, lb_->Int(depth - k));
  }
  lb_->For(full / across, false, [&](Value i) { copy(Times(i, across), across, {}); });
  if (!job_.before_left) return;  // what is computed for dead lanes may be anything
  lb_->For(depth - full, false, [&](Value i) { copy(Plus(i, full), 0, {}); });
}

Value MatmulTiles::AsFactors(Value v) {
  return TensorOf(v).element() == plan_.factor ? v : lb_->Narrow({&v, 1});
}

void MatmulTiles::SumRow(Value row) {
  const Value zeros[] = {lb_->Splat(plan_.sum, 0, lanes())};
  const int64_t vectors = CeilDiv(plan_.depth(), lanes());
  const auto sums = lb_->For(Dim(vectors), zeros, [&](Value i, std::span<const Value> carried) {
    const Value at[] = {row, Times(i, lanes())};
    const Value v = lb_->As(lb_->Load(left_block_, at, lanes()), plan_.sum);
    return std::vector<Value>{nn::AddOp::Create(lb_->b(), carried[0], v).c()};
  });
  const Value at[] = {lb_->Int(0), row};
  lb_->Store(row_sums_, lb_->Reduce("add", sums[0]), at);
}

void MatmulTiles::WritePanel(Value panel, bool rest) {
  const int64_t columns = rest ? job_.form.columns.value() % plan_.width() : plan_.width();
  const int64_t tiles = CeilDiv(columns, kColumns);
  if (job_.form.left.zero_point) SetColumnOffsets(panel, tiles, columns);
  const Value all = lb_->Index(CeilDiv(LoopBuilder::D0(), plan_.rows), rows_);
  const Value full = lb_->Index(FloorDiv(LoopBuilder::D0(), plan_.row_tiles), all);
  lb_->For(full, false, [&](Value i) {
    WriteBlock(Times(i, plan_.row_tiles), plan_.row_tiles, panel, tiles, columns);
  });
  if (plan_.row_tiles == 1) return;
  const Value left = lb_->Index(Mod(LoopBuilder::D0(), plan_.row_tiles), all);
  lb_->For(left, false, [&](Value i) {
    WriteBlock(Sum(Times(full, plan_.row_tiles), i), 1, panel, tiles, columns);
  });
}

void MatmulTiles::WriteBlock(Value first_tile, int64_t row_tiles, Value panel, int64_t column_tiles,
                             int64_t columns) {
  const Value first_row = Times(first_tile, plan_.rows);
  const Value from = CopiesAhead() ? Sum(first_row_, first_row) : first_row;
  Multiply(left_block_, from, row_tiles, panel, column_tiles, false);
  lb_->For(Minus(rows_, first_row, row_tiles * plan_.rows), false,
           [&](Value row) { FinishRow(row, first_row, panel, columns); });
}

// Plain loops, which become tiles. `same_depth`: each tile of depth reads the left one's first.
void MatmulTiles::Multiply(Value left, Value first_row, int64_t row_tiles, Value panel,
                           int64_t column_tiles, bool same_depth) {
  Operation* columns = nullptr;
  Operation* rows = Loop(row_tiles * plan_.rows, [&](Value i) {
    columns = Loop(column_tiles * kColumns, [&](Value j) {
      const Value at[] = {i, j};
      lb_->Store(sums_, SumOfDepth(left, Sum(first_row, i), panel, j, same_depth), at);
    });
  });
  if (column_tiles > 1) columns = schedule::Split(columns, kColumns).outer;
  if (row_tiles > 1) rows = schedule::Split(rows, plan_.rows).outer;
  schedule::Tensorize(rows != nullptr ? rows : columns);
}

Value MatmulTiles::SumOfDepth(Value left, Value row, Value panel, Value column, bool same_depth) {
  const Value zero[] = {lb_->Splat(plan_.sum, 0)};
  return lb_->For(Dim(plan_.depth_tiles), zero, [&](Value tile, std::span<const Value> carried) {
    return std::vector<Value>{SumOfTile(left, row, panel, tile, column, same_depth, carried[0])};
  })[0];
}

// What a tile unit does (see loop.tile_mma).
Value MatmulTiles::SumOfTile(Value left, Value row, Value panel, Value tile, Value column,
                             bool same_depth, Value start) {
  const Value first = same_depth ? lb_->Int(0) : Times(tile, plan_.tile_depth());
  const auto factors = [&](Value k, int64_t place) {
    const Value left_at[] = {row, Plus(Sum(first, Times(k, plan_.group)), place)};
    const Value right_at[] = {panel, tile, k, column, lb_->Int(place)};
    return std::pair{lb_->As(lb_->Load(left, left_at), plan_.sum),
                     lb_->As(lb_->Load(right_, right_at), plan_.sum)};
  };
  const Dim depth(plan_.depth_groups);
  Builder& b = lb_->b();
  if (!IsFloat(plan_.sum)) {
    const Value starts[] = {start};
    return lb_->For(depth, starts, [&](Value k, std::span<const Value> carried) {
      Value sum = carried[0];
      for (int64_t place = 0; place < plan_.group; ++place) {
        const auto [x, y] = factors(k, place);
        sum = nn::AddOp::Create(b, sum, nn::MulOp::Create(b, x, y).c()).c();
      }
      return std::vector<Value>{sum};
    })[0];
  }
  const Value zero = lb_->Splat(plan_.sum, 0);
  const Value starts[] = {zero, zero};
  const auto sums = lb_->For(depth, starts, [&](Value k, std::span<const Value> carried) {
    std::vector<Value> next;
    for (int64_t place = 0; place < plan_.group; ++place) {
      const auto [x, y] = factors(k, place);
      next.push_back(loop::FmaOp::Create(b, x, y, carried[static_cast<size_t>(place)]).y());
    }
    return next;
  });
  return nn::AddOp::Create(b, start, nn::AddOp::Create(b, sums[0], sums[1]).c()).c();
}

// ---- what follows ----

// Of each column what is the same in all rows: its sum, by multiplying it by ones.
void MatmulTiles::SetColumnOffsets(Value panel, int64_t column_tiles, int64_t columns) {
  Builder& b = lb_->b();
  Multiply(ones_, lb_->Int(0), 1, panel, column_tiles, true);
  const MatrixOperand &left = job_.form.left, &right = job_.form.right;
  const Value s = ZeroPoint(left, {}, {});
  for (int64_t v = 0; v < columns; v += lanes()) {
    const Value live = v + lanes() > columns ? lb_->Int(columns - v) : Value();
    const Value at[] = {lb_->Int(0), lb_->Int(v)};
    Value sum = lb_->Load(sums_, at, lanes());
    if (right.zero_point) {
      const Value t = ZeroPoint(right, Plus(Times(panel, plan_.width()), v), live);
      const Value depth = lb_->Splat(plan_.sum, static_cast<double>(job_.form.depth.value()));
      sum = nn::SubOp::Create(b, sum, nn::MulOp::Create(b, depth, t).c()).c();
    }
    lb_->Store(column_offset_, nn::MulOp::Create(b, s, sum).c(), at);
  }
}

// One for all is a scalar, else a vector from that column on.
Value MatmulTiles::ZeroPoint(const MatrixOperand& m, Value column, Value live) {
  const Value zero_point = l_.body->argument(m.zero_point.index());
  std::vector<Value> at(TensorOf(zero_point).rank(), lb_->Int(0));
  if (!m.one_zero_point) at.back() = column;
  const Value v =
      m.one_zero_point ? lb_->Load(zero_point, at) : lb_->Load(zero_point, at, lanes(), live);
  return lb_->As(v, plan_.sum);
}

void MatmulTiles::FinishRow(Value row, Value first_row, Value panel, int64_t columns) {
  const Value block_row = Sum(first_row, row);
  for (int64_t v = 0; v < columns; v += lanes()) {
    const Value live = v + lanes() > columns ? lb_->Int(columns - v) : Value();
    const Value column = Plus(Times(panel, plan_.width()), v);
    const Value from[] = {row, lb_->Int(v)};
    const Value sum = LessZeroPoints(lb_->Load(sums_, from, lanes()), block_row, column, v, live);
    const std::vector<Value> at =
        MatmulJob::At(*lb_, job_.form.result_roles, Sum(first_row_, block_row), {}, column, {});
    job_.after->Store(*lb_, at, lanes(), live, lb_->As(sum, job_.product_element()));
  }
}

Value MatmulTiles::LessZeroPoints(Value sum, Value block_row, Value column, int64_t lane,
                                  Value live) {
  Builder& b = lb_->b();
  if (column_offset_) {
    const Value at[] = {lb_->Int(0), lb_->Int(lane)};
    sum = nn::SubOp::Create(b, sum, lb_->Load(column_offset_, at, lanes())).c();
  }
  if (row_sums_) {
    const Value at[] = {lb_->Int(0), block_row};
    const Value t = ZeroPoint(job_.form.right, column, live);
    sum = nn::SubOp::Create(b, sum, nn::MulOp::Create(b, lb_->Load(row_sums_, at), t).c()).c();
  }
  return sum;
}

}  // namespace

bool LowerMatmulTiles(Lowering& l) { return WriteUnlessRefused<MatmulTiles>(l); }

}  // namespace lathe::lower
