#include "src/transform/optimizer/clip.h"

#include <algorithm>

#include "lathe/dialect/dist/collective.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/reduce.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe {

namespace {

using nn::Term;

constexpr double kNormEpsilon = 1e-6;

/// What a norm of such elements is computed in.
ElementType NormType(ElementType element) {
  return element == ElementType::kF64 ? ElementType::kF64 : ElementType::kF32;
}

/// A scalar.
Term Norm(Term x, int64_t nranks) { return NormOf(As(x, NormType(x.element())), nranks); }

/// The factor that brings a norm down to `limit`, at most 1.
Term Factor(Term norm, double limit) {
  return Least(norm.Number(limit) / (norm + kNormEpsilon), 1);
}

Term NormOfAll(const std::vector<Term>& gradients, int64_t nranks) {
  Builder& b = gradients[0].builder();
  ElementType element = ElementType::kF32;
  for (const Term& g : gradients)
    element = std::max(element, NormType(g.element()),
                       [](ElementType x, ElementType y) { return BitWidth(x) < BitWidth(y); });
  std::vector<Value> norms;
  for (const Term& g : gradients) norms.push_back(nn::Flat(b, As(Norm(g, 1), element)));
  return Norm({b, nn::ConcatOp::Create(b, norms, {.axis = 0}).concat_result()}, nranks);
}

Term Scaled(Term x, Term factor) { return x * As(factor, x.element()); }

}  // namespace

void AddClipOptions(PassRegistrar& pass) {
  using Kind = PassOption::Kind;
  pass.Option("clip_value", Kind::kFloat, "0",
              "clips each element of a gradient to [-clip_value, clip_value]; 0: not")
      .Option("clip_norm", Kind::kFloat, "0", "the largest L2 norm of each gradient; 0: any")
      .Option("clip_global_norm", Kind::kFloat, "0",
              "the largest L2 norm of all gradients together; 0: any");
}

nn::Term NormOf(const Term& x, int64_t nranks) {
  Builder& b = x.builder();
  const Term here{b, nn::ReduceL2Op::Create(b, x, Value(), {.keepdims = false}).reduced()};
  if (nranks == 1) return here;
  const Value squares = here * here;
  return nn::Sqrt(
      Term(b, dist::AllReduceOp::Create(b, {{squares}}, 1, {.nranks = nranks}).ys()[0]));
}

void ClipGradients(const Pass& pass, std::vector<Term>& gradients, int64_t nranks) {
  if (const double limit = pass.option_float("clip_value"); limit > 0) {
    for (Term& g : gradients) g = Greatest(Least(g, limit), -limit);
  }
  if (const double limit = pass.option_float("clip_norm"); limit > 0) {
    for (Term& g : gradients) g = Scaled(g, Factor(Norm(g, nranks), limit));
  }
  if (const double limit = pass.option_float("clip_global_norm"); limit > 0) {
    const Term factor = Factor(NormOfAll(gradients, nranks), limit);
    for (Term& g : gradients) g = Scaled(g, factor);
  }
}

}  // namespace lathe
