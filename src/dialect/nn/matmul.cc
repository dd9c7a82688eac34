#include "lathe/dialect/nn/matmul.h"

#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/infer_util.h"
#include "src/dialect/nn/product.h"
#include "src/dialect/nn/quantized.h"

namespace lathe::nn {
namespace {

// alpha * values + beta * addend (undefined: none) in the type of `values`.
Tensor Combine(const Tensor& values, double alpha, const Tensor& addend, double beta) {
  const bool exact = alpha == 1 && (!addend.is_defined() || beta == 1);
  if (IsInteger(values.element_type()) && exact) {
    if (!addend.is_defined()) return values;
    const auto add = [](auto a, auto b) { return eval::WrapAdd(a, b); };
    return eval::MapBinary<eval::Integers>(values, addend, add);
  }
  const Tensor wide = Cast(values, ElementType::kF64);
  using Double = eval::TypeList<double>;
  if (!addend.is_defined()) {
    return eval::MapUnary<Double>(wide, [=](double v) { return alpha * v; });
  }
  return eval::MapBinary<Double>(wide, Cast(addend, ElementType::kF64),
                                 [=](double v, double c) { return alpha * v + beta * c; });
}

void CheckMatrix(const SymShape& shape, const char* what) {
  if (!shape.ranked || shape.rank() == 2) return;
  eval::FailShape("shape/gemm", StrCat(what, " has shape ", shape.ToString(), ", not two dims"),
                  "use matmul for stacks of matrices");
}

SymShape GemmShape(const GemmOp& op, const SymShape& a, const SymShape& b) {
  CheckMatrix(a, "A");
  CheckMatrix(b, "B");
  const SymShape left = a.ranked ? a : SymShape::OfRank(2);
  const SymShape right = b.ranked ? b : SymShape::OfRank(2);
  return ProductShape(left, right, op.transA(), op.transB());
}

// A scale or zero point of the rows of the left operand: [M] stands for [M, 1].
Tensor OfRows(const Tensor& value) {
  if (value.num_elements() == 1) return Cast(value.Reshaped({}), ElementType::kF64);
  const Tensor wide = Cast(value, ElementType::kF64);
  return value.rank() == 1 ? wide.Reshaped({value.dim(0), 1}) : wide;
}

Tensor OfColumns(const Tensor& value) {
  const Tensor wide = Cast(value, ElementType::kF64);
  return value.num_elements() == 1 ? wide.Reshaped({}) : wide;
}

// Operand `i` is a scale or zero point of the rows of matrices `of`.
void AssumeOfRows(InferShapeContext& c, size_t of, size_t i, const char* what) {
  const SymShape matrices = c.shape(of), own = c.shape(i);
  const bool is_list = c.HasInput(i) && own.ranked && own.rank() == 1;
  if (!is_list || !matrices.ranked || matrices.rank() < 2) {
    return ExpectBroadcastableTo(c, i, matrices, what);
  }
  Assume(SizeCondition::BroadcastTo(own.dims[0], matrices.dims[matrices.rank() - 2]),
         "shape/broadcast", [&] {
           return StrCat(what, " of shape ", own.ToString(), " does not fit the rows of ",
                         matrices.ToString());
         });
}

// The same of columns.
void AssumeOfColumns(InferShapeContext& c, size_t of, size_t i, const char* what) {
  ExpectBroadcastableTo(c, i, c.shape(of), what);
}

SymShape ShapeOf(const Tensor& t) { return SymShape::FromConstants(t.shape()); }

}  // namespace

void MatmulOp::InferShape(InferShapeContext& c) {
  const MatmulOp op(c.op());
  c.SetShape(kZ, ProductShape(c.shape(kX), c.shape(kY), op.transpose_x(), op.transpose_y()));
}
void MatmulOp::Eval(EvalContext& c) {
  const MatmulOp op(c.op());
  c.SetOutput(kZ, Product(c.input(kX), c.input(kY), op.transpose_x(), op.transpose_y(),
                          c.input(kX).element_type()));
}
Dim MatmulOp::Flops(Operation* o) {
  const MatmulOp op(o);
  return ProductFlops(ShapeOf(op.z()), ShapeOf(op.x()), op.transpose_x());
}

void GemmOp::InferShape(InferShapeContext& c) {
  const SymShape shape = GemmShape(GemmOp(c.op()), c.shape(kA), c.shape(kB));
  if (c.HasInput(kC)) ExpectBroadcastableTo(c, kC, shape, "C");
  c.SetShape(kY, shape);
}
void GemmOp::Eval(EvalContext& c) {
  const GemmOp op(c.op());
  const Tensor& a = c.input(kA);
  const Tensor& b = c.input(kB);
  static_cast<void>(GemmShape(op, ShapeOf(a), ShapeOf(b)));
  const ElementType type = a.element_type();
  const Tensor sums =
      Product(a, b, op.transA(), op.transB(), IsFloat(type) ? ElementType::kF64 : type);
  const Tensor addend = c.HasInput(kC) ? eval::BroadcastTo(c.input(kC), sums.shape()) : Tensor();
  c.SetOutput(kY, Cast(Combine(sums, op.alpha(), addend, op.beta()), type));
}
Dim GemmOp::Flops(Operation* o) {
  const GemmOp op(o);
  return ProductFlops(ShapeOf(op.y()), ShapeOf(op.a()), op.transA());
}
void GemmOp::Learned(LearnedContext& c) { c.Weights({kB, kC}); }

void MatmulIntegerOp::InferShape(InferShapeContext& c) {
  AssumeOfRows(c, kA, kAZeroPoint, "a_zero_point");
  AssumeOfColumns(c, kB, kBZeroPoint, "b_zero_point");
  c.SetShape(kY, ProductShape(c.shape(kA), c.shape(kB), false, false));
}
void MatmulIntegerOp::Eval(EvalContext& c) {
  const Tensor zero = Tensor::Scalar<double>(0);
  const Tensor a_zero = c.HasInput(kAZeroPoint) ? OfRows(c.input(kAZeroPoint)) : zero;
  const Tensor b_zero = c.HasInput(kBZeroPoint) ? OfColumns(c.input(kBZeroPoint)) : zero;
  const Tensor sums = Product(Centered(c.input(kA), a_zero), Centered(c.input(kB), b_zero), false,
                              false, ElementType::kF64);
  c.SetOutput(kY, Cast(sums, ElementType::kI32));
}
Dim MatmulIntegerOp::Flops(Operation* o) {
  const MatmulIntegerOp op(o);
  return ProductFlops(ShapeOf(op.y()), ShapeOf(op.a()), false);
}

void QlinearMatmulOp::InferShape(InferShapeContext& c) {
  ExpectScalar(c, kYScale, "y_scale");
  ExpectScalar(c, kYZeroPoint, "y_zero_point");
  AssumeOfRows(c, kA, kAScale, "a_scale");
  AssumeOfRows(c, kA, kAZeroPoint, "a_zero_point");
  AssumeOfColumns(c, kB, kBScale, "b_scale");
  AssumeOfColumns(c, kB, kBZeroPoint, "b_zero_point");
  c.SetShape(kY, ProductShape(c.shape(kA), c.shape(kB), false, false));
}
void QlinearMatmulOp::Eval(EvalContext& c) {
  const Tensor a =
      Scaled(Centered(c.input(kA), OfRows(c.input(kAZeroPoint))), OfRows(c.input(kAScale)));
  const Tensor b =
      Scaled(Centered(c.input(kB), OfColumns(c.input(kBZeroPoint))), OfColumns(c.input(kBScale)));
  const Tensor sums = Product(a, b, false, false, ElementType::kF64);
  const Tensor& y_zero = c.input(kYZeroPoint);
  c.SetOutput(kY, Requantize(sums, ScalarOf(c.input(kYScale), "y_scale"),
                             ScalarOf(y_zero, "y_zero_point"), y_zero.element_type()));
}
Dim QlinearMatmulOp::Flops(Operation* o) {
  const QlinearMatmulOp op(o);
  return ProductFlops(ShapeOf(op.y()), ShapeOf(op.a()), false);
}

}  // namespace lathe::nn
