#include "src/lower/strategies/gemm.h"

#include <algorithm>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/matmul.h"

namespace lathe::lower {
namespace {

Value Times(Builder& b, Value v, double factor) {
  if (factor == 1) return v;
  const ElementType element = v.type().cast<AnyTensorType>().element();
  const Tensor scalar = Cast(Tensor::Scalar<double>(factor), element);
  return nn::MulOp::Create(b, v, builtin::ConstantOp::Create(b, {.value = scalar}).result()).c();
}

Value As(Builder& b, Value v, ElementType to) {
  if (v.type().cast<AnyTensorType>().element() == to) return v;
  return nn::CastOp::Create(b, v, {.to = to}).output();
}

}  // namespace

// A product of halves that is scaled or added to stays in floats, as its sums are: the result is
// rounded once, and the product alone might not be a half.
void SpellGemm(Operation* gemm) {
  const nn::GemmOp op(gemm);
  const auto type = op.y().type().cast<AnyTensorType>();
  const ElementType element = type.element();
  const bool has_addend = op.c() && !op.c().type().isa<NoneType>();
  if (!IsFloat(element) && (op.alpha() != 1 || op.beta() != 1)) return;
  const bool widens =
      BitWidth(element) == 16 && IsFloat(element) && (op.alpha() != 1 || has_addend);
  const ElementType wide = widens ? ElementType::kF32 : element;
  Builder b = Builder::Before(gemm);
  b.set_location(gemm->location());
  const Value product =
      nn::MatmulOp::Create(b, op.a(), op.b(),
                           {.transpose_x = op.transA(), .transpose_y = op.transB()})
          .z();
  if (widens) product.set_type(VTensorType::Get(b.context(), type.shape(), wide));
  Value y = Times(b, product, op.alpha());
  if (has_addend) y = nn::AddOp::Create(b, y, Times(b, As(b, op.c(), wide), op.beta())).c();
  y = As(b, y, element);
  const Value results[] = {y};
  gemm->ReplaceAllUsesWith(results);
  gemm->Erase();
}

namespace {

bool IsByte(Value v) {
  const ElementType element = v.type().cast<AnyTensorType>().element();
  return element == ElementType::kI8 || element == ElementType::kU8;
}

Value Wide(Builder& b, Value v) {
  return nn::CastOp::Create(b, v, {.to = ElementType::kF64}).output();
}

// Broadcasts to the product as it is.
bool IsScalar(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  return type.has_rank() &&
         std::ranges::all_of(type.dims(), [](const Dim& d) { return d.IsConstant(1); });
}

}  // namespace

void SpellQlinearMatmul(Operation* product) {
  const nn::QlinearMatmulOp op(product);
  const bool rows_fit = IsScalar(op.a_scale()) && IsScalar(op.a_zero_point());
  if (!IsByte(op.a()) || !IsByte(op.b()) || !IsByte(op.y()) || !rows_fit) return;
  Builder b = Builder::Before(product);
  b.set_location(product->location());
  const Value sums =
      nn::MatmulIntegerOp::Create(b, op.a(), op.b(), op.a_zero_point(), op.b_zero_point()).y();
  const Value scale = nn::MulOp::Create(b, Wide(b, op.a_scale()), Wide(b, op.b_scale())).c();
  const Value scaled = nn::MulOp::Create(b, Wide(b, sums), scale).c();
  const Value exact = nn::DivOp::Create(b, scaled, Wide(b, op.y_scale())).c();
  const Value single = nn::CastOp::Create(b, exact, {.to = ElementType::kF32}).output();
  const Value whole = Wide(b, nn::RoundOp::Create(b, single).y());
  const Value moved = nn::AddOp::Create(b, whole, Wide(b, op.y_zero_point())).c();
  const ElementType to = op.y().type().cast<AnyTensorType>().element();
  const bool is_signed = to == ElementType::kI8;
  const auto scalar = [&](double v) {
    return builtin::ConstantOp::Create(b, {.value = Tensor::Scalar<double>(v)}).result();
  };
  const Value least = scalar(is_signed ? -128 : 0), most = scalar(is_signed ? 127 : 255);
  const Value clipped = nn::ClipOp::Create(b, moved, least, most).operation()->result(0);
  const Value results[] = {nn::CastOp::Create(b, clipped, {.to = to}).output()};
  product->ReplaceAllUsesWith(results);
  product->Erase();
}

}  // namespace lathe::lower
