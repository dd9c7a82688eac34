#include "src/lower/planes.h"

#include "lathe/dialect/nn/view.h"

namespace lathe::lower {
namespace {

constexpr int64_t kParallelWork = 1 << 17;
constexpr int64_t kUsualBatch = 4;  // where it is symbolic

}  // namespace

Value ViewPlanes(LoopBuilder& lb, Value tensor) {
  const auto type = tensor.type().cast<AnyTensorType>();
  const Dim planes = type.dims()[0] * type.dims()[1];
  std::vector<int64_t> shape{planes.is_constant() ? planes.value() : -1};
  for (const Dim& dim : type.dims().subspan(2)) {
    shape.push_back(dim.is_constant() ? dim.value() : -1);
  }
  return nn::ViewReshapeOp::Create(lb.b(), tensor, {.shape = shape}).y();
}

void ForPlanes(LoopBuilder& lb, const Dim& n, const Dim& c, int64_t work,
               const std::function<void(Value n, Value c, Value plane)>& body) {
  const auto usual = [](const Dim& dim) { return dim.is_constant() ? dim.value() : kUsualBatch; };
  const bool parallel = usual(n) * usual(c) * work > kParallelWork;
  const Dim d0 = LoopBuilder::D0(), d1 = LoopBuilder::D1();
  const Value channels = lb.Extent(c);
  const auto of_plane = [&](Value plane) {
    const Value both[] = {plane, channels};
    const Dim per_image = c.is_constant() ? c : d1;
    const Value at = n.IsConstant(1) ? lb.Int(0) : lb.Index(FloorDiv(d0, per_image), both);
    body(at, n.IsConstant(1) ? plane : lb.Index(Mod(d0, per_image), both), plane);
  };
  if (n.is_constant() && c.is_constant()) {
    lb.For(n.value() * c.value(), parallel, of_plane);
    return;
  }
  const Value both[] = {lb.Extent(n), channels};
  lb.For(lb.Index(d0 * d1, both), parallel, of_plane);
}

}  // namespace lathe::lower
