#include "src/dialect/nn/term.h"

#include <numeric>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

ElementType Term::element() const { return value_.type().cast<AnyTensorType>().element(); }

Term Term::Number(double number) const {
  const Tensor scalar = Cast(Tensor::Scalar<double>(number), element());
  const NamedAttribute value = b_->Named("value", b_->Attr(scalar));
  return {*b_, b_->Create(builtin::kConstant, {}, {&value, 1})->result(0)};
}

Term Term::Call(std::string_view op, std::vector<Value> others,
                std::vector<NamedAttribute> attributes) const {
  others.insert(others.begin(), value_);
  const OpInfo info = b_->context().GetOrMakeOp(op);
  return {*b_, b_->CreateInferred(info, others, attributes, 1)->result(0)};
}

Term As(const Term& x, ElementType element) {
  if (x.element() == element) return x;
  return {x.builder(), CastOp::Create(x.builder(), x, {.to = element}).output()};
}

Term Least(const Term& a, double b) { return a.Call(nn::kMin, {a.Number(b)}); }
Term Greatest(const Term& a, double b) { return a.Call(nn::kMax, {a.Number(b)}); }

Term Where(const Term& condition, const Term& x, const Term& y) {
  return condition.Call(nn::kWhere, {x, y});
}

namespace {

/// ln(1 + x) for x in [0, 1]. The rounding of 1 + x cancels in the quotient; where nothing of x is
/// left in the sum, the logarithm is x itself (Kahan).
Term LogOfOneMore(const Term& x) {
  const Term sum = x + 1;
  const Term quotient = x / (sum - 1);
  return Where(sum.Call(nn::kEqual, {sum.Number(1)}), x, Log(sum) * quotient);
}

/// exp(x) - 1 near 0 as its series: x (1 + x/2 (1 + x/3 (...))).
Term SeriesOfExpm1(const Term& x, int degree) {
  Term sum = x * (1.0 / degree) + 1;
  for (int i = degree - 1; i > 1; --i) sum = x * (1.0 / i) * sum + 1;
  return x * sum;
}

}  // namespace

Term Expm1(const Term& x) {
  // exp(x) - 1 loses two bits at 1/4; there the first term that is left out does not count.
  const Term series = SeriesOfExpm1(x, x.element() == ElementType::kF64 ? 13 : 6);
  const Term is_small = Abs(x).Call(nn::kLess, {x.Number(0.25)});
  return Where(is_small, series, Exp(x) - 1);
}

Term Softplus(const Term& x) { return Greatest(x, 0) + LogOfOneMore(Exp(Abs(x).Call(nn::kNeg))); }

Term Reduced(const Term& x, std::string_view op, const std::vector<int64_t>& axes) {
  return x.Call(op, {IntsConstant(x.builder(), axes)});
}

Term Requantized(const Term& y, Value zero, ElementType to) {
  const IntegerLimits limits = LimitsOf(to);
  const Term whole = y.Call(nn::kRound);
  const Term moved = zero ? whole.Call(nn::kAdd, {zero}) : whole;
  const Term low = moved.Number(static_cast<double>(limits.low));
  const Term bounded =
      Where(low.Call(nn::kLess, {moved}), Least(moved, static_cast<double>(limits.high)), low);
  return {y.builder(), CastOp::Create(y.builder(), bounded, {.to = to}).output()};
}

Term PerChannel(const Term& x, size_t rank) {
  if (rank < 3) return x;
  std::vector<int64_t> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 1);
  return x.Call(nn::kUnsqueeze, {IntsConstant(x.builder(), axes)});
}

}  // namespace lathe::nn
