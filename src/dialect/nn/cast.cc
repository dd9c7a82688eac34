#include "lathe/dialect/nn/cast.h"

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "src/dialect/contents.h"

namespace lathe::nn {

namespace {

Tensor Converted(const Tensor& x, ElementType to, bool saturate, std::string_view round_mode) {
  if (x.element_type() == to) return x;
  const PowerRounding rounding = round_mode == "up"     ? PowerRounding::kUp
                                 : round_mode == "down" ? PowerRounding::kDown
                                                        : PowerRounding::kNearest;
  return Cast(x, to, CastOptions{.saturate = saturate, .f8e8m0_rounding = rounding});
}

// Numbers of these types hold any extent; narrower ones might wrap.
bool HoldsExtents(ElementType type) {
  return type == ElementType::kI64 || type == ElementType::kI32 || type == ElementType::kIndex ||
         type == ElementType::kU64;
}

void PublishCast(InferShapeContext& c, ElementType to) {
  auto contents = SmallContents(c, 0);
  if (!contents) return;
  // Exporters compute sizes in floats, too, which hold the extents that there are.
  const bool holds = HoldsExtents(to) || to == ElementType::kF32 || to == ElementType::kF64;
  if (holds) return c.SetContents(0, std::move(*contents));
  if (to != ElementType::kBool) return;
  for (Dim& dim : *contents) dim = DimNot(DimEqual(dim, 0));
  c.SetContents(0, std::move(*contents));
}

}  // namespace

void CastOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput, c.shape(kInput));
  PublishCast(c, CastOp(c.op()).to());
}

Dim CastOp::Flops(Operation*) { return 0; }

void CastOp::Eval(EvalContext& c) {
  const CastOp op(c.op());
  c.SetOutput(kOutput, Converted(c.input(kInput), op.to(), op.saturate(), op.round_mode()));
}

void CastLikeOp::InferShape(InferShapeContext& c) {
  c.SetShape(kOutput, c.shape(kInput));
  PublishCast(c, c.element(kTargetType));
}

Dim CastLikeOp::Flops(Operation*) { return 0; }

void CastLikeOp::Eval(EvalContext& c) {
  const CastLikeOp op(c.op());
  c.SetOutput(kOutput, Converted(c.input(kInput), c.input(kTargetType).element_type(),
                                 op.saturate(), op.round_mode()));
}

// ---- bit_cast ----

namespace {

void CheckWidths(ElementType from, ElementType to) {
  const bool strings = from == ElementType::kString || to == ElementType::kString;
  if (!strings && BitWidth(from) == BitWidth(to)) return;
  eval::FailArgument("type/bit-cast",
                     StrCat(Name(from), " and ", Name(to), " do not have the same width in bits"));
}

}  // namespace

void BitCastOp::InferShape(InferShapeContext& c) {
  CheckWidths(c.element(kInput), BitCastOp(c.op()).to());
  c.SetShape(kOutput, c.shape(kInput));
}

void BitCastOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInput);
  const ElementType to = BitCastOp(c.op()).to();
  CheckWidths(x.element_type(), to);
  if (to == ElementType::kBool) {  // a bool holds 0 or 1 only
    Tensor out(to, x.shape());
    auto flags = out.mutable_data<bool>();
    for (size_t i = 0; i < flags.size(); ++i) flags[i] = x.bytes()[i] != std::byte{0};
    return c.SetOutput(kOutput, std::move(out));
  }
  c.SetOutput(kOutput, x.Reinterpreted(to));
}

}  // namespace lathe::nn
