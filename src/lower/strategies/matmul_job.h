#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/lower/lowering.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/matmul_form.h"

namespace lathe::lower {

/// A function of a product of matrices, what computes them and what follows it.
class MatmulJob {
 public:
  explicit MatmulJob(const Lowering& lowering) : l_(lowering) {}

  /// Why there is none; empty if there is.
  std::string Refusal();

  const Operation* master = nullptr;
  std::optional<Pointwise> before_left, before_right;  ///< what computes a matrix
  std::optional<Pointwise> after;
  ProductForm form;

  /// Whether the right matrix, static, is the same in every run and nobody else reads it.
  bool CanPackRight() const;
  ElementType product_element() const;

  // ---- while writing ----

  /// The memory of a matrix; null if it is computed.
  Value Open(LoopBuilder& lb, const Block& body, const MatrixOperand& m);
  /// An index per role; `batch`: where in each batch axis.
  static std::vector<Value> At(LoopBuilder& lb, const std::vector<int>& roles, Value row, Value k,
                               Value column, const std::vector<Value>& batch);
  /// An element (lanes 0) of a matrix that lies in `memory`, or is computed.
  Value Load(LoopBuilder& lb, const MatrixOperand& m, Value memory, const std::vector<Value>& at,
             int64_t lanes, Value live) const;

 private:
  std::string MasterRefusal();
  std::string ParseForm(bool merge_rows);
  std::string SetBefore(MatrixOperand& m, std::optional<Pointwise>& before);

  const Lowering& l_;
};

/// The value as that type.
Value Converted(LoopBuilder& lb, Value v, ElementType to);

}  // namespace lathe::lower
