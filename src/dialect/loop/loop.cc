#include "lathe/dialect/loop/loop.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"
#include "src/dialect/loop/scalars.h"
#include "src/dialect/wide.h"

namespace lathe::loop {

// ---- for ----

namespace {

constexpr size_t kFirstCarried = ForOp::kCarried;
constexpr size_t kLoopArguments = 1;  // the iteration number

size_t NumCarried(const Operation* op) {
  return op->num_operands() > kFirstCarried ? op->num_operands() - kFirstCarried : 0;
}

int64_t Iterations(EvalContext& c) {
  if (const auto extent = ForOp(c.op()).extent()) return *extent;
  return ScalarOf(c, ForOp::kSize);
}

}  // namespace

void ForOp::InferShape(InferShapeContext& c) {
  const Region& body = ForOp(c.op()).body_region();
  for (size_t i = 0; i < c.num_outputs() && i < NumCarried(c.op()); ++i) {
    cf::InferCarried(c, body, i, kFirstCarried + i, i);
  }
}

bool ForOp::RegionArguments(Operation* op, RegionRound round) {
  const Region& body = ForOp(op).body_region();
  if (body.empty()) return false;
  bool changed = cf::SetArgument(*body.front(), 0, IndexType(*op->context()));
  for (size_t i = 0; i < NumCarried(op); ++i) {
    changed |=
        cf::SetCarried(body, round, kLoopArguments + i, cf::OperandType(op, kFirstCarried + i), i);
  }
  return changed;
}

void ForOp::Eval(EvalContext& c) {
  const ForOp op(c.op());
  const size_t carried = NumCarried(c.op());
  std::vector<RtValue> arguments(kLoopArguments + carried);
  for (size_t i = 0; i < carried; ++i) arguments[1 + i] = c.input_value(kFirstCarried + i);
  const int64_t n = Iterations(c);
  for (int64_t i = 0; i < n; ++i) {
    arguments[0] = Tensor::Scalar<int64_t>(i);
    std::vector<RtValue> next = c.RunRegion(op.body_region(), arguments);
    for (size_t k = 0; k < carried; ++k) arguments[1 + k] = std::move(next[k]);
  }
  for (size_t i = 0; i < carried; ++i) c.SetOutputValue(i, std::move(arguments[1 + i]));
}

void ForOp::Verify(Operation* op) {
  const ForOp loop(op);
  const size_t carried = NumCarried(op);
  if (loop.extent().has_value() == static_cast<bool>(loop.size())) {
    cf::VerifyFail(op, "loop/extent", "takes either the attribute 'extent' or the operand 'size'");
  }
  if (loop.parallel() && carried != 0) {
    cf::VerifyFail(op, "loop/parallel", "a parallel loop carries no values");
  }
  if (op->num_results() != carried) {
    cf::VerifyFail(op, "loop/results", "has one result per carried value");
  }
  cf::CheckRegion(op, op->region(0), "body", kLoopArguments + carried, carried);
  for (size_t i = 0; i < carried; ++i) {
    cf::CheckCovered(op, cf::YieldType(op->region(0), i), op->result(i).type(),
                     StrCat("carried value ", i));
  }
}

// ---- index ----

void IndexOp::InferShape(InferShapeContext& c) { c.SetShape(kValue, SymShape(std::vector<Dim>())); }

void IndexOp::Eval(EvalContext& c) {
  std::vector<Dim::Binding> bindings;
  bindings.reserve(c.num_inputs());
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    bindings.emplace_back(SymbolName(i), ScalarOf(c, i));
    if (bindings.back().second < 0) c.Fail("loop/index", StrCat("d", i, " is negative"));
  }
  const auto value = ExprOf(c.op()).Evaluate(bindings);
  if (!value) c.Fail("loop/index", "the expression has no value");
  c.SetOutput(kValue, Tensor::Scalar<int64_t>(*value));
}

void IndexOp::Verify(Operation* op) {
  const auto expr = op->attribute(kExprAttr).dyn_cast<DimAttribute>();
  if (!expr) cf::VerifyFail(op, "loop/expr", "'expr' is not a dim expression");
  std::vector<std::string> names;
  expr.value().CollectSymbols(names);
  for (const std::string& name : names) {
    bool known = false;
    for (size_t i = 0; i < op->num_operands() && !known; ++i) known = name == SymbolName(i);
    if (known) continue;
    cf::VerifyFail(op, "loop/expr",
                   StrCat("'", name, "' in 'expr' is not one of the operands d0, d1, ..."));
  }
}

// ---- dim ----

void DimOp::InferShape(InferShapeContext& c) {
  const SymShape shape = c.shape(kX);
  const int64_t axis = DimOp(c.op()).axis();
  if (shape.ranked && axis >= static_cast<int64_t>(shape.rank())) {
    c.Fail("shape/axis", StrCat("axis ", axis, " of a tensor of rank ", shape.rank()));
  }
  c.SetShape(kValue, SymShape(std::vector<Dim>()));
}

void DimOp::Eval(EvalContext& c) {
  const Shape& shape = c.input(kX).shape();
  const int64_t axis =
      eval::NormalizeAxis(DimOp(c.op()).axis(), static_cast<int64_t>(shape.size()));
  c.SetOutput(kValue, Tensor::Scalar<int64_t>(shape[static_cast<size_t>(axis)]));
}

// ---- num_threads ----

void NumThreadsOp::InferShape(InferShapeContext& c) {
  c.SetShape(kValue, SymShape(std::vector<Dim>()));
}

void NumThreadsOp::Eval(EvalContext& c) { c.SetOutput(kValue, Tensor::Scalar<int64_t>(1)); }

// ---- fma ----

namespace {

struct FmaRow {
  template <class C>
  static void Run(const void*, std::span<const C* const> in, C* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::fma(in[0][i], in[1][i], in[2][i]);
  }
};

}  // namespace

void FmaOp::Eval(EvalContext& c) {
  const Tensor inputs[] = {c.input(kA), c.input(kB), c.input(kC)};
  const eval::RowKernels kernels{.f32 = &FmaRow::Run<float>, .f64 = &FmaRow::Run<double>};
  c.SetOutput(kY, eval::Elementwise(inputs, c.input(kA).element_type(), kernels));
}

// ---- reduce ----

void ReduceOp::InferShape(InferShapeContext& c) {
  const SymShape shape = c.shape(kX);
  const auto is_power = [](int64_t n) {
    return n > 0 && std::has_single_bit(static_cast<uint64_t>(n));
  };
  const bool fits =
      !shape.ranked ||
      (shape.rank() == 1 && (!shape.dims[0].is_constant() || is_power(shape.dims[0].value())));
  if (!fits) c.Fail("loop/lanes", StrCat(shape.ToString(), " is not a vector of 2^n elements"));
  c.SetShape(kY, SymShape(std::vector<Dim>()));
}

namespace {

template <class C>
C Combined(std::string_view kind, C a, C b) {
  if (kind == "add") return eval::WrapAdd(a, b);
  if (kind == "mul") return eval::WrapMul(a, b);
  if (kind == "max") return eval::NanMax(a, b);
  if (kind == "min") return eval::NanMin(a, b);
  return static_cast<C>(kind == "and" ? a != 0 && b != 0 : a != 0 || b != 0);
}

}  // namespace

void ReduceOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const std::string_view kind = ReduceOp(c.op()).kind();
  c.SetOutput(kY, eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
                std::vector<C> values = eval::LoadAll<C>(x);
                while (values.size() > 1) {
                  const size_t half = values.size() / 2;
                  for (size_t i = 0; i < half; ++i) {
                    values[i] = Combined(kind, values[i], values[half + i]);
                    if constexpr (std::is_same_v<C, double>) {
                      values[i] = eval::RoundedTo(x.element_type(), values[i]);
                    }
                  }
                  values.resize(half);
                }
                return eval::MakeTensor<C>(x.element_type(), {}, values);
              }));
}

}  // namespace lathe::loop
