#include "src/dialect/size_scope.h"

#include <algorithm>

namespace lathe {

std::optional<int64_t> SizeIn(Type type, const RtValue& value, std::string_view symbol) {
  const auto tensor = type ? type.dyn_cast<AnyTensorType>() : AnyTensorType();
  if (!tensor || !tensor.has_rank() || !value.is_tensor()) return std::nullopt;
  const Shape& shape = value.tensor().shape();
  for (size_t i = 0; i < std::min(shape.size(), tensor.rank()); ++i) {
    const Dim& d = tensor.dims()[i];
    if (d.is_symbol() && d.symbol_name() == symbol) return shape[i];
  }
  return std::nullopt;
}

std::optional<int64_t> SizeOf(const EvalContext& c, std::string_view symbol) {
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    const Value operand = c.op()->operand(i);
    if (!operand) continue;
    if (const auto size = SizeIn(operand.type(), c.input_value(i), symbol)) return size;
  }
  const auto* scope = dynamic_cast<const SizeScope*>(&c);
  return scope == nullptr ? std::nullopt : scope->SizeOf(symbol);
}

}  // namespace lathe
