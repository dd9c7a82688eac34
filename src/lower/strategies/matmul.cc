#include "lathe/dialect/nn/matmul.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// A matrix product and the elementwise operations after it: a panel of the right matrix, as wide as
// a tile of registers, is packed into memory that stays in cache and multiplied by all rows; what
// follows is computed while the sums are in registers. With few rows packing would cost more than
// it gives: the panels are wide and read where they are.
namespace lathe::lower {
namespace {

constexpr int64_t kMaxPanelBytes = 1 << 20;
constexpr int64_t kFewRows = 4;
constexpr int64_t kParallelFlops = 1 << 21;

AnyTensorType TensorOf(Value v) { return v.type().cast<AnyTensorType>(); }

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
  tile_ = PickTile(rows_, columns_, lanes_, machine_.vector_registers, kFewRows);
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
  PanelProduct product(*lb_, machine_, element_, tile_);
  product.left = [&](Value row, Value k) { return lb_->Load(left_, At(row, k)); };
  product.right = [&](Value k, int64_t v) { return Right(k, v, first_column); };
  product.finish = [&](Value row, int64_t v, Value sum) {
    const Value column = Plus(first_column, v * lanes_);
    after_->Store(*lb_, At(row, column), lanes_, live_[static_cast<size_t>(v)], sum);
  };
  product.Write(rows_, depth_);
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

}  // namespace

bool LowerMatmul(Lowering& l) {
  Matmul lowering(l.function, l.machine);
  l.why = lowering.Refusal();
  if (!l.why.empty()) return false;
  lowering.Write(l.body);
  return true;
}

}  // namespace lathe::lower
