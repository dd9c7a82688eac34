#include "src/lower/strategies/gemm.h"

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/matmul.h"

namespace lathe::lower {
namespace {

Value Times(Builder& b, Value v, double factor) {
  if (factor == 1) return v;
  const ElementType element = v.type().cast<AnyTensorType>().element();
  const Tensor scalar = Cast(Tensor::Scalar<double>(factor), element);
  return nn::MulOp::Create(b, v, builtin::ConstantOp::Create(b, {.value = scalar}).result()).c();
}

}  // namespace

void SpellGemm(Operation* gemm) {
  const nn::GemmOp op(gemm);
  const bool is_float = IsFloat(op.a().type().cast<AnyTensorType>().element());
  if (!is_float && (op.alpha() != 1 || op.beta() != 1)) return;
  Builder b = Builder::Before(gemm);
  b.set_location(gemm->location());
  const Value product =
      nn::MatmulOp::Create(b, op.a(), op.b(),
                           {.transpose_x = op.transA(), .transpose_y = op.transB()})
          .z();
  Value y = Times(b, product, op.alpha());
  if (op.c() && !op.c().type().isa<NoneType>()) {
    y = nn::AddOp::Create(b, y, Times(b, op.c(), op.beta())).c();
  }
  const Value results[] = {y};
  gemm->ReplaceAllUsesWith(results);
  gemm->Erase();
}

}  // namespace lathe::lower
