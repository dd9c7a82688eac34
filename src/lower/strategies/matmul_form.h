#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/lower/condition.h"
#include "lathe/support/dim.h"
#include "lathe/support/element_type.h"

namespace lathe::lower {

/// What an axis of a matrix, or of a stack of matrices, is for; 0 and more: the batch axis of that
/// number, or of extent 1 where only a run knows it.
enum Role : int {
  kRow = -1,     ///< rows of the left matrix and of the result
  kColumn = -2,  ///< columns of the right matrix and of the result
  kDepth = -3,   ///< summed over
  kOne = -4,     ///< of extent 1, where the other matrix has a batch axis
};

/// A matrix, or a stack of them, as an operand of the product has it.
struct MatrixOperand {
  size_t operand = 0;
  ElementType element = ElementType::kUndefined;
  std::vector<Dim> dims;  ///< per role; those of the operand, or its leading ones multiplied
  std::vector<int> roles;
  Value zero_point = {};  ///< of the function: subtracted from the elements; per row or per column
  bool one_zero_point = true;

  bool Has(Role role) const { return std::ranges::find(roles, role) != roles.end(); }
  bool EndsWith(Role role) const { return !roles.empty() && roles.back() == role; }
};

/// A product of matrices, or of stacks of them, whatever way they lie in memory. The last axis of
/// the result, if it has axes, is that of the columns.
struct ProductForm {
  MatrixOperand left, right;
  std::vector<Dim> batch;
  Dim rows = 1, columns = 1, depth = 1;
  std::vector<std::vector<size_t>> result;  ///< axes of the result, grouped by their role
  std::vector<int> result_roles;            ///< of these groups
  bool has_rows = true;
  bool mirrored = false;  ///< see Mirror
  Condition where = {};   ///< of the extents: elsewhere the depths are not equal

  /// Takes apart an `nn.matmul`, `nn.matmul_integer` or `nn.einsum` of two operands. `merge_rows`:
  /// the leading axes of the left operand are rows where the right one does not have them. Returns
  /// why not.
  std::string Parse(const Operation& product, bool merge_rows);
  /// Of the axes that only the left operand has, where they are not merged, the rows are the one
  /// that lies before the depth in memory, unless another one is known to be longer.
  void TakeInnerRows();
  /// A matrix by one column becomes that column, without its axis of extent 1, by the matrix
  /// transposed: what were rows are columns. Returns why not.
  std::string Mirror();

 private:
  std::string ParseMatmul(const Operation& product);
  std::string SetZeroPoints(const Operation& product);
  std::string ParseEinsum(const Operation& product);
};

}  // namespace lathe::lower
