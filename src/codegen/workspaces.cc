#include "lathe/codegen/code_generator.h"
#include "lathe/support/error.h"

namespace lathe::codegen {

std::vector<AnyTensorType> ArgumentTypes(const Block& body) {
  std::vector<AnyTensorType> types;
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    types.push_back(body.argument(i).type().cast<AnyTensorType>());
  }
  return types;
}

Workspaces::Workspaces(std::span<const Dim> bytes, std::span<const AnyTensorType> types,
                       std::span<const Shape> shapes) {
  if (bytes.empty()) return;
  std::vector<Dim::Binding> symbols;
  for (size_t i = 0; i < types.size(); ++i) {
    for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
      const Dim& dim = types[i].dims()[axis];
      if (dim.is_symbol()) symbols.emplace_back(dim.symbol_name(), shapes[i][axis]);
    }
  }
  for (const Dim& dim : bytes) {
    const auto size = dim.Evaluate(symbols);
    LATHE_CHECK(size.has_value(), "a workspace of ", dim.ToString(), " bytes");
    memory_.emplace_back(ElementType::kU8, Shape{*size});
  }
}

void Workspaces::AddTo(std::vector<KernelBuffer>& buffers) {
  for (Tensor& t : memory_) buffers.push_back({t.mutable_raw(), t.shape().data()});
}

}  // namespace lathe::codegen
