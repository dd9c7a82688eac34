#include "src/lower/strategies/matmul_form.h"

#include <algorithm>
#include <span>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/support/text.h"

namespace lathe::lower {
namespace {

AnyTensorType TensorOf(Value v) { return v.type().cast<AnyTensorType>(); }

MatrixOperand OperandOf(const Operation& product, size_t operand) {
  const auto type = TensorOf(product.operand(operand));
  return {operand, type.element(), {type.dims().begin(), type.dims().end()}, {}};
}

// The batch axes are aligned at their ends.
std::string SetBatchRoles(MatrixOperand& m, size_t matrix_axes, const std::vector<Dim>& batch) {
  const size_t own = m.dims.size() - matrix_axes;
  for (size_t a = 0; a < own; ++a) {
    const size_t axis = batch.size() - own + a;
    if (ProvablyEqual(m.dims[a], batch[axis])) {
      m.roles.push_back(static_cast<int>(axis));
    } else if (m.dims[a].IsConstant(1)) {
      m.roles.push_back(kOne);
    } else {
      return StrCat("whether extent ", m.dims[a].ToString(), " is broadcast is not known");
    }
  }
  return "";
}

void AddMatrixRoles(MatrixOperand& m, Role first, Role second, bool transposed) {
  if (m.dims.size() == m.roles.size() + 1) return m.roles.push_back(kDepth);  // a vector
  m.roles.push_back(transposed ? second : first);
  m.roles.push_back(transposed ? first : second);
}

Dim ExtentOf(const MatrixOperand& m, Role role) {
  const auto at = std::ranges::find(m.roles, role);
  return at == m.roles.end() ? Dim(1) : m.dims[static_cast<size_t>(at - m.roles.begin())];
}

bool HasBatch(const MatrixOperand& m) {
  return std::ranges::any_of(m.roles, [](int role) { return role >= 0; });
}

bool CanMerge(const ProductForm& f) {
  return !f.batch.empty() && f.left.EndsWith(kDepth) && f.has_rows && !HasBatch(f.right) &&
         f.depth.is_constant() && f.left.roles.size() == f.batch.size() + 2 &&
         std::ranges::find(f.left.roles, kOne) == f.left.roles.end();
}

// Batch axes that the right matrix does not have are more rows.
void MergeRows(ProductForm& f) {
  for (const Dim& dim : f.batch) f.rows *= dim;
  f.left.dims = {f.rows, f.depth};
  f.left.roles = {kRow, kDepth};
  std::vector<size_t> rows;
  for (size_t a = 0; a <= f.batch.size(); ++a) rows.push_back(a);
  f.result = {rows, f.result.back()};
  f.batch.clear();
}

}  // namespace

std::string ProductForm::Parse(const Operation& product, bool merge_rows) {
  const nn::MatmulOp op(const_cast<Operation*>(&product));
  for (size_t i = 0; i < 2; ++i) {
    const auto type = product.operand(i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return "a matrix is of unknown rank";
  }
  left = OperandOf(product, nn::MatmulOp::kX);
  right = OperandOf(product, nn::MatmulOp::kY);
  const bool of_vector = left.dims.size() == 1, by_vector = right.dims.size() == 1;
  const auto z = TensorOf(product.result(0)).dims();
  const size_t matrix_axes = (of_vector ? 0U : 1U) + (by_vector ? 0U : 1U);
  batch.assign(z.begin(), z.end() - static_cast<std::ptrdiff_t>(matrix_axes));
  for (MatrixOperand* m : {&left, &right}) {
    const size_t own = std::min<size_t>(m->dims.size(), 2);
    if (std::string why = SetBatchRoles(*m, own, batch); !why.empty()) return why;
  }
  AddMatrixRoles(left, kRow, kDepth, op.transpose_x());
  AddMatrixRoles(right, kDepth, kColumn, op.transpose_y());
  has_rows = !of_vector;
  if (by_vector && !of_vector) {  // the vector times the other matrix transposed
    std::swap(left, right);
    std::ranges::replace(right.roles, static_cast<int>(kRow), static_cast<int>(kColumn));
    has_rows = false;
  }
  rows = ExtentOf(left, kRow);
  columns = ExtentOf(right, kColumn);
  depth = ExtentOf(left, kDepth);
  if (!ProvablyEqual(depth, ExtentOf(right, kDepth))) return "the depths are not known to be equal";
  for (size_t a = 0; a < z.size(); ++a) result.push_back({a});
  if (z.empty()) result.emplace_back();
  if (merge_rows && CanMerge(*this)) MergeRows(*this);
  return "";
}

}  // namespace lathe::lower
