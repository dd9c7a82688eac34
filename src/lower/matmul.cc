#include "lathe/dialect/nn/matmul.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategy_list.h"

// A matrix product and the elementwise operations after it, by the scheme of Goto and van de Geijn
// ("Anatomy of High-Performance Matrix Multiplication", 2008): a panel of the right matrix, as wide
// as a tile of registers, is packed into memory that stays in cache; then each tile of rows walks
// down the panel with its sums in registers, and what follows the product is computed there too.
// With few rows packing would cost more than it gives: the panels are wide and read where they are.
namespace lathe::lower {
namespace {

constexpr int64_t kMaxPanelBytes = 1 << 20;
constexpr int64_t kFewRows = 4;
constexpr int64_t kParallelFlops = 1 << 21;

AnyTensorType TensorOf(Value v) { return v.type().cast<AnyTensorType>(); }

// Rows and vectors of sums that are held in registers.
struct Tile {
  int64_t rows;
  int64_t vectors;
};

// What a tile of `rows` costs: below four rows the latency of the additions shows.
double TileCost(int64_t rows) { return static_cast<double>(std::max<int64_t>(rows, 4)) + 0.3; }

// One register holds the broadcast element, `vectors` the row of the panel, the others sums.
Tile PickTile(const Dim& rows, const Dim& columns, int64_t lanes, int registers) {
  const int64_t vectors_of_row =
      columns.is_constant() ? (columns.value() + lanes - 1) / lanes : 1 << 20;
  if (rows.is_constant() && rows.value() <= kFewRows) {
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
    const int64_t rest = rows.value() % m;
    const double cost =
        static_cast<double>(rows.value() / m) * TileCost(m) + (rest == 0 ? 0 : TileCost(rest));
    if (cost < best_cost) best_cost = cost, best.rows = m;
  }
  return best;
}

class Matmul {
 public:
  Matmul(const Block& function, const Machine& machine) : function_(function), machine_(machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write(Block* body);

 private:
  std::string FindMaster();
  std::string ShapeRefusal();
  bool GroupAxes();
  bool packs() const { return transposed_ || !rows_.is_constant() || rows_.value() > kFewRows; }
  int64_t width() const { return tile_.vectors * lanes_; }
  bool IsWorthThreads() const;
  void WriteBatch(size_t axis);
  void WritePanels();
  void WritePanel(Value first_column, bool partial);
  void Pack(Value first_column);
  void WriteTile(Value first_row, int64_t rows, Value first_column);
  Value MulAdd(Value a, Value b, Value sum);
  Value Right(Value k, int64_t vector, Value first_column);
  Value Plus(Value v, int64_t offset) { return lb_->Index(LoopBuilder::D0() + offset, v); }
  std::vector<Value> At(Value row, Value column) const;

  const Block& function_;
  const Machine& machine_;
  const Operation* master_ = nullptr;
  std::optional<Pointwise> after_;
  Dim rows_, columns_, depth_;
  std::vector<Dim> batch_;  // axes that both matrices have; else the left one's are rows
  bool transposed_ = false;
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1;
  Tile tile_{1, 1};
  bool parallel_ = false;

  // While writing.
  std::optional<LoopBuilder> lb_;
  Value left_, right_, panel_;
  std::vector<Value> batch_at_;
  std::vector<Value> live_;  // lanes of each vector of the panel; null: all
};

std::string Matmul::FindMaster() {
  for (const Operation& op : function_) {
    if (op.name() != nn::MatmulOp::kName) continue;
    if (master_ != nullptr) return "there are two matrix products";
    master_ = &op;
  }
  if (master_ == nullptr) return "there is no matrix product";
  const bool of_arguments =
      master_->operand(0).is_block_argument() && master_->operand(1).is_block_argument();
  return of_arguments ? "" : "a matrix is computed in the same function";
}

std::string Matmul::Refusal() {
  if (std::string why = FindMaster(); !why.empty()) return why;
  if (std::string why = ShapeRefusal(); !why.empty()) return why;
  after_.emplace(function_, master_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  const auto product = TensorOf(master_->result(0));
  if (!std::ranges::equal(product.dims(), after_->dims())) return "the result is broadcast further";
  if (!GroupAxes()) return "the axes of rows can not be walked as one";
  return "";
}

std::string Matmul::ShapeRefusal() {
  const auto x = TensorOf(master_->operand(0)), y = TensorOf(master_->operand(1));
  const nn::MatmulOp op(const_cast<Operation*>(master_));
  element_ = x.element();
  if (element_ != ElementType::kF32 && element_ != ElementType::kF64) {
    return StrCat("elements are ", Name(element_));
  }
  if (!x.has_rank() || !y.has_rank() || x.rank() < 2 || y.rank() < 2) return "no two matrices";
  if (op.transpose_x()) return "the left matrix is transposed";
  transposed_ = op.transpose_y();
  depth_ = x.dims().back();
  columns_ = y.dims()[y.rank() - (transposed_ ? 2 : 1)];
  rows_ = x.dims()[x.rank() - 2];
  if (y.rank() == 2 && x.rank() > 2 && !depth_.is_constant()) return "rows of symbolic length";
  if (y.rank() > 2) {
    if (x.rank() != y.rank()) return "the matrices have different batch axes";
    for (size_t a = 0; a + 2 < x.rank(); ++a) {
      if (!ProvablyEqual(x.dims()[a], y.dims()[a])) return "a batch axis is broadcast";
      batch_.push_back(x.dims()[a]);
    }
  } else {
    for (size_t a = 0; a + 2 < x.rank(); ++a) rows_ *= x.dims()[a];
  }
  lanes_ = machine_.lanes(element_);
  tile_ = PickTile(rows_, columns_, lanes_, machine_.vector_registers);
  if (packs()) {
    if (!depth_.is_constant()) return "the panel to pack is of symbolic size";
    const int64_t bytes = depth_.value() * width() * BitWidth(element_) / 8;
    if (bytes > kMaxPanelBytes) return StrCat("a panel of ", HumanBytes(bytes), " is too large");
  }
  parallel_ = IsWorthThreads();
  return "";
}

bool Matmul::IsWorthThreads() const {
  Dim work = rows_ * columns_ * depth_;
  for (const Dim& dim : batch_) work *= dim;
  return !work.is_constant() || work.value() > kParallelFlops;
}

bool Matmul::GroupAxes() {
  const size_t rank = after_->dims().size();
  std::vector<std::vector<size_t>> groups;
  for (size_t a = 0; a < rank; ++a) {
    const bool joins = batch_.empty() && a > 0 && a + 1 < rank;
    if (joins) {
      groups.back().push_back(a);
    } else {
      groups.push_back({a});
    }
  }
  return after_->SetGroups(std::move(groups));
}

// ---- writing ----

void Matmul::Write(Block* body) {
  lb_.emplace(body);
  after_->Open(*lb_, *body);
  left_ = body->argument(master_->operand(0).index());
  right_ = body->argument(master_->operand(1).index());
  if (batch_.empty() && TensorOf(left_).rank() > 2) {
    const std::vector<int64_t> shape{rows_.is_constant() ? rows_.value() : -1, depth_.value()};
    left_ = nn::ViewReshapeOp::Create(lb_->b(), left_, {.shape = shape}).y();
  }
  WriteBatch(0);
  after_->Close(*lb_);
}

// As deep as there are batch axes.
void Matmul::WriteBatch(size_t axis) {
  if (axis == batch_.size()) return WritePanels();
  lb_->For(batch_[axis], parallel_, [&](Value i) {
    batch_at_.push_back(i);
    WriteBatch(axis + 1);
    batch_at_.pop_back();
  });
}

void Matmul::WritePanels() {
  const Dim full = FloorDiv(columns_, width()), rest = Mod(columns_, width());
  const auto column = [&](Value panel) { return lb_->Index(LoopBuilder::D0() * width(), panel); };
  lb_->For(full, parallel_, [&](Value j) { WritePanel(column(j), false); });
  if (rest.IsConstant(0)) return;
  lb_->For(Min(rest, 1), false, [&](Value) { WritePanel(column(lb_->Extent(full)), true); });
}

void Matmul::WritePanel(Value first_column, bool partial) {
  live_.assign(static_cast<size_t>(tile_.vectors), Value());
  for (int64_t v = 0; partial && v < tile_.vectors; ++v) {
    const Value values[] = {first_column, lb_->Extent(columns_)};
    const Dim left = LoopBuilder::D1() - LoopBuilder::D0() - v * lanes_;
    live_[static_cast<size_t>(v)] = lb_->Index(Max(Min(left, lanes_), 0), values);
  }
  if (packs()) Pack(first_column);
  const Dim full = FloorDiv(rows_, tile_.rows), rest = Mod(rows_, tile_.rows);
  lb_->For(full, false, [&](Value i) {
    WriteTile(lb_->Index(LoopBuilder::D0() * tile_.rows, i), tile_.rows, first_column);
  });
  if (rest.IsConstant(0)) return;
  const Value first_rest = lb_->Index(LoopBuilder::D0() * tile_.rows, lb_->Extent(full));
  if (rest.is_constant()) return WriteTile(first_rest, rest.value(), first_column);
  lb_->For(rest, false, [&](Value i) {
    const Value both[] = {first_rest, i};
    WriteTile(lb_->Index(LoopBuilder::D0() + LoopBuilder::D1(), both), 1, first_column);
  });
}

std::vector<Value> Matmul::At(Value row, Value column) const {
  std::vector<Value> at = batch_at_;
  at.push_back(row);
  at.push_back(column);
  return at;
}

// The panel's columns as they are multiplied: `width` neighbours for each row.
void Matmul::Pack(Value first_column) {
  panel_ = lb_->Alloc(VTensorType::Get(lb_->context(), SymShape({depth_, Dim(width())}), element_));
  if (!transposed_) {
    lb_->For(depth_, false, [&](Value k) {
      for (int64_t v = 0; v < tile_.vectors; ++v) {
        const Value from = lb_->Load(right_, At(k, Plus(first_column, v * lanes_)), lanes_,
                                     live_[static_cast<size_t>(v)]);
        const Value to[] = {k, lb_->Int(v * lanes_)};
        lb_->Store(panel_, from, to);
      }
    });
    return;
  }
  const Value symbols[] = {first_column, lb_->Extent(columns_)};
  const Value count = lb_->Index(Min(LoopBuilder::D1() - LoopBuilder::D0(), width()), symbols);
  lb_->ForValue(count, [&](Value column) {
    const Value both[] = {first_column, column};
    const Value row = lb_->Index(LoopBuilder::D0() + LoopBuilder::D1(), both);
    lb_->For(depth_, false, [&](Value k) {
      const Value to[] = {k, column};
      lb_->Store(panel_, lb_->Load(right_, At(row, k)), to);
    });
  });
}

Value Matmul::Right(Value k, int64_t vector, Value first_column) {
  if (packs()) {
    const Value at[] = {k, lb_->Int(vector * lanes_)};
    return lb_->Load(panel_, at, lanes_);
  }
  return lb_->Load(right_, At(k, Plus(first_column, vector * lanes_)), lanes_,
                   live_[static_cast<size_t>(vector)]);
}

Value Matmul::MulAdd(Value a, Value b, Value sum) {
  if (machine_.has_fma) return loop::FmaOp::Create(lb_->b(), a, b, sum).y();
  return nn::AddOp::Create(lb_->b(), nn::MulOp::Create(lb_->b(), a, b).c(), sum).c();
}

void Matmul::WriteTile(Value first_row, int64_t rows, Value first_column) {
  std::vector<Value> row_at;
  for (int64_t r = 0; r < rows; ++r) row_at.push_back(Plus(first_row, r));
  const auto vectors = static_cast<size_t>(tile_.vectors);
  const std::vector<Value> zeros(row_at.size() * vectors, lb_->Splat(element_, 0, lanes_));
  const auto step = [&](Value k, std::span<const Value> sums) {
    std::vector<Value> right, next;
    for (int64_t v = 0; v < tile_.vectors; ++v) right.push_back(Right(k, v, first_column));
    for (size_t r = 0; r < row_at.size(); ++r) {
      const Value left = lb_->Load(left_, At(row_at[r], k));
      for (size_t v = 0; v < vectors; ++v) {
        next.push_back(MulAdd(left, right[v], sums[r * vectors + v]));
      }
    }
    return next;
  };
  const std::vector<Value> sums = lb_->For(depth_, zeros, step);
  for (size_t r = 0; r < row_at.size(); ++r) {
    for (size_t v = 0; v < vectors; ++v) {
      const Value column = Plus(first_column, static_cast<int64_t>(v) * lanes_);
      after_->Store(*lb_, At(row_at[r], column), lanes_, live_[v], sums[r * vectors + v]);
    }
  }
}

}  // namespace

bool LowerMatmul(const Block& function, Block* body, const Machine& machine, std::string& why) {
  Matmul lowering(function, machine);
  why = lowering.Refusal();
  if (!why.empty()) return false;
  lowering.Write(body);
  return true;
}

}  // namespace lathe::lower
