#include <numeric>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/resize.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

// What the resize makes of each unit vector along one axis, [extent before, extent after]: it is
// linear, and works on one axis after the other.
class Matrices {
 public:
  Matrices(ResizeOp op, Builder& b) : op_(op), b_(b) {}

  Value Along(size_t entry, size_t axis) {
    const int64_t only[] = {1};
    ResizeAttrs attrs = Attrs();
    attrs.axes = std::vector<int64_t>(only, only + 1);
    return ResizeOp::Create(b_, Units(KnownExtent(op_.x(), axis)), Own(op_.roi(), entry, true),
                            Own(op_.scales(), entry, false), Own(op_.sizes(), entry, false), attrs)
        .y();
  }

 private:
  ResizeAttrs Attrs() const {
    return {.antialias = op_.antialias(),
            .coordinate_transformation_mode = std::string(op_.coordinate_transformation_mode()),
            .cubic_coeff_a = op_.cubic_coeff_a(),
            .exclude_outside = op_.exclude_outside(),
            .mode = std::string(op_.mode()),
            .nearest_mode = std::string(op_.nearest_mode())};
  }

  Value Units(int64_t n) {
    const ElementType type = op_.x().type().cast<AnyTensorType>().element();
    const int64_t shape[] = {n, n};
    const Tensor zero = Cast(Tensor::Of<double>({1}, {0}), type);
    const Value square =
        ConstantOfShapeOp::Create(b_, IntsConstant(b_, shape), {.value = zero}).output();
    return EyeLikeOp::Create(b_, square, {.dtype = type}).output();
  }

  // The entries of an operand that belong to one axis: two of a roi.
  Value Own(Value operand, size_t entry, bool is_roi) {
    if (!operand) return {};
    const auto at = static_cast<int64_t>(entry);
    std::vector<int64_t> entries{at};
    if (is_roi) entries.push_back(at + KnownExtent(operand, 0) / 2);
    return GatherOp::Create(b_, operand, IntsConstant(b_, entries)).output();
  }

  ResizeOp op_;
  Builder& b_;
};

// x times the transposed matrix along one axis.
Value Contracted(Builder& b, Value x, Value matrix, size_t axis, size_t rank) {
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[axis], perm[rank - 1]);
  const bool last = axis + 1 == rank;
  if (!last) x = TransposeOp::Create(b, x, {.perm = perm}).transposed();
  x = MatmulOp::Create(b, x, matrix, {.transpose_y = true}).z();
  return last ? x : TransposeOp::Create(b, x, {.perm = perm}).transposed();
}

// Whether the axis stays as it is, so that its extent need not be known: that of a batch, say.
bool IsUnchanged(ResizeOp op, size_t entry, size_t axis) {
  const Dim before = op.x().type().cast<AnyTensorType>().dims()[axis];
  const auto y = op.y().type().cast<AnyTensorType>();
  const bool crops = op.coordinate_transformation_mode() == "tf_crop_and_resize";
  if (crops || !y.has_rank() || !ProvablyEqual(before, y.dims()[axis])) return false;
  if (!op.scales()) return true;
  const auto scales = ConstantTensor(op.scales());
  return scales && ToDoubles(*scales)[entry] == 1;
}

}  // namespace

// Where a region of interest lies is a setting, to which there is no gradient.
std::vector<Value> ResizeOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const ResizeOp op(o);
  if (op.keep_aspect_ratio_policy() != "stretch" && op.sizes() && !op.scales()) {
    FailGradient(o, "has no gradient where it keeps the aspect ratio of sizes; give it scales");
  }
  const auto rank = static_cast<size_t>(KnownRank(op.x()));
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (op.axes()) axes = *op.axes();
  Matrices matrices(op, b);
  Value grad = g[0];
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(FrontAxis(axes[i], static_cast<int64_t>(rank)));
    if (IsUnchanged(op, i, axis)) continue;
    grad = Contracted(b, grad, matrices.Along(i, axis), axis, rank);
  }
  std::vector<Value> grads(o->num_operands());
  grads[kX] = Typed(grad, op.x());
  return grads;
}

}  // namespace lathe::nn
