#include "lathe/dialect/nn/matmul_nbits.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "lathe/dialect/loop.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/rounded_rows.h"
#include "src/lower/anchor.h"
#include "src/lower/fixed_rows.h"
#include "src/lower/index_math.h"
#include "src/lower/pointwise.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// A product by weights of 4 or 8 bits, scaled by blocks of the depth, and the elementwise
// operations after it. The bytes, scales and zero points were packed into panels of columns when
// the program was compiled: a vector of bytes has the same place of the depth in as many columns.
//
// Few rows: the weights come from memory once, and are unpacked in registers. Of a block the sum of
// x * q is scaled as a whole: scale * (sum(x * q) - zero * sum(x)), where the last sum is the same
// for all columns and made once. Many rows: a panel is unpacked into f32 that stay in cache, and
// multiplied as any other panel is.
//
// Where there is an instruction for products of bytes and the precision is not strict, few rows
// become whole numbers of three bytes by blocks, whose products with the integers are exact; by
// weights of 8 bits, any number of rows. What has no such form is multiplied as many rows are.
// Rows that the operation rounds are bytes, any number of them; without the instruction they are
// rounded first, and multiplied as others are.
namespace lathe::lower {
namespace {

using NbitsOp = nn::MatmulNbitsOp;

constexpr ElementType kF32 = ElementType::kF32, kI32 = ElementType::kI32;
constexpr int64_t kMostVectors = 4;     // of a panel
constexpr int64_t kRoundedVectors = 2;  // of one that bytes are multiplied by
constexpr int64_t kOtherRegisters = 8;  // than those of sums, where weights are unpacked
constexpr int64_t kItemWork = 1 << 20;  // multiply-adds that are worth a thread
constexpr int64_t kUnpackWork = 4;      // in how many of them a weight is unpacked
constexpr int64_t kAheadBytes = 4096;
constexpr int64_t kMostRows = 256;       // that a panel is multiplied by before the next one
constexpr int64_t kMostPiece = 512;      // of a block, that is unpacked by one scale
constexpr int64_t kMostDotBlock = 1024;  // whose sums i32 holds
constexpr int64_t kDotRows = 2;          // whose sums of three planes are held at once
constexpr int64_t kMostRoundedRows = 6;  // whose sums of one plane are
constexpr int64_t kDotItemRows = 32;     // whose planes stay in cache
constexpr int64_t kRoundedItemRows = 96;
constexpr int64_t kEver = int64_t{1} << 40;
constexpr int64_t kMostPanelBytes = 768 << 10;

class MatmulNbits {
 public:
  explicit MatmulNbits(Lowering& lowering) : l_(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string AnchorRefusal();
  std::string WeightRefusal() const;
  std::string AfterRefusal();
  void Plan();

  // ---- packing ----
  void PackAll();
  void PackOf(size_t operand, const Shape& behind);

  // ---- few rows ----
  void WriteFew(const Dim& is_taken);
  void SumBlocks(const Dim& is_taken);
  Value FirstSum(const Dim& row, const Dim& block);
  void WriteBlockOfBytes(const Dim& first_row, const Dim& panel);
  void WriteFewOf(const Dim& panel);
  void WriteRows(const Dim& first_row, int64_t rows, const Dim& panel);
  void WriteRowsOfBytes(const Dim& first_row, int64_t rows, const Dim& panel);
  std::vector<Value> DotsOfBlock(const Dim& first_row, int64_t rows, const Dim& panel,
                                 const Dim& block);
  std::vector<Value> ScaledWhole(const Dim& first_row, int64_t rows, const Dim& panel,
                                 const Dim& block, std::span<const Value> products,
                                 std::span<const Value> sums);
  std::vector<Value> Scaled(const Dim& first_row, int64_t rows, const Dim& panel, const Dim& block,
                            std::span<const Value> products, std::span<const Value> sums);
  void FinishRows(const Dim& first_row, int64_t rows, const Dim& panel,
                  std::span<const Value> sums);
  std::vector<Value> AddBlock(const Dim& first_row, int64_t rows, const Dim& panel,
                              const Dim& block, int64_t depth, std::span<const Value> sums);
  std::vector<Value> ProductsOfBlock(const Dim& first_row, int64_t rows, const Dim& panel,
                                     const Dim& block, int64_t depth);

  // ---- many rows ----
  void WriteMany(const Dim& is_taken);
  void WriteItem(const Dim& number);
  void UnpackChunk(const Dim& panel, const Dim& chunk);
  void UnpackPiece(const Dim& panel, const Dim& piece, const Dim& first_piece, int64_t depth);
  void Multiply(const Dim& first_row, Value rows, const Dim& chunk);
  void FinishItem(const Dim& first_row, Value rows, const Dim& panel);

  // ---- what is read and written ----
  struct Unpacked {
    std::vector<Value> low, high;  // of each vector; high: none, of 8 bits
  };
  Unpacked Weights(const Dim& panel, const Dim& block, const Dim& byte);
  std::vector<std::vector<Value>> BytesOfWord(const Dim& panel, const Dim& block, const Dim& word);
  std::vector<std::vector<Value>> WeightsOfWord(const Dim& panel, const Dim& block,
                                                const Dim& word);
  std::vector<Value> Zeros(const Dim& panel, const Dim& block);
  std::vector<Value> Scales(const Dim& panel, const Dim& block);
  std::vector<Value> ScalesAhead(const Dim& panel, const Dim& block);
  Value Left(const Dim& row, const Dim& k);
  void Finish(const Dim& row, const Dim& panel, int64_t vector, Value sum);

  LoopBuilder& lb() { return *lb_; }
  Value AsF32(Value v) { return lb().As(v, kF32); }
  Value Low(Value bytes) {
    return nn::BitwiseAndOp::Create(lb().b(), bytes, lb().Splat(kI32, 15, lanes())).c();
  }
  Value Shifted(Value numbers, Value places) {
    return nn::BitShiftOp::Create(lb().b(), numbers, places, {.direction = "RIGHT"}).z();
  }
  Value MulAdd(Value a, Value b, Value sum) { return lower::MulAdd(lb(), l_.machine, a, b, sum); }
  Value Scratch(std::vector<Dim> dims) {
    return lb().Alloc(VTensorType::Get(lb().context(), SymShape(std::move(dims)), kF32));
  }

  int64_t lanes() const { return l_.machine.lanes(kF32); }
  // Blocks between what is multiplied and what is asked for: memory takes that long.
  int64_t ahead() const { return CeilDiv(kAheadBytes, width() * block_ / per_byte()); }
  int64_t width() const { return vectors_ * lanes(); }
  int64_t per_byte() const { return 8 / bits_; }
  int64_t per_word() const { return loop::kDotGroup * per_byte(); }
  bool has_rounded_bytes() const { return rounded_ && dots_; }
  int64_t planes() const { return rounded_ ? 1 : 3; }
  int64_t item_rows() const { return rounded_ ? kRoundedItemRows : kDotItemRows; }
  int64_t unit() const { return dots_ ? per_word() : per_byte(); }  // of depth, unpacked at once
  int64_t blocks() const { return CeilDiv(depth_, block_); }
  int64_t pieces() const { return CeilDiv(depth_, piece_); }
  int64_t halves() const { return vectors_ / tile_.vectors; }
  int64_t chunk_depth() const { return chunk_pieces_ * piece_; }
  int64_t chunks() const { return CeilDiv(pieces(), chunk_pieces_); }

  Lowering& l_;
  const Operation* anchor_ = nullptr;
  std::optional<Pointwise> after_;
  Dim rows_ = 1;
  bool has_rows_ = true;
  int64_t columns_ = 1, depth_ = 1, bits_ = 4, block_ = 1;
  bool rounded_ = false, dots_ = false;

  int64_t vectors_ = 1, panels_ = 1;  // of columns
  int64_t most_few_ = 1;              // rows
  int64_t dot_rows_ = kDotRows;       // multiplied at once
  int64_t group_ = 1;                 // panels of an item, where rows are few
  Tile tile_{1, 1};                   // where they are many
  int64_t piece_ = 1, chunk_pieces_ = 1;
  int64_t block_rows_ = 1;
  Dim few_rows_;

  // While writing.
  std::optional<LoopBuilder> lb_;
  std::optional<IndexMath> math_;
  Value a_, b_, scales_, zeros_;
  Dim all_rows_;
  Value negative_sums_;  // of the blocks of each row
  std::optional<FixedRows> fixed_;
  Value panel_;    // unpacked: [halves, depth, columns of a half]
  Value partial_;  // sums of an item
};

// ---- whether ----

std::string MatmulNbits::Refusal() {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (std::string why = WeightRefusal(); !why.empty()) return why;
  if (std::string why = AfterRefusal(); !why.empty()) return why;
  if (rows_.IsConstant(0)) return "there is nothing to multiply";
  Plan();
  return "";
}

std::string MatmulNbits::AnchorRefusal() {
  const auto is_one = [](const Operation& op) { return op.isa<NbitsOp>(); };
  std::string why = FindAnchor(l_.function, "product by packed weights", is_one, anchor_);
  if (!why.empty()) return why;
  if (!ReadsArguments(*anchor_)) return "an operand is computed in the same function";
  const NbitsOp op(anchor_);
  columns_ = op.N(), depth_ = op.K(), bits_ = op.bits(), block_ = op.block_size();
  rounded_ = nn::HasRoundedRows(op);
  const AnyTensorType a = TensorOf(op.a());
  if (!a.dims().back().IsConstant(depth_)) return "the depths are not known to be equal";
  has_rows_ = a.rank() > 1;
  rows_ = 1;
  for (size_t i = 0; i + 1 < a.rank(); ++i) rows_ *= a.dims()[i];
  return "";
}

std::string MatmulNbits::WeightRefusal() const {
  for (size_t i = NbitsOp::kB; i < anchor_->num_operands(); ++i) {
    const Value v = anchor_->operand(i);
    if (!v) continue;
    const bool is_weight = l_.IsConstant(v) && v.has_one_use() && TensorOf(v).is_static();
    if (!is_weight) return StrCat("operand ", i, " is not a weight");
  }
  return "";
}

std::string MatmulNbits::AfterRefusal() {
  after_.emplace(l_.function, anchor_, l_.machine);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  const AnyTensorType y = TensorOf(anchor_->result(0));
  if (!std::ranges::equal(y.dims(), after_->dims())) return "the result is broadcast further";
  std::vector<std::vector<size_t>> axes(has_rows_ ? 2 : 1);
  for (size_t i = 0; i < y.rank(); ++i) axes[i + 1 < y.rank() ? 0 : axes.size() - 1].push_back(i);
  return after_->SetGroups(std::move(axes)) ? "" : "the axes of rows cannot be walked as one";
}

void MatmulNbits::Plan() {
  const bool is_exact = rounded_ || l_.precision != Precision::kStrict;
  dots_ = l_.machine.has_dots && is_exact && block_ % (lanes() * per_byte()) == 0 &&
          block_ <= kMostDotBlock;
  const int64_t vectors = CeilDiv(columns_, lanes());
  const int64_t most = std::min(has_rounded_bytes() ? kRoundedVectors : kMostVectors,
                                int64_t{1} << std::bit_width(static_cast<uint64_t>(vectors - 1)));
  std::vector<int64_t> widths;
  for (int64_t v = most; v > 0; v /= 2) widths.push_back(v);
  vectors_ = l_.knobs.Choose("vectors", widths);
  panels_ = CeilDiv(columns_, width());
  const int64_t registers = l_.machine.vector_registers;
  most_few_ = std::max<int64_t>((registers - kOtherRegisters) / vectors_, 1);
  // More rows than an item has unpack bytes of four bits again and again.
  if (dots_) most_few_ = bits_ == 4 && !rounded_ ? kDotItemRows : kEver;
  if (rounded_) {  // a sum of integers and one of floats for each vector
    dot_rows_ =
        std::clamp<int64_t>((registers - kOtherRegisters) / (2 * vectors_), 1, kMostRoundedRows);
  }
  few_rows_ = rows_.is_constant() || most_few_ == kEver ? rows_ : Min(rows_, most_few_);
  const int64_t panel_work = (1 + kUnpackWork) * width() * depth_;
  group_ = std::clamp<int64_t>(CeilDiv(kItemWork, panel_work), 1, panels_);
  tile_ = PickTile(rows_, Dim(width()), lanes(), l_.machine.vector_registers, 0);
  tile_.vectors = std::min<int64_t>(tile_.vectors, vectors_);
  piece_ = block_;
  for (int64_t parts = 2; piece_ > kMostPiece; ++parts) {
    if (block_ % (parts * unit()) == 0) piece_ = block_ / parts;
  }
  const int64_t fitting = l_.machine.l2_bytes / 2 / (piece_ * width() * 4);
  const int64_t largest = kMostPanelBytes / (piece_ * width() * 4);
  chunk_pieces_ = std::clamp<int64_t>(std::min(fitting, largest), 1, pieces());
  block_rows_ =
      RoundUp(rows_.is_constant() ? std::min(rows_.value(), kMostRows) : kMostRows, tile_.rows);
}

// ---- writing ----

void MatmulNbits::Write() {
  PackAll();
  lb_.emplace(l_.body);
  math_.emplace(*lb_);
  after_->Open(lb(), *l_.body);
  const Value a = l_.body->argument(anchor_->operand(NbitsOp::kA).index());
  const std::vector<int64_t> shape{rows_.is_constant() ? rows_.value() : -1, depth_};
  a_ = nn::ViewReshapeOp::Create(lb().b(), a, {.shape = shape}).y();
  if (dots_) b_ = lb().Grouped(b_, std::vector<int64_t>{1, 1, 1, 2});
  all_rows_ = math_->Extent(rows_);
  if (has_rounded_bytes()) {
    const FixedRows::Form form{few_rows_, depth_, block_, per_byte(), lanes(), planes()};
    fixed_.emplace(lb(), *math_, form);
    fixed_->WriteRounded(a_, all_rows_);
    WriteFew(1);
    return after_->Close(lb());
  }
  if (rounded_) a_ = RoundedRows(lb(), *math_, a_, rows_, depth_, block_, lanes());
  Dim are_many = math_->Name(Min(FloorDiv(all_rows_, most_few_ + 1), 1));
  if (dots_ && !are_many.IsConstant(1)) {
    const FixedRows::Form form{few_rows_, depth_, block_, per_byte(), lanes(), planes()};
    fixed_.emplace(lb(), *math_, form);
    const Value wrong = fixed_->Write(a_, math_->Name((Dim(1) - are_many) * all_rows_));
    are_many = math_->Name(Max(are_many, Min(math_->Of(wrong), 1)));
  }
  if (!are_many.IsConstant(1)) WriteFew(math_->Name(Dim(1) - are_many));
  if (!are_many.IsConstant(0)) WriteMany(are_many);
  after_->Close(lb());
}

// [panels, what is behind the axis of columns, columns of a panel]; of bytes that are multiplied as
// groups [..., columns of a panel, bytes of a group].
void MatmulNbits::PackOf(size_t operand, const Shape& behind) {
  PackedLayout layout;
  layout.argument = anchor_->operand(operand).index();
  layout.padded = {panels_ * width()};
  layout.split = {panels_, width()};
  layout.order = {0};
  for (const int64_t extent : behind) {
    layout.padded.push_back(extent);
    layout.order.push_back(static_cast<int64_t>(layout.split.size()));
    layout.split.push_back(extent);
  }
  layout.order.push_back(1);
  if (dots_ && operand == NbitsOp::kB) {
    layout.order.push_back(static_cast<int64_t>(layout.split.size()));
    layout.split.back() /= loop::kDotGroup;
    layout.split.push_back(loop::kDotGroup);
  }
  l_.Pack(std::move(layout));
}

void MatmulNbits::PackAll() {
  const auto pack = [&](size_t operand) {
    Shape behind;
    const AnyTensorType type = TensorOf(anchor_->operand(operand));
    for (size_t i = 1; i < type.rank(); ++i) behind.push_back(type.dims()[i].value());
    PackOf(operand, behind);
    return l_.body->argument(anchor_->operand(operand).index());
  };
  b_ = pack(NbitsOp::kB);
  scales_ = pack(NbitsOp::kScales);
  const bool has_zeros =
      anchor_->num_operands() > NbitsOp::kZeroPoints && anchor_->operand(NbitsOp::kZeroPoints);
  if (has_zeros) zeros_ = pack(NbitsOp::kZeroPoints);
}

// ---- few rows ----

// Items that follow each other multiply the same rows.
void MatmulNbits::WriteFew(const Dim& is_taken) {
  if (!has_rounded_bytes()) SumBlocks(is_taken);
  const int64_t groups = CeilDiv(panels_, group_);
  const Dim row_blocks = dots_ ? math_->Name(CeilDiv(all_rows_, item_rows())) : Dim(1);
  math_->For(is_taken * row_blocks * groups, true, [&](const Dim& number) {
    const Dim first = math_->Name(Mod(number, groups) * group_);
    const Dim count = math_->Name(Min(Dim(panels_) - first, group_));
    const bool is_one = row_blocks.IsConstant(1);
    const Dim first_row = is_one ? Dim(0) : math_->Name(FloorDiv(number, groups) * item_rows());
    math_->For(count, false, [&](const Dim& i) {
      const Dim panel = math_->Name(first + i);
      dots_ ? WriteBlockOfBytes(first_row, panel) : WriteFewOf(panel);
    });
  });
}

void MatmulNbits::WriteBlockOfBytes(const Dim& first_row, const Dim& panel) {
  Dim first = first_row, left = math_->Name(Min(all_rows_ - first_row, item_rows()));
  for (int64_t rows = dot_rows_; rows > 0; rows = rows > 2 ? 2 : rows - 1) {
    const Dim times = math_->Name(FloorDiv(left, rows));
    math_->For(times, false,
               [&](const Dim& i) { WriteRowsOfBytes(math_->Name(first + i * rows), rows, panel); });
    first = math_->Name(first + times * rows);
    left = math_->Name(Mod(left, rows));
  }
}

// Negative, so that they need not be subtracted.
void MatmulNbits::SumBlocks(const Dim& is_taken) {
  negative_sums_ = Scratch({few_rows_, Dim(blocks())});
  const auto sum = [&](const Dim& row, const Dim& block, int64_t depth) {
    const Dim first = math_->Name(block * block_);
    const auto add = [&](const Dim& k, Value live, Value so_far) {
      const Value x = AsF32(lb().Load(a_, math_->At({row, k}), lanes(), live));
      return nn::SubOp::Create(lb().b(), so_far, x).c();
    };
    const Value zero[] = {lb().Splat(kF32, 0, lanes())};
    Value total =
        lb().For(Dim(depth / lanes()), zero, [&](Value i, std::span<const Value> carried) {
          const Dim k = math_->Name(first + math_->Of(i) * lanes());
          return std::vector<Value>{add(k, {}, carried[0])};
        })[0];
    if (const int64_t rest = depth % lanes(); rest > 0) {
      total = add(math_->Name(first + (depth - rest)), lb().Int(rest), total);
    }
    lb().Store(negative_sums_, lb().Reduce("add", total), math_->At({row, block}));
  };
  const int64_t full = depth_ / block_, rest = depth_ % block_;
  math_->For(is_taken * all_rows_, false, [&](const Dim& row) {
    math_->For(full, false, [&](const Dim& block) { sum(row, block, block_); });
    if (rest > 0) sum(row, Dim(full), rest);
  });
}

// Rows whose number is known are one tile; otherwise there is a tile per power of two.
void MatmulNbits::WriteFewOf(const Dim& panel) {
  if (rows_.is_constant()) return WriteRows(0, rows_.value(), panel);
  for (auto size = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most_few_))); size > 0;
       size /= 2) {
    const Dim has = math_->Name(Mod(FloorDiv(all_rows_, size), 2));
    math_->For(has, false, [&](const Dim&) {
      WriteRows(math_->Name(FloorDiv(all_rows_, 2 * size) * (2 * size)), size, panel);
    });
  }
}

void MatmulNbits::WriteRows(const Dim& first_row, int64_t rows, const Dim& panel) {
  const std::vector<Value> zeros(static_cast<size_t>(rows * vectors_),
                                 lb().Splat(kF32, 0, lanes()));
  const int64_t full = depth_ / block_, rest = depth_ % block_;
  std::vector<Value> sums =
      lb().For(Dim(full), zeros, [&](Value i, std::span<const Value> carried) {
        return AddBlock(first_row, rows, panel, math_->Of(i), block_, carried);
      });
  if (rest > 0) sums = AddBlock(first_row, rows, panel, Dim(full), rest, sums);
  FinishRows(first_row, rows, panel, sums);
}

void MatmulNbits::FinishRows(const Dim& first_row, int64_t rows, const Dim& panel,
                             std::span<const Value> sums) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < vectors_; ++v) {
      Finish(math_->Name(first_row + r), panel, v, sums[static_cast<size_t>(r * vectors_ + v)]);
    }
  }
}

void MatmulNbits::WriteRowsOfBytes(const Dim& first_row, int64_t rows, const Dim& panel) {
  const std::vector<Value> none(static_cast<size_t>(rows * vectors_), lb().Splat(kF32, 0, lanes()));
  const std::vector<Value> sums =
      lb().For(Dim(blocks()), none, [&](Value i, std::span<const Value> carried) {
        const Dim block = math_->Of(i);
        const std::vector<Value> dots = DotsOfBlock(first_row, rows, panel, block);
        return rounded_ ? ScaledWhole(first_row, rows, panel, block, dots, carried)
                        : Scaled(first_row, rows, panel, block, dots, carried);
      });
  FinishRows(first_row, rows, panel, sums);
}

// What the integers of a block begin with: rows that are rounded less the middle of the range,
// where that is the zero of all blocks.
Value MatmulNbits::FirstSum(const Dim& row, const Dim& block) {
  if (!has_rounded_bytes() || zeros_) return lb().Splat(kI32, 0, lanes());
  const Value middle = lb().Splat(kI32, -static_cast<double>(int64_t{1} << (bits_ - 1)));
  const Value sum = nn::MulOp::Create(lb().b(), fixed_->Sum(row, block), middle).c();
  return lb().Widen(sum, lanes());
}

// Numbers behind the depth are zero. The planes become one sum when they are exact no more.
std::vector<Value> MatmulNbits::DotsOfBlock(const Dim& first_row, int64_t rows, const Dim& panel,
                                            const Dim& block) {
  const auto multiply = [&](Value i, std::span<const Value> sums) {
    const Dim word = math_->Of(i);
    std::vector<Value> next(sums.begin(), sums.end());
    const Dim later = math_->Name(block + ahead());
    for (int64_t v = 0; v < vectors_; ++v) {
      lb().Prefetch(b_, math_->At({panel, later, word, Dim(v * lanes() * loop::kDotGroup)}));
    }
    const std::vector<std::vector<Value>> bytes = BytesOfWord(panel, block, word);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t plane = 0; plane < planes(); ++plane) {
        for (size_t list = 0; list < bytes.size(); ++list) {
          const Value x = fixed_->Group(math_->Name(first_row + r), plane,
                                        static_cast<int64_t>(list), block, word * loop::kDotGroup);
          for (int64_t v = 0; v < vectors_; ++v) {
            Value& sum = next[static_cast<size_t>((r * vectors_ + v) * planes() + plane)];
            sum = lb().Dot(bytes[list][static_cast<size_t>(v)], x, sum);
          }
        }
      }
    }
    return next;
  };
  std::vector<Value> start;
  for (int64_t r = 0; r < rows; ++r) {
    start.resize(start.size() + static_cast<size_t>(vectors_ * planes()),
                 FirstSum(math_->Name(first_row + r), block));
  }
  const std::vector<Value> sums = lb().For(Dim(block_ / per_word()), start, multiply);
  std::vector<Value> products;
  const Value shift = lb().Splat(kF32, 256);
  for (int64_t i = 0; i < rows * vectors_; ++i) {
    Value sum = AsF32(sums[static_cast<size_t>((i + 1) * planes() - 1)]);
    for (int64_t plane = planes() - 1; plane-- > 0;) {
      sum = MulAdd(shift, sum, AsF32(sums[static_cast<size_t>(i * planes() + plane)]));
    }
    if (!rounded_) {
      const Value scale = fixed_->Scale(math_->Name(first_row + i / vectors_), block);
      sum = nn::MulOp::Create(lb().b(), sum, scale).c();
    }
    products.push_back(sum);
  }
  return products;
}

std::vector<Value> MatmulNbits::AddBlock(const Dim& first_row, int64_t rows, const Dim& panel,
                                         const Dim& block, int64_t depth,
                                         std::span<const Value> sums) {
  return Scaled(first_row, rows, panel, block,
                ProductsOfBlock(first_row, rows, panel, block, depth), sums);
}

std::vector<Value> MatmulNbits::Scaled(const Dim& first_row, int64_t rows, const Dim& panel,
                                       const Dim& block, std::span<const Value> products,
                                       std::span<const Value> sums) {
  const std::vector<Value> zeros = Zeros(panel, block), scales = ScalesAhead(panel, block);
  std::vector<Value> next;
  for (int64_t r = 0; r < rows; ++r) {
    const Value sum = lb().Load(negative_sums_, math_->At({math_->Name(first_row + r), block}));
    for (size_t v = 0; v < zeros.size(); ++v) {
      const Value centered = MulAdd(sum, zeros[v], products[next.size()]);
      next.push_back(MulAdd(scales[v], centered, sums[next.size()]));
    }
  }
  return next;
}

// Of products of whole numbers, which stay whole until zero points are taken off.
std::vector<Value> MatmulNbits::ScaledWhole(const Dim& first_row, int64_t rows, const Dim& panel,
                                            const Dim& block, std::span<const Value> products,
                                            std::span<const Value> sums) {
  const std::vector<Value> scales = ScalesAhead(panel, block);
  const std::vector<Value> zeros = zeros_ ? Zeros(panel, block) : std::vector<Value>{};
  std::vector<Value> next;
  for (int64_t r = 0; r < rows; ++r) {
    const Dim row = math_->Name(first_row + r);
    const Value scale = fixed_->Scale(row, block);
    const Value less = nn::NegOp::Create(lb().b(), AsF32(fixed_->Sum(row, block))).y();
    for (size_t v = 0; v < scales.size(); ++v) {
      Value product = products[next.size()];
      if (zeros_) product = MulAdd(less, zeros[v], product);
      product = nn::MulOp::Create(lb().b(), product, scale).c();
      next.push_back(MulAdd(scales[v], product, sums[next.size()]));
    }
  }
  return next;
}

// A vector per row and vector of columns.
std::vector<Value> MatmulNbits::ProductsOfBlock(const Dim& first_row, int64_t rows,
                                                const Dim& panel, const Dim& block, int64_t depth) {
  const Dim first = math_->Name(block * block_);
  const auto multiply = [&](const Dim& byte, bool whole, std::span<const Value> sums) {
    std::vector<Value> next;
    lb().Prefetch(b_, math_->At({panel, math_->Name(block + ahead()), byte, Dim(0)}));
    const Unpacked w = Weights(panel, block, byte);
    const Dim k = math_->Name(first + byte * per_byte());
    for (int64_t r = 0; r < rows; ++r) {
      const Dim row = math_->Name(first_row + r);
      const bool has_high = whole && bits_ == 4;
      const Value low = Left(row, k), high = has_high ? Left(row, math_->Name(k + 1)) : Value();
      for (size_t v = 0; v < w.low.size(); ++v) {
        Value sum = MulAdd(low, w.low[v], sums[next.size()]);
        if (has_high) sum = MulAdd(high, w.high[v], sum);
        next.push_back(sum);
      }
    }
    return next;
  };
  const std::vector<Value> zeros(static_cast<size_t>(rows * vectors_),
                                 lb().Splat(kF32, 0, lanes()));
  const int64_t whole = depth / per_byte();
  std::vector<Value> sums =
      lb().For(Dim(whole), zeros, [&](Value byte, std::span<const Value> carried) {
        return multiply(math_->Of(byte), true, carried);
      });
  return depth % per_byte() == 0 ? sums : multiply(Dim(whole), false, sums);
}

// ---- many rows ----

void MatmulNbits::WriteMany(const Dim& is_taken) {
  const Dim blocks = math_->Name(CeilDiv(all_rows_, block_rows_));
  math_->For(is_taken * blocks * panels_, true, [&](const Dim& number) { WriteItem(number); });
}

// Items that follow each other unpack the same panel, or read the same rows.
void MatmulNbits::WriteItem(const Dim& number) {
  const Dim blocks = math_->Name(CeilDiv(all_rows_, block_rows_));
  const Dim panel = math_->Name(FloorDiv(number, blocks));
  const Dim first_row = math_->Name(Mod(number, blocks) * block_rows_);
  const Value rows = math_->At(Min(all_rows_ - first_row, block_rows_));
  const int64_t half = tile_.vectors * lanes();
  panel_ = Scratch({Dim(halves()), Dim(chunk_depth()), Dim(half)});
  const int64_t line = 64 / 4, lines = CeilDiv(width(), line) | 1;
  partial_ = Scratch({Dim(block_rows_), Dim(lines * line)});
  if (chunks() > 1) {
    lb().For(rows, false, [&](Value row) {
      for (int64_t v = 0; v < vectors_; ++v) {
        const Value at[] = {row, lb().Int(v * lanes())};
        lb().Store(partial_, lb().Splat(kF32, 0, lanes()), at);
      }
    });
  }
  math_->For(chunks(), false, [&](const Dim& chunk) {
    UnpackChunk(panel, chunk);
    Multiply(first_row, rows, chunk);
  });
  FinishItem(first_row, rows, panel);
}

void MatmulNbits::UnpackChunk(const Dim& panel, const Dim& chunk) {
  const int64_t full = depth_ / piece_, rest = depth_ % piece_;
  const Dim first = math_->Name(chunk * chunk_pieces_);
  math_->For(math_->Name(Min(Dim(full) - first, chunk_pieces_)), false,
             [&](const Dim& i) { UnpackPiece(panel, math_->Name(first + i), first, piece_); });
  if (rest == 0) return;
  const Dim is_last = math_->Name(FloorDiv(chunk + 1, chunks()));
  math_->For(is_last, false, [&](const Dim&) { UnpackPiece(panel, Dim(full), first, rest); });
}

void MatmulNbits::UnpackPiece(const Dim& panel, const Dim& piece, const Dim& first_piece,
                              int64_t depth) {
  const int64_t pieces = block_ / piece_, bytes = piece_ / per_byte();
  const Dim block = math_->Name(FloorDiv(piece, pieces));
  const Dim first_byte = math_->Name(Mod(piece, pieces) * bytes);
  const Dim first_row = math_->Name((piece - first_piece) * piece_);
  const std::vector<Value> zeros = Zeros(panel, block), scales = Scales(panel, block);
  const auto store = [&](const Dim& row, std::span<const Value> numbers) {
    for (int64_t v = 0; v < vectors_; ++v) {
      const auto i = static_cast<size_t>(v);
      const Value centered = nn::SubOp::Create(lb().b(), numbers[i], zeros[i]).c();
      const Value weight = nn::MulOp::Create(lb().b(), centered, scales[i]).c();
      const Dim half(v / tile_.vectors), column(v % tile_.vectors * lanes());
      lb().Store(panel_, weight, math_->At({half, row, column}));
    }
  };
  const auto unpack = [&](const Dim& byte, bool whole) {
    const Unpacked w = Weights(panel, block, math_->Name(first_byte + byte));
    const Dim row = math_->Name(first_row + byte * per_byte());
    store(row, w.low);
    if (whole && bits_ == 4) store(math_->Name(row + 1), w.high);
  };
  if (dots_) {  // behind the depth there is room for all of a piece
    const Dim first_word = math_->Name(Mod(piece, pieces) * (piece_ / per_word()));
    return math_->For(CeilDiv(depth, per_word()), false, [&](const Dim& word) {
      const auto weights = WeightsOfWord(panel, block, math_->Name(first_word + word));
      for (size_t i = 0; i < weights.size(); ++i) {
        const auto behind = static_cast<int64_t>(i);
        store(math_->Name(first_row + word * per_word() + behind), weights[i]);
      }
    });
  }
  const int64_t whole = depth / per_byte();
  math_->For(whole, false, [&](const Dim& byte) { unpack(byte, true); });
  if (depth % per_byte() != 0) unpack(Dim(whole), false);
}

void MatmulNbits::Multiply(const Dim& first_row, Value rows, const Dim& chunk) {
  const Dim first_k = math_->Name(chunk * chunk_depth());
  const Value depth = math_->At(Min(Dim(depth_) - first_k, chunk_depth()));
  math_->For(halves(), false, [&](const Dim& half) {
    const auto partial = [&](Value row, int64_t v) {
      const Dim column = (half * tile_.vectors + v) * lanes();
      return math_->At({math_->Of(row), column});
    };
    PanelProduct product(lb(), l_.machine, kF32, tile_);
    product.left = [&](Value row, Value k) {
      return Left(math_->Name(first_row + math_->Of(row)), math_->Name(first_k + math_->Of(k)));
    };
    product.right = [&](Value k, int64_t v) {
      return lb().Load(panel_, math_->At({half, math_->Of(k), Dim(v * lanes())}), lanes());
    };
    product.start = [&](Value row, int64_t v) {
      if (chunks() == 1) return lb().Splat(kF32, 0, lanes());
      return lb().Load(partial_, partial(row, v), lanes());
    };
    product.finish = [&](Value row, int64_t v, Value sum) {
      lb().Store(partial_, sum, partial(row, v));
    };
    product.Write(rows, depth);
  });
}

void MatmulNbits::FinishItem(const Dim& first_row, Value rows, const Dim& panel) {
  lb().For(rows, false, [&](Value row) {
    for (int64_t v = 0; v < vectors_; ++v) {
      const Value at[] = {row, lb().Int(v * lanes())};
      Finish(math_->Name(first_row + math_->Of(row)), panel, v, lb().Load(partial_, at, lanes()));
    }
  });
}

// ---- what is read and written ----

MatmulNbits::Unpacked MatmulNbits::Weights(const Dim& panel, const Dim& block, const Dim& byte) {
  Unpacked w;
  const Value four = bits_ == 4 ? lb().Splat(kI32, 4, lanes()) : Value();
  for (int64_t v = 0; v < vectors_; ++v) {
    const std::vector<Value> at = math_->At({panel, block, byte, Dim(v * lanes())});
    const Value bytes = lb().As(lb().Load(b_, at, lanes()), kI32);
    w.low.push_back(AsF32(bits_ == 4 ? Low(bytes) : bytes));
    if (bits_ == 4) w.high.push_back(AsF32(Shifted(bytes, four)));
  }
  return w;
}

// Of groups of bytes the low and the high halves, if there are two: of each vector.
std::vector<std::vector<Value>> MatmulNbits::BytesOfWord(const Dim& panel, const Dim& block,
                                                         const Dim& word) {
  constexpr ElementType kByte = ElementType::kU8;
  const int64_t across = lanes() * loop::kDotGroup;
  std::vector<std::vector<Value>> halves(static_cast<size_t>(per_byte()));
  for (int64_t v = 0; v < vectors_; ++v) {
    const Value bytes = lb().Load(b_, math_->At({panel, block, word, Dim(v * across)}), across);
    if (bits_ == 8) {
      halves[0].push_back(bytes);
      continue;
    }
    const Value low = lb().Splat(kByte, 15, across), four = lb().Splat(kByte, 4, across);
    halves[0].push_back(nn::BitwiseAndOp::Create(lb().b(), bytes, low).c());
    halves[1].push_back(Shifted(bytes, four));
  }
  return halves;
}

// Vectors of f32 for each place of the depth that a group has; a product by ones and zeros takes a
// byte out of each.
std::vector<std::vector<Value>> MatmulNbits::WeightsOfWord(const Dim& panel, const Dim& block,
                                                           const Dim& word) {
  const std::vector<std::vector<Value>> bytes = BytesOfWord(panel, block, word);
  std::vector<std::vector<Value>> weights;
  for (int64_t i = 0; i < loop::kDotGroup; ++i) {
    std::vector<int8_t> one(loop::kDotGroup);
    one[static_cast<size_t>(i)] = 1;
    const Value mask = lb().Constant(Tensor::Of<int8_t>({loop::kDotGroup}, one));
    for (const std::vector<Value>& half : bytes) {
      std::vector<Value>& row = weights.emplace_back();
      for (const Value v : half) {
        row.push_back(AsF32(lb().Dot(v, mask, lb().Splat(kI32, 0, lanes()))));
      }
    }
  }
  return weights;
}

std::vector<Value> MatmulNbits::Zeros(const Dim& panel, const Dim& block) {
  const auto middle = static_cast<double>(int64_t{1} << (bits_ - 1));
  const bool is_packed = zeros_ && TensorOf(zeros_).element() == ElementType::kU8;
  const int64_t together = is_packed ? per_byte() : 1;
  std::vector<Value> zeros;
  for (int64_t v = 0; v < vectors_; ++v) {
    if (!zeros_) {
      zeros.push_back(lb().Splat(kF32, middle, lanes()));
      continue;
    }
    const Dim place = math_->Name(FloorDiv(block, together));
    Value zero = lb().Load(zeros_, math_->At({panel, place, Dim(v * lanes())}), lanes());
    if (is_packed) zero = lb().As(zero, kI32);
    if (together > 1) {
      const Value places = lb().As(math_->At(Mod(block, together) * bits_), kI32);
      zero = Low(Shifted(zero, lb().Widen(places, lanes())));
    }
    zeros.push_back(AsF32(zero));
  }
  return zeros;
}

std::vector<Value> MatmulNbits::Scales(const Dim& panel, const Dim& block) {
  std::vector<Value> scales;
  for (int64_t v = 0; v < vectors_; ++v) {
    const std::vector<Value> at = math_->At({panel, block, Dim(v * lanes())});
    scales.push_back(AsF32(lb().Load(scales_, at, lanes())));
  }
  return scales;
}

std::vector<Value> MatmulNbits::ScalesAhead(const Dim& panel, const Dim& block) {
  const Dim later = math_->Name(block + ahead());
  for (int64_t v = 0; v < vectors_; ++v) {
    lb().Prefetch(scales_, math_->At({panel, later, Dim(v * lanes())}));
  }
  return Scales(panel, block);
}

Value MatmulNbits::Left(const Dim& row, const Dim& k) {
  return AsF32(lb().Load(a_, math_->At({row, k})));
}

void MatmulNbits::Finish(const Dim& row, const Dim& panel, int64_t vector, Value sum) {
  const Dim column = math_->Name(panel * width() + vector * lanes());
  Value live;
  if (columns_ % width() != 0) {
    live = math_->At(Max(Min(Dim(columns_) - column, lanes()), 0));
  }
  std::vector<Value> at = has_rows_ ? math_->At({row, column}) : math_->At({column});
  after_->Store(lb(), at, lanes(), live, lb().As(sum, TensorOf(anchor_->result(0)).element()));
}

}  // namespace

bool LowerMatmulNbits(Lowering& l) { return WriteUnlessRefused<MatmulNbits>(l); }

}  // namespace lathe::lower
