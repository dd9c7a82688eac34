#include <algorithm>
#include <vector>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/text.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/list.h"
#include "src/lower/strategies/matmul_job.h"
#include "src/lower/strategies/matmul_plan.h"

// A row, or two, by a matrix whose columns lie in one piece each, and the elementwise operations
// after it; so is a matrix by one column. Each sum is a dot product of two vectors in memory: as
// many of them as a vector has lanes go down the depth at once, each in a register of its own,
// whose lanes are added up at the end, all registers together. Nothing is copied, for each element
// of the matrix is used once. Any number of rows by a few long columns, such as those of a linear
// classifier, would leave most lanes empty otherwise; constant columns are turned into place.
namespace lathe::lower {
namespace {

constexpr int64_t kMostRows = 2;
constexpr int64_t kLongDepth = 256;
constexpr int64_t kThreadWork = 1 << 17;  // multiply-adds that are worth a thread

class MatmulDots : ProductWriter {
 public:
  explicit MatmulDots(Lowering& lowering) : ProductWriter(lowering) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  std::string MatrixRefusal();
  bool HasFewLongColumns() const;
  void Turn();
  void WriteItem(Value number);
  void WriteRow(Value row);
  std::vector<Value> Sums(Value row);
  std::vector<Value> Step(Value row, Value k, std::span<const Value> sums, Value live);
  Value Factor(const MatrixOperand& m, Value memory, Value row, Value k, Value column, Value live);

  int64_t dots() const { return columns_ < lanes_ ? columns_ : lanes_; }

  ElementType sum_ = ElementType::kUndefined;
  int64_t lanes_ = 1;
  int64_t columns_ = 1;  // if there are fewer than lanes
  bool turned_ = false;  // the columns are brought into one piece each

  // While writing.
  Value left_, right_;
  std::vector<Value> batch_at_;
  Value first_column_;
  std::vector<Value> column_at_;  // of each dot product; past the last column, that one
  Value live_;                    // columns; null: all
};

std::string MatmulDots::Refusal() {
  if (std::string why = job_.Refusal(true); !why.empty()) return why;
  l_.where = job_.form.where;
  const ProductForm& f = job_.form;
  if (f.left.zero_point || f.right.zero_point) return "there are zero points";
  sum_ = SumElement(f.left.element);
  if (!IsFloat(sum_) && !IsInteger(sum_)) return StrCat("elements are ", Name(f.left.element));
  lanes_ = l_.machine.lanes(sum_);
  columns_ = f.columns.is_constant() ? std::min(f.columns.value(), lanes_) : lanes_;
  if (lanes_ == 1) return "the target has no vectors";
  return MatrixRefusal();
}

std::string MatmulDots::MatrixRefusal() {
  const ProductForm& f = job_.form;
  if (!f.left.EndsWith(kDepth)) return "the rows do not lie in one piece each";
  const bool in_place = f.right.EndsWith(kDepth);
  if (HasFewLongColumns() && (in_place || job_.CanPackRight())) {
    turned_ = !in_place;
    return "";
  }
  if (!f.rows.is_constant() || f.rows.value() > kMostRows) return "there are more than two rows";
  if (!in_place) return "the columns do not lie in one piece each";
  return !f.mirrored && job_.CanPackRight() ? "the right matrix is packed" : "";
}

bool MatmulDots::HasFewLongColumns() const {
  const ProductForm& f = job_.form;
  const bool is_matrix = TensorOf(job_.anchor->operand(f.right.operand)).rank() == 2;
  return f.columns.is_constant() && f.depth.is_constant() && is_matrix &&
         f.right.roles.size() == 2 && f.columns.value() <= std::max<int64_t>(lanes_ / 4, 2) &&
         f.depth.value() >= kLongDepth;
}

// ---- writing ----

void MatmulDots::Write() {
  lb_.emplace(l_.body);
  job_.after->Open(*lb_, *l_.body);
  left_ = job_.Open(*lb_, *l_.body, job_.form.left);
  if (turned_) Turn();
  right_ = job_.Open(*lb_, *l_.body, job_.form.right);
  Dim items = CeilDiv(job_.form.columns, lanes_) * job_.form.rows;
  for (const Dim& dim : job_.form.batch) items *= dim;
  const Dim work = job_.form.depth * columns_;
  const Value count = lb_->Extent(items);
  const Value chunk = lb_->Extent(Max(FloorDiv(kThreadWork, Max(work, 1)), 1));
  const Value both[] = {count, chunk};
  if (!items.IsConstant(0)) {
    const Value chunks = lb_->Index(CeilDiv(LoopBuilder::D0(), LoopBuilder::D1()), both);
    lb_->For(chunks, true, [&](Value c) {
      const Value three[] = {count, chunk, c};
      const Dim first = LoopBuilder::D1() * LoopBuilder::D2();
      const Value number = lb_->Index(first, three);
      lb_->For(lb_->Index(Min(LoopBuilder::D0() - first, LoopBuilder::D1()), three), false,
               [&](Value i) { WriteItem(Sum(number, i)); });
    });
  }
  job_.after->Close(*lb_);
}

void MatmulDots::Turn() {
  MatrixOperand& right = job_.form.right;
  const Shape shape = {right.dims[0].value(), right.dims[1].value()};
  l_.Pack({.argument = job_.anchor->operand(right.operand).index(),
           .padded = shape,
           .split = shape,
           .order = {1, 0}});
  std::swap(right.dims[0], right.dims[1]);
  std::swap(right.roles[0], right.roles[1]);
}

// A row by as many columns as a vector has lanes, of a matrix of the stack.
void MatmulDots::WriteItem(Value number) {
  std::vector<Dim> extents = job_.form.batch;
  extents.push_back(CeilDiv(job_.form.columns, lanes_));
  extents.push_back(job_.form.rows);
  std::vector<Value> at(extents.size());
  for (size_t i = extents.size(); i-- > 0;) {
    const Value both[] = {number, lb_->Extent(extents[i])};
    at[i] = i == 0 ? number : lb_->Index(Mod(LoopBuilder::D0(), LoopBuilder::D1()), both);
    number = lb_->Index(FloorDiv(LoopBuilder::D0(), LoopBuilder::D1()), both);
  }
  batch_at_.assign(at.begin(), at.end() - 2);
  first_column_ = Times(at.end()[-2], lanes_);
  const Value columns = lb_->Extent(job_.form.columns);
  live_ = Minus(columns, first_column_, lanes_);
  if (Mod(job_.form.columns, lanes_).IsConstant(0)) live_ = {};
  column_at_.clear();
  for (int64_t i = 0; i < dots(); ++i) {
    const Value both[] = {first_column_, columns};
    const Dim own = LoopBuilder::D0() + i;
    column_at_.push_back(lb_->Index(live_ ? Min(own, LoopBuilder::D1() - 1) : own, both));
  }
  WriteRow(at.back());
}

void MatmulDots::WriteRow(Value row) {
  std::vector<Value> sums = Sums(row);
  sums.resize(static_cast<size_t>(lanes_), lb_->Splat(sum_, 0, lanes_));
  std::vector<Value> turned = lb_->Transpose(sums);
  for (size_t half = turned.size(); (half /= 2) > 0;) {
    for (size_t i = 0; i < half; ++i) {
      turned[i] = nn::AddOp::Create(lb_->b(), turned[i], turned[i + half]).c();
    }
  }
  const std::vector<Value> at =
      MatmulJob::At(*lb_, job_.form.result_roles, row, {}, first_column_, batch_at_);
  job_.after->Store(*lb_, at, lanes_, live_, lb_->As(turned.front(), job_.product_element()));
}

// A vector for each column, whose lanes are parts of its sum.
std::vector<Value> MatmulDots::Sums(Value row) {
  const Value depth = lb_->Extent(job_.form.depth);
  const Value full = lb_->Index(FloorDiv(LoopBuilder::D0(), lanes_), depth);
  const Value rest = lb_->Index(Mod(LoopBuilder::D0(), lanes_), depth);
  std::vector<Value> sums(static_cast<size_t>(dots()), lb_->Splat(sum_, 0, lanes_));
  sums = lb_->For(full, sums, [&](Value i, std::span<const Value> before) {
    return Step(row, Times(i, lanes_), before, {});
  });
  const auto known = LoopBuilder::Known(rest);
  if (known == 0) return sums;
  const Value has = lb_->Index(Min(LoopBuilder::D0(), 1), rest);
  return lb_->For(has, sums, [&](Value, std::span<const Value> before) {
    return Step(row, Times(full, lanes_), before, rest);
  });
}

std::vector<Value> MatmulDots::Step(Value row, Value k, std::span<const Value> sums, Value live) {
  const Value own = Factor(job_.form.left, left_, row, k, {}, live);
  std::vector<Value> next;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Value other = Factor(job_.form.right, right_, {}, k, column_at_[i], live);
    next.push_back(MulAdd(*lb_, l_.machine, own, other, sums[i]));
  }
  return next;
}

Value MatmulDots::Factor(const MatrixOperand& m, Value memory, Value row, Value k, Value column,
                         Value live) {
  const std::vector<Value> at =
      MatmulJob::At(*lb_, m.roles, row, k, column, job_.BatchOf(*lb_, m, batch_at_));
  const Value v = lb_->As(job_.Load(*lb_, m, memory, at, lanes_, live), sum_);
  const bool is_computed =
      &m == &job_.form.left ? job_.before_left.has_value() : job_.before_right.has_value();
  // What is loaded is zero behind the end of the depth; what is computed may be anything.
  return live && is_computed ? OrZero(*lb_, v, live) : v;
}

}  // namespace

bool LowerMatmulDots(Lowering& l) { return WriteUnlessRefused<MatmulDots>(l); }

}  // namespace lathe::lower
