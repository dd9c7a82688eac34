#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "lathe/dialect/loop.h"
#include "lathe/dialect/loop/tile.h"
#include "lathe/dialect/loop/vector.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/matmul_job.h"

// A product of f32 by a weight on a processor whose tile registers multiply bf16, and the
// elementwise operations after it. A number of f32 is the sum of three of bf16, its parts, which
// have eight of its bits each. Of the nine products of two numbers' parts the six largest are added
// up, the smallest ones first; what is left out is below the rounding of f32 [Henry, Tang,
// Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations, 2019]. At level `high` there are two parts, the second one rounded, of whose four
// products three are added up.
//
// An item of work is a block of rows by a group of panels of the weight, which lies as `matmul` has
// it. A block of the depth of both is taken apart where a core needs it, into memory that stays in
// its cache: so weights are as large as before, and one that few rows are multiplied by serves
// `matmul` as it is.
//
// Infinities have no parts that add up to them, sums of finite numbers may leave the range on the
// way, and tiles take numbers below the smallest normal one as zero. So a row whose sums are not
// all finite, or all small, is computed again in f32.
namespace lathe::lower {
namespace {

constexpr int64_t kPair = 2;  // of the depth, side by side in a tile
constexpr int64_t kTileDepth = loop::kTileRows * kPair;
constexpr int64_t kColumns = loop::kTileRowBytes / 4;  // of a tile of sums
constexpr int64_t kTiles = 2;                          // of columns, in a panel
constexpr int64_t kWidth = kTiles * kColumns;
constexpr int64_t kBlockDepth = 8 * kTileDepth;  // whose parts of a panel L1 holds
constexpr int64_t kMostRows = 256;               // of a block
constexpr int64_t kGroupPanels = 8;
// What it is worth for: three parts take longer, so two forms of the code, for many rows and for
// few, are not worth compiling for what they gain.
constexpr int64_t kFewestRowsOfThree = 96, kFewestRowsOfTwo = 64;
constexpr int64_t kFewestColumns = 64, kFewestDepth = 256;
constexpr double kSmall = 0x1p-55;  // sums of which what is lost below 2^-126 may be a part
constexpr ElementType kSum = ElementType::kF32, kFactor = ElementType::kBF16;

class MatmulBf16x3 : ProductWriter {
 public:
  explicit MatmulBf16x3(Lowering& lowering) : ProductWriter(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string TypeRefusal() const;
  std::string PlaceRefusal() const;
  std::string SizeRefusal();

  void WriteItem(Value number);
  void ClearSums();
  void AddBlock(Value block);
  void SplitLeft(Value row, Value first_k, Value tiles);
  void SplitRight(Value panel, Value first_k, Value tiles);
  void StoreParts(Value memory, std::span<const Value> rows, const std::vector<Value>& at);
  Value UpperHalf(Value v);
  void Multiply(Value first_tile, int64_t row_tiles, Value column, Value tiles);
  std::vector<Value> AddTile(Value first_row, int64_t row_tiles, Value depth_tile,
                             std::span<const Value> sums);
  void FinishRow(Value row);
  Value MustRepeat(Value row);
  void Repeat(Value row);
  Value Scratch(std::vector<Dim> dims, ElementType element) {
    return lb_->Alloc(VTensorType::Get(lb_->context(), SymShape(std::move(dims)), element));
  }

  int64_t depth() const { return job_.form.depth.value(); }
  int64_t columns() const { return job_.form.columns.value(); }
  int64_t lanes() const { return l_.machine.lanes(kSum); }
  int64_t panels() const { return CeilDiv(columns(), kWidth); }
  bool has_partial_tile() const { return depth() % kTileDepth != 0; }

  int64_t parts_ = 3;
  int64_t block_rows_ = kMostRows, group_panels_ = kGroupPanels;

  // While writing.
  Value left_, right_;
  Value left_parts_, right_parts_;  // of a block of depth
  Value sums_;                      // of the item
  Value first_row_, rows_, first_panel_, item_panels_;
};

// ---- whether ----

std::string MatmulBf16x3::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (!l_.machine.has_tiles) return "the target has no tile registers";
  if (std::string why = TypeRefusal(); !why.empty()) return why;
  if (std::string why = PlaceRefusal(); !why.empty()) return why;
  return SizeRefusal();
}

std::string MatmulBf16x3::TypeRefusal() const {
  if (l_.precision == Precision::kStrict) return "the precision is strict";
  for (const MatrixOperand* m : {&job_.form.left, &job_.form.right}) {
    if (m->element != kSum) return StrCat("elements are ", Name(m->element));
    if (m->zero_point) return "there are zero points";
  }
  return "";
}

std::string MatmulBf16x3::PlaceRefusal() const {
  const ProductForm& f = job_.form;
  if (!job_.CanPackRight()) return "the right matrix is not a weight";
  if (!f.batch.empty() || f.right.dims.size() != 2) return "the matrices are stacks";
  return f.left.EndsWith(kDepth) ? "" : "the rows of the left matrix do not lie in one piece";
}

std::string MatmulBf16x3::SizeRefusal() {
  if (depth() < kFewestDepth) return StrCat("the depth is below ", kFewestDepth);
  if (columns() < kFewestColumns) {
    return StrCat("there are fewer than ", kFewestColumns, " columns");
  }
  const bool has_two_parts = l_.precision >= Precision::kHigh;
  if (has_two_parts) parts_ = 2;
  const Dim& rows = job_.form.rows;
  if (!rows.is_constant() && !has_two_parts) return "the number of rows is not known";
  const int64_t fewest = has_two_parts ? kFewestRowsOfTwo : kFewestRowsOfThree;
  const Condition many = Condition::AtLeast(rows, Dim(fewest));
  const Truth has_many = many.Prove();
  if (has_many == Truth::kFalse) return StrCat("there are fewer than ", fewest, " rows");
  if (has_many != Truth::kTrue) l_.where = many;
  if (rows.is_constant()) {
    const int64_t blocks = CeilDiv(rows.value(), kMostRows);
    block_rows_ = RoundUp(CeilDiv(rows.value(), blocks), loop::kTileRows);
  }
  group_panels_ = std::min(kGroupPanels, panels());
  return "";
}

// ---- writing ----

void MatmulBf16x3::Write() {
  l_.Pack(job_.PanelsOfRight(kWidth));
  lb_.emplace(l_.body);
  job_.after->Open(*lb_, *l_.body);
  left_ = job_.Open(*lb_, *l_.body, job_.form.left);
  right_ = l_.body->argument(job_.anchor->operand(job_.form.right.operand).index());
  const Dim blocks = CeilDiv(job_.form.rows, block_rows_);
  lb_->For(lb_->Extent(blocks * CeilDiv(panels(), group_panels_)), true,
           [&](Value number) { WriteItem(number); });
  job_.after->Close(*lb_);
}

void MatmulBf16x3::WriteItem(Value number) {
  const int64_t groups = CeilDiv(panels(), group_panels_);
  first_row_ = Times(lb_->Index(FloorDiv(LoopBuilder::D0(), groups), number), block_rows_);
  rows_ = Minus(lb_->Extent(job_.form.rows), first_row_, block_rows_);
  first_panel_ = Times(lb_->Index(Mod(LoopBuilder::D0(), groups), number), group_panels_);
  item_panels_ = Minus(lb_->Int(panels()), first_panel_, group_panels_);
  // Rows an odd number of cache lines apart lie in different sets of the cache.
  left_parts_ = Scratch({Dim(parts_), Dim(block_rows_), Dim(kBlockDepth + kTileDepth)}, kFactor);
  right_parts_ =
      Scratch({Dim(parts_), Dim(kTiles), Dim(kBlockDepth / kPair), Dim(kTileDepth)}, kFactor);
  sums_ = Scratch({Dim(block_rows_), Dim(group_panels_ * kWidth + kColumns)}, kSum);
  ClearSums();
  lb_->For(CeilDiv(depth(), kBlockDepth), false, [&](Value block) { AddBlock(block); });
  lb_->For(rows_, false, [&](Value row) { FinishRow(row); });
}

void MatmulBf16x3::ClearSums() {
  lb_->For(rows_, false, [&](Value row) {
    lb_->For(lb_->Index(LoopBuilder::D0() * kTiles, item_panels_), false, [&](Value v) {
      const Value at[] = {row, Times(v, kColumns)};
      lb_->Store(sums_, lb_->Splat(kSum, 0, kColumns), at);
    });
  });
}

// The products of a block of the depth, which ends with zeros up to a full tile.
void MatmulBf16x3::AddBlock(Value block) {
  const Value first_k = Times(block, kBlockDepth);
  const Value tiles =
      lb_->Index(Min(LoopBuilder::D0() * (-kBlockDepth / kTileDepth) + CeilDiv(depth(), kTileDepth),
                     kBlockDepth / kTileDepth),
                 block);
  lb_->For(rows_, false, [&](Value row) { SplitLeft(row, first_k, tiles); });
  const Value row_tiles = lb_->Index(CeilDiv(LoopBuilder::D0(), loop::kTileRows), rows_);
  const Value full = lb_->Index(FloorDiv(LoopBuilder::D0(), kTiles), row_tiles);
  lb_->For(item_panels_, false, [&](Value panel) {
    SplitRight(Sum(first_panel_, panel), first_k, tiles);
    const Value column = Times(panel, kWidth);
    lb_->For(full, false, [&](Value i) { Multiply(Times(i, kTiles), kTiles, column, tiles); });
    lb_->For(lb_->Index(Mod(LoopBuilder::D0(), kTiles), row_tiles), false,
             [&](Value) { Multiply(Times(full, kTiles), 1, column, tiles); });
  });
}

// What is computed is so in usual vectors.
void MatmulBf16x3::SplitLeft(Value row, Value first_k, Value tiles) {
  const int64_t across = job_.before_left ? lanes() : kTileDepth;
  lb_->For(lb_->Index(LoopBuilder::D0() * (kTileDepth / across), tiles), false, [&](Value i) {
    const Value to = Times(i, across), k = Sum(first_k, to);
    const Dim left = Dim(depth()) - LoopBuilder::D0();
    const Value live = has_partial_tile() ? lb_->Index(Max(Min(left, across), 0), k) : Value();
    const std::vector<Value> from =
        MatmulJob::At(*lb_, job_.form.left.roles, Sum(first_row_, row), k, {}, {});
    Value v = job_.Load(*lb_, job_.form.left, left_, from, across, live);
    if (live && job_.before_left) v = OrZero(*lb_, v, live);
    StoreParts(left_parts_, {&v, 1}, {row, to});
  });
}

// The rows of a panel, two by two, their elements taking turns.
void MatmulBf16x3::SplitRight(Value panel, Value first_k, Value tiles) {
  lb_->For(lb_->Index(LoopBuilder::D0() * loop::kTileRows, tiles), false, [&](Value group) {
    for (int64_t tile = 0; tile < kTiles; ++tile) {
      std::vector<Value> rows;
      for (int64_t place = 0; place < kPair; ++place) {
        const Value k = Plus(Sum(first_k, Times(group, kPair)), place);
        const bool may_be_behind = has_partial_tile();
        const Value from[] = {
            panel, may_be_behind ? lb_->Index(Min(LoopBuilder::D0(), depth() - 1), k) : k,
            lb_->Int(tile * kColumns)};
        const Dim exists = Max(Min(Dim(depth()) - LoopBuilder::D0(), 1), 0);
        const Value live = may_be_behind ? lb_->Index(exists * kColumns, k) : Value();
        rows.push_back(lb_->Load(right_, from, kColumns, live));
      }
      StoreParts(right_parts_, rows, {lb_->Int(tile), group});
    }
  });
}

// `at`: where, behind the number of the part. Three parts are cut off, which leaves nothing; of two
// the last one is rounded.
void MatmulBf16x3::StoreParts(Value memory, std::span<const Value> rows,
                              const std::vector<Value>& at) {
  Builder& b = lb_->b();
  const bool cut = parts_ == 3;
  std::vector<Value> rest(rows.begin(), rows.end());
  for (int64_t part = 0; part < parts_; ++part) {
    std::vector<Value> to{lb_->Int(part)};
    to.insert(to.end(), at.begin(), at.end());
    if (to.size() < TensorOf(memory).rank()) to.push_back(lb_->Int(0));
    lb_->Store(memory, loop::NarrowOp::Create(b, rest, {.cut = cut}).y(), to);
    if (part + 1 == parts_) return;
    for (Value& v : rest) {
      v = nn::SubOp::Create(b, v, cut ? UpperHalf(v) : lb_->As(lb_->Narrow({&v, 1}), kSum)).c();
    }
  }
}

// With zeros for the lower 16 bits.
Value MatmulBf16x3::UpperHalf(Value v) {
  Builder& b = lb_->b();
  const Value bits = nn::BitCastOp::Create(b, v, {.to = ElementType::kU32}).output();
  const Value mask = lb_->Splat(ElementType::kU32, 0xffff0000, TensorOf(v).dims()[0].value());
  const Value upper = nn::BitwiseAndOp::Create(b, bits, mask).c();
  return nn::BitCastOp::Create(b, upper, {.to = kSum}).output();
}

// A block of tiles of sums, from what they are so far.
void MatmulBf16x3::Multiply(Value first_tile, int64_t row_tiles, Value column, Value tiles) {
  Builder& b = lb_->b();
  const Value first_row = Times(first_tile, loop::kTileRows);
  const auto at = [&](int64_t r, int64_t c) {
    return std::vector<Value>{Plus(first_row, r * loop::kTileRows), Plus(column, c * kColumns)};
  };
  std::vector<Value> starts;
  for (int64_t r = 0; r < row_tiles; ++r) {
    for (int64_t c = 0; c < kTiles; ++c) {
      starts.push_back(loop::TileLoadOp::Create(b, sums_, at(r, c),
                                                {.rows = loop::kTileRows, .columns = kColumns})
                           .tile());
    }
  }
  const std::vector<Value> sums =
      lb_->For(tiles, starts, [&](Value tile, std::span<const Value> carried) {
        return AddTile(first_row, row_tiles, tile, carried);
      });
  for (int64_t r = 0; r < row_tiles; ++r) {
    for (int64_t c = 0; c < kTiles; ++c) {
      const Value sum = sums[static_cast<size_t>(r * kTiles + c)];
      loop::TileStoreInplaceOp::Create(lb_->b(), sums_, sum, at(r, c), {});
    }
  }
}

// Part p of the left rows by parts q of the panel, for all p + q below the number of parts: the
// tiles of a part of the panel are held while those of the rows come and go.
std::vector<Value> MatmulBf16x3::AddTile(Value first_row, int64_t row_tiles, Value depth_tile,
                                         std::span<const Value> sums) {
  Builder& b = lb_->b();
  std::vector<Value> next(sums.begin(), sums.end());
  for (int64_t q = parts_; q-- > 0;) {
    std::vector<Value> right;
    for (int64_t c = 0; c < kTiles; ++c) {
      const Value at[] = {lb_->Int(q), lb_->Int(c), Times(depth_tile, loop::kTileRows),
                          lb_->Int(0)};
      right.push_back(
          loop::TileLoadOp::Create(b, right_parts_, at,
                                   {.rows = loop::kTileRows, .columns = kTileDepth, .axis = 2})
              .tile());
    }
    for (int64_t p = parts_ - q; p-- > 0;) {
      for (int64_t r = 0; r < row_tiles; ++r) {
        const Value at[] = {lb_->Int(p), Plus(first_row, r * loop::kTileRows),
                            Times(depth_tile, kTileDepth)};
        const Value left =
            loop::TileLoadOp::Create(b, left_parts_, at,
                                     {.rows = loop::kTileRows, .columns = kTileDepth, .axis = 1})
                .tile();
        for (int64_t c = 0; c < kTiles; ++c) {
          Value& sum = next[static_cast<size_t>(r * kTiles + c)];
          sum = loop::TileMmaOp::Create(b, left, right[static_cast<size_t>(c)], sum).y();
        }
      }
    }
  }
  return next;
}

// ---- epilogue ----

void MatmulBf16x3::FinishRow(Value row) {
  lb_->For(MustRepeat(row), false, [&](Value) { Repeat(row); });
  const Value first_column = Times(first_panel_, kWidth);
  const Value all = Minus(lb_->Int(columns()), first_column, group_panels_ * kWidth);
  lb_->For(lb_->Index(CeilDiv(LoopBuilder::D0(), lanes()), all), false, [&](Value v) {
    const Value from = Times(v, lanes()), both[] = {all, from};
    const bool is_full = columns() % lanes() == 0;
    const Dim left = Min(LoopBuilder::D0() - LoopBuilder::D1(), lanes());
    const Value sum_at[] = {row, from};
    const std::vector<Value> at = MatmulJob::At(*lb_, job_.form.result_roles, Sum(first_row_, row),
                                                {}, Sum(first_column, from), {});
    job_.after->Store(*lb_, at, lanes(), is_full ? Value() : lb_->Index(left, both),
                      lb_->As(lb_->Load(sums_, sum_at, lanes()), job_.product_element()));
  });
}

// 1 where the sums of a row are not finite, or all small and not zero; else 0.
Value MatmulBf16x3::MustRepeat(Value row) {
  Builder& b = lb_->b();
  const Value zeros = lb_->Splat(kSum, 0, lanes()), start[] = {zeros, zeros};
  const auto found =
      lb_->For(lb_->Index(LoopBuilder::D0() * (kWidth / lanes()), item_panels_), start,
               [&](Value i, std::span<const Value> carried) {
                 const Value at[] = {row, Times(i, lanes())};
                 const Value v = lb_->Load(sums_, at, lanes());
                 const Value both[] = {carried[1], nn::AbsOp::Create(b, v).y()};
                 return std::vector<Value>{MulAdd(*lb_, l_.machine, v, zeros, carried[0]),
                                           nn::MaxOp::Create(b, both).y()};
               });
  const auto less = [&](Value x, double bound) {
    return nn::LessOp::Create(b, x, lb_->Splat(kSum, bound)).c();
  };
  const auto choose = [&](Value condition, Value yes, Value no) {
    return nn::WhereOp::Create(b, condition, yes, no).output();
  };
  const Value no = lb_->Int(0), yes = lb_->Int(1);
  const Value largest = lb_->Reduce("max", found[1]);
  const Value is_zero = less(largest, 0x1p-149);
  const Value is_small = choose(less(largest, kSmall), choose(is_zero, no, yes), no);
  return choose(less(lb_->Reduce("add", found[0]), 1), is_small, yes);  // NaN is less than nothing
}

// A row of the item, in f32.
void MatmulBf16x3::Repeat(Value row) {
  lb_->For(item_panels_, false, [&](Value panel) {
    lb_->For(kWidth / lanes(), false, [&](Value v) {
      const Value start[] = {lb_->Splat(kSum, 0, lanes())};
      const Value column = Times(v, lanes());
      const Value sum =
          lb_->For(job_.form.depth, start, [&](Value k, std::span<const Value> carried) {
            const std::vector<Value> from =
                MatmulJob::At(*lb_, job_.form.left.roles, Sum(first_row_, row), k, {}, {});
            const Value x = job_.Load(*lb_, job_.form.left, left_, from, 0, {});
            const Value right_at[] = {Sum(first_panel_, panel), k, column};
            const Value w = lb_->Load(right_, right_at, lanes());
            return std::vector<Value>{
                MulAdd(*lb_, l_.machine, lb_->Widen(x, lanes()), w, carried[0])};
          })[0];
      const Value to[] = {row, Sum(Times(panel, kWidth), column)};
      lb_->Store(sums_, sum, to);
    });
  });
}

}  // namespace

bool LowerMatmulBf16x3(Lowering& l) { return WriteUnlessRefused<MatmulBf16x3>(l); }

}  // namespace lathe::lower
