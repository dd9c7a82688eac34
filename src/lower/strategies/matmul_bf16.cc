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

// A product of f32 that become bf16, by a weight, and the elementwise operations after it, on a
// processor that multiplies pairs of these (loop.dot_pairs) and has no tiles. The weight was
// rounded and packed into panels as wide as a tile of registers, pairs of the depth side by side
// and zeros behind its end, when the program was compiled. A block of rows of the left matrix is
// copied once.
namespace lathe::lower {
namespace {

constexpr int64_t kPair = 2;
constexpr int64_t kBlockRows = 96;
constexpr int64_t kItemWork = 1 << 20;          // multiply-adds that are worth a thread
constexpr int64_t kMostBlockBytes = 768 << 10;  // of a copy of rows
constexpr ElementType kSum = ElementType::kF32, kFactor = ElementType::kBF16;

class MatmulBf16 : ProductWriter {
 public:
  explicit MatmulBf16(Lowering& lowering) : ProductWriter(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string TypeRefusal() const;
  std::string PlaceRefusal() const;
  void Plan();
  void PackRight();
  void WriteItem(Value number);
  void WritePanel(Value panel, bool rest);
  void CopyLeft();
  void CopyRow(Value row);
  void Finish(Value row, Value panel, int64_t vector, int64_t columns, Value sum);

  int64_t lanes() const { return l_.machine.lanes(kSum); }
  int64_t width() const { return tile_.vectors * lanes(); }
  int64_t depth() const { return pairs_ * kPair; }

  Tile tile_{1, 1};
  int64_t pairs_ = 1, panels_ = 1;
  int64_t block_rows_ = 1, group_panels_ = 1;  // of an item of work

  // While writing.
  Value left_, right_, left_block_;
  Value first_row_, rows_;  // of the item
};

std::string MatmulBf16::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (std::string why = TypeRefusal(); !why.empty()) return why;
  if (std::string why = PlaceRefusal(); !why.empty()) return why;
  Plan();
  const bool fits = block_rows_ * depth() * 2 <= kMostBlockBytes;
  return fits ? "" : "a copy of the rows does not fit into the cache";
}

std::string MatmulBf16::TypeRefusal() const {
  if (!l_.machine.has_bf16) return "the target has no products of pairs of bf16";
  if (l_.machine.has_tiles) return "processors with tiles are slow at pairs";
  if (l_.precision < Precision::kBf16) return StrCat("the precision is ", Name(l_.precision));
  for (const MatrixOperand* m : {&job_.form.left, &job_.form.right}) {
    if (m->element != kSum) return StrCat("elements are ", Name(m->element));
  }
  return "";
}

std::string MatmulBf16::PlaceRefusal() const {
  const ProductForm& f = job_.form;
  if (!job_.CanPackRight()) return "the right matrix is not a weight";
  if (!f.batch.empty() || f.right.dims.size() != 2) return "the matrices are stacks";
  if (!f.left.EndsWith(kDepth)) return "the rows of the left matrix do not lie in one piece";
  const bool has_elements =
      !f.depth.IsConstant(0) && !f.columns.IsConstant(0) && !f.rows.IsConstant(0);
  return has_elements ? "" : "there is nothing to multiply";
}

void MatmulBf16::Plan() {
  const ProductForm& f = job_.form;
  pairs_ = CeilDiv(f.depth.value(), kPair);
  tile_ = PickTile(f.rows, f.columns, lanes(), l_.machine.vector_registers, kFewRows);
  tile_.rows = l_.knobs.Choose("rows", tile_.rows, std::vector<int64_t>{1, 4, 6, 8, 12});
  tile_.vectors = l_.knobs.Choose("vectors", tile_.vectors, std::vector<int64_t>{1, 2, 4});
  panels_ = CeilDiv(f.columns.value(), width());
  const int64_t rows = f.rows.is_constant() ? f.rows.value() : kBlockRows;
  const int64_t most = std::max<int64_t>(kMostBlockBytes / 2 / depth() / tile_.rows, 1);
  const int64_t tiles = CeilDiv(std::min(rows, kBlockRows), tile_.rows);
  block_rows_ = std::min(most, tiles) * tile_.rows;
  const int64_t panel_bytes = width() * depth() * 2;
  const int64_t fitting = std::max<int64_t>(l_.machine.l2_bytes / 2 / panel_bytes, 1);
  const int64_t worth = CeilDiv(kItemWork, std::min(rows, block_rows_) * width() * depth());
  group_panels_ = std::min({fitting, worth, panels_});
}

// ---- writing ----

void MatmulBf16::Write() {
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

// [panels, pairs of the depth, columns of a panel, a pair]
void MatmulBf16::PackRight() {
  PackedLayout layout;
  layout.argument = job_.anchor->operand(job_.form.right.operand).index();
  layout.element = kFactor;
  layout.padded = {depth(), panels_ * width()};
  layout.split = {pairs_, kPair, panels_, width()};
  layout.order = {2, 0, 3, 1};
  if (job_.form.right.EndsWith(kDepth)) {
    std::ranges::reverse(layout.padded);
    layout.split = {panels_, width(), pairs_, kPair};
    layout.order = {0, 2, 1, 3};
  }
  l_.Pack(std::move(layout));
}

// Items that follow each other read the same panels.
void MatmulBf16::WriteItem(Value number) {
  const Value both[] = {number, lb_->Extent(CeilDiv(job_.form.rows, block_rows_))};
  const Value block = lb_->Index(Mod(LoopBuilder::D0(), LoopBuilder::D1()), both);
  const Value group = lb_->Index(FloorDiv(LoopBuilder::D0(), LoopBuilder::D1()), both);
  first_row_ = Times(block, block_rows_);
  rows_ = lb_->Extent(job_.form.rows);
  const bool one_block = job_.form.rows.is_constant() && job_.form.rows.value() <= block_rows_;
  if (!one_block) rows_ = Minus(rows_, first_row_, block_rows_);
  CopyLeft();
  const Value first_panel = Times(group, group_panels_);
  const int64_t full = job_.form.columns.value() / width();
  const Value count = Minus(lb_->Int(full), first_panel, group_panels_);
  lb_->ForValue(count, [&](Value i) { WritePanel(Sum(first_panel, i), false); });
  if (full == panels_) return;
  const Dim is_last = FloorDiv(LoopBuilder::D0() + 1, CeilDiv(panels_, group_panels_));
  lb_->ForValue(lb_->Index(is_last, group), [&](Value) { WritePanel(lb_->Int(full), true); });
}

void MatmulBf16::WritePanel(Value panel, bool rest) {
  const int64_t columns = rest ? job_.form.columns.value() % width() : width();
  PanelProduct product(*lb_, l_.machine, kSum, {tile_.rows, CeilDiv(columns, lanes())});
  product.left = [&](Value row, Value k) {
    const Value at[] = {row, Times(k, kPair)};
    return lb_->Load(left_block_, at, kPair);
  };
  product.right = [&](Value k, int64_t v) {
    const Value at[] = {panel, k, lb_->Int(v * lanes() * kPair)};
    return lb_->Load(right_, at, lanes() * kPair);
  };
  product.finish = [&](Value row, int64_t v, Value sum) { Finish(row, panel, v, columns, sum); };
  product.long_finish = job_.after->IsLong();
  product.Write(rows_, lb_->Int(pairs_));
}

void MatmulBf16::Finish(Value row, Value panel, int64_t vector, int64_t columns, Value sum) {
  const int64_t first = vector * lanes();
  const Value live = first + lanes() > columns ? lb_->Int(columns - first) : Value();
  const Value column = Plus(Times(panel, width()), first);
  const std::vector<Value> at =
      MatmulJob::At(*lb_, job_.form.result_roles, Sum(first_row_, row), {}, column, {});
  job_.after->Store(*lb_, at, lanes(), live, sum);
}

// Rows an odd number of cache lines apart lie in different sets of the cache; behind each there is
// room for a vector.
void MatmulBf16::CopyLeft() {
  constexpr int64_t kLine = 32;
  const int64_t lines = CeilDiv(depth() + lanes(), kLine) | 1;
  left_block_ = lb_->Alloc(
      VTensorType::Get(lb_->context(), SymShape({Dim(block_rows_), Dim(lines * kLine)}), kFactor));
  lb_->ForValue(rows_, [&](Value row) { CopyRow(row); });
}

// An element behind the depth is a zero: a weight of zero is multiplied by it.
void MatmulBf16::CopyRow(Value row) {
  const int64_t full = job_.form.depth.value() / lanes() * lanes();
  const auto copy = [&](Value k, int64_t across, Value live) {
    const std::vector<Value> from =
        MatmulJob::At(*lb_, job_.form.left.roles, Sum(first_row_, row), k, {}, {});
    const Value to[] = {row, k};
    const Value v = job_.Load(*lb_, job_.form.left, left_, from, across, live);
    lb_->Store(left_block_, lb_->Narrow({&v, 1}), to);
  };
  lb_->For(full / lanes(), false, [&](Value i) { copy(Times(i, lanes()), lanes(), {}); });
  const int64_t rest = job_.form.depth.value() - full;
  if (rest == 0) return;
  if (!job_.before_left) return copy(lb_->Int(full), lanes(), lb_->Int(rest));
  const Value end[] = {row, lb_->Int(full)};  // what is computed for dead lanes may be anything
  lb_->Store(left_block_, lb_->Splat(kFactor, 0, lanes()), end);
  lb_->For(rest, false, [&](Value i) { copy(Plus(i, full), 0, {}); });
}

}  // namespace

bool LowerMatmulBf16(Lowering& l) { return WriteUnlessRefused<MatmulBf16>(l); }

}  // namespace lathe::lower
