#include <algorithm>
#include <string>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/einsum.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe::nn {
namespace {

using Labels = EinsumPlan::Term;

bool Has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// Gives each label a letter of its own.
class Letters {
 public:
  explicit Letters(const Operation* op) : op_(op) {}

  char Of(int label) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i] == label) return At(i);
    }
    return Fresh(label);
  }
  // One that no label has.
  char Fresh(int label = -1) {
    if (known_.size() == 52) FailGradient(op_, "has too many dims for a gradient");
    known_.push_back(label);
    return At(known_.size() - 1);
  }
  std::string Of(const Labels& labels) {
    std::string text;
    for (const int label : labels) text += Of(label);
    return text;
  }

 private:
  static char At(size_t i) { return static_cast<char>(i < 26 ? 'a' + i : 'A' + (i - 26)); }
  const Operation* op_;
  std::vector<int> known_;
};

Term Einsum(Builder& b, const std::string& equation, const std::vector<Value>& xs) {
  return {b, EinsumOp::Create(b, xs, {.equation = equation}).y()};
}

Value Identity(Builder& b, int64_t n, ElementType type) {
  const int64_t shape[] = {n, n};
  const Tensor zero = Cast(Tensor::Of<double>({1}, {0}), type);
  const Value square =
      ConstantOfShapeOp::Create(b, IntsConstant(b, shape), {.value = zero}).output();
  return EyeLikeOp::Create(b, square, {.dtype = type}).output();
}

// The gradient of one operand.
class OfOperand {
 public:
  OfOperand(EinsumOp op, const EinsumPlan& plan, size_t i, Builder& b)
      : op_(op), plan_(plan), i_(i), b_(b), letters_(op), x_(op.xs()[i]) {
    for (const int label : plan.operands[i]) {
      if (!Has(own_, label)) own_.push_back(label);
    }
  }

  Value From(Value grad) {
    Term part = Repeated(Contracted(grad));
    if (own_.size() != plan_.operands[i_].size()) part = OnDiagonals(part);
    return SumTo(b_, part, x_);
  }

 private:
  // The gradient times all other operands, over the labels that this one shares with any of them.
  Term Contracted(Value grad) {
    std::string equation = letters_.Of(plan_.result);
    std::vector<Value> xs{grad};
    for (size_t k = 0; k < plan_.operands.size(); ++k) {
      if (k == i_) continue;
      equation += "," + letters_.Of(plan_.operands[k]);
      xs.push_back(op_.xs()[k]);
    }
    for (const int label : own_) {
      if (IsShared(label)) shared_.push_back(label);
    }
    return Einsum(b_, equation + "->" + letters_.Of(shared_), xs);
  }

  bool IsShared(int label) const {
    if (Has(plan_.result, label)) return true;
    for (size_t k = 0; k < plan_.operands.size(); ++k) {
      if (k != i_ && Has(plan_.operands[k], label)) return true;
    }
    return false;
  }

  // Repeated along the labels that only this operand has: it was summed over these.
  Term Repeated(Term part) {
    std::vector<int64_t> missing, extents;
    for (size_t d = 0; d < own_.size(); ++d) {
      const bool shared = Has(shared_, own_[d]);
      if (!shared) missing.push_back(static_cast<int64_t>(d));
      extents.push_back(shared ? 1 : ExtentOf(own_[d]));
    }
    if (missing.empty()) return part;
    const Value spread = UnsqueezeOp::Create(b_, part, IntsConstant(b_, missing)).expanded();
    return {b_, ExpandOp::Create(b_, spread, IntsConstant(b_, extents)).output()};
  }

  // A label that occurs again has its elements on a diagonal.
  Term OnDiagonals(Term part) {
    std::string equation = letters_.Of(own_), to;
    std::vector<Value> xs{part};
    Labels seen;
    for (const int label : plan_.operands[i_]) {
      if (!Has(seen, label)) {
        seen.push_back(label);
        to += letters_.Of(label);
        continue;
      }
      const char again = letters_.Fresh();
      equation += std::string(",") + letters_.Of(label) + again;
      to += again;
      xs.push_back(Identity(b_, ExtentOf(label), part.element()));
    }
    return Einsum(b_, equation + "->" + to, xs);
  }

  int64_t ExtentOf(int label) const {
    const Dim& extent = plan_.ExtentOf(label);
    if (!extent.is_constant()) static_cast<void>(KnownShape(x_));
    return extent.is_constant() ? extent.value() : 1;
  }

  EinsumOp op_;
  const EinsumPlan& plan_;
  size_t i_;
  Builder& b_;
  Letters letters_;
  Value x_;
  Labels own_, shared_;
};

}  // namespace

std::vector<Value> EinsumOp::Grad(Operation* o, std::span<const Value> g, Builder& b) {
  const EinsumOp op(o);
  std::vector<SymShape> shapes;
  for (const Value x : op.xs()) {
    static_cast<void>(KnownRank(x));
    shapes.push_back(x.type().cast<AnyTensorType>().shape());
  }
  const EinsumPlan plan = EinsumPlan::Of(op.equation(), shapes);
  std::vector<Value> grads;
  for (size_t i = 0; i < shapes.size(); ++i) grads.push_back(OfOperand(op, plan, i, b).From(g[0]));
  return grads;
}

}  // namespace lathe::nn
