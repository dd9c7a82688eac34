#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/matmul_job.h"
#include "src/lower/strategies/matmul_plan.h"
#include "src/lower/tiles.h"

// A product of unsigned bytes by a weight of signed ones and the elementwise operations after it.
// Four neighbors along the depth are multiplied and added up at once (loop.dot), or, without an
// instruction for them, two as 16-bit integers (loop.dot_pairs). The weight was packed into panels
// as wide as a tile of registers, with these side by side and zeros behind its depth, when the
// program was compiled. The rows of the left matrix are read where they lie unless they are
// computed, become wider, or end within a group: then a block of them is copied.
namespace lathe::lower {
namespace {

constexpr int64_t kBlockRows = 96;
constexpr int64_t kItemWork = 1 << 20;          // multiply-adds that are worth a thread
constexpr int64_t kMostBlockBytes = 512 << 10;  // of a copy of rows
constexpr ElementType kSum = ElementType::kI32;

class MatmulBytes : ProductWriter {
 public:
  explicit MatmulBytes(Lowering& lowering) : ProductWriter(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string FormRefusal() const;
  bool Plan();
  void PackRight();
  void WriteItem(Value number);
  void WritePanel(Value panel, bool rest);
  void CopyLeft();
  void CopyRow(Value row);
  Value Left(Value row, Value k);
  void Finish(Value row, Value panel, int64_t vector, int64_t columns);

  int64_t lanes() const { return l_.machine.lanes(kSum); }
  int64_t group() const { return l_.machine.byte_group(); }
  /// Of what is multiplied.
  ElementType element(ElementType bytes) const { return group() == 2 ? ElementType::kI16 : bytes; }
  int64_t width() const { return tile_.vectors * lanes(); }
  int64_t depth() const { return groups_of_depth_ * group(); }

  Tile tile_{1, 1};
  int64_t groups_of_depth_ = 1, panels_ = 1;
  int64_t block_rows_ = 1, group_panels_ = 1;  // of an item of work
  bool copies_ = false;                        // the rows of the left matrix

  // While writing.
  Value left_, right_, left_block_;
  Value sums_;              // of the rows of an item, of a panel
  Value first_row_, rows_;  // of the item
};

std::string MatmulBytes::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (std::string why = FormRefusal(); !why.empty()) return why;
  return Plan() ? "" : "a copy of the rows does not fit into the cache";
}

std::string MatmulBytes::FormRefusal() const {
  const ProductForm& f = job_.form;
  if (f.left.element != ElementType::kU8 || f.right.element != ElementType::kI8 ||
      !job_.anchor->isa<nn::MatmulIntegerOp>()) {
    return "these are not unsigned bytes by signed ones";
  }
  if (f.left.zero_point || f.right.zero_point) return "zero points are subtracted";
  if (!job_.CanPackRight()) return "the right matrix is not a weight";
  if (!f.batch.empty() || f.right.dims.size() != 2) return "the matrices are stacks";
  if (!f.left.EndsWith(kDepth)) return "the rows of the left matrix do not lie in one piece";
  const bool has_elements =
      !f.depth.IsConstant(0) && !f.columns.IsConstant(0) && !f.rows.IsConstant(0);
  return has_elements ? "" : "there is nothing to multiply";
}

// False: what has to be copied does not fit.
bool MatmulBytes::Plan() {
  const ProductForm& f = job_.form;
  groups_of_depth_ = CeilDiv(f.depth.value(), group());
  tile_ = PickTile(f.rows, f.columns, lanes(), l_.machine.vector_registers, kFewRows);
  tile_.rows = l_.knobs.Choose("rows", tile_.rows, std::vector<int64_t>{1, 4, 6, 8, 12});
  tile_.vectors = l_.knobs.Choose("vectors", tile_.vectors, std::vector<int64_t>{1, 2, 4});
  panels_ = CeilDiv(f.columns.value(), width());
  const int64_t rows = f.rows.is_constant() ? f.rows.value() : kBlockRows;
  block_rows_ = RoundUp(std::min(rows, kBlockRows), tile_.rows);
  const bool has_to = job_.before_left.has_value() || f.depth.value() % group() != 0;
  const int64_t row_bytes = depth() * BitWidth(element(ElementType::kU8)) / 8;
  const int64_t most_bytes = has_to ? kMostBlockBytes : l_.machine.l2_bytes / 2;
  const int64_t fitting_rows = most_bytes / row_bytes / tile_.rows * tile_.rows;
  if (has_to && fitting_rows == 0) return false;
  copies_ = has_to || (group() == 2 && fitting_rows > 0);
  if (copies_) block_rows_ = std::min(block_rows_, fitting_rows);
  const int64_t panel_bytes = width() * depth();
  const int64_t fitting = std::max<int64_t>(l_.machine.l2_bytes / 2 / panel_bytes, 1);
  const int64_t worth = CeilDiv(kItemWork, std::min(rows, block_rows_) * panel_bytes);
  group_panels_ = std::min({fitting, worth, panels_});
  return true;
}

// ---- writing ----

void MatmulBytes::Write() {
  PackRight();
  lb_.emplace(l_.body);
  job_.after->Open(*lb_, *l_.body);
  left_ = job_.Open(*lb_, *l_.body, job_.form.left);
  right_ = l_.body->argument(job_.anchor->operand(job_.form.right.operand).index());
  right_ = lb_->Grouped(right_, std::vector<int64_t>{1, 1, 2});
  const Dim blocks = CeilDiv(job_.form.rows, block_rows_);
  lb_->For(lb_->Extent(blocks * CeilDiv(panels_, group_panels_)), true,
           [&](Value number) { WriteItem(number); });
  job_.after->Close(*lb_);
}

// [panels, groups of depth, columns of a panel, bytes of a group]
void MatmulBytes::PackRight() {
  PackedLayout layout;
  layout.argument = job_.anchor->operand(job_.form.right.operand).index();
  layout.padded = {depth(), panels_ * width()};
  layout.split = {groups_of_depth_, group(), panels_, width()};
  layout.order = {2, 0, 3, 1};
  if (job_.form.right.EndsWith(kDepth)) {
    std::ranges::reverse(layout.padded);
    layout.split = {panels_, width(), groups_of_depth_, group()};
    layout.order = {0, 2, 1, 3};
  }
  l_.Pack(std::move(layout));
}

// Items that follow each other read the same panels.
void MatmulBytes::WriteItem(Value number) {
  const Value both[] = {number, lb_->Extent(CeilDiv(job_.form.rows, block_rows_))};
  const Value block = lb_->Index(Mod(LoopBuilder::D0(), LoopBuilder::D1()), both);
  const Value group = lb_->Index(FloorDiv(LoopBuilder::D0(), LoopBuilder::D1()), both);
  first_row_ = Times(block, block_rows_);
  rows_ = lb_->Extent(job_.form.rows);
  const bool one_block = job_.form.rows.is_constant() && job_.form.rows.value() <= block_rows_;
  if (!one_block) rows_ = Minus(rows_, first_row_, block_rows_);
  sums_ = lb_->Alloc(
      VTensorType::Get(lb_->context(), SymShape({Dim(block_rows_), Dim(width())}), kSum));
  if (copies_) CopyLeft();
  const Value first_panel = Times(group, group_panels_);
  const int64_t full = job_.form.columns.value() / width();
  const Value count = Minus(lb_->Int(full), first_panel, group_panels_);
  lb_->For(count, false, [&](Value i) { WritePanel(Sum(first_panel, i), false); });
  if (full == panels_) return;
  const Dim is_last = FloorDiv(LoopBuilder::D0() + 1, CeilDiv(panels_, group_panels_));
  lb_->For(lb_->Index(is_last, group), false, [&](Value) { WritePanel(lb_->Int(full), true); });
}

void MatmulBytes::WritePanel(Value panel, bool rest) {
  const int64_t columns = rest ? job_.form.columns.value() % width() : width();
  const Tile tile{tile_.rows, CeilDiv(columns, lanes())};
  PanelProduct product(*lb_, l_.machine, kSum, tile);
  product.left = [&](Value row, Value k) { return Left(row, k); };
  product.right = [&](Value k, int64_t v) {
    const Value at[] = {panel, k, lb_->Int(v * lanes() * group())};
    return lb_->As(lb_->Load(right_, at, lanes() * group()), element(ElementType::kI8));
  };
  product.finish = [&](Value row, int64_t v, Value sum) {
    const Value at[] = {row, lb_->Int(v * lanes())};
    lb_->Store(sums_, sum, at);
  };
  product.Write(rows_, lb_->Int(groups_of_depth_));
  lb_->For(rows_, false, [&](Value row) {
    for (int64_t v = 0; v < tile.vectors; ++v) Finish(row, panel, v, columns);
  });
}

// A group of a row.
Value MatmulBytes::Left(Value row, Value k) {
  const Value deep = Times(k, group());
  if (copies_) {
    const Value at[] = {row, deep};
    return lb_->Load(left_block_, at, group());
  }
  const std::vector<Value> at =
      MatmulJob::At(*lb_, job_.form.left.roles, Sum(first_row_, row), deep, {}, {});
  return lb_->As(job_.Load(*lb_, job_.form.left, left_, at, group(), {}),
                 element(ElementType::kU8));
}

// Sums come from memory, so that the epilogue is written once, not for each sum of a tile: it is
// long where numbers become bytes again.
void MatmulBytes::Finish(Value row, Value panel, int64_t vector, int64_t columns) {
  const int64_t first = vector * lanes();
  const Value live = first + lanes() > columns ? lb_->Int(columns - first) : Value();
  const Value column = Plus(Times(panel, width()), first);
  const std::vector<Value> at =
      MatmulJob::At(*lb_, job_.form.result_roles, Sum(first_row_, row), {}, column, {});
  const Value from[] = {row, lb_->Int(first)};
  job_.after->Store(*lb_, at, lanes(), live, lb_->Load(sums_, from, lanes()));
}

// Rows an odd number of cache lines apart lie in different sets of the cache. What is behind the
// depth is multiplied by zeros.
void MatmulBytes::CopyLeft() {
  constexpr int64_t kLine = 64;
  const ElementType type = element(ElementType::kU8);
  const int64_t bytes = BitWidth(type) / 8;
  const int64_t lines = CeilDiv(depth() * bytes + l_.machine.vector_bytes * bytes, kLine) | 1;
  left_block_ = lb_->Alloc(VTensorType::Get(
      lb_->context(), SymShape({Dim(block_rows_), Dim(lines * kLine / bytes)}), type));
  lb_->For(rows_, false, [&](Value row) { CopyRow(row); });
}

void MatmulBytes::CopyRow(Value row) {
  const int64_t across = l_.machine.lanes(job_.before_left ? kSum : ElementType::kU8);
  const int64_t full = job_.form.depth.value() / across, rest = job_.form.depth.value() % across;
  const auto copy = [&](Value k, Value live) {
    const std::vector<Value> from =
        MatmulJob::At(*lb_, job_.form.left.roles, Sum(first_row_, row), k, {}, {});
    const Value to[] = {row, k};
    const Value bytes = job_.Load(*lb_, job_.form.left, left_, from, across, live);
    lb_->Store(left_block_, lb_->As(bytes, element(ElementType::kU8)), to);
  };
  lb_->For(full, false, [&](Value i) { copy(Times(i, across), {}); });
  if (rest > 0) copy(lb_->Int(full * across), lb_->Int(rest));
}

}  // namespace

bool LowerMatmulBytes(Lowering& l) { return WriteUnlessRefused<MatmulBytes>(l); }

}  // namespace lathe::lower
