#include "src/dialect/nn/term.h"

#include <numeric>

#include "lathe/ir/context.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {

ElementType Term::element() const { return value_.type().cast<AnyTensorType>().element(); }

Term Term::Number(double number) const {
  const Tensor scalar = Cast(Tensor::Scalar<double>(number), element());
  const NamedAttribute value = b_->Named("value", b_->Attr(scalar));
  return {*b_, b_->Create("builtin.constant", {}, {&value, 1})->result(0)};
}

Term Term::Call(std::string_view op, std::vector<Value> others,
                std::vector<NamedAttribute> attributes) const {
  others.insert(others.begin(), value_);
  const OpInfo info = b_->context().GetOrMakeOp(op);
  return {*b_, b_->CreateInferred(info, others, attributes, 1)->result(0)};
}

Term Least(const Term& a, double b) { return a.Call("nn.min", {a.Number(b)}); }
Term Greatest(const Term& a, double b) { return a.Call("nn.max", {a.Number(b)}); }

Term Softplus(const Term& x) { return Greatest(x, 0) + Log(Exp(Abs(x).Call("nn.neg")) + 1); }

Term Where(const Term& condition, const Term& x, const Term& y) {
  return condition.Call("nn.where", {x, y});
}

Term Reduced(const Term& x, std::string_view op, const std::vector<int64_t>& axes) {
  return x.Call(op, {IntsConstant(x.builder(), axes)});
}

Term PerChannel(const Term& x, size_t rank) {
  if (rank < 3) return x;
  std::vector<int64_t> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 1);
  return x.Call("nn.unsqueeze", {IntsConstant(x.builder(), axes)});
}

}  // namespace lathe::nn
