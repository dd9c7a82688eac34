#include "src/transform/conv_constants.h"

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/support/dispatch.h"

namespace lathe {

std::string ParameterBase(Value value, const char* otherwise) {
  const Operation* maker = value ? value.defining_op() : nullptr;
  const auto name =
      maker == nullptr ? StrAttribute() : maker->attribute("name").dyn_cast<StrAttribute>();
  return std::string(name ? name.value() : otherwise);
}

bool IsNumberOfParameter(const Operation* op) {
  if (!op->isa<nn::CastOp>() || op->operand(0).defining_op() == nullptr) return false;
  const auto from = op->operand(0).type().dyn_cast<AnyTensorType>();
  const auto to = op->result(0).type().dyn_cast<AnyTensorType>();
  return op->operand(0).defining_op()->isa<builtin::GetParameterOp>() && from && to &&
         from.is_static() && NumElements(*from.shape().Constants()) == 1 &&
         IsInteger(from.element()) && IsFloat(to.element());
}

Tensor ScaledChannels(const Tensor& tensor, const std::vector<double>& factors) {
  Tensor scaled(tensor.element_type(), tensor.shape());
  const size_t per_channel = static_cast<size_t>(tensor.num_elements()) / factors.size();
  VisitFloat(tensor.element_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto from = tensor.data<T>();
    const auto to = scaled.mutable_data<T>();
    for (size_t channel = 0; channel < factors.size(); ++channel) {
      const size_t begin = channel * per_channel;
      for (size_t i = begin; i < begin + per_channel; ++i) {
        to[i] = static_cast<T>(static_cast<double>(from[i]) * factors[channel]);
      }
    }
  });
  return scaled;
}

Tensor FromDoubles(ElementType type, const std::vector<double>& values) {
  return Cast(Tensor::Of<double>({static_cast<int64_t>(values.size())}, values), type);
}

}  // namespace lathe
