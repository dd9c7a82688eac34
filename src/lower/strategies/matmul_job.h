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

  /// Why there is none; empty if there is. `general`: the form may be mirrored, a matrix by one
  /// column being that column by the matrix transposed, and may hold for some extents only.
  std::string Refusal(bool general = false);

  const Operation* anchor = nullptr;
  std::optional<Pointwise> before_left, before_right;  ///< what computes a matrix
  std::optional<Pointwise> after;
  ProductForm form;

  /// Whether the right matrix, static, is the same in every run and nobody else reads it.
  bool CanPackRight() const;
  /// The right matrix as [its stack, panels, depth, `width` columns of a panel].
  PackedLayout PanelsOfRight(int64_t width) const;
  ElementType product_element() const;

  // ---- while writing ----

  /// The memory of a matrix; null if it is computed.
  Value Open(LoopBuilder& lb, const Block& body, const MatrixOperand& m);
  /// `batch`, an index for each batch axis, as `m` has them: 0 where it is of extent 1, which only
  /// a run may know.
  std::vector<Value> BatchOf(LoopBuilder& lb, const MatrixOperand& m,
                             const std::vector<Value>& batch) const;
  /// An index per role; `batch`: where in each batch axis.
  static std::vector<Value> At(LoopBuilder& lb, const std::vector<int>& roles, Value row, Value k,
                               Value column, const std::vector<Value>& batch);
  /// An element (lanes 0) of a matrix that lies in `memory`, or is computed.
  Value Load(LoopBuilder& lb, const MatrixOperand& m, Value memory, const std::vector<Value>& at,
             int64_t lanes, Value live) const;

 private:
  std::string AnchorRefusal();
  std::string ParseForm(bool merge_rows, bool mirror);
  std::string SetBefore(MatrixOperand& m, std::optional<Pointwise>& before);

  const Lowering& l_;
};

/// What the strategies for products have: the job, and arithmetic on the integers of their loops.
class ProductWriter {
 protected:
  explicit ProductWriter(Lowering& lowering) : l_(lowering), job_(lowering) {}

  Value Sum(Value a, Value b) {
    const Value both[] = {a, b};
    return lb_->Index(LoopBuilder::D0() + LoopBuilder::D1(), both);
  }
  Value Plus(Value v, int64_t offset) { return lb_->Index(LoopBuilder::D0() + offset, v); }
  Value Times(Value v, int64_t factor) { return lb_->Index(LoopBuilder::D0() * factor, v); }
  /// a - b, but at most so many.
  Value Minus(Value a, Value b, int64_t most) {
    const Value both[] = {a, b};
    return lb_->Index(Min(LoopBuilder::D0() - LoopBuilder::D1(), most), both);
  }

  Lowering& l_;
  MatmulJob job_;
  std::optional<LoopBuilder> lb_;  // while writing
};

/// The first `live` lanes of a vector, and zeros.
Value OrZero(LoopBuilder& lb, Value v, Value live);

}  // namespace lathe::lower
