#include <algorithm>

#include "lathe/lower/lowering.h"
#include "lathe/support/error.h"
#include "src/dialect/move.h"

namespace lathe::lower {

Shape PackedLayout::shape() const {
  Shape shape;
  for (const int64_t axis : order) shape.push_back(split[static_cast<size_t>(axis)]);
  return shape;
}

Tensor Pack(const Tensor& tensor, const PackedLayout& layout) {
  Tensor padded = tensor;
  if (tensor.shape() != layout.padded) {
    padded = Tensor(tensor.element_type(), layout.padded);
    std::ranges::fill(std::span(padded.mutable_raw(), padded.byte_size()), std::byte{0});
    eval::CopyView(tensor, eval::View::Of(tensor), padded, eval::View::Of(padded), tensor.shape());
  }
  const std::vector<size_t> order(layout.order.begin(), layout.order.end());
  return eval::Permute(padded.Reshaped(layout.split), order);
}

bool Lowering::IsConstant(Value v) const {
  return v.is_block_argument() && v.index() < constant.size() && constant[v.index()];
}

Value Lowering::Pack(PackedLayout layout) {
  const Value argument = body->argument(layout.argument);
  const auto old = argument.type().cast<AnyTensorType>();
  const Shape extents = layout.shape();
  const std::vector<Dim> dims(extents.begin(), extents.end());
  argument.set_type(VTensorType::Get(*old.context(), SymShape(dims), old.element()));
  packed.push_back(std::move(layout));
  return argument;
}

}  // namespace lathe::lower
