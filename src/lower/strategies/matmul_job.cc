#include "src/lower/strategies/matmul_job.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "lathe/support/text.h"
#include "src/lower/anchor.h"

namespace lathe::lower {
namespace {

bool IsProduct(const Operation& op) {
  return op.name() == nn::MatmulOp::kName || op.name() == nn::EinsumOp::kName ||
         op.name() == nn::MatmulIntegerOp::kName;
}

bool IsTransposedArgument(Value matrix) {
  const Operation* op = matrix.defining_op();
  return op != nullptr && op->isa<nn::TransposeOp>() && op->operand(0).is_block_argument();
}

// A transposed argument is the argument, its axes in another order.
std::string Transpose(Value matrix, MatrixOperand& m) {
  const MatrixOperand whole = m;
  if (whole.dims.size() != TensorOf(matrix).rank()) return "rows of a transposed matrix are merged";
  const auto perm = nn::TransposeOp(matrix.defining_op()).perm();
  for (size_t a = 0; a < whole.dims.size(); ++a) {
    const size_t from = perm ? static_cast<size_t>((*perm)[a]) : whole.dims.size() - 1 - a;
    m.dims[from] = whole.dims[a];
    m.roles[from] = whole.roles[a];
  }
  return "";
}

}  // namespace

std::string MatmulJob::Refusal(bool general) {
  if (std::string why = AnchorRefusal(); !why.empty()) return why;
  if (general && (ParseForm(true, true).empty() || ParseForm(false, true).empty())) return "";
  if (!ParseForm(true, false).empty()) {
    if (std::string why = ParseForm(false, false); !why.empty()) return why;
  }
  const bool known = general || form.where.Prove() == Truth::kTrue;
  return known ? "" : "the depths are not known to be equal";
}

std::string MatmulJob::AnchorRefusal() {
  std::string why = FindAnchor(l_.function, "matrix product", IsProduct, anchor);
  if (!why.empty()) return why;
  const size_t operands = anchor->num_operands();
  const bool two = operands == 2 || (operands > 2 && !anchor->isa<nn::EinsumOp>());
  return two ? "" : "the product is not one of two operands";
}

// A matrix that is computed in the same function is so where it is read.
std::string MatmulJob::SetBefore(MatrixOperand& m, std::optional<Pointwise>& before) {
  before.reset();
  const Value matrix = anchor->operand(m.operand);
  if (matrix.is_block_argument()) return "";
  if (IsTransposedArgument(matrix)) {
    std::string why = Transpose(matrix, m);
    if (why.empty() && &m == &form.left) form.TakeInnerRows();
    return why;
  }
  before.emplace(l_.function, matrix, l_.machine);
  if (std::string why = before->Refusal(); !why.empty()) {
    return StrCat("a matrix is computed in the same function, and ", why);
  }
  const size_t rank = TensorOf(matrix).rank(), merged = rank - m.dims.size();
  const bool at_end = form.mirrored && &m == &form.left;  // the axis of one column
  std::vector<std::vector<size_t>> axes;                  // others that are merged are all rows
  for (size_t a = 0; a < rank; ++a) {
    if (a == 0 || (at_end ? a + merged < rank : a > merged)) axes.emplace_back();
    axes.back().push_back(a);
  }
  return before->SetGroups(std::move(axes)) ? "" : "the rows of a matrix cannot be walked as one";
}

std::string MatmulJob::ParseForm(bool merge_rows, bool mirror) {
  form = {};
  if (std::string why = form.Parse(*anchor, merge_rows); !why.empty()) return why;
  if (mirror) {
    if (std::string why = form.Mirror(); !why.empty()) return why;
  }
  after.emplace(l_.function, anchor, l_.machine);
  if (std::string why = after->Refusal(); !why.empty()) return why;
  const auto product = TensorOf(anchor->result(0));
  if (!std::ranges::equal(product.dims(), after->dims())) return "the result is broadcast further";
  if (!after->SetGroups(form.result)) return "the axes of rows cannot be walked as one";
  if (std::string why = SetBefore(form.left, before_left); !why.empty()) return why;
  return SetBefore(form.right, before_right);
}

bool MatmulJob::CanPackRight() const {
  const Value argument = anchor->operand(form.right.operand);
  size_t uses = 0;
  for ([[maybe_unused]] const OpOperand use : argument.uses()) ++uses;
  const bool is_matrix = form.right.Has(kDepth) && form.right.Has(kColumn);
  return l_.IsConstant(argument) && uses == 1 && is_matrix && TensorOf(argument).is_static();
}

PackedLayout MatmulJob::PanelsOfRight(int64_t width) const {
  PackedLayout layout;
  layout.argument = anchor->operand(form.right.operand).index();
  std::vector<int64_t> depth_and_lanes(2);
  int64_t panels = 0;
  for (size_t a = 0; a < form.right.dims.size(); ++a) {
    const int64_t extent = form.right.dims[a].value();
    const auto at = static_cast<int64_t>(layout.split.size());
    if (form.right.roles[a] != kColumn) {
      layout.padded.push_back(extent);
      layout.split.push_back(extent);
      if (form.right.roles[a] == kDepth) {
        depth_and_lanes[0] = at;
      } else {
        layout.order.push_back(at);
      }
      continue;
    }
    const int64_t count = std::max<int64_t>(CeilDiv(extent, width), 1);
    layout.padded.push_back(count * width);
    layout.split.insert(layout.split.end(), {count, width});
    panels = at;
    depth_and_lanes[1] = at + 1;
  }
  layout.order.push_back(panels);
  layout.order.insert(layout.order.end(), depth_and_lanes.begin(), depth_and_lanes.end());
  return layout;
}

ElementType MatmulJob::product_element() const { return TensorOf(anchor->result(0)).element(); }

// ---- while writing ----

Value MatmulJob::Open(LoopBuilder& lb, const Block& body, const MatrixOperand& m) {
  auto& before = &m == &form.left ? before_left : before_right;
  if (before) {
    before->OpenArguments(lb, body);
    return {};
  }
  const Value matrix = anchor->operand(m.operand);
  const Value source = IsTransposedArgument(matrix) ? matrix.defining_op()->operand(0) : matrix;
  const Value argument = body.argument(source.index());
  const size_t axes = m.dims.size();
  if (TensorOf(argument).rank() == axes) return argument;
  if (form.mirrored && &m == &form.left) {
    std::vector<int64_t> groups(axes, 1);
    groups.back() = 2;
    return lb.Grouped(argument, groups);
  }
  std::vector<int64_t> shape;
  for (const Dim& dim : m.dims) shape.push_back(dim.is_constant() ? dim.value() : -1);
  return nn::ViewReshapeOp::Create(lb.b(), argument, {.shape = shape}).y();
}

std::vector<Value> MatmulJob::At(LoopBuilder& lb, const std::vector<int>& roles, Value row, Value k,
                                 Value column, const std::vector<Value>& batch) {
  std::vector<Value> at;
  for (const int role : roles) {
    switch (role) {
      case kRow:
        at.push_back(row);
        break;
      case kColumn:
        at.push_back(column);
        break;
      case kDepth:
        at.push_back(k);
        break;
      case kOne:
        at.push_back(lb.Int(0));
        break;
      default:
        at.push_back(batch[static_cast<size_t>(role)]);
    }
  }
  return at;
}

std::vector<Value> MatmulJob::BatchOf(LoopBuilder& lb, const MatrixOperand& m,
                                      const std::vector<Value>& batch) const {
  std::vector<Value> own = batch;
  for (size_t a = 0; a < m.roles.size(); ++a) {
    if (m.roles[a] < 0) continue;
    const auto axis = static_cast<size_t>(m.roles[a]);
    if (ProvablyEqual(m.dims[a], form.batch[axis])) continue;
    const Value both[] = {batch[axis], lb.Extent(m.dims[a])};
    own[axis] = lb.Index(Min(LoopBuilder::D0(), LoopBuilder::D1() - 1), both);
  }
  return own;
}

Value MatmulJob::Load(LoopBuilder& lb, const MatrixOperand& m, Value memory,
                      const std::vector<Value>& at, int64_t lanes, Value live) const {
  const auto& before = &m == &form.left ? before_left : before_right;
  if (before) return before->At(lb, at, lanes, live);
  return lb.Load(memory, at, lanes, live);
}

Value OrZero(LoopBuilder& lb, Value v, Value live) {
  const int64_t lanes = TensorOf(v).dims()[0].value();
  std::vector<int32_t> numbers(static_cast<size_t>(lanes));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Value lane = lb.Constant(Tensor::Of<int32_t>({lanes}, numbers));
  const Value count = lb.As(live, ElementType::kI32);
  const Value is_live = nn::LessOp::Create(lb.b(), lane, count).c();
  const Value zeros = lb.Splat(TensorOf(v).element(), 0, lanes);
  return nn::WhereOp::Create(lb.b(), is_live, v, zeros).output();
}

}  // namespace lathe::lower
