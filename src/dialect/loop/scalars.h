#pragma once

#include <string>

#include "lathe/ir/interfaces.h"
#include "lathe/support/text.h"

/// What the operations of the dialect share: integers are scalars of type i64.
namespace lathe::loop {

/// `v_tensor<[], i64>`: of loop counters and indices.
inline Type IndexType(IrContext& context) {
  return VTensorType::Get(context, SymShape(std::vector<Dim>()), ElementType::kI64);
}
/// The name that operand `i` has in `expr`.
inline std::string SymbolName(size_t i) { return StrCat("d", i); }
/// The expression of a loop.index.
inline Dim ExprOf(const Operation* op) {
  return op->attribute("expr").cast<DimAttribute>().value();
}
/// The one element of operand `i`.
inline int64_t ScalarOf(EvalContext& c, size_t i) {
  const Tensor& value = c.input(i);
  if (value.num_elements() != 1) c.Fail("loop/scalar", StrCat("operand ", i, " is no scalar"));
  return value.data<int64_t>()[0];
}

}  // namespace lathe::loop
