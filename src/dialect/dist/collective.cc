#include "lathe/dialect/dist/collective.h"

#include "lathe/support/error.h"
#include "src/dialect/eval_util.h"

namespace lathe::dist {
namespace {

using eval::Numeric;

void CheckOneProcess(EvalContext& c, int64_t nranks) {
  if (nranks == 1) return;
  c.Fail("run/ranks", StrCat("this collective joins ", nranks, " processes, and here is one"));
}

/// What all operands, which have one shape, give together.
Tensor Reduced(EvalContext& c, std::string_view reduction) {
  std::vector<Tensor> xs;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    xs.push_back(c.input(i));
    if (xs[i].shape() != xs[0].shape()) {
      c.Fail("shape/collective",
             StrCat("place ", i, " gives ", xs[i].TypeString(), ", place 0 ", xs[0].TypeString()));
    }
  }
  if (reduction == "min") {
    return eval::MapFold<Numeric>(xs, [](auto a, auto b) { return eval::NanMin(a, b); });
  }
  if (reduction == "max") {
    return eval::MapFold<Numeric>(xs, [](auto a, auto b) { return eval::NanMax(a, b); });
  }
  const ElementType type = xs[0].element_type();
  if (IsFloat(type)) {
    for (Tensor& x : xs) x = Cast(x, ElementType::kF64);
  }
  Tensor sum = eval::MapFold<Numeric>(xs, [](auto a, auto b) { return eval::WrapAdd(a, b); });
  if (reduction == "mean") {
    const auto count = static_cast<double>(xs.size());
    sum = eval::MapUnary<Numeric>(sum, sum.element_type(), [count](auto x) {
      return static_cast<decltype(x)>(static_cast<double>(x) / count);
    });
  }
  return Cast(sum, type);
}

SymShape CommonShape(InferShapeContext& c) {
  SymShape shape = c.shape(0);
  for (size_t i = 1; i < c.num_inputs(); ++i) shape = Meet(shape, c.shape(i));
  return shape;
}

void CheckRoot(Operation* op, int64_t root, size_t places) {
  if (root < static_cast<int64_t>(places)) return;
  throw Error(ErrorCode::kVerify, "verify/collective",
              StrCat("there are ", places, " places, so none of number ", root))
      .At(op->Describe());
}

}  // namespace

void AllReduceOp::InferShape(InferShapeContext& c) {
  const SymShape shape = CommonShape(c);
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, shape);
}
void AllReduceOp::Eval(EvalContext& c) {
  const AllReduceOp op(c.op());
  CheckOneProcess(c, op.nranks());
  const Tensor sum = Reduced(c, op.reduction());
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, sum);
}
void AllReduceOp::Verify(Operation* op) {
  if (op->num_operands() == op->num_results()) return;
  throw Error(ErrorCode::kVerify, "verify/collective",
              StrCat(op->num_operands(), " places give and ", op->num_results(), " get"))
      .At(op->Describe());
}

void ReduceOp::InferShape(InferShapeContext& c) { c.SetShape(kY, CommonShape(c)); }
void ReduceOp::Eval(EvalContext& c) {
  const ReduceOp op(c.op());
  CheckOneProcess(c, op.nranks());
  c.SetOutput(kY, Reduced(c, op.reduction()));
}
void ReduceOp::Verify(Operation* op) { CheckRoot(op, ReduceOp(op).root(), op->num_operands()); }

void BroadcastOp::InferShape(InferShapeContext& c) {
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, c.shape(kX));
}
void BroadcastOp::Eval(EvalContext& c) {
  CheckOneProcess(c, BroadcastOp(c.op()).nranks());
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, c.input(kX));
}
void BroadcastOp::Verify(Operation* op) {
  CheckRoot(op, BroadcastOp(op).root(), op->num_results());
}

}  // namespace lathe::dist
