#include "src/lower/strategies/matmul_form.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

#include "lathe/dialect/nn/matmul.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/text.h"

namespace lathe::lower {
namespace {

MatrixOperand OperandOf(const Operation& product, size_t operand) {
  const auto type = TensorOf(product.operand(operand));
  return {operand, type.element(), {type.dims().begin(), type.dims().end()}, {}};
}

// The batch axes are aligned at their ends.
void SetBatchRoles(MatrixOperand& m, size_t matrix_axes, const std::vector<Dim>& batch) {
  const size_t own = m.dims.size() - matrix_axes;
  for (size_t a = 0; a < own; ++a) {
    const size_t axis = batch.size() - own + a;
    const bool is_one = m.dims[a].IsConstant(1) && !ProvablyEqual(m.dims[a], batch[axis]);
    m.roles.push_back(is_one ? static_cast<int>(kOne) : static_cast<int>(axis));
  }
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
  f.result_roles = {kRow, kColumn};
  f.batch.clear();
}

// The terms of an equation; each has a letter once.
struct Terms {
  std::string left, right, result;
};

bool HasLetter(const std::string& term, char letter) {
  return term.find(letter) != std::string::npos;
}

std::string ReadTerms(std::string_view equation, Terms& terms) {
  std::string text(equation);
  std::erase(text, ' ');
  const size_t arrow = text.find("->"), comma = text.find(',');
  if (comma >= arrow) return "the equation has one term";
  terms.left = text.substr(0, comma);
  terms.right = text.substr(comma + 1, arrow == std::string::npos ? arrow : arrow - comma - 1);
  if (arrow != std::string::npos) {
    terms.result = text.substr(arrow + 2);
  } else {  // the letters that occur once
    std::string letters = terms.left + terms.right;
    std::ranges::sort(letters);
    for (const char c : letters) {
      if (std::ranges::count(letters, c) == 1) terms.result.push_back(c);
    }
  }
  for (std::string term : {terms.left, terms.right, terms.result}) {
    std::ranges::sort(term);
    const bool once = std::ranges::adjacent_find(term) == term.end();
    if (!once || term.find('.') != std::string::npos) return "a term is not a list of letters";
  }
  return "";
}

// Roles of the letters of both operands; the one that the result does not have is the depth.
std::string SetLetterRoles(const Terms& t, std::map<char, int> role, ProductForm& f) {
  int summed = 0;
  for (const char letter : t.left) {
    if (role.contains(letter)) continue;
    if (!HasLetter(t.right, letter)) return "one operand is summed alone";
    role[letter] = kDepth;
    ++summed;
  }
  if (summed > 1) return "more than one axis is summed over";
  for (const char letter : t.left) f.left.roles.push_back(role.at(letter));
  for (const char letter : t.right) {
    if (!role.contains(letter)) return "one operand is summed alone";
    f.right.roles.push_back(role.at(letter));
  }
  return "";
}

}  // namespace

std::string ProductForm::Parse(const Operation& product, bool merge_rows) {
  for (size_t i = 0; i < 2; ++i) {
    const auto type = product.operand(i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return "a matrix is of unknown rank";
  }
  left = OperandOf(product, 0);
  right = OperandOf(product, 1);
  const bool is_matmul = product.name() != nn::EinsumOp::kName;
  std::string why = is_matmul ? ParseMatmul(product) : ParseEinsum(product);
  if (why.empty() && product.name() == nn::MatmulIntegerOp::kName) why = SetZeroPoints(product);
  if (!why.empty()) return why;
  rows = ExtentOf(left, kRow);
  columns = ExtentOf(right, kColumn);
  depth = ExtentOf(left, kDepth);
  // Those of a matmul are a condition on the sizes of each run; those of an einsum may be 1 and
  // more.
  const Dim other = ExtentOf(right, kDepth);
  const bool is_checked = is_matmul && !depth.is_unknown() && !other.is_unknown();
  if (!is_checked) {
    if (depth.is_unknown() || other.is_unknown()) return "the depths are not known to be equal";
    where = Condition::Equal(depth, other);
  }
  if (where.Prove() == Truth::kFalse) return "the depths are not equal";
  if (is_matmul && merge_rows && CanMerge(*this)) MergeRows(*this);
  return "";
}

void ProductForm::TakeInnerRows() {
  const size_t axes = left.roles.size();
  if (!has_rows || HasBatch(right) || axes < 3 || left.roles.back() != kDepth) return;
  const int inner = left.roles[axes - 2];
  if (inner < 0 || !left.Has(kRow)) return;
  constexpr double kUsual = 8;  // rows, where nobody knows
  const auto usual = [](const Dim& d) {
    return d.is_constant() ? static_cast<double>(d.value()) : kUsual;
  };
  if (usual(batch[static_cast<size_t>(inner)]) < usual(rows)) return;
  const auto exchange = [inner](int& role) {
    if (role == inner || role == kRow) role = role == kRow ? inner : static_cast<int>(kRow);
  };
  std::ranges::for_each(left.roles, exchange);
  std::ranges::for_each(result_roles, exchange);
  std::swap(rows, batch[static_cast<size_t>(inner)]);
}

std::string ProductForm::Mirror() {
  if (!columns.IsConstant(1) || !right.Has(kColumn)) return "there is more than one column";
  if (left.zero_point || right.zero_point) return "there are zero points";
  const size_t last = result_roles.size() - 1;
  if (has_rows && (last == 0 || result_roles[last - 1] != kRow)) return "the rows lie elsewhere";
  const auto axis = std::ranges::find(right.roles, static_cast<int>(kColumn)) - right.roles.begin();
  if (axis + 2 < static_cast<std::ptrdiff_t>(right.roles.size())) return "the column lies apart";
  right.roles.erase(right.roles.begin() + axis);
  right.dims.erase(right.dims.begin() + axis);
  if (!right.EndsWith(kDepth)) return "the column lies apart";
  std::ranges::replace(left.roles, static_cast<int>(kRow), static_cast<int>(kColumn));
  std::swap(left, right);
  if (has_rows) {
    std::ranges::copy(result[last], std::back_inserter(result[last - 1]));
    result.pop_back();
    result_roles.pop_back();
    result_roles.back() = kColumn;
  }
  columns = has_rows ? rows : Dim(1);
  rows = 1;
  has_rows = false;
  mirrored = true;
  return "";
}

std::string ProductForm::ParseMatmul(const Operation& product) {
  const auto flag = [&](const char* name) {
    const auto value = product.attribute(name).dyn_cast<BoolAttribute>();
    return value && value.value();
  };
  const bool of_vector = left.dims.size() == 1, by_vector = right.dims.size() == 1;
  const auto z = TensorOf(product.result(0)).dims();
  const size_t matrix_axes = (of_vector ? 0U : 1U) + (by_vector ? 0U : 1U);
  batch.assign(z.begin(), z.end() - static_cast<std::ptrdiff_t>(matrix_axes));
  for (MatrixOperand* m : {&left, &right}) {
    const size_t own = std::min<size_t>(m->dims.size(), 2);
    SetBatchRoles(*m, own, batch);
  }
  AddMatrixRoles(left, kRow, kDepth, flag(nn::MatmulOp::kTransposeXAttr));
  AddMatrixRoles(right, kDepth, kColumn, flag(nn::MatmulOp::kTransposeYAttr));
  has_rows = !of_vector;
  if (by_vector && !of_vector) {  // the vector times the other matrix transposed
    std::swap(left, right);
    std::ranges::replace(right.roles, static_cast<int>(kRow), static_cast<int>(kColumn));
    has_rows = false;
  }
  for (size_t a = 0; a < z.size(); ++a) result.push_back({a});
  if (z.empty()) result.emplace_back();
  for (size_t a = 0; a < batch.size(); ++a) result_roles.push_back(static_cast<int>(a));
  if (has_rows) result_roles.push_back(kRow);
  result_roles.push_back(kColumn);
  return "";
}

// One for all, or one per column; those of rows have a shape of their own for each rank.
std::string ProductForm::SetZeroPoints(const Operation& product) {
  const std::pair<MatrixOperand*, size_t> places[] = {
      {&left,
       left.operand == 0 ? nn::MatmulIntegerOp::kAZeroPoint : nn::MatmulIntegerOp::kBZeroPoint},
      {&right,
       right.operand == 1 ? nn::MatmulIntegerOp::kBZeroPoint : nn::MatmulIntegerOp::kAZeroPoint}};
  for (const auto& [m, operand] : places) {
    if (operand >= product.num_operands()) continue;
    const Value v = product.operand(operand);
    if (!v || v.type().isa<NoneType>()) continue;
    const auto type = v.type().dyn_cast<AnyTensorType>();
    if (!v.is_block_argument() || !type || !type.has_rank()) return "a zero point is computed";
    m->zero_point = v;
    m->one_zero_point =
        std::ranges::all_of(type.dims(), [](const Dim& d) { return d.IsConstant(1); });
    if (m->one_zero_point) continue;
    const bool of_columns =
        m == &right && type.rank() == 1 && ProvablyEqual(type.dims()[0], ExtentOf(right, kColumn));
    if (!of_columns) return "the zero points are neither one nor one per column";
  }
  return "";
}

// The letters of the result are batch axes up to the last one of either operand: these are the rows
// and the columns. The columns are the last axis of the result; whose they are is the right
// operand.
std::string ProductForm::ParseEinsum(const Operation& product) {
  Terms t;
  const auto equation = product.attribute("equation").cast<StrAttribute>().value();
  if (std::string why = ReadTerms(equation, t); !why.empty()) return why;
  if (t.left.size() != left.dims.size() || t.right.size() != right.dims.size()) {
    return "the equation has terms of another rank";
  }
  if (!t.result.empty() && !HasLetter(t.right, t.result.back())) {
    std::swap(left, right);
    std::swap(t.left, t.right);
  }
  if (!t.result.empty() && HasLetter(t.left, t.result.back()))
    return "the last axis is one of stacks";
  const auto z = TensorOf(product.result(0)).dims();
  std::map<char, int> role;
  size_t row = t.result.size();
  for (size_t a = 0; a + 1 < t.result.size(); ++a) {
    if (!HasLetter(t.right, t.result[a])) row = a;
  }
  has_rows = row != t.result.size();
  for (size_t a = 0; a < t.result.size(); ++a) {
    result.push_back({a});
    const bool is_column = a + 1 == t.result.size();
    const int number = static_cast<int>(batch.size());
    result_roles.push_back(is_column  ? static_cast<int>(kColumn)
                           : a == row ? static_cast<int>(kRow)
                                      : number);
    role[t.result[a]] = result_roles.back();
    if (!is_column && a != row) batch.push_back(z[a]);
  }
  if (result.empty()) {
    result.emplace_back();
    result_roles = {kColumn};
  }
  return SetLetterRoles(t, role, *this);
}

}  // namespace lathe::lower
